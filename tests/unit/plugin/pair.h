/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one process, over fake_verbs.c. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_PAIR_H
#define MPIB_TESTS_UNIT_PLUGIN_PAIR_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/data/flush.h"
#include "plugin/data/progress.h"
#include "plugin/data/recv.h"
#include "plugin/data/send.h"
#include "plugin/nccl/api.h"
#include "plugin/setup/connect.h"
#include "plugin/verbs/device.h"

#define PAIR_BUFFER (64 * 1024)

struct pair {
	void *ctx, *listener, *send, *recv;
	char handle[MPIB_NCCL_HANDLE_SIZE];
	void *send_mr, *recv_mr;
	char *out, *in; /* PAIR_BUFFER bytes each */
};

static inline void pair_env(void)
{
	(void)setenv("MPIB_HCA_SOUT", "sout,sout2", 1);
	(void)setenv("MPIB_HCA_SUP", "sup,sup2", 1);
	(void)setenv("MPIB_OOB_IF", "lo", 1);
	(void)setenv("MPIB_SPLIT_MIN", "0", 1);
}

/* Runs connect and accept in turn until both are there, one fails, or thirty seconds went by. */
static inline ncclResult_t pair_shake(struct pair *p, int from_dev)
{
	for (unsigned int k = 0; k < 30000; k++) {
		ncclResult_t r = ncclSuccess;

		if (!p->send)
			r = mpib_entry_connect(from_dev, -1, p->handle, &p->send);
		if (r == ncclSuccess && !p->recv)
			r = mpib_entry_accept(p->listener, &p->recv);
		if (r != ncclSuccess || (p->send && p->recv))
			return r;
		(void)poll(NULL, 0, 1);
	}
	return ncclInProgress;
}

static inline void pair_close(struct pair *p)
{
	if (p->send_mr)
		(void)mpib_entry_dereg_mr(p->send, p->send_mr);
	if (p->recv_mr)
		(void)mpib_entry_dereg_mr(p->recv, p->recv_mr);
	(void)mpib_entry_close(p->send);
	(void)mpib_entry_close(p->recv);
	(void)mpib_entry_close_listen(p->listener);
	(void)mpib_entry_finalize(p->ctx);
	free(p->out);
	free(p->in);
	memset(p, 0, sizeof(*p));
}

/* Everything from init to registered buffers. The first failure is returned; pair_close undoes what
 * is there. @to_dev 0 is the same island as device 0, 1 another one. */
static inline ncclResult_t pair_open(struct pair *p, ncclDebugLogger_t logger, int to_dev)
{
	struct mpib_nccl_config config = { .trafficClass = -1 };
	ncclResult_t r;

	memset(p, 0, sizeof(*p));
	r = mpib_entry_init(&p->ctx, &config, logger);
	if (r == ncclSuccess)
		r = mpib_entry_listen(p->ctx, to_dev, p->handle, &p->listener);
	if (r == ncclSuccess)
		r = pair_shake(p, 0);
	if (r != ncclSuccess)
		return r;
	p->out = aligned_alloc(4096, PAIR_BUFFER);
	p->in = aligned_alloc(4096, PAIR_BUFFER);
	if (!p->out || !p->in)
		return ncclSystemError;
	for (unsigned int k = 0; k < PAIR_BUFFER; k++)
		p->out[k] = (char)(k * 7 + 3);
	r = mpib_entry_reg_mr(p->send, p->out, PAIR_BUFFER, NCCL_PTR_HOST, &p->send_mr);
	if (r == ncclSuccess)
		r = mpib_entry_reg_mr(p->recv, p->in, PAIR_BUFFER, NCCL_PTR_HOST, &p->recv_mr);
	return r;
}

/* Sends @size bytes into a receive of @room; the first error of either end, or ncclInProgress where
 * nothing comes of it. */
static inline ncclResult_t pair_transfer(struct pair *p, size_t size, size_t room)
{
	void *in = p->in, *rr = NULL, *sr = NULL;
	int tag = 5, done_send = 0, done_recv = 0, got = -1, sent = -1;
	ncclResult_t r;

	memset(p->in, 0x55, PAIR_BUFFER);
	for (unsigned int k = 0; k < 30000; k++) {
		if (!rr && !done_recv) {
			r = mpib_irecv(p->recv, 1, &in, &room, &tag, &p->recv_mr, &rr);
			if (r != ncclSuccess)
				return r;
		}
		if (!sr && !done_send) {
			r = mpib_isend(p->send, p->out, size, tag, p->send_mr, &sr);
			if (r != ncclSuccess)
				return r;
		}
		if (sr && !done_send) {
			r = mpib_test(sr, &done_send, &sent);
			if (r != ncclSuccess)
				return r;
			if (done_send)
				sr = NULL;
		}
		if (rr && !done_recv) {
			r = mpib_test(rr, &done_recv, &got);
			if (r != ncclSuccess)
				return r;
			if (done_recv)
				rr = NULL;
		}
		if (done_send && done_recv)
			break;
		if (k > 20)
			(void)poll(NULL, 0, 1);
	}
	if (!done_send || !done_recv)
		return ncclInProgress;
	if ((size_t)got != size || (size_t)sent != size || memcmp(p->out, p->in, size) != 0 ||
	    (size < PAIR_BUFFER && p->in[size] != 0x55))
		return ncclInternalError;
	return ncclSuccess;
}

#endif
