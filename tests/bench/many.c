/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a message costs where there are many connections: both ends of all of them in one process
 * and one thread, over the fabric's null mode, so that the CPU time is the messages' own. Messages
 * of 64 KiB go in turns over the busy connections, eight on each. mpib_bench_measured() is
 * what callgrind looks at.
 *
 *     bench-many PLUGIN fused|merged|DEVICE CONNECTIONS BUSY MESSAGES ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/bench/side.h"
#include "tests/netperf/clock.h"

#define SIZE	   65536u
#define WINDOW	   8u
#define CONNS_MAX  2000u
#define ROUNDS_MAX 1000u
/* Past the first turn of every ring. The last ones are the send queues of MPIB's four SUP QPs, of
 * 320 requests each, which a turn fills by two. Memory that is touched for the first time is
 * cleared by the kernel meanwhile, which costs more than the message: "faults" tells whether some
 * was. */
#define TURNS 170u

struct pair {
	struct bench_conn send, recv;
};

struct many {
	struct bench_side side;
	struct pair *pairs;
	unsigned int count, busy;
	char *out, *in;
};

static void join(struct many *m, struct pair *pair)
{
	bool connected = false, accepted = false;

	bench_listen(&m->side, &pair->recv);
	for (size_t n = 0; n < sizeof(pair->send.handle); n++)
		pair->send.handle[n] = pair->recv.handle[n];
	while (!connected || !accepted) {
		if (!connected)
			connected = bench_connect(&m->side, &pair->send);
		if (!accepted)
			accepted = bench_accept(&m->side, &pair->recv);
	}
	bench_reg(&m->side, &pair->send, m->out, SIZE);
	bench_reg(&m->side, &pair->recv, m->in, SIZE);
}

/* In null mode all is there when it is posted; a few calls find it. */
static void finish(struct many *m, struct bench_conn *conn)
{
	for (unsigned int tries = 0; tries < 4; tries++)
		if (bench_test(&m->side, conn, SIZE))
			return;
	bench_give_up("a request isn't done");
}

/* WINDOW messages over each busy connection. */
static void turn(struct many *m)
{
	for (unsigned int n = 0; n < m->busy; n++) {
		struct pair *pair = &m->pairs[n];

		for (unsigned int k = 0; k < WINDOW; k++)
			bench_receive(&m->side, &pair->recv, m->in, SIZE);
		for (unsigned int k = 0; k < WINDOW; k++)
			bench_want(bench_send(&m->side, &pair->send, m->out, SIZE),
				   "isend gave no request");
		for (unsigned int k = 0; k < WINDOW; k++)
			finish(m, &pair->recv);
		for (unsigned int k = 0; k < WINDOW; k++)
			finish(m, &pair->send);
	}
}

void mpib_bench_measured(struct many *m, unsigned long turns);

__attribute__((noinline)) void mpib_bench_measured(struct many *m, unsigned long turns)
{
	for (unsigned long n = 0; n < turns; n++)
		turn(m);
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* Seconds; finer than getrusage. */
static double thread_cpu(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static long faults(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static void measure(struct many *m, unsigned long messages, unsigned long rounds)
{
	unsigned long each = (unsigned long)m->busy * WINDOW;
	unsigned long turns = (messages + each - 1) / each;
	double ns[ROUNDS_MAX], wall = np_now();
	long before;

	for (unsigned long n = 0; n < TURNS; n++)
		turn(m);
	before = faults();
	for (unsigned long n = 0; n < rounds; n++) {
		double start = thread_cpu();

		mpib_bench_measured(m, turns);
		ns[n] = (thread_cpu() - start) * 1e9 / (double)(turns * each);
	}
	before = faults() - before;
	wall = np_now() - wall;
	qsort(ns, rounds, sizeof(ns[0]), compare);
	(void)printf("{\"cpu_ns\": %.2f, \"min_ns\": %.2f, \"messages\": %lu, \"rounds\": %lu, "
		     "\"seconds\": %.3f, \"faults\": %ld}\n",
		     ns[rounds / 2], ns[0], turns * each, rounds, wall, before);
}

int main(int argc, char **argv)
{
	struct many m = { 0 };
	unsigned long messages, rounds;

	if (argc != 7) {
		(void)fprintf(stderr, "usage: bench-many PLUGIN fused|merged|DEVICE CONNECTIONS "
				      "BUSY MESSAGES ROUNDS\n");
		return 2;
	}
	m.count = (unsigned int)bench_number(argv[3], CONNS_MAX, "1 to 2000 connections");
	m.busy = (unsigned int)bench_number(argv[4], m.count, "busy: 1 to all connections");
	messages = bench_number(argv[5], 1000000000, "a number of messages");
	rounds = bench_number(argv[6], ROUNDS_MAX, "1 to 1000 rounds");
	m.pairs = calloc(m.count, sizeof(*m.pairs));
	m.out = calloc(1, SIZE);
	m.in = calloc(1, SIZE);
	bench_want(m.pairs && m.out && m.in, "out of memory");
	bench_open(&m.side, argv[1], argv[2]);
	for (unsigned int n = 0; n < m.count; n++)
		join(&m, &m.pairs[n]);

	measure(&m, messages, rounds);

	for (unsigned int n = 0; n < m.count; n++) {
		bench_hang_up(&m.side, &m.pairs[n].send, true);
		bench_hang_up(&m.side, &m.pairs[n].recv, false);
	}
	bench_close(&m.side);
	free(m.pairs);
	free(m.out);
	free(m.in);
	return 0;
}
