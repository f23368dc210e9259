/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `instructions` counts: both ends of a connection in one process and one thread, over the
 * software fabric in null mode, driven through the plugin's own table. Nothing here waits for a
 * clock, so that two runs execute the same instructions. mpib_bench_measured() is the part that
 * callgrind looks at; the rest warms up.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fabric/counts.h"
#include "tests/netperf/net.h"

#define WINDOW	 8
#define SIZE	 65536u
#define WARM_UPS 300 /* past the first turn of every ring */
#define TRIES	 100000
#define TAG	 7

struct bench {
	struct np_net net;
	void *send, *recv;
	void *send_mr, *recv_mr;
	char *out, *in;
	int group; /* messages of one receive: 1 or WINDOW */
};

static _Noreturn void give_up(const char *what)
{
	(void)fprintf(stderr, "bench: %s\n", what);
	exit(1);
}

static void want(bool good, const char *what)
{
	if (!good)
		give_up(what);
}

/* Two NICs as one device, where the plugin leaves that to the caller. */
static int merge(struct np_net *net)
{
	struct mpib_nccl_vdevice_v9 props = { .ndevs = 2, .devs = { 0, 1 } };
	int dev = -1;

	want(net->api >= 9 && net->api <= 11 && net->v11->makeVDevice, "no makeVDevice of v9..v11");
	want(net->v11->makeVDevice(&dev, &props) == ncclSuccess, "makeVDevice failed");
	return dev;
}

static void connect_ends(struct bench *b, int dev)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *listen = NULL;

	want(np_net_listen(&b->net, dev, handle, &listen) == ncclSuccess, "listen failed");
	for (int n = 0; n < TRIES && (!b->send || !b->recv); n++) {
		if (!b->send)
			want(np_net_connect(&b->net, dev, handle, &b->send) == ncclSuccess,
			     "connect failed");
		if (!b->recv)
			want(np_net_accept(&b->net, listen, &b->recv) == ncclSuccess,
			     "accept failed");
		(void)usleep(100);
	}
	want(b->send && b->recv, "no connection in time");
	want(np_net_close_listen(&b->net, listen) == ncclSuccess, "closeListen failed");
	want(np_net_reg(&b->net, b->send, b->out, (size_t)WINDOW * SIZE, &b->send_mr) ==
		     ncclSuccess,
	     "regMr failed");
	want(np_net_reg(&b->net, b->recv, b->in, (size_t)WINDOW * SIZE, &b->recv_mr) == ncclSuccess,
	     "regMr failed");
}

static void *receive(struct bench *b, int first)
{
	void *data[WINDOW], *mrs[WINDOW], *request = NULL;
	size_t sizes[WINDOW];
	int tags[WINDOW];

	for (int k = 0; k < b->group; k++) {
		data[k] = b->in + (size_t)(first + k) * SIZE;
		mrs[k] = b->recv_mr;
		sizes[k] = SIZE;
		tags[k] = b->group > 1 ? TAG + k : TAG;
	}
	want(np_net_irecv(&b->net, b->recv, b->group, data, sizes, tags, mrs, &request) ==
			     ncclSuccess &&
		     request,
	     "irecv gave no request");
	return request;
}

/* NCCL's proxy asks as often as it takes; here everything is there when it is posted, and what
 * needs more calls than a few would never be done. */
static void finish(struct bench *b, void *request, int n)
{
	int sizes[WINDOW] = { 0 }, done = 0;

	for (int tries = 0; tries < 4 && !done; tries++)
		want(np_net_test(&b->net, request, &done, sizes) == ncclSuccess, "test failed");
	want(done, "a request isn't done");
	for (int k = 0; k < n; k++)
		want(sizes[k] == (int)SIZE, "a wrong size");
}

/* One window: WINDOW messages posted at both ends, then all of them finished. */
static void window(struct bench *b)
{
	void *sends[WINDOW], *recvs[WINDOW];

	for (int k = 0; k < WINDOW; k += b->group)
		recvs[k] = receive(b, k);
	for (int k = 0; k < WINDOW; k++) {
		sends[k] = NULL;
		want(np_net_isend(&b->net, b->send, b->out + (size_t)k * SIZE, SIZE,
				  b->group > 1 ? TAG + k : TAG, b->send_mr,
				  &sends[k]) == ncclSuccess &&
			     sends[k],
		     "isend gave no request");
	}
	for (int k = 0; k < WINDOW; k += b->group)
		finish(b, recvs[k], b->group);
	for (int k = 0; k < WINDOW; k++)
		finish(b, sends[k], 1);
}

/* test() of a receive that waits. */
static void ask(struct bench *b, void *request)
{
	int done = 0, sizes[WINDOW];

	want(np_net_test(&b->net, request, &done, sizes) == ncclSuccess && !done,
	     "an idle request is done");
}

void mpib_bench_measured(struct bench *b, void *idle, int count);

__attribute__((noinline)) void mpib_bench_measured(struct bench *b, void *idle, int count)
{
	if (idle)
		for (int k = 0; k < count; k++)
			ask(b, idle);
	else
		for (int k = 0; k < count; k += WINDOW)
			window(b);
}

/* The end that a receive waits for. */
static void release(struct bench *b, void *idle)
{
	void *send = NULL;

	want(np_net_isend(&b->net, b->send, b->out, SIZE, TAG, b->send_mr, &send) == ncclSuccess &&
		     send,
	     "isend gave no request");
	finish(b, idle, 1);
	finish(b, send, 1);
}

static void print_counts(const struct mpib_fabric_counts *before)
{
	const struct mpib_fabric_counts *now = &mpib_fabric_counts;

	(void)printf("{\"posts\": %lu, \"requests\": %lu, \"recv_posts\": %lu, \"receives\": %lu, "
		     "\"polls\": %lu, \"empty_polls\": %lu, \"completions\": %lu}\n",
		     now->posts - before->posts, now->requests - before->requests,
		     now->recv_posts - before->recv_posts, now->receives - before->receives,
		     now->polls - before->polls, now->empty_polls - before->empty_polls,
		     now->completions - before->completions);
}

int main(int argc, char **argv)
{
	struct bench b = { .group = 1 };
	struct mpib_fabric_counts before;
	void *idle = NULL;
	int dev = 0, count;

	if (argc != 5) {
		(void)fprintf(stderr,
			      "usage: driver PLUGIN fused|merged single|group|idle COUNT\n");
		return 2;
	}
	count = atoi(argv[4]);
	if (strcmp(argv[3], "group") == 0)
		b.group = WINDOW;
	b.out = calloc(WINDOW, SIZE);
	b.in = calloc(WINDOW, SIZE);
	want(count > 0 && b.out && b.in, "out of memory");
	want(np_net_open(&b.net, argv[1]), "no plugin");
	want(np_net_select(&b.net, 11), "the plugin has no table v11");
	want(np_net_init(&b.net, 1) == ncclSuccess, "init failed");
	if (strcmp(argv[2], "merged") == 0)
		dev = merge(&b.net);
	connect_ends(&b, dev);

	for (int k = 0; k < WARM_UPS; k++)
		window(&b);
	if (strcmp(argv[3], "idle") == 0) {
		idle = receive(&b, 0);
		ask(&b, idle);
	}
	before = mpib_fabric_counts;
	mpib_bench_measured(&b, idle, count);
	print_counts(&before);

	if (idle)
		release(&b, idle);
	want(np_net_dereg(&b.net, b.send, b.send_mr) == ncclSuccess, "deregMr failed");
	want(np_net_dereg(&b.net, b.recv, b.recv_mr) == ncclSuccess, "deregMr failed");
	want(np_net_close_send(&b.net, b.send) == ncclSuccess, "closeSend failed");
	want(np_net_close_recv(&b.net, b.recv) == ncclSuccess, "closeRecv failed");
	want(np_net_finalize(&b.net) == ncclSuccess, "finalize failed");
	free(b.out);
	free(b.in);
	return 0;
}
