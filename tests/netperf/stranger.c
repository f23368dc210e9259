/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/stranger.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "tests/netperf/ctl.h"
#include "tests/netperf/pattern.h"
#include "tests/netperf/session.h"

#define COUNT_MAX     1024
#define GARBAGE_BYTES 4096
#define HOLD_S	      3.0

struct stranger {
	const char *target, *kind;
	long count, port;
	double hold;
};

static int stop_idle(void *arg)
{
	(void)arg;
	return np_signal ? -EINTR : 0;
}

static bool kind_known(const char *kind, bool fake)
{
	return kind && (!strcmp(kind, "silent") || !strcmp(kind, "close") ||
			!strcmp(kind, "garbage") || (!fake && !strcmp(kind, "http")));
}

/* Says its piece; whether the other side minds is its business. */
static void behave(int fd, const char *kind, uint64_t nth)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	unsigned char garbage[GARBAGE_BYTES];

	if (!strcmp(kind, "http"))
		(void)send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL);
	if (!strcmp(kind, "garbage")) {
		np_pattern_fill(np_pattern_make(4711, 0, nth), garbage, 0, sizeof(garbage));
		(void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
	}
}

/* Stays until the other side closes, or for @seconds; true where it closed. */
static bool linger(struct np_ctl *peers, long count, double seconds)
{
	double end = np_now() + seconds;
	long open = count;

	while (open && np_now() < end && !np_signal) {
		(void)poll(NULL, 0, 20);
		open = 0;
		for (long n = 0; n < count; n++) {
			char sink[256];
			ssize_t got;

			if (peers[n].fd < 0)
				continue;
			got = recv(peers[n].fd, sink, sizeof(sink), MSG_DONTWAIT);
			if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
				np_ctl_close(&peers[n]);
			else
				open++;
		}
	}
	return open == 0;
}

static int parse(struct stranger *st, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "target", required_argument, NULL, 't' },
		{ "kind", required_argument, NULL, 'k' },
		{ "count", required_argument, NULL, 'c' },
		{ "port", required_argument, NULL, 'p' },
		{ "hold", required_argument, NULL, 'h' },
		{ 0 },
	};
	char *end = NULL;
	int c;

	*st = (struct stranger){ .count = 1, .port = -1, .hold = HOLD_S };
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		end = NULL;
		if (c == 't')
			st->target = optarg;
		else if (c == 'k')
			st->kind = optarg;
		else if (c == 'c')
			st->count = strtol(optarg, &end, 10);
		else if (c == 'p')
			st->port = strtol(optarg, &end, 10);
		else if (c == 'h')
			st->hold = strtod(optarg, &end);
		else
			return -EINVAL;
		if (end && (*end || end == optarg))
			return -EINVAL;
	}
	return optind == argc && st->count >= 1 && st->count <= COUNT_MAX && st->hold >= 0 &&
			       st->port <= UINT16_MAX
		       ? 0
		       : -EINVAL;
}

static int usage(void)
{
	(void)fputs("usage: mpib-netperf stranger --target HOST:PORT --kind "
		    "silent|close|garbage|http [--count N] [--hold S]\n"
		    "       mpib-netperf fakelisten --port P --kind silent|close|garbage "
		    "[--hold S]\n",
		    stderr);
	return NP_EXIT_USAGE;
}

int np_stranger_main(int argc, char **argv)
{
	struct np_ctl *peers;
	struct stranger st;
	bool closed;

	if (parse(&st, argc, argv) < 0 || !st.target || !strrchr(st.target, ':') ||
	    !kind_known(st.kind, false))
		return usage();
	peers = calloc((size_t)st.count, sizeof(*peers));
	if (!peers)
		return NP_EXIT_FAILED;
	for (long n = 0; n < st.count; n++) {
		int r = np_ctl_connect(&peers[n], st.target, 2, stop_idle, NULL);

		if (r < 0) {
			(void)fprintf(stderr, "mpib-netperf: %s: %s\n", st.target,
				      *peers[n].reason ? peers[n].reason : strerror(-r));
			while (n-- > 0)
				np_ctl_close(&peers[n]);
			free(peers);
			return NP_EXIT_FAILED;
		}
		behave(peers[n].fd, st.kind, (uint64_t)n);
		if (!strcmp(st.kind, "close"))
			np_ctl_close(&peers[n]);
	}
	closed = linger(peers, st.count, st.hold);
	(void)printf("{\"event\":\"stranger\",\"kind\":\"%s\",\"count\":%ld,\"closed\":%s}\n",
		     st.kind, st.count, closed ? "true" : "false");
	for (long n = 0; n < st.count; n++)
		np_ctl_close(&peers[n]);
	free(peers);
	return NP_EXIT_OK;
}

/* Serves callers until a signal ends it. */
int np_fakelisten_main(int argc, char **argv)
{
	struct np_ctl peers[16];
	struct stranger st;
	uint64_t callers = 0;
	uint16_t port;
	int fd;

	for (size_t n = 0; n < 16; n++)
		peers[n].fd = -1;
	if (parse(&st, argc, argv) < 0 || st.port < 0 || !kind_known(st.kind, true))
		return usage();
	fd = np_ctl_listen(NULL, (uint16_t)st.port, &port);
	if (fd < 0) {
		(void)fprintf(stderr, "mpib-netperf: port %ld: %s\n", st.port, strerror(-fd));
		return NP_EXIT_FAILED;
	}
	(void)printf("{\"event\":\"ready\",\"port\":%u}\n", port);
	(void)fflush(stdout);
	for (;;) {
		struct np_ctl *peer = &peers[callers % 16];

		if (peer->fd >= 0)
			np_ctl_close(peer);
		if (np_ctl_accept(peer, fd, stop_idle, NULL) < 0)
			break;
		behave(peer->fd, st.kind, callers++);
		if (!strcmp(st.kind, "close"))
			np_ctl_close(peer);
		(void)printf("{\"event\":\"caller\",\"count\":%llu}\n",
			     (unsigned long long)callers);
		(void)fflush(stdout);
	}
	for (size_t n = 0; n < 16; n++)
		if (peers[n].fd >= 0)
			np_ctl_close(&peers[n]);
	(void)close(fd);
	return NP_EXIT_OK;
}
