/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread's loop over all connections. */
#ifndef MPIB_NETPERF_ENGINE_H
#define MPIB_NETPERF_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tests/netperf/chan.h"

struct np_engine {
	struct np_net *net;
	struct np_chan *chans;
	unsigned int count;
	double warmup;		/* seconds that are not measured, or ... */
	uint64_t warm_messages; /* ... messages, where not 0 */
	unsigned int rest_us;	/* slept where nothing moved; 0: naps where it hasn't for long */

	_Atomic bool stop;	/* main: end now, whatever is out */
	_Atomic bool freeze;	/* main: post nothing new */
	_Atomic bool frozen;	/* progress: heard */
	_Atomic uint64_t loops; /* progress: still turning */

	/* results; the main thread reads them when the worker is idle */
	bool failed;
	const char *fail_call;	  /* of the plugin, and ... */
	ncclResult_t fail_result; /* ... what it returned; ncclSuccess: the driver's verdict */
	double started_at, moved_at, ended_at;
	bool measuring, measured;
	double measure_start, measure_end, cpu;
	uint64_t tx_bytes, rx_bytes, messages; /* between the two */
};

/* The worker's job; @arg is the engine. Ends when every connection has reached its target. */
void np_engine_run(void *arg);

/* Messages posted and done so far, all connections together: moves while anything moves. */
uint64_t np_engine_ticks(const struct np_engine *engine);

/* Bytes of messages done so far. Any thread. */
void np_engine_bytes(const struct np_engine *engine, uint64_t *ret_tx, uint64_t *ret_rx,
		     uint64_t *ret_messages);

#endif
