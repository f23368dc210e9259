/* SPDX-License-Identifier: Apache-2.0 */
/* One end of some connections, as the benchmark programs hold it. All functions end the program
 * with a line on stderr where something fails: a figure of half a run is none. One thread. */
#ifndef MPIB_BENCH_SIDE_H
#define MPIB_BENCH_SIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/netperf/net.h"

#define BENCH_TAG 7

/* One direction of traffic; the program that sends has the other end of it. */
struct bench_conn {
	void *listen; /* receiver, until accepted */
	void *comm;
	void *mr;
	char handle[NCCL_NET_HANDLE_MAXSIZE];
	void *requests[NCCL_NET_MAX_REQUESTS]; /* a ring, the oldest at head */
	unsigned int head, used;
	unsigned long posted, done, quota; /* messages of the current run */
};

struct bench_side {
	struct np_net net;
	int dev;
};

_Noreturn void bench_give_up(const char *what);
void bench_want(bool good, const char *what);

/* Opens @plugin with table v11 and takes as many file descriptors as the system allows. @how is
 * "fused" (device 0), "merged" (devices 0 and 1 by makeVDevice) or a device's number. */
void bench_open(struct bench_side *side, const char *plugin, const char *how);
void bench_close(struct bench_side *side);

void bench_listen(struct bench_side *side, struct bench_conn *conn);
/* Each one step of its set-up; true once connected. */
bool bench_connect(struct bench_side *side, struct bench_conn *conn);
bool bench_accept(struct bench_side *side, struct bench_conn *conn);
void bench_reg(struct bench_side *side, struct bench_conn *conn, void *data, size_t len);
void bench_hang_up(struct bench_side *side, struct bench_conn *conn, bool sender);

/* Posts one message of @size; false where the plugin takes none now (a send without its receive).
 * The ring must have room. */
bool bench_send(struct bench_side *side, struct bench_conn *conn, void *data, size_t size);
void bench_receive(struct bench_side *side, struct bench_conn *conn, void *data, size_t size);
/* False where the plugin takes none now, as while a rail is being lost. */
bool bench_try_receive(struct bench_side *side, struct bench_conn *conn, void *data, size_t size);
/* Asks for the oldest request; true where it was done, with @size bytes, and is gone. */
bool bench_test(struct bench_side *side, struct bench_conn *conn, size_t size);
/* The same for any size, which *told has then. */
bool bench_test_any(struct bench_side *side, struct bench_conn *conn, int *told);

/* Positive number of the command line. */
unsigned long bench_number(const char *text, unsigned long max, const char *what);

#endif
