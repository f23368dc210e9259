/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes, the ends of some connections over the software fabric: node 1 sends, node 2
 * receives, and one more connection leads back. Driven by lines on standard input, each answered
 * by one of JSON; between them both processes sleep, so that several pairs can take turns:
 *
 *     stream SIZE WINDOW COUNT BUSY    COUNT messages over BUSY of the connections
 *     pingpong SIZE COUNT GAP          one at a time, after a pause of GAP microseconds
 *
 * All messages use the same buffer: bytes are what mpib-netperf checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/peer.h"
#include "tests/bench/side.h"
#include "tests/netperf/clock.h"

#define CONNS_MAX  4000u
#define BUFFER	   (64u << 20)
#define IN_FLIGHT  32u /* set-ups at once */
#define COUNT_MAX  100000000u
#define SAMPLES	   100000u
#define WARM_UPS   20u
#define PING_AHEAD 2u /* receives that are there before the message: their clear-to-send is too */

struct end {
	struct bench_side side;
	bool first; /* node 1 */
	int peer;   /* socket to the other process */
	struct bench_conn *conns;
	unsigned int count;
	struct bench_conn back;
	char *buffer;
};

enum order_kind { ORDER_STREAM, ORDER_PINGPONG, ORDER_END };

struct order {
	enum order_kind kind;
	unsigned long size, window, count, busy, gap;
};

static void meet(const struct end *e)
{
	char byte = 0;

	bench_put(e->peer, &byte, 1);
	bench_get(e->peer, &byte, 1);
}

static bool step(struct end *e, struct bench_conn *conn, bool sender)
{
	return sender ? bench_connect(&e->side, conn) : bench_accept(&e->side, conn);
}

/* The way back, with all that only the first connection pays for. */
static void open_back(struct end *e)
{
	if (e->first)
		bench_listen(&e->side, &e->back);
	if (e->first)
		bench_put(e->peer, e->back.handle, sizeof(e->back.handle));
	else
		bench_get(e->peer, e->back.handle, sizeof(e->back.handle));
	while (!step(e, &e->back, !e->first))
		;
	bench_reg(&e->side, &e->back, e->buffer, BUFFER);
	meet(e);
}

static void set_up(struct end *e)
{
	unsigned int first = 0, next = 0;

	for (unsigned int n = 0; n < e->count; n++) {
		if (!e->first)
			bench_listen(&e->side, &e->conns[n]);
		if (e->first)
			bench_get(e->peer, e->conns[n].handle, sizeof(e->conns[n].handle));
		else
			bench_put(e->peer, e->conns[n].handle, sizeof(e->conns[n].handle));
	}
	while (first < e->count) {
		if (next < e->count && next - first < IN_FLIGHT)
			next++;
		for (unsigned int n = first; n < next; n++)
			if (!e->conns[n].comm)
				(void)step(e, &e->conns[n], e->first);
		while (first < next && e->conns[first].comm)
			first++;
	}
}

static void tell_set_up(const struct end *e, double start, const struct bench_usage *before)
{
	struct bench_usage mine = bench_usage_with_memory(), theirs, theirs_before;

	if (!e->first) {
		bench_put(e->peer, before, sizeof(*before));
		bench_put(e->peer, &mine, sizeof(mine));
		return;
	}
	bench_get(e->peer, &theirs_before, sizeof(theirs_before));
	bench_get(e->peer, &theirs, sizeof(theirs));
	(void)printf("{\"connections\": %u, \"seconds\": %.6f, \"cpu\": %.6f, "
		     "\"sender_kib\": %ld, \"receiver_kib\": %ld, \"sender_files\": %ld, "
		     "\"receiver_files\": %ld}\n",
		     e->count, (theirs.end > mine.end ? theirs.end : mine.end) - start,
		     mine.cpu - before->cpu + theirs.cpu - theirs_before.cpu,
		     mine.rss - before->rss, theirs.rss - theirs_before.rss, mine.fds - before->fds,
		     theirs.fds - theirs_before.fds);
	(void)fflush(stdout);
}

/* Posts and finishes what it can of one connection; true once all of it is done. */
static bool move(struct end *e, struct bench_conn *conn, const struct order *o)
{
	while (conn->posted < conn->quota && conn->used < o->window) {
		if (!e->first)
			bench_receive(&e->side, conn, e->buffer, o->size);
		else if (!bench_send(&e->side, conn, e->buffer, o->size))
			break;
	}
	while (conn->used && bench_test(&e->side, conn, o->size))
		;
	return conn->done == conn->quota;
}

static void stream(struct end *e, const struct order *o)
{
	struct bench_usage before, after, theirs[2];
	unsigned long left = o->busy;

	for (unsigned long n = 0; n < o->busy; n++) {
		struct bench_conn *conn = &e->conns[n];

		conn->posted = conn->done = 0;
		conn->quota = o->count / o->busy + (n < o->count % o->busy);
		while (!e->first && conn->posted < conn->quota && conn->used < o->window)
			bench_receive(&e->side, conn, e->buffer, o->size);
	}
	meet(e);
	before = bench_usage_now();
	while (left) {
		left = 0;
		for (unsigned long n = 0; n < o->busy; n++)
			left += !move(e, &e->conns[n], o);
	}
	after = bench_usage_now();
	if (!e->first) {
		bench_put(e->peer, &before, sizeof(before));
		bench_put(e->peer, &after, sizeof(after));
		return;
	}
	bench_get(e->peer, theirs, sizeof(theirs));
	(void)printf("{\"seconds\": %.6f, \"messages\": %lu, \"cpu_send\": %.6f, "
		     "\"cpu_receive\": %.6f}\n",
		     (theirs[1].end > after.end ? theirs[1].end : after.end) - before.end, o->count,
		     after.cpu - before.cpu, theirs[1].cpu - theirs[0].cpu);
}

static void pause_us(unsigned long us)
{
	struct timespec ts = { .tv_sec = (time_t)(us / 1000000),
			       .tv_nsec = (long)(us % 1000000) * 1000 };

	if (us)
		(void)nanosleep(&ts, NULL);
}

static void send_one(struct end *e, struct bench_conn *conn, size_t size)
{
	while (!bench_send(&e->side, conn, e->buffer, size))
		;
}

/* One way and back; seconds. */
static double ping(struct end *e, const struct order *o, unsigned long *to_post)
{
	struct bench_conn *out = e->first ? &e->conns[0] : &e->back;
	struct bench_conn *in = e->first ? &e->back : &e->conns[0];
	double start = np_now(), took;

	if (e->first)
		send_one(e, out, o->size);
	while (!bench_test(&e->side, in, o->size))
		;
	took = np_now() - start;
	if (!e->first)
		send_one(e, out, o->size);
	while (!bench_test(&e->side, out, o->size))
		;
	if (*to_post) {
		bench_receive(&e->side, in, e->buffer, o->size);
		(*to_post)--;
	}
	return took;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void pingpong(struct end *e, const struct order *o)
{
	unsigned long to_post = WARM_UPS + o->count, n;
	double *took = calloc(o->count, sizeof(*took));

	bench_want(took, "out of memory");
	for (n = 0; n < PING_AHEAD; n++, to_post--)
		bench_receive(&e->side, e->first ? &e->back : &e->conns[0], e->buffer, o->size);
	meet(e);
	for (n = 0; n < WARM_UPS; n++)
		(void)ping(e, o, &to_post);
	for (n = 0; n < o->count; n++) {
		if (e->first)
			pause_us(o->gap);
		took[n] = ping(e, o, &to_post) * 1e6 / 2;
	}
	qsort(took, o->count, sizeof(*took), compare);
	if (e->first)
		(void)printf("{\"median_us\": %.3f, \"p10_us\": %.3f, \"p99_us\": %.3f, "
			     "\"samples\": %lu}\n",
			     took[o->count / 2], took[o->count / 10], took[o->count * 99 / 100],
			     o->count);
	free(took);
}

static bool read_order(const struct end *e, struct order *o)
{
	char line[256];

	*o = (struct order){ .kind = ORDER_END, .busy = 1 };
	if (!fgets(line, sizeof(line), stdin))
		return false;
	if (sscanf(line, "stream %lu %lu %lu %lu", &o->size, &o->window, &o->count, &o->busy) == 4)
		o->kind = ORDER_STREAM;
	else if (sscanf(line, "pingpong %lu %lu %lu", &o->size, &o->count, &o->gap) == 3)
		o->kind = ORDER_PINGPONG;
	bench_want(o->kind != ORDER_END && o->size <= BUFFER && o->count >= o->busy &&
			   o->count > PING_AHEAD && o->count <= COUNT_MAX,
		   "stream SIZE WINDOW COUNT BUSY, or pingpong SIZE COUNT GAP");
	if (o->kind == ORDER_STREAM)
		bench_want(o->window > 0 && o->window <= NCCL_NET_MAX_REQUESTS && o->busy > 0 &&
				   o->busy <= e->count,
			   "a window or a number of connections that can't be had");
	else
		bench_want(o->count <= SAMPLES, "too many samples");
	return true;
}

static void serve(struct end *e)
{
	struct order o;

	for (;;) {
		if (!e->first) {
			bench_get(e->peer, &o, sizeof(o));
		} else {
			(void)read_order(e, &o);
			bench_put(e->peer, &o, sizeof(o));
		}
		if (o.kind == ORDER_END)
			return;
		if (o.kind == ORDER_STREAM)
			stream(e, &o);
		else
			pingpong(e, &o);
		(void)fflush(stdout);
	}
}

static void run(struct end *e, const char *plugin, const char *how)
{
	struct bench_usage before;
	double start;

	(void)setenv("MPIB_FABRIC_NODE", e->first ? "1" : "2", 1);
	e->conns = calloc(e->count, sizeof(*e->conns));
	e->buffer = aligned_alloc(4096, BUFFER);
	bench_want(e->conns && e->buffer, "out of memory");
	memset(e->buffer, 1, BUFFER);
	bench_open(&e->side, plugin, how);
	open_back(e);
	before = bench_usage_with_memory();
	meet(e);
	start = np_now();
	set_up(e);
	tell_set_up(e, start, &before);
	for (unsigned int n = 0; n < e->count; n++)
		bench_reg(&e->side, &e->conns[n], e->buffer, BUFFER);
	serve(e);
	for (unsigned int n = 0; n < e->count; n++)
		bench_hang_up(&e->side, &e->conns[n], e->first);
	bench_hang_up(&e->side, &e->back, !e->first);
	meet(e);
	bench_close(&e->side);
	free(e->buffer);
	free(e->conns);
}

int main(int argc, char **argv)
{
	struct end e = { .first = true };
	int socks[2], status = 0;
	pid_t pid;

	if (argc != 4) {
		(void)fprintf(stderr, "usage: bench-ends PLUGIN fused|merged|DEVICE CONNECTIONS\n");
		return 2;
	}
	e.count = (unsigned int)bench_number(argv[3], CONNS_MAX, "1 to 4000 connections");
	bench_want(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0, "no socket");
	pid = fork();
	bench_want(pid >= 0, "fork failed");
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		e.first = false;
	}
	e.peer = socks[e.first];
	(void)close(socks[!e.first]);
	run(&e, argv[1], argv[2]);
	if (!e.first)
		return 0;
	bench_want(waitpid(pid, &status, 0) == pid && status == 0, "the receiver failed");
	return 0;
}
