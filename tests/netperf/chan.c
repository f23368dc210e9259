/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/chan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/netperf/check.h"
#include "tests/netperf/clock.h"
#include "tests/netperf/log.h"
#include "tests/netperf/pattern.h"

#define SIZES_CANARY 0x6B6B6B6B
#define DONE_CANARY  0x5D5D5D5D

/* What *request holds before a call, as NCCL's holds the pointer of an older request. */
static char stale_request[256];

const char *np_chan_name(const struct np_chan *chan, char *buf)
{
	(void)snprintf(buf, NP_CHAN_NAME, "comm %u %s %s", chan->id / 2,
		       chan->id % 2 ? "listener's" : "connector's",
		       chan->send ? "send" : "receive");
	return buf;
}

int np_chan_open(struct np_chan *chan, struct np_net *net, const struct np_stage *stage,
		 uint64_t seed, bool latencies)
{
	unsigned int slots = stage->requests * stage->group_max;
	ncclResult_t res;
	char name[NP_CHAN_NAME];

	chan->stage = stage;
	chan->seed = seed;
	chan->used = 0;
	chan->prepared = false;
	chan->group = (struct np_group){ 0 };
	chan->group_pos = 0;
	chan->group_number = chan->planned = 0;
	/* the sends of a whole group are out at once: they end together */
	chan->req_count = chan->send ? slots : stage->requests;
	chan->reqs = calloc(chan->req_count, sizeof(*chan->reqs));
	chan->order = calloc(chan->req_count, sizeof(*chan->order));
	chan->slot_message = calloc(slots, sizeof(*chan->slot_message));
	if (latencies)
		chan->latencies = calloc(NP_LATENCIES_MAX, sizeof(*chan->latencies));
	if (!chan->reqs || !chan->order || !chan->slot_message || (latencies && !chan->latencies) ||
	    np_pool_open(&chan->pool, stage->max_size, slots) < 0)
		return -ENOMEM;
	for (unsigned int n = 0; n < chan->req_count; n++)
		chan->order[n] = n;
	np_check_open(chan);

	res = np_net_reg(net, chan->comm, chan->pool.map, chan->pool.map_len, &chan->pool.mhandle);
	if (res != ncclSuccess) {
		np_error("%s: regMr of %zu bytes: %s", np_chan_name(chan, name), chan->pool.map_len,
			 np_result_name(res));
		chan->pool.mhandle = NULL;
		return -EIO;
	}
	return 0;
}

void np_chan_close(struct np_chan *chan, struct np_net *net)
{
	ncclResult_t res;
	char name[NP_CHAN_NAME];

	if (chan->pool.map && chan->pool.mhandle) {
		res = np_net_dereg(net, chan->comm, chan->pool.mhandle);
		if (res != ncclSuccess)
			np_error("%s: deregMr: %s", np_chan_name(chan, name), np_result_name(res));
	}
	np_pool_close(&chan->pool);
	free(chan->reqs);
	free(chan->order);
	free(chan->slot_message);
	free(chan->latencies);
	chan->reqs = NULL;
	chan->order = NULL;
	chan->slot_message = NULL;
	chan->latencies = NULL;
	chan->latency_count = 0;
}

static bool plan_more(struct np_chan *chan)
{
	uint64_t target = atomic_load_explicit(&chan->target, memory_order_relaxed);

	if (chan->planned >= target)
		return false;
	np_plan_group(chan->stage, chan->seed, chan->id, chan->group_number++, chan->planned,
		      target - chan->planned, &chan->group);
	chan->planned += chan->group.n;
	chan->group_pos = 0;
	return true;
}

/* Fills in chan->next: the request that the plugin gets, now or when it is ready. 1: it is there,
 * 0: no message or no place for one, -EIO. */
static int prepare(struct np_chan *chan)
{
	struct np_req *req = &chan->next;

	if (chan->prepared)
		return 1;
	if (chan->used == chan->req_count)
		return 0;
	if (chan->group_pos == chan->group.n && !plan_more(chan))
		return 0;

	*req = (struct np_req){ .n = chan->send ? 1 : chan->group.n };
	if (chan->pool.ring_used < req->n)
		return 0;
	for (unsigned int k = 0; k < req->n; k++) {
		unsigned int index = chan->send ? chan->group.send_order[chan->group_pos] : k;

		req->message[k] = chan->group.recv[index];
		(void)np_pool_get(&chan->pool, &req->slot[k]);
		if (chan->send)
			np_check_fill(chan, req->slot[k], &req->message[k]);
		else if (!np_check_free(chan, req->slot[k], &req->message[k]))
			return -EIO;
	}
	/* every third, and never the same one on both ends for long */
	req->no_sizes = chan->stage->null_sizes && (req->message[0].number + chan->send) % 3 == 0;
	req->optional = chan->stage->optional && !chan->send;
	chan->prepared = true;
	return 1;
}

static int fail(struct np_chan *chan, const char *call, ncclResult_t res, const char *what,
		const char **ret_call, ncclResult_t *ret_result)
{
	char name[NP_CHAN_NAME];

	np_error("%s, stage %s: %s: %s", np_chan_name(chan, name), chan->stage->name, call,
		 what ? what : np_result_name(res));
	*ret_call = call;
	*ret_result = res;
	return -EIO;
}

static ncclResult_t call_post(struct np_chan *chan, struct np_net *net, void **request)
{
	struct np_req *req = &chan->next;
	void *data[NP_RECVS_MAX] = { 0 }, *mhandles[NP_RECVS_MAX] = { 0 };
	size_t sizes[NP_RECVS_MAX] = { 0 };
	int tags[NP_RECVS_MAX] = { 0 };
	struct np_call_start start;
	ncclResult_t res;

	for (unsigned int k = 0; k < req->n; k++) {
		data[k] = np_pool_data(&chan->pool, req->slot[k]);
		sizes[k] = req->message[k].room;
		tags[k] = req->message[k].tag;
		mhandles[k] = chan->pool.mhandle;
	}
	if (chan->time_calls)
		np_call_begin(&start);
	if (chan->send)
		res = np_net_isend(net, chan->comm, data[0], req->message[0].size, tags[0],
				   mhandles[0], request);
	else
		res = np_net_irecv(net, chan->comm, (int)req->n, data, sizes, tags, mhandles,
				   request);
	if (chan->time_calls)
		np_call_end(&chan->calls[chan->send ? NP_CALL_ISEND : NP_CALL_IRECV], &start);
	return res;
}

static ncclResult_t call_test(struct np_chan *chan, struct np_net *net, void *request, int *done,
			      int *sizes)
{
	struct np_call_start start;
	ncclResult_t res;

	if (!chan->time_calls)
		return np_net_test(net, request, done, sizes);
	np_call_begin(&start);
	res = np_net_test(net, request, done, sizes);
	np_call_end(&chan->calls[NP_CALL_TEST], &start);
	return res;
}

/* 1: posted, 0: nothing to post or not now, -EIO. */
static int post_one(struct np_chan *chan, struct np_net *net, const char **ret_call,
		    ncclResult_t *ret_result)
{
	const char *call = chan->send ? "isend" : "irecv";
	void *preset, *request;
	struct np_req *req;
	ncclResult_t res;
	int r;

	*ret_call = call;
	*ret_result = ncclSuccess;
	/* a target that came later may lie below what was prepared */
	if (atomic_load_explicit(&chan->posted, memory_order_relaxed) >=
	    atomic_load_explicit(&chan->target, memory_order_relaxed))
		return 0;
	r = prepare(chan);
	if (r <= 0)
		return r;
	preset = chan->next.optional ? NCCL_NET_OPTIONAL_RECV_COMPLETION : (void *)stale_request;
	request = preset;
	chan->next.posted_at = np_now();
	res = call_post(chan, net, &request);
	if (res != ncclSuccess)
		return fail(chan, call, res, NULL, ret_call, ret_result);
	if (!request)
		return 0;
	if (request == preset)
		return fail(chan, call, res, "*request was left as it was", ret_call, ret_result);
	for (unsigned int n = 0; n < chan->used; n++)
		if (chan->reqs[chan->order[n]].request == request)
			return fail(chan, call, res, "handed out a request that is still in use",
				    ret_call, ret_result);

	req = &chan->reqs[chan->order[chan->used++]];
	*req = chan->next;
	req->request = request;
	chan->prepared = false;
	chan->group_pos += req->n;
	(void)atomic_fetch_add_explicit(&chan->posted, req->n, memory_order_relaxed);
	return 1;
}

/* test writes one int a message, and no more. */
static bool check_sizes(struct np_chan *chan, const struct np_req *req, const int *sizes)
{
	char name[NP_CHAN_NAME];

	for (unsigned int k = 0; k < 2 * NP_RECVS_MAX; k++) {
		if (k >= req->n ? sizes[k] == SIZES_CANARY : sizes[k] == (int)req->message[k].size)
			continue;
		/* a send's size is not needed, and some don't write it */
		if (k == 0 && chan->send && sizes[k] == 0)
			continue;
		if (k >= req->n)
			np_error("%s, stage %s: test wrote a size for message %u of %u",
				 np_chan_name(chan, name), chan->stage->name, k + 1, req->n);
		else
			np_error("%s, stage %s, message %llu (%u of %u): test says %d bytes, not "
				 "%zu",
				 np_chan_name(chan, name), chan->stage->name,
				 (unsigned long long)req->message[k].number, k + 1, req->n,
				 sizes[k], req->message[k].size);
		return false;
	}
	return true;
}

/* Takes request number @nth of the order out, its messages being right. */
static void retire(struct np_chan *chan, unsigned int nth)
{
	unsigned int index = chan->order[nth];
	struct np_req *req = &chan->reqs[index];
	uint64_t bytes = 0;

	for (unsigned int k = 0; k < req->n; k++) {
		bytes += req->message[k].size;
		np_pool_put(&chan->pool, req->slot[k]);
	}
	if (chan->latencies) {
		chan->latencies[chan->latency_count % NP_LATENCIES_MAX] = np_now() - req->posted_at;
		chan->latency_count++;
	}
	chan->used--;
	memmove(&chan->order[nth], &chan->order[nth + 1],
		(chan->used - nth) * sizeof(*chan->order));
	chan->order[chan->used] = index;
	(void)atomic_fetch_add_explicit(&chan->bytes, bytes, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&chan->done, req->n, memory_order_relaxed);
}

/* 1: done and right, 0: not yet, -EIO. */
static int test_one(struct np_chan *chan, struct np_net *net, unsigned int nth,
		    const char **ret_call, ncclResult_t *ret_result)
{
	struct np_req *req = &chan->reqs[chan->order[nth]];
	int sizes[2 * NP_RECVS_MAX], done = DONE_CANARY;
	ncclResult_t res;

	if (!req->returned) {
		for (unsigned int k = 0; k < 2 * NP_RECVS_MAX; k++)
			sizes[k] = k < req->n ? 0 : SIZES_CANARY;
		res = call_test(chan, net, req->request, &done, req->no_sizes ? NULL : sizes);
		if (res != ncclSuccess)
			return fail(chan, "test", res, NULL, ret_call, ret_result);
		if (done == DONE_CANARY)
			return fail(chan, "test", res, "done was not written", ret_call,
				    ret_result);
		if (!done)
			return 0;
		req->returned = true; /* never tested again */
		req->request = NULL;
		*ret_call = "test";
		*ret_result = ncclSuccess;
		if (!req->no_sizes && !req->optional && !check_sizes(chan, req, sizes))
			return -EIO;
	}
	if (req->optional && !np_check_arrived(chan, req->slot[0], &req->message[0]))
		return 0;
	for (unsigned int k = 0; k < req->n; k++)
		if (!np_check_message(chan, req->slot[k], &req->message[k]))
			return -EIO;
	retire(chan, nth);
	return 1;
}

int np_chan_progress(struct np_chan *chan, struct np_net *net, bool post, const char **ret_call,
		     ncclResult_t *ret_result)
{
	unsigned int nth = 0;
	int r, moved = 0;

	while (post && (r = post_one(chan, net, ret_call, ret_result)) != 0) {
		if (r < 0)
			return r;
		moved = 1;
	}
	while (nth < chan->used) {
		r = test_one(chan, net, nth, ret_call, ret_result);
		if (r < 0)
			return r;
		if (r > 0) {
			moved = 1;
			continue;
		}
		if (chan->stage->in_order)
			break;
		nth++;
	}
	return moved;
}

void np_chan_dump(const struct np_chan *chan)
{
	char name[NP_CHAN_NAME];

	np_warn("%s, stage %s: %llu of %llu messages done, %u requests out%s",
		np_chan_name(chan, name), chan->stage ? chan->stage->name : "none",
		(unsigned long long)atomic_load(&chan->done),
		(unsigned long long)atomic_load(&chan->target), chan->used,
		chan->prepared ? ", one more refused so far" : "");
	for (unsigned int n = 0; n < chan->used && n < 4; n++) {
		const struct np_req *req = &chan->reqs[chan->order[n]];

		np_warn("  out for %.1f s: message %llu and %u more, tag %d, %zu of %zu bytes%s",
			np_now() - req->posted_at, (unsigned long long)req->message[0].number,
			req->n - 1, req->message[0].tag, req->message[0].size, req->message[0].room,
			req->returned ? ", said done without its bytes" : "");
	}
}
