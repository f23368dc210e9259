/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/engine.h"

#include <math.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/netperf/clock.h"

/* The clock is read once in so many turns where nothing moves. */
#define TURNS 16
/* Where nothing has moved for long, a rail is lost or slow, and others want the processor: the
 * thread sleeps for a part of the time that it has waited, so that nothing is seen later by more
 * than that part. */
#define NAP_AFTER 0.0005
#define NAP_PART  (1.0 / 32)
#define NAP_MAX	  0.001

uint64_t np_engine_ticks(const struct np_engine *engine)
{
	uint64_t sum = 0;

	for (unsigned int n = 0; n < engine->count; n++)
		sum += atomic_load_explicit(&engine->chans[n].posted, memory_order_relaxed) +
		       atomic_load_explicit(&engine->chans[n].done, memory_order_relaxed);
	return sum;
}

void np_engine_bytes(const struct np_engine *engine, uint64_t *ret_tx, uint64_t *ret_rx,
		     uint64_t *ret_messages)
{
	*ret_tx = *ret_rx = *ret_messages = 0;
	for (unsigned int n = 0; n < engine->count; n++) {
		const struct np_chan *chan = &engine->chans[n];

		*(chan->send ? ret_tx : ret_rx) +=
			atomic_load_explicit(&chan->bytes, memory_order_relaxed);
		*ret_messages += atomic_load_explicit(&chan->done, memory_order_relaxed);
	}
}

static void measure_begin(struct np_engine *engine, double now)
{
	engine->measuring = true;
	engine->measure_start = now;
	engine->cpu = np_cpu(RUSAGE_THREAD);
	np_engine_bytes(engine, &engine->tx_bytes, &engine->rx_bytes, &engine->messages);
	for (unsigned int n = 0; n < engine->count; n++)
		engine->chans[n].latency_count = 0;
}

static void measure_end(struct np_engine *engine, double now)
{
	uint64_t tx, rx, messages;

	if (!engine->measuring || engine->measured)
		return;
	np_engine_bytes(engine, &tx, &rx, &messages);
	engine->measured = true;
	engine->measure_end = now;
	engine->cpu = np_cpu(RUSAGE_THREAD) - engine->cpu;
	engine->tx_bytes = tx - engine->tx_bytes;
	engine->rx_bytes = rx - engine->rx_bytes;
	engine->messages = messages - engine->messages;
}

static bool is_warm(const struct np_engine *engine, double now)
{
	uint64_t tx, rx, messages;

	if (!engine->warm_messages)
		return now - engine->started_at >= engine->warmup;
	np_engine_bytes(engine, &tx, &rx, &messages);
	return messages >= engine->warm_messages;
}

/* One turn; 1: something moved, 0: nothing, -1: failed; *ret_left: connections that have not
 * reached their target. */
static int turn(struct np_engine *engine, bool post, unsigned int *ret_left)
{
	int moved = 0;

	*ret_left = 0;
	for (unsigned int n = 0; n < engine->count; n++) {
		struct np_chan *chan = &engine->chans[n];
		int r;

		r = np_chan_progress(chan, engine->net, post, &engine->fail_call,
				     &engine->fail_result);
		if (r < 0)
			return r;
		moved |= r;
		*ret_left += atomic_load_explicit(&chan->done, memory_order_relaxed) <
			     atomic_load_explicit(&chan->target, memory_order_relaxed);
	}
	return moved;
}

static void rest(const struct np_engine *engine, double idle_for)
{
	if (engine->rest_us)
		(void)usleep(engine->rest_us);
	else if (idle_for < NAP_AFTER)
		(void)sched_yield();
	else
		(void)usleep((useconds_t)(fmin(idle_for * NAP_PART, NAP_MAX) * 1e6));
}

void np_engine_run(void *arg)
{
	struct np_engine *engine = arg;
	unsigned int idle = 0, left = 1;
	double idle_for = 0;

	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	engine->started_at = engine->moved_at = np_now();
	if (engine->warmup <= 0 && !engine->warm_messages)
		measure_begin(engine, engine->started_at);
	while (left && !atomic_load_explicit(&engine->stop, memory_order_relaxed)) {
		bool freeze = atomic_load_explicit(&engine->freeze, memory_order_acquire);
		int r = turn(engine, !freeze, &left);

		(void)atomic_fetch_add_explicit(&engine->loops, 1, memory_order_relaxed);
		if (r < 0) {
			engine->failed = true;
			break;
		}
		if (r > 0 || ++idle % TURNS == 0 || idle_for >= NAP_AFTER || freeze) {
			double now = np_now();

			if (r > 0)
				engine->moved_at = now;
			idle_for = now - engine->moved_at;
			if (!engine->measuring && is_warm(engine, now))
				measure_begin(engine, now);
			if (freeze)
				measure_end(engine, now);
		}
		/* after the turn: nothing is posted from here on, so the counts stand */
		atomic_store_explicit(&engine->frozen, freeze, memory_order_release);
		if (r == 0)
			rest(engine, idle_for);
	}
	engine->ended_at = np_now();
	measure_end(engine, engine->ended_at);
}
