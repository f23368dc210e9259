/* SPDX-License-Identifier: Apache-2.0 */
/* What a session tells: events for programs, sentences for people. */
#include "tests/netperf/session.h"

#include <stdio.h>
#include <string.h>

#include "tests/netperf/clock.h"
#include "tests/netperf/counters.h"
#include "tests/netperf/log.h"

#define STOP_MS 2000

static double per_second(double amount, double seconds)
{
	return seconds > 0 ? amount / seconds : 0;
}

void np_report_connected(struct np_session *s)
{
	struct np_json json;

	np_json_begin(&json, "connected");
	np_json_str(&json, "name", np_net_name(s->net));
	np_json_u64(&json, "connections", s->count);
	np_json_num(&json, "connect_max_ms", s->connect_max_s * 1000, 3);
	np_json_num(&json, "accept_max_ms", s->accept_max_s * 1000, 3);
	np_json_end(&json);
	np_say("%s v%d, device %s: %u connections, longest connect %.1f ms, accept %.1f ms",
	       np_net_name(s->net), s->net->api, s->props.name, s->count, s->connect_max_s * 1000,
	       s->accept_max_s * 1000);
}

void np_report_interval(struct np_session *s, double since, uint64_t *bytes, uint64_t *rails)
{
	double now = np_now(), span = now - since;
	uint64_t tx, rx, messages, rail_bytes[2];
	struct np_counters counters;
	struct np_json json;
	char line[128] = "";

	np_engine_bytes(&s->engine, &tx, &rx, &messages);
	np_json_begin(&json, "interval");
	np_json_num(&json, "t", now - s->data_at, 3);
	np_json_num(&json, "mbps", per_second((double)(tx + rx - *bytes) / 1e6, span), 3);
	np_json_u64(&json, "messages", messages);
	np_json_open(&json, "rails", '[');
	if (np_counters_open(&counters)) {
		np_counters_rails(&counters, rail_bytes);
		np_counters_close(&counters);
		for (int rail = 0; rail < 2; rail++) {
			double mbps =
				per_second((double)(rail_bytes[rail] - rails[rail]) / 1e6, span);

			np_json_open(&json, NULL, '{');
			np_json_u64(&json, "bytes", rail_bytes[rail]);
			np_json_num(&json, "mbps", mbps, 3);
			np_json_close(&json, '}');
			(void)snprintf(line + strlen(line), sizeof(line) - strlen(line),
				       ", %s %.2f", rail ? "SUP" : "SOUT", mbps);
			rails[rail] = rail_bytes[rail];
		}
	}
	np_json_close(&json, ']');
	np_json_end(&json);
	np_say("%8.2f s  %10.2f MB/s%s", now - s->data_at,
	       per_second((double)(tx + rx - *bytes) / 1e6, span), line);
	*bytes = tx + rx;
}

static void result_figures(struct np_session *s, struct np_json *json)
{
	double bytes = (double)(s->tx_bytes + s->rx_bytes);

	np_json_num(json, "mbps", per_second(bytes / 1e6, s->seconds), 3);
	np_json_num(json, "tx_mbps", per_second((double)s->tx_bytes / 1e6, s->seconds), 3);
	np_json_num(json, "rx_mbps", per_second((double)s->rx_bytes / 1e6, s->seconds), 3);
	np_json_u64(json, "messages", s->messages);
	np_json_num(json, "messages_per_s", per_second((double)s->messages, s->seconds), 1);
	np_json_u64(json, "bytes", s->tx_bytes + s->rx_bytes);
	np_json_num(json, "seconds", s->seconds, 6);
	np_json_num(json, "cpu_s", s->cpu_s, 6);
	np_json_open(json, "cpu", '{');
	np_json_num(json, "progress", np_worker_cpu(&s->progress), 6);
	np_json_num(json, "service", np_worker_cpu(&s->service), 6);
	np_json_num(json, "process", np_cpu(RUSAGE_SELF), 6);
	np_json_close(json, '}');
	if (s->lat_p50_us > 0) {
		np_json_num(json, "latency_p50_us", s->lat_p50_us, 2);
		np_json_num(json, "latency_p99_us", s->lat_p99_us, 2);
	}
}

static unsigned long long sum_of(const uint64_t rails[2])
{
	return (unsigned long long)rails[0] + rails[1];
}

static void result_rails(struct np_session *s, struct np_json *json)
{
	if (!s->counters)
		return;
	np_json_open(json, "rails", '[');
	for (int rail = 0; rail < 2; rail++) {
		np_json_open(json, NULL, '{');
		np_json_str(json, "rail", rail ? "sup" : "sout");
		np_json_u64(json, "sent", s->rail_sent[rail]);
		np_json_u64(json, "received", s->rail_received[rail]);
		if (s->failover_known) {
			np_json_u64(json, "losses", s->failover.losses[rail]);
			np_json_u64(json, "returns", s->failover.returns[rail]);
			np_json_u64(json, "parts_again", s->failover.again[rail]);
		}
		np_json_close(json, '}');
	}
	np_json_close(json, ']');
	np_json_u64(json, "rail_bytes", sum_of(s->rail_sent) + sum_of(s->rail_received));
}

static void say_rails(const struct np_session *s)
{
	static const char *const ways[2] = { "sent", "received" };

	for (int way = 0; s->counters && way < 2; way++) {
		const uint64_t *bytes = way ? s->rail_received : s->rail_sent;

		np_say("%-8s  SOUT %llu + SUP %llu = %llu bytes", ways[way],
		       (unsigned long long)bytes[0], (unsigned long long)bytes[1], sum_of(bytes));
	}
	if (!s->counters)
		np_say("bytes of each rail: the plugin publishes none");
}

/* Nothing where nothing was lost. */
static void say_failover(const struct np_session *s)
{
	for (int rail = 0; rail < 2; rail++) {
		if (!s->failover.losses[rail] && !s->failover.returns[rail])
			continue;
		np_say("%-8s  lost %llu times, back %llu times, %llu parts of messages sent again",
		       rail ? "SUP" : "SOUT", (unsigned long long)s->failover.losses[rail],
		       (unsigned long long)s->failover.returns[rail],
		       (unsigned long long)s->failover.again[rail]);
	}
}

static void result_calls(const struct np_session *s, struct np_json *json)
{
	if (!s->opts.call_times)
		return;
	np_json_open(json, "longest_calls", '{');
	for (int call = 0; call < NP_CALL_MAX; call++) {
		const struct np_call_time *time = &s->calls[call];

		np_json_open(json, np_call_name((enum np_call)call), '{');
		np_json_u64(json, "calls", time->calls);
		np_json_num(json, "wall_ms", time->wall * 1e3, 3);
		np_json_num(json, "user_ms", time->user * 1e3, 3);
		np_json_num(json, "system_ms", time->system * 1e3, 3);
		np_json_u64(json, "preempted", time->preempted);
		np_json_close(json, '}');
	}
	np_json_close(json, '}');
}

static void say_calls(const struct np_session *s)
{
	for (int call = 0; s->opts.call_times && call < NP_CALL_MAX; call++) {
		const struct np_call_time *time = &s->calls[call];

		if (time->calls)
			np_say("longest %-5s  %.3f ms (user %.3f, system %.3f, preempted %llu "
			       "times) of "
			       "%llu calls",
			       np_call_name((enum np_call)call), time->wall * 1e3, time->user * 1e3,
			       time->system * 1e3, (unsigned long long)time->preempted,
			       (unsigned long long)time->calls);
	}
}

static void say_result(struct np_session *s, bool ok)
{
	double bytes = (double)(s->tx_bytes + s->rx_bytes);

	np_say("%s: %s, %llu messages, %.2f MB/s, %.0f messages/s, %.3f s CPU in %.3f s",
	       np_mode_name(s->opts.mode), ok ? "ok" : "FAILED", (unsigned long long)s->messages,
	       per_second(bytes / 1e6, s->seconds), per_second((double)s->messages, s->seconds),
	       s->cpu_s, s->seconds);
	say_rails(s);
	say_failover(s);
	say_calls(s);
	if (s->lat_p50_us > 0)
		np_say("latency: p50 %.2f us, p99 %.2f us", s->lat_p50_us, s->lat_p99_us);
}

void np_report_result(struct np_session *s, bool ok)
{
	struct np_json json;
	char table[8];

	(void)snprintf(table, sizeof(table), "v%d", s->net->api);
	np_json_begin(&json, "result");
	np_json_bool(&json, "ok", ok);
	np_json_str(&json, "mode", np_mode_name(s->opts.mode));
	np_json_str(&json, "role", s->listener ? "listener" : "connector");
	np_json_str(&json, "table", table);
	np_json_str(&json, "name", np_net_name(s->net));
	np_json_u64(&json, "stages", s->stage_count);
	result_figures(s, &json);
	np_json_num(&json, "connect_max_ms", s->connect_max_s * 1000, 3);
	np_json_num(&json, "accept_max_ms", s->accept_max_s * 1000, 3);
	if (s->opts.expect_error > 0) {
		np_json_bool(&json, "expected_error", s->expected_seen);
		np_json_num(&json, "error_after_progress_s", s->expected_since_progress_s, 3);
		np_json_num(&json, "error_after_start_s", s->expected_after_s, 3);
	}
	result_rails(s, &json);
	result_calls(s, &json);
	np_json_errors(&json, "errors");
	np_json_raw(&json, "counters", s->counters ? s->counters : "");
	np_json_end(&json);
	say_result(s, ok);
}

void np_report_outstanding(struct np_session *s)
{
	atomic_store(&s->service_stop, true);
	atomic_store(&s->engine.stop, true);
	if (s->init.started && !np_worker_wait(&s->init, 0))
		np_warn("the init thread is inside init, devices or getProperties");
	if (s->service.started && !np_worker_wait(&s->service, STOP_MS))
		np_warn("the service thread is inside a call that doesn't return");
	if (s->progress.started && !np_worker_wait(&s->progress, STOP_MS)) {
		np_warn("the progress thread is inside isend, irecv or test, which doesn't return");
		return;
	}
	for (unsigned int n = 0; n < s->count; n++) {
		char name[NP_CHAN_NAME];

		if (s->chans[n].comm)
			np_chan_dump(&s->chans[n]);
		else
			np_warn("%s: not connected", np_chan_name(&s->chans[n], name));
	}
}
