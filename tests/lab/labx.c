/* SPDX-License-Identifier: Apache-2.0 */
/*
 * labx: runs one command in a lab node. Its output, errors and exit status are the command's own;
 * 124 is a time limit that ran out, 125 a node that could not be reached or went away.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/lab/frame.h"

#define EXIT_TIMEOUT 124
#define EXIT_LOST    125

#define CONNECT_TRY_MS 1000

struct options {
	const char *host;
	int timeout_s; /* of the command, from the connection on */
	int wait_s;    /* how long to go on trying to connect */
	bool input;    /* pass on standard input */
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int connect_once(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int one = 1;
	int err = 0;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 && errno != EINPROGRESS)
		err = errno;
	else if (poll(&p, 1, CONNECT_TRY_MS) <= 0)
		err = ETIMEDOUT;
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		close(fd);
		return -err;
	}

	/* Only the connect was bounded: from here on frames are read and written whole. */
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static int connect_until(const struct options *opt)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(MPIB_LAB_PORT) };
	int64_t deadline = now_ms() + (int64_t)opt->wait_s * 1000;
	struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };
	int fd;

	if (inet_pton(AF_INET, opt->host, &addr.sin_addr) != 1)
		return -EINVAL;

	do {
		fd = connect_once(&addr);
		if (fd >= 0) {
			struct timeval tv = { .tv_sec = 60 };

			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
			return fd;
		}
		nanosleep(&pause, NULL);
	} while (now_ms() < deadline);

	return fd;
}

/* One frame from the node; the exit status once it came, else -1. */
static int take_frame(int fd)
{
	static struct mpib_lab_frame frame;
	int r = mpib_lab_frame_recv(fd, &frame);

	if (r <= 0) {
		fprintf(stderr, "labx: the node went away: %s\n",
			r < 0 ? strerror(-r) : "connection closed");
		return EXIT_LOST;
	}
	if (frame.type == MPIB_LAB_STATUS)
		return frame.len == 1 ? (uint8_t)frame.data[0] : EXIT_LOST;
	(void)mpib_lab_write_full(frame.type == MPIB_LAB_ERROR ? STDERR_FILENO : STDOUT_FILENO,
				  frame.data, frame.len);
	return -1;
}

/* Passes on some input; false at its end. */
static bool give_input(int fd)
{
	static char buf[MPIB_LAB_FRAME_MAX];
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	(void)mpib_lab_frame_send(fd, MPIB_LAB_INPUT, buf, n > 0 ? (size_t)n : 0);
	return n > 0;
}

static int run(int fd, const struct options *opt, const char *command)
{
	int64_t deadline = now_ms() + (int64_t)opt->timeout_s * 1000;
	bool input = opt->input;

	if (mpib_lab_frame_send(fd, MPIB_LAB_RUN, command, strlen(command)) < 0)
		return EXIT_LOST;
	if (!input)
		(void)mpib_lab_frame_send(fd, MPIB_LAB_INPUT, NULL, 0);

	for (;;) {
		struct pollfd fds[] = {
			{ .fd = fd, .events = POLLIN },
			{ .fd = input ? STDIN_FILENO : -1, .events = POLLIN },
		};
		int64_t left = deadline - now_ms();
		int status;

		if (left <= 0) {
			fprintf(stderr, "labx: %s: no end after %d s: %.120s\n", opt->host,
				opt->timeout_s, command);
			return EXIT_TIMEOUT;
		}
		if (poll(fds, 2, (int)left) <= 0)
			continue;
		if (fds[1].revents)
			input = give_input(fd);
		if (!fds[0].revents)
			continue;
		status = take_frame(fd);
		if (status >= 0)
			return status;
	}
}

static char *join(char **words)
{
	size_t len = 1;
	char *line, *at;

	for (char **w = words; *w; w++)
		len += strlen(*w) + 1;
	line = calloc(1, len);
	if (!line)
		return NULL;
	at = line;
	for (char **w = words; *w; w++) {
		at = stpcpy(at, *w);
		if (w[1])
			*at++ = ' ';
	}

	return line;
}

int main(int argc, char **argv)
{
	struct options opt = { .timeout_s = 60 };
	char *command;
	int status;
	int fd;
	int c;

	while ((c = getopt(argc, argv, "+h:t:w:i")) != -1) {
		switch (c) {
		case 'h':
			opt.host = optarg;
			break;
		case 't':
			opt.timeout_s = atoi(optarg);
			break;
		case 'w':
			opt.wait_s = atoi(optarg);
			break;
		case 'i':
			opt.input = true;
			break;
		default:
			return EXIT_LOST;
		}
	}
	if (!opt.host || optind == argc) {
		fprintf(stderr, "usage: labx -h ADDRESS [-t SECONDS] [-w SECONDS] [-i] COMMAND…\n");
		return EXIT_LOST;
	}

	fd = connect_until(&opt);
	if (fd < 0) {
		fprintf(stderr, "labx: %s: %s\n", opt.host, strerror(-fd));
		return EXIT_LOST;
	}
	command = join(argv + optind);
	status = command ? run(fd, &opt, command) : EXIT_LOST;
	free(command);
	return status;
}
