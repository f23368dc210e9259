/* SPDX-License-Identifier: Apache-2.0 */
/* mpib-netperf: drives any NCCL network plugin as NCCL's proxy does, and verifies every byte. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/std_fds.h"
#include "tests/netperf/ctl.h"
#include "tests/netperf/load.h"
#include "tests/netperf/log.h"
#include "tests/netperf/peer.h"
#include "tests/netperf/session.h"
#include "tests/netperf/stranger.h"

static void on_signal(int number)
{
	np_signal = number;
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

/* A failure before there is a session (told already) still ends with a result. */
static int early_failure(const struct np_options *opts, int code)
{
	struct np_json json;

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
	struct np_ctl ctl;
	int code;

	if (!np_net_select(net, (int)opts->api)) {
		if (opts->api)
			np_error("the plugin has no such table: v%llu",
				 (unsigned long long)opts->api);
		else
			np_error("the plugin has no table from v%d to v%d", NP_API_MIN, NP_API_MAX);
		return early_failure(opts, NP_EXIT_FAILED);
	}
	code = np_peer_connect(opts, net, &ctl);
	return code ? early_failure(opts, code) : np_session_run(opts, net, &ctl, false);
}

/* Serves peers; strangers cost a line. The worst exit code of all runs. */
static int serve(const struct np_options *opts, struct np_net *net, int listen_fd)
{
	int worst = NP_EXIT_OK;

	while (!np_signal) {
		struct np_options own = *opts;
		struct np_ctl ctl;
		int r = np_ctl_accept(&ctl, listen_fd, np_peer_idle, NULL), code;

		if (r < 0)
			break;
		r = np_peer_accept(&own, net, &ctl);
		if (r < 0) {
			np_ctl_close(&ctl);
			continue;
		}
		code = np_session_run(&own, net, &ctl, true);
		worst = code > worst ? code : worst;
		if (!opts->loop)
			return worst;
	}
	/* a loop is ended by a signal; without one, no peer came */
	if (opts->loop)
		return worst;
	np_error("stopped before a peer came");
	return early_failure(opts, NP_EXIT_FAILED);
}

static int run_listener(const struct np_options *opts, struct np_net *net)
{
	struct np_json json;
	uint16_t port;
	int fd, code;

	fd = np_ctl_listen(opts->bind, (uint16_t)opts->listen_port, &port);
	if (fd < 0) {
		np_error("can't listen on port %llu of %s: %s",
			 (unsigned long long)opts->listen_port, opts->bind ? opts->bind : "all",
			 strerror(-fd));
		return early_failure(opts, NP_EXIT_FAILED);
	}
	np_json_begin(&json, "ready");
	np_json_u64(&json, "port", port);
	np_json_u64(&json, "pid", (uint64_t)getpid());
	np_json_end(&json);
	np_say("waiting on port %u for a peer, without a limit; Ctrl-C ends it", port);
	code = serve(opts, net, fd);
	(void)close(fd);
	return code;
}

int main(int argc, char **argv)
{
	struct np_options opts;
	struct np_net net;
	int r;

	mpib_std_fds_take();
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
		return early_failure(&opts, NP_EXIT_FAILED);
	np_say("plugin %s", np_plugin_path(net.dl));

	r = opts.connect ? run_connector(&opts, &net) : run_listener(&opts, &net);
	if (fflush(stdout) || ferror(stdout)) {
		np_error("can't write the result to stdout");
		r = r == NP_EXIT_OK ? NP_EXIT_FAILED : r;
	}
	/* NCCL unloads a plugin that it could finalize */
	if (net.table && net.api >= 11)
		(void)dlclose(net.dl);
	return r;
}
