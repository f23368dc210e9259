/* SPDX-License-Identifier: Apache-2.0 */
/* The wire: on one TCP connection, the receiver sends one 32-bit word a posted group (how many
 * messages it may take), the sender sends headers and bytes. A send waits for such credit, as it
 * does for a clear-to-send on RDMA. */
#include "loopback.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC	     0x6c6f6f70u
#define REQUESTS     256
#define STRANGERS    8
#define FAULT_NTH    5
#define IO_BYTES_MAX (256u << 10) /* a call, so that no call takes long */

struct header {
	uint32_t magic;
	int32_t tag;
	uint64_t size;
};

/* What listen gives; state is the connecting side's own and 0 on the way. */
struct handle {
	uint32_t magic;
	uint16_t port_be, pad;
	uint64_t nonce;
	uint64_t state;
};

struct entry {
	char *data;
	size_t room, size, got;
	int tag;
	bool matched;
};

struct request {
	struct conn *conn;
	bool used, done, zombie, faulty;
	unsigned int n, matched, finished;
	size_t head_sent; /* sender: bytes of the header that are out */
	struct entry entry[LB_MAX_RECVS];
};

struct conn {
	int fd;
	bool send;
	ncclResult_t broken;
	struct request request[REQUESTS];
	struct request *queue[REQUESTS]; /* posted and not finished, oldest first */
	unsigned int queued;
	uint64_t messages; /* finished, for the faults */
	/* sender */
	uint64_t credit;
	/* receiver */
	unsigned char head[sizeof(struct header)];
	size_t head_got;
	struct request *into;
	struct entry *into_entry;
	uint32_t owed[REQUESTS]; /* credit words that aren't out yet */
	unsigned int owed_count;
	size_t owed_sent;
	char *late; /* where LB_LATE strikes */
	/* both, credit or hello words in pieces */
	unsigned char word[8];
	size_t word_got;
};

struct listener {
	int fd;
	uint64_t nonce;
	struct {
		int fd;
		unsigned char hello[8];
		size_t got;
	} caller[STRANGERS];
};

struct pending {
	int fd;
	size_t sent;
};

struct region {
	char *data;
	size_t size;
};

static ncclDebugLogger_t logger;
static enum lb_fault fault;
static _Atomic int regions, conns;
static _Atomic uint64_t nonces;

static const char *const fault_names[LB_FAULT_MAX] = {
	[LB_HONEST] = "",	  [LB_FLIP] = "flip",	      [LB_EDGE] = "edge",
	[LB_OVERRUN] = "overrun", [LB_UNDERRUN] = "underrun", [LB_SIZE] = "size",
	[LB_EARLY] = "early",	  [LB_STALL] = "stall",	      [LB_ERROR] = "error",
	[LB_SWAP] = "swap",	  [LB_SIZES] = "sizes",	      [LB_STALE] = "stale",
	[LB_LEAK] = "leak",	  [LB_TWICE] = "twice",	      [LB_LATE] = "late",
	[LB_SENDBUF] = "sendbuf", [LB_HANDLE] = "handle",     [LB_PROPS] = "props",
	[LB_SLEEP] = "sleep",
};

#define WARN(...) logger(NCCL_LOG_WARN, NCCL_ALL, __FILE__, __LINE__, "Loopback: " __VA_ARGS__)

enum lb_fault lb_fault(void)
{
	return fault;
}

ncclResult_t lb_init(ncclDebugLogger_t log)
{
	const char *name = getenv("NETPERF_LOOPBACK_FAULT");

	logger = log;
	fault = LB_HONEST;
	for (int n = 0; name && n < LB_FAULT_MAX; n++)
		if (!strcmp(name, fault_names[n]))
			fault = (enum lb_fault)n;
	if (name && fault == LB_HONEST && *name) {
		WARN("no such fault: %s", name);
		return ncclInvalidUsage;
	}
	logger(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __FILE__, __LINE__, "Loopback: ready");
	return ncclSuccess;
}

/* Everything must have been given back: the driver is under test too. */
ncclResult_t lb_finalize(void)
{
	if (!atomic_load(&regions) && !atomic_load(&conns))
		return ncclSuccess;
	WARN("%d registrations and %d connections left", atomic_load(&regions),
	     atomic_load(&conns));
	return ncclInvalidUsage;
}

ncclResult_t lb_devices(int *ndev)
{
	*ndev = 1;
	return ncclSuccess;
}

static int new_socket(void)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

ncclResult_t lb_listen(int dev, void *handle, void **listen_comm)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct listener *listener = calloc(1, sizeof(*listener));
	struct handle *out = handle;
	socklen_t len = sizeof(sin);

	if (!listener)
		return ncclSystemError;
	for (int n = 0; n < STRANGERS; n++)
		listener->caller[n].fd = -1;
	listener->fd = new_socket();
	if (dev != 0 || listener->fd < 0 ||
	    bind(listener->fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 ||
	    listen(listener->fd, STRANGERS) < 0 ||
	    getsockname(listener->fd, (struct sockaddr *)&sin, &len) < 0) {
		(void)lb_close_listen(listener);
		return ncclSystemError;
	}
	listener->nonce = (uint64_t)getpid() << 32 | atomic_fetch_add(&nonces, 1);
	*out = (struct handle){ MAGIC, sin.sin_port, 0, listener->nonce, 0 };
	if (fault == LB_HANDLE)
		((unsigned char *)handle)[NCCL_NET_HANDLE_MAXSIZE] ^= 0xff;
	*listen_comm = listener;
	return ncclSuccess;
}

ncclResult_t lb_close_listen(void *listen_comm)
{
	struct listener *listener = listen_comm;

	for (int n = 0; n < STRANGERS; n++)
		if (listener->caller[n].fd >= 0)
			(void)close(listener->caller[n].fd);
	if (listener->fd >= 0)
		(void)close(listener->fd);
	free(listener);
	return ncclSuccess;
}

static struct conn *new_conn(int fd, bool send)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int one = 1;

	if (!conn)
		return NULL;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->fd = fd;
	conn->send = send;
	(void)atomic_fetch_add(&conns, 1);
	return conn;
}

ncclResult_t lb_close(void *comm)
{
	struct conn *conn = comm;

	(void)close(conn->fd);
	free(conn);
	(void)atomic_fetch_sub(&conns, 1);
	return ncclSuccess;
}

static ncclResult_t connect_start(struct handle *handle)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = handle->port_be,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct pending *pending = calloc(1, sizeof(*pending));

	if (!pending)
		return ncclSystemError;
	pending->fd = new_socket();
	if (pending->fd < 0 || (connect(pending->fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 &&
				errno != EINPROGRESS)) {
		if (pending->fd >= 0)
			(void)close(pending->fd);
		free(pending);
		return ncclSystemError;
	}
	handle->state = (uint64_t)(uintptr_t)pending;
	return ncclSuccess;
}

ncclResult_t lb_connect(int dev, void *opaque, void **send_comm)
{
	struct handle *handle = opaque;
	struct pending *pending;
	struct conn *conn;
	ssize_t n;

	*send_comm = NULL;
	if (dev != 0 || handle->magic != MAGIC)
		return ncclInvalidArgument;
	if (!handle->state)
		return connect_start(handle);

	pending = (struct pending *)(uintptr_t)handle->state;
	n = send(pending->fd, (char *)&handle->nonce + pending->sent, 8 - pending->sent,
		 MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINTR))
		return ncclSuccess;
	if (n >= 0)
		pending->sent += (size_t)n;
	if (n >= 0 && pending->sent < 8)
		return ncclSuccess;
	conn = n < 0 ? NULL : new_conn(pending->fd, true);
	if (!conn)
		(void)close(pending->fd);
	free(pending);
	handle->state = 0;
	*send_comm = conn;
	return conn ? ncclSuccess : ncclRemoteError;
}

/* Takes callers in, and answers the one that knows the number; strangers are dropped when they
 * err, and the oldest is when all places are taken. */
ncclResult_t lb_accept(void *listen_comm, void **recv_comm)
{
	struct listener *listener = listen_comm;
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	*recv_comm = NULL;
	for (int n = 0; fd >= 0 && n < STRANGERS; n++) {
		if (listener->caller[n].fd >= 0 && n < STRANGERS - 1)
			continue;
		if (listener->caller[n].fd >= 0)
			(void)close(listener->caller[n].fd);
		listener->caller[n].fd = fd;
		listener->caller[n].got = 0;
		break;
	}
	for (int n = 0; n < STRANGERS; n++) {
		ssize_t got;

		if (listener->caller[n].fd < 0)
			continue;
		got = recv(listener->caller[n].fd,
			   listener->caller[n].hello + listener->caller[n].got,
			   8 - listener->caller[n].got, 0);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got > 0)
			listener->caller[n].got += (size_t)got;
		if (got > 0 && listener->caller[n].got < 8)
			continue;
		if (got <= 0 || memcmp(listener->caller[n].hello, &listener->nonce, 8) != 0) {
			(void)close(listener->caller[n].fd);
			listener->caller[n].fd = -1;
			continue;
		}
		*recv_comm = new_conn(listener->caller[n].fd, false);
		listener->caller[n].fd = -1;
		return *recv_comm ? ncclSuccess : ncclSystemError;
	}
	return ncclSuccess;
}

ncclResult_t lb_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct region *region = malloc(sizeof(*region));

	if (!comm || !region || type != NCCL_PTR_HOST) {
		free(region);
		return ncclInvalidArgument;
	}
	*region = (struct region){ data, size };
	(void)atomic_fetch_add(&regions, 1);
	*mhandle = region;
	return ncclSuccess;
}

ncclResult_t lb_dereg(void *comm, void *mhandle)
{
	if (!comm || !mhandle)
		return ncclInvalidArgument;
	free(mhandle);
	(void)atomic_fetch_sub(&regions, 1);
	return ncclSuccess;
}

static bool registered(const void *mhandle, const char *data, size_t size)
{
	const struct region *region = mhandle;

	return region && data >= region->data && size <= region->size &&
	       data + size <= region->data + region->size;
}

/* ---- the data path ------------------------------------------------------------------------- */

static struct request *get_request(struct conn *conn, unsigned int n)
{
	for (int k = 0; k < REQUESTS; k++) {
		struct request *req = &conn->request[k];

		if (req->used)
			continue;
		memset(req, 0, offsetof(struct request, entry));
		req->conn = conn;
		req->used = true;
		req->n = n;
		conn->queue[conn->queued++] = req;
		return req;
	}
	return NULL;
}

static void unqueue(struct conn *conn, struct request *req)
{
	for (unsigned int n = 0; n < conn->queued; n++) {
		if (conn->queue[n] != req)
			continue;
		conn->queued--;
		memmove(&conn->queue[n], &conn->queue[n + 1],
			(conn->queued - n) * sizeof(conn->queue[0]));
		return;
	}
}

/* Moves bytes; 1 complete, 0 not yet, -1 the connection is broken. */
static int move(struct conn *conn, void *data, size_t len, size_t *at, bool out)
{
	while (*at < len) {
		size_t part = len - *at < IO_BYTES_MAX ? len - *at : IO_BYTES_MAX;
		ssize_t n = out ? send(conn->fd, (char *)data + *at, part, MSG_NOSIGNAL)
				: recv(conn->fd, (char *)data + *at, part, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0) {
			conn->broken = ncclRemoteError;
			return -1;
		}
		*at += (size_t)n;
	}
	return 1;
}

static void progress_send(struct conn *conn)
{
	while (conn->queued) {
		struct request *req = conn->queue[0];
		struct entry *entry = &req->entry[0];
		struct header header = { MAGIC, entry->tag, entry->size };

		if (move(conn, &header, sizeof(header), &req->head_sent, true) <= 0 ||
		    move(conn, entry->data, entry->size, &entry->got, true) <= 0)
			return;
		conn->messages++;
		if (fault == LB_SENDBUF && entry->size && conn->messages % FAULT_NTH == 0)
			entry->data[0] ^= 1;
		req->done = true;
		unqueue(conn, req);
	}
}

static void take_credit(struct conn *conn)
{
	while (move(conn, conn->word, 4, &conn->word_got, false) > 0) {
		uint32_t more;

		memcpy(&more, conn->word, 4);
		conn->credit += more;
		conn->word_got = 0;
	}
}

static void give_credit(struct conn *conn)
{
	while (conn->owed_count) {
		if (move(conn, &conn->owed[0], 4, &conn->owed_sent, true) <= 0)
			return;
		conn->owed_sent = 0;
		conn->owed_count--;
		memmove(&conn->owed[0], &conn->owed[1], conn->owed_count * sizeof(conn->owed[0]));
	}
}

/* Finds the buffer of the message whose header came; false: none is posted yet, or broken. */
static bool match(struct conn *conn)
{
	struct header header;
	struct request *req = NULL;

	memcpy(&header, conn->head, sizeof(header));
	for (unsigned int n = 0; n < conn->queued && !req; n++)
		if (conn->queue[n]->matched < conn->queue[n]->n)
			req = conn->queue[n];
	if (!req)
		return false;
	for (unsigned int k = 0; k < req->n; k++) {
		struct entry *entry = &req->entry[k];

		if (entry->matched || (entry->tag != header.tag && fault != LB_SWAP))
			continue;
		if (header.magic != MAGIC || header.size > entry->room)
			break;
		entry->matched = true;
		entry->size = header.size;
		req->matched++;
		conn->into = req;
		conn->into_entry = entry;
		return true;
	}
	WARN("tag %d, %llu bytes: no such receive", header.tag, (unsigned long long)header.size);
	conn->broken = ncclInternalError;
	return false;
}

static void misbehave(struct conn *conn, struct request *req, struct entry *entry)
{
	if (conn->messages % FAULT_NTH || !entry->size)
		return;
	if (fault == LB_FLIP)
		entry->data[entry->size / 2] ^= 1;
	if (fault == LB_EDGE)
		entry->data[entry->size - 1] ^= 1;
	if (fault == LB_OVERRUN)
		entry->data[entry->size] ^= 1;
	if (fault == LB_UNDERRUN)
		entry->data[-1] ^= 1;
	if (fault == LB_SIZE)
		entry->size++;
	if (fault == LB_LATE)
		conn->late = entry->data;
	if (fault == LB_STALL || fault == LB_ERROR || fault == LB_SLEEP)
		req->faulty = true;
}

static void progress_recv(struct conn *conn)
{
	give_credit(conn);
	while (!conn->broken && conn->queued) {
		struct entry *entry;
		struct request *req;

		if (!conn->into) {
			if (move(conn, conn->head, sizeof(conn->head), &conn->head_got, false) <= 0)
				return;
			if (!match(conn))
				return;
			conn->head_got = 0;
		}
		req = conn->into;
		entry = conn->into_entry;
		if (move(conn, entry->data, entry->size, &entry->got, false) <= 0)
			return;
		conn->into = NULL;
		conn->messages++;
		misbehave(conn, req, entry);
		if (++req->finished < req->n)
			continue;
		req->done = true;
		unqueue(conn, req);
		if (req->zombie)
			req->used = false;
	}
}

static void progress(struct conn *conn)
{
	if (conn->broken)
		return;
	if (conn->send) {
		take_credit(conn);
		progress_send(conn);
	} else {
		progress_recv(conn);
	}
}

ncclResult_t lb_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct conn *conn = comm;
	struct request *req = NULL;

	if (!registered(mhandle, data, size))
		return ncclInvalidArgument;
	progress(conn);
	if (conn->broken)
		return conn->broken;
	if (conn->credit)
		req = get_request(conn, 1);
	if (!req) {
		if (fault != LB_STALE)
			*request = NULL;
		return ncclSuccess;
	}
	conn->credit--;
	req->entry[0] = (struct entry){ .data = data, .size = size, .tag = tag };
	*request = req;
	progress(conn);
	return ncclSuccess;
}

ncclResult_t lb_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags,
		      void **mhandles, void **request)
{
	struct conn *conn = comm;
	struct request *req, *older = conn->queued ? conn->queue[0] : NULL;

	if (n < 1 || n > LB_MAX_RECVS)
		return ncclInvalidArgument;
	for (int k = 0; k < n; k++)
		if (!registered(mhandles[k], data[k], sizes[k]))
			return ncclInvalidArgument;
	if (conn->late)
		*conn->late ^= 1;
	conn->late = NULL;
	if (conn->broken)
		return conn->broken;
	*request = NULL;
	if (conn->owed_count == REQUESTS)
		return ncclSuccess;
	req = get_request(conn, (unsigned int)n);
	if (!req)
		return ncclSuccess;
	for (int k = 0; k < n; k++)
		req->entry[k] = (struct entry){ .data = data[k], .room = sizes[k], .tag = tags[k] };
	conn->owed[conn->owed_count++] = (uint32_t)n;
	*request = fault == LB_TWICE && older ? older : req;
	progress(conn);
	return ncclSuccess;
}

/* LB_EARLY: says done while the bytes are still to come, and lets them come. */
static bool lies_early(struct request *req)
{
	if (fault != LB_EARLY || req->conn->send || req->done || req->conn->messages < FAULT_NTH ||
	    !req->entry[req->n - 1].room)
		return false;
	req->zombie = true;
	return true;
}

ncclResult_t lb_test(void *request, int *done, int *sizes)
{
	struct request *req = request;
	struct conn *conn = req->conn;

	*done = 0;
	if (!req->used)
		return ncclInvalidArgument;
	progress(conn);
	while (req->faulty && fault == LB_SLEEP)
		(void)sleep(1);
	if (req->faulty)
		return fault == LB_ERROR ? ncclRemoteError : ncclSuccess;
	if (!req->done && !lies_early(req))
		return conn->broken;
	for (unsigned int k = 0; sizes && k < req->n; k++)
		sizes[k] = (int)(req->zombie ? req->entry[k].room : req->entry[k].size);
	if (sizes && fault == LB_SIZES && conn->messages > FAULT_NTH)
		sizes[req->n] = 0;
	*done = 1;
	if (!req->zombie && !(fault == LB_LEAK && !sizes))
		req->used = false;
	return ncclSuccess;
}
