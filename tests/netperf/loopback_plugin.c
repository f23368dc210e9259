/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up of the loopback plugin: init, listen, connect, accept, registration. */
#include "tests/netperf/loopback_impl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS 8

/* What listen gives; state is the connecting side's own and 0 on the way. */
struct handle {
	uint32_t magic;
	uint16_t port_be, pad;
	uint64_t nonce;
	uint64_t state;
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

ncclDebugLogger_t lb_logger;
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
	[LB_SLEEP] = "sleep",	  [LB_INIT] = "init",	      [LB_NAP] = "nap",
};

enum lb_fault lb_fault(void)
{
	return fault;
}

ncclResult_t lb_init(ncclDebugLogger_t log)
{
	const char *name = getenv("NETPERF_LOOPBACK_FAULT");

	lb_logger = log;
	fault = LB_HONEST;
	for (int n = 0; name && n < LB_FAULT_MAX; n++)
		if (!strcmp(name, fault_names[n]))
			fault = (enum lb_fault)n;
	if (name && fault == LB_HONEST && *name) {
		LB_WARN("no such fault: %s", name);
		return ncclInvalidUsage;
	}
	if (fault == LB_INIT) {
		LB_WARN("device lb0 is gone");
		return ncclSystemError;
	}
	lb_logger(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __FILE__, __LINE__, "Loopback: ready");
	return ncclSuccess;
}

/* Everything must have been given back: the driver is under test too. */
ncclResult_t lb_finalize(void)
{
	if (!atomic_load(&regions) && !atomic_load(&conns))
		return ncclSuccess;
	LB_WARN("%d registrations and %d connections left", atomic_load(&regions),
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
	*out = (struct handle){ LB_MAGIC, sin.sin_port, 0, listener->nonce, 0 };
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
	if (dev != 0 || handle->magic != LB_MAGIC)
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
