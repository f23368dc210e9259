/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/netperf/log.h"

#define API 11

_Noreturn void bench_give_up(const char *what)
{
	(void)fprintf(stderr, "bench: %s\n", what);
	exit(1);
}

void bench_want(bool good, const char *what)
{
	if (!good)
		bench_give_up(what);
}

static int merge(struct np_net *net)
{
	struct mpib_nccl_vdevice_v9 props = { .ndevs = 2, .devs = { 0, 1 } };
	int dev = -1;

	bench_want(net->v11->makeVDevice, "the plugin merges no devices");
	bench_want(net->v11->makeVDevice(&dev, &props) == ncclSuccess, "makeVDevice failed");
	return dev;
}

void bench_open(struct bench_side *side, const char *plugin, const char *how)
{
	struct rlimit limit;
	int devices = 0;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	np_log_init("warn", true); /* standard output is the program's own */
	bench_want(np_net_open(&side->net, plugin), "no plugin");
	bench_want(np_net_select(&side->net, API), "the plugin has no table v11");
	bench_want(np_net_init(&side->net, 1) == ncclSuccess, "init failed");
	bench_want(np_net_devices(&side->net, &devices) == ncclSuccess && devices > 0,
		   "no devices");
	if (strcmp(how, "fused") == 0)
		side->dev = 0;
	else if (strcmp(how, "merged") == 0)
		side->dev = merge(&side->net);
	else
		side->dev = atoi(how);
}

void bench_close(struct bench_side *side)
{
	bench_want(np_net_finalize(&side->net) == ncclSuccess, "finalize failed");
}

void bench_listen(struct bench_side *side, struct bench_conn *conn)
{
	bench_want(np_net_listen(&side->net, side->dev, conn->handle, &conn->listen) == ncclSuccess,
		   "listen failed");
}

bool bench_connect(struct bench_side *side, struct bench_conn *conn)
{
	bench_want(np_net_connect(&side->net, side->dev, conn->handle, &conn->comm) == ncclSuccess,
		   "connect failed");
	return conn->comm;
}

bool bench_accept(struct bench_side *side, struct bench_conn *conn)
{
	bench_want(np_net_accept(&side->net, conn->listen, &conn->comm) == ncclSuccess,
		   "accept failed");
	if (!conn->comm)
		return false;
	bench_want(np_net_close_listen(&side->net, conn->listen) == ncclSuccess,
		   "closeListen failed");
	conn->listen = NULL;
	return true;
}

void bench_reg(struct bench_side *side, struct bench_conn *conn, void *data, size_t len)
{
	bench_want(np_net_reg(&side->net, conn->comm, data, len, &conn->mr) == ncclSuccess,
		   "regMr failed");
}

void bench_hang_up(struct bench_side *side, struct bench_conn *conn, bool sender)
{
	if (conn->mr)
		bench_want(np_net_dereg(&side->net, conn->comm, conn->mr) == ncclSuccess,
			   "deregMr failed");
	bench_want((sender ? np_net_close_send : np_net_close_recv)(&side->net, conn->comm) ==
			   ncclSuccess,
		   "close failed");
	conn->comm = NULL;
	conn->mr = NULL;
}

static void push(struct bench_conn *conn, void *request)
{
	conn->requests[(conn->head + conn->used++) % NCCL_NET_MAX_REQUESTS] = request;
	conn->posted++;
}

bool bench_send(struct bench_side *side, struct bench_conn *conn, void *data, size_t size)
{
	void *request = NULL;

	bench_want(np_net_isend(&side->net, conn->comm, data, size, BENCH_TAG, conn->mr,
				&request) == ncclSuccess,
		   "isend failed");
	if (request)
		push(conn, request);
	return request;
}

bool bench_try_receive(struct bench_side *side, struct bench_conn *conn, void *data, size_t size)
{
	void *request = NULL;
	int tag = BENCH_TAG;

	bench_want(np_net_irecv(&side->net, conn->comm, 1, &data, &size, &tag, &conn->mr,
				&request) == ncclSuccess,
		   "irecv failed");
	if (request)
		push(conn, request);
	return request;
}

void bench_receive(struct bench_side *side, struct bench_conn *conn, void *data, size_t size)
{
	bench_want(bench_try_receive(side, conn, data, size), "irecv gave no request");
}

bool bench_test_any(struct bench_side *side, struct bench_conn *conn, int *told)
{
	int done = 0;

	bench_want(np_net_test(&side->net, conn->requests[conn->head], &done, told) == ncclSuccess,
		   "test failed");
	if (!done)
		return false;
	conn->head = (conn->head + 1) % NCCL_NET_MAX_REQUESTS;
	conn->used--;
	conn->done++;
	return true;
}

bool bench_test(struct bench_side *side, struct bench_conn *conn, size_t size)
{
	int told = (int)size;

	if (!bench_test_any(side, conn, &told))
		return false;
	/* some plugins say nothing of a send's size */
	bench_want(told == (int)size || told == 0, "a wrong size");
	return true;
}

unsigned long bench_number(const char *text, unsigned long max, const char *what)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*end || end == text || number == 0 || number > max)
		bench_give_up(what);
	return number;
}
