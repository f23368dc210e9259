/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/peer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/bench/side.h"
#include "tests/netperf/clock.h"

void bench_put(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		bench_want(n > 0, "the other end is gone");
		at += n;
		len -= (size_t)n;
	}
}

void bench_get(int fd, void *data, size_t len)
{
	char *at = data;

	while (len) {
		ssize_t n = recv(fd, at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		bench_want(n > 0, "the other end is gone");
		at += n;
		len -= (size_t)n;
	}
}

static long private_kib(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	long kib = 0;

	bench_want(file, "no /proc");
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, "RssAnon:", 8) == 0)
			kib = strtol(line + 8, NULL, 10);
	(void)fclose(file);
	return kib;
}

static long open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	long n = 0;

	bench_want(dir, "no /proc");
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

struct bench_usage bench_usage_now(void)
{
	return (struct bench_usage){ .cpu = np_cpu(RUSAGE_SELF), .end = np_now() };
}

struct bench_usage bench_usage_with_memory(void)
{
	struct bench_usage usage = bench_usage_now();

	usage.rss = private_kib();
	usage.fds = open_files();
	return usage;
}
