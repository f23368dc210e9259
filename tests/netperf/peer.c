/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "tests/netperf/clock.h"
#include "tests/netperf/log.h"
#include "tests/netperf/session.h"

#define HELLO_S	 5.0
#define REPEAT_S 10.0 /* between lines about the same wait */

/* A bounded wait of the connecting side. */
struct wait {
	const struct np_ctl *ctl;
	const char *what;
	double start, limit; /* seconds */
	double said_at;	     /* 0: not yet */
	char said[128];	     /* the reason in the latest line */
};

int np_peer_idle(void *arg)
{
	(void)arg;
	return np_signal ? -EINTR : 0;
}

static void say_wait(struct wait *wait, double now)
{
	struct np_json json;

	wait->said_at = now;
	(void)snprintf(wait->said, sizeof(wait->said), "%s", wait->ctl->reason);
	np_json_begin(&json, "waiting");
	np_json_str(&json, "for", wait->what);
	np_json_str(&json, "peer", wait->ctl->peer);
	np_json_str(&json, "reason", wait->ctl->reason);
	np_json_num(&json, "elapsed_s", now - wait->start, 1);
	np_json_num(&json, "limit_s", wait->limit, 1);
	np_json_end(&json);
	np_say("waiting for %s at %s, %.0f of at most %.0f s%s%s", wait->what, wait->ctl->peer,
	       now - wait->start, wait->limit, *wait->ctl->reason ? ": " : "", wait->ctl->reason);
}

static int wait_idle(void *arg)
{
	struct wait *wait = arg;
	double now = np_now();

	if (np_signal)
		return -EINTR;
	if (now > wait->start + wait->limit)
		return -ETIMEDOUT;
	if (wait->said_at == 0 || now > wait->said_at + REPEAT_S ||
	    strcmp(wait->said, wait->ctl->reason) != 0)
		say_wait(wait, now);
	return 0;
}

static int fail_connect(const struct np_ctl *ctl, const struct wait *wait, int error)
{
	if (error == -EINTR)
		np_error("stopped by signal %d", (int)np_signal);
	else if (error == -EADDRNOTAVAIL && wait->said_at == 0)
		np_error("%s: no such host or port: %s", ctl->peer, ctl->reason);
	else
		np_error("no listener at %s within %.1f s: %s", ctl->peer, wait->limit,
			 *ctl->reason ? ctl->reason : strerror(-error));
	return error == -EINTR || error == -EADDRNOTAVAIL ? NP_EXIT_FAILED : NP_EXIT_TIMEOUT;
}

static int fail_answer(const struct np_ctl *ctl, const struct wait *wait, int error)
{
	switch (error) {
	case -EINTR:
		np_error("stopped by signal %d", (int)np_signal);
		return NP_EXIT_FAILED;
	case -ECONNABORTED:
		np_error("the peer: %s", ctl->abort_text);
		return NP_EXIT_FAILED;
	case -ETIMEDOUT:
		np_error("%s took the connection but did not answer within %.1f s: it serves "
			 "another run, or is no mpib-netperf",
			 ctl->peer, wait->limit);
		return NP_EXIT_TIMEOUT;
	case -EPROTONOSUPPORT:
		np_error("%s is mpib-netperf of another version; this one is %s", ctl->peer,
			 MPIB_VERSION);
		return NP_EXIT_FAILED;
	case -ECONNRESET:
	case -EPIPE:
		np_error("%s closed the connection without an answer: it served its one run, or "
			 "is no mpib-netperf of version %s",
			 ctl->peer, MPIB_VERSION);
		return NP_EXIT_FAILED;
	default:
		np_error("%s answers, but is no mpib-netperf: %s", ctl->peer, strerror(-error));
		return NP_EXIT_FAILED;
	}
}

int np_peer_connect(const struct np_options *opts, const struct np_net *net, struct np_ctl *ctl)
{
	struct wait wait = {
		.ctl = ctl, .what = "the listener", .start = np_now(), .limit = opts->timeout
	};
	mpib_cleanup(mpib_freep) char *options = np_options_encode(opts);
	mpib_cleanup(mpib_freep) char *hello = NULL;
	int code, r;

	if (!options || asprintf(&hello, "table=%d\n%s", net->api, options) < 0) {
		np_error("out of memory");
		return NP_EXIT_FAILED;
	}
	r = np_ctl_connect(ctl, opts->connect, opts->timeout, wait_idle, &wait);
	if (r < 0)
		return fail_connect(ctl, &wait, r);

	ctl->reason[0] = '\0';
	wait = (struct wait){ .ctl = ctl,
			      .what = "the listener's answer",
			      .start = np_now(),
			      .limit = opts->timeout,
			      .said_at = np_now() };
	r = np_ctl_send(ctl, NP_CTL_HELLO, hello, strlen(hello));
	if (r == 0 || r == -EPIPE || r == -ECONNRESET)
		r = np_ctl_wait(ctl, NP_CTL_START, wait_idle, &wait);
	if (r == 0)
		return 0;
	code = fail_answer(ctl, &wait, r);
	np_ctl_close(ctl);
	return code;
}

/* ---- listener ------------------------------------------------------------------------------- */

/* Bounds the wait for a caller's first words; @arg is the time of its end. */
static int hello_idle(void *arg)
{
	if (np_signal)
		return -EINTR;
	return np_now() > *(double *)arg ? -ETIMEDOUT : 0;
}

static int refuse(struct np_ctl *ctl, const char *fmt, ...) np_format(2, 3);

static int refuse(struct np_ctl *ctl, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	np_warn("%s is refused: %s", ctl->peer, text);
	(void)np_ctl_send(ctl, NP_CTL_ABORT, text, strlen(text));
	(void)np_ctl_linger(ctl);
	return -EPROTO;
}

static int take_hello(struct np_options *opts, struct np_net *net, struct np_ctl *ctl)
{
	int table = 0, used = 0;

	if (sscanf((const char *)ctl->body, "table=%d\n%n", &table, &used) != 1 ||
	    table < NP_API_MIN || table > NP_API_MAX)
		return refuse(ctl, "it names no table of NCCL");
	if (opts->api && opts->api != (uint64_t)table)
		return refuse(ctl, "the listener was given --api %llu, the caller takes v%d",
			      (unsigned long long)opts->api, table);
	if (np_options_decode(opts, (char *)ctl->body + used) < 0)
		return refuse(ctl, "the listener (mpib-netperf " MPIB_VERSION ") doesn't know an "
				   "option of the caller, or its value");
	if (!np_net_select(net, table))
		return refuse(ctl, "the listener's plugin has no such table: v%d", table);
	return np_ctl_send(ctl, NP_CTL_START, NULL, 0);
}

int np_peer_accept(struct np_options *opts, struct np_net *net, struct np_ctl *ctl)
{
	double end = np_now() + HELLO_S;
	int r = np_ctl_wait(ctl, NP_CTL_HELLO, hello_idle, &end);

	if (r == -EPROTONOSUPPORT)
		return refuse(ctl, "the listener is mpib-netperf " MPIB_VERSION
				   ", the caller another version");
	if (r == 0)
		r = take_hello(opts, net, ctl);
	if (r < 0 && r != -EPROTO)
		np_warn("%s is not a peer for this run: %s", ctl->peer, strerror(-r));
	return r;
}
