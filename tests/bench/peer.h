/* SPDX-License-Identifier: Apache-2.0 */
/* What the two processes of a benchmark tell each other. Failures end the program, as in side.h. */
#ifndef MPIB_BENCH_PEER_H
#define MPIB_BENCH_PEER_H

#include <stddef.h>

/* What this process has used so far. */
struct bench_usage {
	double cpu; /* seconds, all threads */
	double end; /* monotonic time of the look */
	long rss;   /* KiB of private memory; only with memory */
	long fds;   /* only with memory */
};

struct bench_usage bench_usage_now(void);
/* The same, memory and files too: takes too long for what is timed. */
struct bench_usage bench_usage_with_memory(void);

/* All of @len bytes over the socket @fd. */
void bench_put(int fd, const void *data, size_t len);
void bench_get(int fd, void *data, size_t len);

#endif
