/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "common/cleanup.h"
#include "tests/netperf/counters.h"
#include "tests/netperf/log.h"

#define POLL_MS	 5
#define GRACE_S	 30.0 /* what waits for the peer lets the peer's own watchdog speak first */
#define TEXT_MAX 1000

volatile sig_atomic_t np_signal;

static void drain_inbox(struct np_session *s)
{
	uint32_t type = s->ctl.type;

	free(s->inbox[type].body);
	s->inbox[type].body = mpib_steal_ptr(s->ctl.body);
	s->inbox[type].len = s->ctl.len;
	s->inbox[type].waiting++;
}

static int poll_peer(struct np_session *s)
{
	int r = 0;

	while (!s->ctl_gone && (r = np_ctl_poll(&s->ctl)) > 0)
		drain_inbox(s);
	/* a peer that has said its last word may go */
	if (r == 0 || (r == -ECONNRESET && s->inbox[NP_CTL_VERDICT].waiting))
		return 0;
	if (s->opts.expect_error > 0) {
		np_info("the peer's driver is gone; waiting for the plugin to notice");
		s->ctl_gone = true;
		return 0;
	}
	return r;
}

static int watchdog(struct np_session *s, double limit)
{
	uint64_t tick = np_engine_ticks(&s->engine) + atomic_load(&s->service_ticks);
	double now = np_now();

	if (tick != s->tick_seen || !s->watch || s->tick_at == 0) {
		s->tick_seen = tick;
		s->tick_at = now;
	}
	if (now - s->tick_at <= limit)
		return 0;
	if (s->opts.expect_error > 0)
		np_error("no error from the plugin within %.1f s of the last progress", limit);
	else
		np_error("nothing moved for %.1f s", limit);
	return s->opts.expect_error > 0 ? -ENODATA : -ETIMEDOUT;
}

static int poll_limit(struct np_session *s, double limit)
{
	int r;

	if (np_signal)
		return -EINTR;
	r = poll_peer(s);
	return r < 0 ? r : watchdog(s, limit);
}

static double own_limit(const struct np_session *s)
{
	return s->opts.expect_error > 0 ? s->opts.expect_error : s->opts.timeout;
}

int np_session_poll(struct np_session *s)
{
	return poll_limit(s, own_limit(s));
}

int np_session_job(struct np_session *s, struct np_worker *worker, void (*job)(void *arg),
		   void *arg)
{
	np_worker_post(worker, job, arg);
	while (!np_worker_wait(worker, POLL_MS)) {
		int r = np_session_poll(s);

		if (r < 0)
			return r;
	}
	return 0;
}

int np_session_wait(struct np_session *s, enum np_ctl_type type)
{
	struct pollfd pfd = { .fd = s->ctl.fd, .events = POLLIN };

	while (!s->inbox[type].waiting) {
		int r = poll_limit(s, own_limit(s) + GRACE_S);

		if (r < 0)
			return r;
		if (s->inbox[type].waiting)
			break;
		if (s->ctl_gone)
			return -ECONNRESET;
		(void)poll(&pfd, 1, POLL_MS);
	}
	s->inbox[type].waiting--;
	return 0;
}

int np_session_barrier(struct np_session *s)
{
	int r = np_ctl_send(&s->ctl, NP_CTL_READY, NULL, 0);

	return r < 0 ? r : np_session_wait(s, NP_CTL_READY);
}

static int hold(struct np_session *s)
{
	double until = np_now() + s->opts.hold;
	int r = 0;

	s->watch = false;
	if (s->opts.hold > 0) {
		struct np_json json;

		np_json_begin(&json, "hold");
		np_json_num(&json, "seconds", s->opts.hold, 1);
		np_json_end(&json);
		np_say("holding the connections for %.1f s", s->opts.hold);
	}
	while (r == 0 && np_now() < until && !s->inbox[NP_CTL_VERDICT].waiting) {
		r = np_session_poll(s);
		(void)usleep(10000);
	}
	s->watch = true;
	return r;
}

static int run_stages(struct np_session *s)
{
	unsigned int count;
	int r = 0;

	s->data_at = np_now();
	for (uint64_t round = 0; r == 0 && round < s->opts.rounds; round++) {
		count = np_plan_stages(&s->opts, s->net->api, s->max_recvs, s->count, round,
				       s->stages);
		for (unsigned int n = 0; r == 0 && n < count; n++) {
			double start = np_now();

			r = np_session_stage(s, &s->stages[n]);
			s->stage_count += r == 0;
			if (r == 0 && s->opts.mode == NP_MODE_VERIFY)
				np_say("%-16s right, %.2f s", s->stages[n].name, np_now() - start);
		}
	}
	return r;
}

static int exchange_verdict(struct np_session *s)
{
	char text[TEXT_MAX];
	int r;

	np_error_reason(text, sizeof(text));
	r = np_ctl_send(&s->ctl, NP_CTL_VERDICT, text, strlen(text));
	if (r == 0)
		r = np_session_wait(s, NP_CTL_VERDICT);
	if (r < 0)
		return r;
	if (s->inbox[NP_CTL_VERDICT].len)
		np_error("the peer: %.*s", TEXT_MAX, (const char *)s->inbox[NP_CTL_VERDICT].body);
	return 0;
}

/* Tells once why the run ended early, and tells the peer. */
static void explain(struct np_session *s, int error)
{
	char text[TEXT_MAX];

	/* a send that failed: the reason may have come before */
	if (error == -EPIPE || error == -ECONNRESET) {
		int r;

		while ((r = np_ctl_poll(&s->ctl)) > 0)
			continue;
		error = r == -ECONNABORTED ? r : -ECONNRESET;
	}
	if (error == -EINTR)
		np_error("stopped by signal %d", (int)np_signal);
	else if (error == -ECONNABORTED)
		np_error("the peer: %s", s->ctl.abort_text);
	else if (error == -ECONNRESET)
		np_error("the peer's driver (%s) went away", s->ctl.peer);
	else if (error == -ETIMEDOUT || error == -ENODATA)
		np_report_outstanding(s);
	else if (!np_error_count())
		np_error("%s", strerror(-error));

	np_error_reason(text, sizeof(text));
	if (error != -ECONNABORTED && !s->ctl_gone)
		(void)np_ctl_send(&s->ctl, NP_CTL_ABORT, text, strlen(text));
}

static int start_workers(struct np_session *s)
{
	int r = np_worker_init(&s->init, "np-init");

	if (r == 0)
		r = np_worker_init(&s->service, "np-service");
	return r < 0 ? r : np_worker_init(&s->progress, "np-progress");
}

static int run_all(struct np_session *s)
{
	int r = start_workers(s);

	if (r == 0)
		r = np_session_setup(s);
	if (r < 0)
		return r;
	np_report_connected(s);
	r = run_stages(s);
	if (r == 0)
		r = hold(s);
	return r < 0 ? r : exchange_verdict(s);
}

static void sample_counters(struct np_session *s)
{
	struct np_counters counters;

	if (!np_counters_open(&counters))
		return;
	np_counters_ways(&counters, s->rail_sent, s->rail_received);
	s->failover_known = np_counters_failover(&counters, &s->failover);
	s->counters = np_counters_text(&counters);
	np_counters_close(&counters);
}

static void session_free(struct np_session *s)
{
	for (unsigned int n = 0; n < NP_CTL_TYPE_MAX; n++)
		free(s->inbox[n].body);
	free(s->counters);
	np_ctl_close(&s->ctl);
	free(s);
}

int np_session_run(const struct np_options *opts, struct np_net *net, struct np_ctl *ctl,
		   bool listener)
{
	struct np_session *s = calloc(1, sizeof(*s));
	int code;
	bool ok;

	if (!s) {
		np_ctl_close(ctl);
		return NP_EXIT_FAILED;
	}
	s->opts = *opts;
	s->net = net;
	s->ctl = *ctl;
	s->listener = listener;
	s->watch = true;
	np_error_reset();

	s->result = run_all(s);
	if (s->result < 0)
		explain(s, s->result);
	else if (s->opts.expect_error > 0)
		np_error("the run ended without the error that was expected");
	code = s->result == -ETIMEDOUT ? NP_EXIT_TIMEOUT : NP_EXIT_FAILED;
	if (!s->service.started || np_worker_wait(&s->service, 0))
		sample_counters(s);
	np_session_teardown(s, code);
	/* the plugin may have failed here before the peer's own reason came */
	if (s->result < 0 && !s->ctl_gone && s->result != -ECONNABORTED && np_ctl_linger(&s->ctl))
		np_error("the peer: %s", s->ctl.abort_text);

	ok = s->expected_seen || (s->result == 0 && !np_error_count());
	np_report_result(s, ok);
	session_free(s);
	return ok ? NP_EXIT_OK : code;
}
