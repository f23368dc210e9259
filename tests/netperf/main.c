/* SPDX-License-Identifier: Apache-2.0 */
/* mpib-netperf: drives any NCCL network plugin as NCCL's proxy does, and verifies every byte. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "tests/netperf/ctl.h"
#include "tests/netperf/log.h"
#include "tests/netperf/session.h"
#include "tests/netperf/stranger.h"

#define HELLO_S 5.0

static void on_signal(int number)
{
	np_signal = number;
}

static int stop_idle(void *arg)
{
	(void)arg;
	return np_signal ? -EINTR : 0;
}

/* Bounds the wait for a caller's first words; @arg is the time of its end. */
static int hello_idle(void *arg)
{
	if (np_signal)
		return -EINTR;
	return np_now() > *(double *)arg ? -ETIMEDOUT : 0;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	(void)sigemptyset(&action.sa_mask);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	action.sa_handler = SIG_IGN;
	(void)sigaction(SIGPIPE, &action, NULL);
}

/* A failure before there is a session still ends with a result. */
static int early_failure(const struct np_options *opts, const char *what, int code)
{
	struct np_json json;

	np_error("%s", what);
	np_json_begin(&json, "result");
	np_json_bool(&json, "ok", false);
	np_json_str(&json, "mode", np_mode_name(opts->mode));
	np_json_errors(&json, "errors");
	np_json_raw(&json, "counters", "");
	np_json_end(&json);
	return code;
}

static int run_connector(const struct np_options *opts, struct np_net *net)
{
	char *text = np_options_encode(opts), *hello = NULL;
	struct np_ctl ctl;
	int r = -ENOMEM;

	if (!np_net_select(net, (int)opts->api)) {
		free(text);
		return early_failure(opts, "the plugin has no such table", NP_EXIT_FAILED);
	}
	if (text && asprintf(&hello, "table=%d\n%s", net->api, text) >= 0)
		r = np_ctl_connect(&ctl, opts->connect, opts->timeout, stop_idle, NULL);
	if (r == 0)
		r = np_ctl_send(&ctl, NP_CTL_HELLO, hello, strlen(hello));
	free(text);
	if (hello)
		free(hello);
	if (r < 0) {
		np_error("%s: %s", opts->connect, strerror(-r));
		return early_failure(opts, "no peer",
				     r == -EINTR ? NP_EXIT_FAILED : NP_EXIT_TIMEOUT);
	}
	return np_session_run(opts, net, &ctl, false);
}

/* Reads a caller's options on top of ours; 0, -EBADMSG for a stranger, -EPROTO after a word to the
 * caller. */
static int read_hello(struct np_options *opts, struct np_net *net, struct np_ctl *ctl)
{
	double end = np_now() + HELLO_S;
	int table = 0, used = 0, r;

	r = np_ctl_wait(ctl, NP_CTL_HELLO, hello_idle, &end);
	if (r < 0)
		return r;
	if (sscanf((const char *)ctl->body, "table=%d\n%n", &table, &used) != 1 ||
	    table < NP_API_MIN || table > NP_API_MAX)
		return -EBADMSG;
	r = np_options_decode(opts, (char *)ctl->body + used);
	if (r < 0)
		return r;
	if ((opts->api && opts->api != (uint64_t)table) || !np_net_select(net, table)) {
		static const char text[] = "the listener has no such table, or was given another";

		(void)np_ctl_send(ctl, NP_CTL_ABORT, text, sizeof(text) - 1);
		np_ctl_linger(ctl);
		return -EPROTO;
	}
	return 0;
}

/* Serves peers; strangers cost a line. The worst exit code of all runs. */
static int serve(const struct np_options *opts, struct np_net *net, int listen_fd)
{
	int worst = NP_EXIT_OK;

	while (!np_signal) {
		struct np_options own = *opts;
		struct np_ctl ctl;
		int r = np_ctl_accept(&ctl, listen_fd, stop_idle, NULL), code;

		if (r < 0)
			break;
		r = read_hello(&own, net, &ctl);
		if (r < 0) {
			np_warn("%s is not a peer for this run: %s", ctl.peer, strerror(-r));
			np_ctl_close(&ctl);
			continue;
		}
		code = np_session_run(&own, net, &ctl, true);
		worst = code > worst ? code : worst;
		if (!opts->loop)
			return worst;
	}
	/* a loop is ended by a signal; without one, no peer came */
	return opts->loop ? worst
			  : early_failure(opts, "stopped before a peer came", NP_EXIT_FAILED);
}

static int run_listener(const struct np_options *opts, struct np_net *net)
{
	struct np_json json;
	uint16_t port;
	int fd, code;

	fd = np_ctl_listen(opts->bind, (uint16_t)opts->listen_port, &port);
	if (fd < 0) {
		np_error("port %llu: %s", (unsigned long long)opts->listen_port, strerror(-fd));
		return early_failure(opts, "cannot listen", NP_EXIT_FAILED);
	}
	np_json_begin(&json, "ready");
	np_json_u64(&json, "port", port);
	np_json_u64(&json, "pid", (uint64_t)getpid());
	np_json_end(&json);
	np_say("waiting on port %u", port);
	code = serve(opts, net, fd);
	(void)close(fd);
	return code;
}

int main(int argc, char **argv)
{
	struct np_options opts;
	struct np_net net;
	int r;

	catch_signals();
	if (argc > 1 && !strcmp(argv[1], "stranger"))
		return np_stranger_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "fakelisten"))
		return np_fakelisten_main(argc - 1, argv + 1);

	r = np_options_parse(&opts, argc, argv);
	if (r != 0)
		return r > 0 ? NP_EXIT_OK : NP_EXIT_USAGE;
	np_log_init(opts.log, opts.json);
	if (!np_net_open(&net, opts.plugin))
		return early_failure(&opts, "no plugin", NP_EXIT_FAILED);

	r = opts.connect ? run_connector(&opts, &net) : run_listener(&opts, &net);
	/* NCCL unloads a plugin that it could finalize */
	if (net.table && net.api >= 11)
		(void)dlclose(net.dl);
	return r;
}
