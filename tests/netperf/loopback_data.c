/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of the loopback plugin, and most of its ways to fail. */
#include "tests/netperf/loopback_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAULT_NTH    5
#define IO_BYTES_MAX (256u << 10) /* a call, so that no call takes long */

static bool registered(const void *mhandle, const char *data, size_t size)
{
	const struct region *region = mhandle;

	return region && data >= region->data && size <= region->size &&
	       data + size <= region->data + region->size;
}

static struct request *get_request(struct conn *conn, unsigned int n)
{
	for (int k = 0; k < LB_REQUESTS; k++) {
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
		struct header header = { LB_MAGIC, entry->tag, entry->size };

		if (move(conn, &header, sizeof(header), &req->head_sent, true) <= 0 ||
		    move(conn, entry->data, entry->size, &entry->got, true) <= 0)
			return;
		conn->messages++;
		if (lb_fault() == LB_SENDBUF && entry->size && conn->messages % FAULT_NTH == 0)
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

		if (entry->matched || (entry->tag != header.tag && lb_fault() != LB_SWAP))
			continue;
		if (header.magic != LB_MAGIC || header.size > entry->room)
			break;
		entry->matched = true;
		entry->size = header.size;
		req->matched++;
		conn->into = req;
		conn->into_entry = entry;
		return true;
	}
	LB_WARN("tag %d, %llu bytes: no such receive", header.tag, (unsigned long long)header.size);
	conn->broken = ncclInternalError;
	return false;
}

static void misbehave(struct conn *conn, struct request *req, struct entry *entry)
{
	if (conn->messages % FAULT_NTH || !entry->size)
		return;
	if (lb_fault() == LB_FLIP)
		entry->data[entry->size / 2] ^= 1;
	if (lb_fault() == LB_EDGE)
		entry->data[entry->size - 1] ^= 1;
	if (lb_fault() == LB_OVERRUN)
		entry->data[entry->size] ^= 1;
	if (lb_fault() == LB_UNDERRUN)
		entry->data[-1] ^= 1;
	if (lb_fault() == LB_SIZE)
		entry->size++;
	if (lb_fault() == LB_LATE)
		conn->late = entry->data;
	if (lb_fault() == LB_STALL || lb_fault() == LB_ERROR || lb_fault() == LB_SLEEP)
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
		if (lb_fault() != LB_STALE)
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
	if (conn->owed_count == LB_REQUESTS)
		return ncclSuccess;
	req = get_request(conn, (unsigned int)n);
	if (!req)
		return ncclSuccess;
	for (int k = 0; k < n; k++)
		req->entry[k] = (struct entry){ .data = data[k], .room = sizes[k], .tag = tags[k] };
	conn->owed[conn->owed_count++] = (uint32_t)n;
	*request = lb_fault() == LB_TWICE && older ? older : req;
	progress(conn);
	return ncclSuccess;
}

/* LB_EARLY: says done while the bytes are still to come, and lets them come. */
static bool lies_early(struct request *req)
{
	if (lb_fault() != LB_EARLY || req->conn->send || req->done ||
	    req->conn->messages < FAULT_NTH || !req->entry[req->n - 1].room)
		return false;
	req->zombie = true;
	return true;
}

ncclResult_t lb_test(void *request, int *done, int *sizes)
{
	static _Atomic bool napped;
	struct request *req = request;
	struct conn *conn = req->conn;

	*done = 0;
	if (!req->used)
		return ncclInvalidArgument;
	progress(conn);
	while (req->faulty && lb_fault() == LB_SLEEP)
		(void)sleep(1);
	if (lb_fault() == LB_NAP && conn->messages >= FAULT_NTH && !napped) {
		napped = true;
		(void)usleep(50000);
	}
	if (req->faulty)
		return lb_fault() == LB_ERROR ? ncclRemoteError : ncclSuccess;
	if (!req->done && !lies_early(req))
		return conn->broken;
	for (unsigned int k = 0; sizes && k < req->n; k++)
		sizes[k] = (int)(req->zombie ? req->entry[k].room : req->entry[k].size);
	if (sizes && lb_fault() == LB_SIZES && conn->messages > FAULT_NTH)
		sizes[req->n] = 0;
	*done = 1;
	if (!req->zombie && !(lb_fault() == LB_LEAK && !sizes))
		req->used = false;
	return ncclSuccess;
}
