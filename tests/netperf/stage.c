/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of a session: buffers, traffic, agreement on where it ends, and the last look. */
#include "tests/netperf/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "tests/netperf/counters.h"
#include "tests/netperf/log.h"

#define POLL_MS	    5
#define CHURN_BYTES (64u << 10)
#define CHURN_US    500
#define STOP_MS	    5000

static void open_job(void *arg)
{
	struct np_session *s = arg;
	bool latencies = s->opts.mode == NP_MODE_BW && s->opts.window == 1;

	for (unsigned int n = 0; n < s->count; n++)
		s->chans[n].time_calls = s->opts.call_times;
	for (unsigned int n = 0; n < s->count && s->job_result == 0; n++)
		s->job_result = np_chan_open(&s->chans[n], s->net, &s->stage, s->opts.seed,
					     latencies && s->chans[n].send);
}

static void close_job(void *arg)
{
	struct np_session *s = arg;

	for (unsigned int n = 0; n < s->count; n++) {
		if (!np_chan_check_end(&s->chans[n]))
			s->job_result = -EIO;
		np_chan_close(&s->chans[n], s->net);
	}
}

/* User buffers are registered while the progress thread uses the connection. */
static void churn_job(void *arg)
{
	struct np_session *s = arg;
	char *scratch = aligned_alloc(4096, CHURN_BYTES);
	unsigned int turn = 0;

	if (!scratch)
		return;
	while (!atomic_load(&s->service_stop)) {
		struct np_chan *chan = &s->chans[turn++ % s->count];
		void *mhandle = NULL;
		ncclResult_t res = np_net_reg(s->net, chan->comm, scratch, CHURN_BYTES, &mhandle);

		(void)usleep(CHURN_US);
		if (res == ncclSuccess)
			res = np_net_dereg(s->net, chan->comm, mhandle);
		if (res != ncclSuccess) {
			np_error("regMr or deregMr beside the traffic: %s", np_result_name(res));
			s->job_result = -EIO;
			break;
		}
	}
	free(scratch);
}

static int run_service(struct np_session *s, void (*job)(void *arg))
{
	int r;

	s->job_result = 0;
	r = np_session_job(s, &s->service, job, s);
	return r < 0 ? r : s->job_result;
}

/* The engine stands still and its counts stay as they are. */
static int wait_frozen(struct np_session *s)
{
	atomic_store_explicit(&s->engine.freeze, true, memory_order_release);
	while (!atomic_load_explicit(&s->engine.frozen, memory_order_acquire)) {
		int r = np_session_poll(s);

		if (r < 0 || np_worker_wait(&s->progress, POLL_MS))
			return r;
	}
	return 0;
}

static int take_numbers(struct np_session *s, enum np_ctl_type type, uint64_t *ret)
{
	int r = np_session_wait(s, type);

	if (r < 0)
		return r;
	if (s->inbox[type].len != s->count * sizeof(*ret))
		return -EBADMSG;
	memcpy(ret, s->inbox[type].body, s->count * sizeof(*ret));
	for (unsigned int n = 0; n < s->count; n++)
		ret[n] = be64toh(ret[n]);
	return 0;
}

static int send_numbers(struct np_session *s, enum np_ctl_type type, uint64_t *numbers)
{
	for (unsigned int n = 0; n < s->count; n++)
		numbers[n] = htobe64(numbers[n]);
	return np_ctl_send(&s->ctl, type, numbers, s->count * sizeof(*numbers));
}

/* Both ends stop posting; the connecting side sets each connection's last message to the larger
 * of what sender and receiver have posted; both go on up to there. */
static int agree_end(struct np_session *s)
{
	uint64_t *mine = calloc(s->count, 2 * sizeof(*mine)), *theirs;
	int r;

	if (!mine)
		return -ENOMEM;
	theirs = mine + s->count;
	r = s->listener ? 0 : np_ctl_send(&s->ctl, NP_CTL_FREEZE, NULL, 0);
	if (r == 0)
		r = wait_frozen(s);
	for (unsigned int n = 0; n < s->count; n++)
		mine[n] = atomic_load(&s->chans[n].posted);
	if (r == 0 && s->listener) {
		r = send_numbers(s, NP_CTL_COUNTS, mine);
		if (r == 0)
			r = take_numbers(s, NP_CTL_TARGETS, theirs);
	} else if (r == 0) {
		r = take_numbers(s, NP_CTL_COUNTS, theirs);
		for (unsigned int n = 0; r == 0 && n < s->count; n++)
			theirs[n] = theirs[n] > mine[n] ? theirs[n] : mine[n];
		if (r == 0) {
			memcpy(mine, theirs, s->count * sizeof(*mine));
			r = send_numbers(s, NP_CTL_TARGETS, mine);
		}
	}
	for (unsigned int n = 0; r == 0 && n < s->count; n++)
		atomic_store(&s->chans[n].target, theirs[n]);
	atomic_store_explicit(&s->engine.freeze, false, memory_order_release);
	free(mine);
	return r;
}

/* The connecting side says when traffic without a target ends. */
static bool is_over(struct np_session *s, double seconds)
{
	if (s->listener)
		return s->inbox[NP_CTL_FREEZE].waiting > 0;
	return seconds >= s->opts.seconds ||
	       (s->opts.end_file && access(s->opts.end_file, F_OK) == 0);
}

/* Waits for the progress thread, with the clock and the peer's wish in view. */
static int watch_traffic(struct np_session *s)
{
	bool open_end = s->stage.messages == NP_NO_TARGET;
	double start = np_now(), last = start;
	uint64_t bytes = 0, rails[2] = { 0, 0 };
	int r;

	while (!np_worker_wait(&s->progress, POLL_MS)) {
		double now = np_now();

		r = np_session_poll(s);
		if (r < 0)
			return r;
		if (s->opts.interval > 0 && now - last >= s->opts.interval) {
			np_report_interval(s, last, &bytes, rails);
			last = now;
		}
		if (!open_end)
			continue;
		if (is_over(s, now - start)) {
			s->inbox[NP_CTL_FREEZE].waiting = 0;
			open_end = false;
			r = agree_end(s);
			if (r < 0)
				return r;
		}
	}
	return s->engine.failed ? -EIO : 0;
}

static void prepare_engine(struct np_session *s)
{
	double quarter = s->opts.seconds / 4;

	s->engine = (struct np_engine){
		.net = s->net,
		.chans = s->chans,
		.count = s->count,
		.rest_us = (unsigned int)(s->opts.rest * 1e6),
	};
	if (s->opts.mode == NP_MODE_BW)
		s->engine.warmup = s->opts.warmup >= 0 ? s->opts.warmup : quarter < 1 ? quarter : 1;
	if (s->opts.mode == NP_MODE_BW && s->opts.messages) /* a tenth, at least one each */
		s->engine.warm_messages = s->count * (s->opts.messages / 10 + 1);
	for (unsigned int n = 0; n < s->count; n++) {
		atomic_store(&s->chans[n].posted, 0);
		atomic_store(&s->chans[n].done, 0);
		atomic_store(&s->chans[n].bytes, 0);
		atomic_store(&s->chans[n].target, s->stage.messages);
	}
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void keep_latencies(struct np_session *s)
{
	for (unsigned int n = 0; n < s->count; n++) {
		struct np_chan *chan = &s->chans[n];
		uint64_t count = chan->latency_count;

		if (count > NP_LATENCIES_MAX)
			count = NP_LATENCIES_MAX;
		if (!chan->latencies || !count)
			continue;
		qsort(chan->latencies, count, sizeof(double), compare_doubles);
		s->lat_p50_us = chan->latencies[count / 2] * 1e6;
		s->lat_p99_us = chan->latencies[count * 99 / 100] * 1e6;
	}
}

static void keep_call_times(struct np_session *s)
{
	for (unsigned int n = 0; n < s->count; n++) {
		struct np_call_time *calls = s->chans[n].calls;

		for (int call = 0; call < NP_CALL_MAX; call++) {
			np_call_merge(&s->calls[call], &calls[call]);
			calls[call] = (struct np_call_time){ 0 };
		}
	}
}

static void keep_figures(struct np_session *s)
{
	const struct np_engine *engine = &s->engine;

	s->seconds += engine->measure_end - engine->measure_start;
	s->cpu_s += engine->cpu;
	s->tx_bytes += engine->tx_bytes;
	s->rx_bytes += engine->rx_bytes;
	s->messages += engine->messages;
	if (s->opts.mode == NP_MODE_BW)
		keep_latencies(s);
	keep_call_times(s);
}

static void note_failure(struct np_session *s)
{
	const struct np_engine *engine = &s->engine;

	/* an error is expected of the plugin; wrong bytes never are */
	if (s->opts.expect_error <= 0 || engine->fail_result == ncclSuccess)
		return;
	s->expected_after_s = engine->ended_at - engine->started_at;
	s->expected_since_progress_s = engine->ended_at - engine->moved_at;
	s->expected_seen = s->expected_since_progress_s <= s->opts.expect_error;
	np_say("%s returned %s %.3f s after the last progress, %.3f s into the data",
	       engine->fail_call, np_result_name(engine->fail_result), s->expected_since_progress_s,
	       s->expected_after_s);
}

int np_session_stage(struct np_session *s, const struct np_stage *stage)
{
	int r;

	s->stage = *stage;
	r = run_service(s, open_job);
	if (r == 0)
		r = np_session_barrier(s);
	if (r < 0)
		return r;

	prepare_engine(s);
	atomic_store(&s->service_stop, false);
	np_worker_post(&s->progress, np_engine_run, &s->engine);
	s->job_result = 0;
	if (stage->churn)
		np_worker_post(&s->service, churn_job, s);
	r = watch_traffic(s);
	atomic_store(&s->service_stop, true);
	if (r < 0)
		atomic_store(&s->engine.stop, true);
	if (np_worker_wait(&s->progress, STOP_MS)) {
		keep_figures(s);
		if (s->engine.failed)
			note_failure(s);
	}
	if (stage->churn && !np_worker_wait(&s->service, STOP_MS))
		return r < 0 ? r : -ETIMEDOUT;
	if (r == 0)
		r = s->job_result;
	/* the peer has all that it waited for: what is written here from now on is written late */
	if (r == 0)
		r = np_session_barrier(s);
	return r < 0 ? r : run_service(s, close_job);
}
