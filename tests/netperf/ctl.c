/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/ctl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "common/cleanup.h"
#include "tests/netperf/log.h"

#define MAGIC	   0x4D504E50u
#define IDLE_MS	   20
#define SEND_MS	   10000
#define RETRY_MS   200
#define ATTEMPT_MS 1000 /* for one address */
#define LINGER_S   1.0

#define LISTEN_BACKLOG 16
#define BUSY_TRIES     50
#define BUSY_PAUSE_US  100000

static int set_nonblock(int fd)
{
	int one = 1, flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

/* Who listened there before may still be ending. */
static int bind_patiently(int fd, const struct sockaddr_in *sin)
{
	for (int left = BUSY_TRIES;; left--) {
		if (bind(fd, (const struct sockaddr *)sin, sizeof(*sin)) == 0 &&
		    listen(fd, LISTEN_BACKLOG) == 0)
			return 0;
		if (errno != EADDRINUSE || left == 0)
			return -errno;
		if (left == BUSY_TRIES)
			np_warn("port %u is in use; waiting for it, up to %d s",
				ntohs(sin->sin_port), BUSY_TRIES * BUSY_PAUSE_US / 1000000);
		(void)usleep(BUSY_PAUSE_US);
	}
}

int np_ctl_listen(const char *addr, uint16_t port, uint16_t *ret_port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };
	mpib_cleanup(mpib_closep) int fd = -1;
	socklen_t len = sizeof(sin);
	int one = 1, r;

	if (addr && inet_pton(AF_INET, addr, &sin.sin_addr) != 1)
		return -EINVAL;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	r = bind_patiently(fd, &sin);
	if (r < 0)
		return r;
	if (getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
		return -errno;

	*ret_port = ntohs(sin.sin_port);
	return mpib_steal_fd(&fd);
}

int np_ctl_accept(struct np_ctl *ctl, int listen_fd, np_ctl_idle idle, void *arg)
{
	struct pollfd pfd = { .fd = listen_fd, .events = POLLIN };

	for (;;) {
		struct sockaddr_in sin = { 0 };
		socklen_t len = sizeof(sin);
		char text[INET_ADDRSTRLEN] = "?";
		int fd, r = idle(arg);

		if (r < 0)
			return r;
		if (poll(&pfd, 1, IDLE_MS) <= 0)
			continue;
		fd = accept4(listen_fd, (struct sockaddr *)&sin, &len, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		*ctl = (struct np_ctl){ .fd = fd };
		(void)inet_ntop(AF_INET, &sin.sin_addr, text, sizeof(text));
		(void)snprintf(ctl->peer, sizeof(ctl->peer), "%s:%u", text, ntohs(sin.sin_port));
		return set_nonblock(fd);
	}
}

static int connect_once(const struct addrinfo *info, int wait_ms)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct pollfd pfd = { .events = POLLOUT };
	socklen_t len = sizeof(int);
	int error = 0;

	fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || set_nonblock(fd) < 0)
		return -errno;
	if (connect(fd, info->ai_addr, info->ai_addrlen) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		pfd.fd = fd;
		if (poll(&pfd, 1, wait_ms) <= 0)
			return -ETIMEDOUT;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
			return error ? -error : -errno;
	}
	return mpib_steal_fd(&fd);
}

/* Tries each address once, until @end; a descriptor, or the error of the last one. */
static int connect_any(struct np_ctl *ctl, const struct addrinfo *info, double end)
{
	int r = -ETIMEDOUT;

	for (; info; info = info->ai_next) {
		double left_ms = (end - np_now()) * 1000;

		r = connect_once(info, left_ms > ATTEMPT_MS ? ATTEMPT_MS
				       : left_ms > 1	    ? (int)left_ms
							    : 1);
		if (r >= 0)
			return r;
	}
	(void)snprintf(ctl->reason, sizeof(ctl->reason), "%s", strerror(-r));
	return r;
}

int np_ctl_connect(struct np_ctl *ctl, const char *host_port, double timeout_s, np_ctl_idle idle,
		   void *arg)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *info;
	const char *colon = strrchr(host_port, ':');
	double end = np_now() + timeout_s;
	char host[256];
	int fd, r;

	*ctl = (struct np_ctl){ .fd = -1 };
	(void)snprintf(ctl->peer, sizeof(ctl->peer), "%s", host_port);
	if (!colon || (size_t)(colon - host_port) >= sizeof(host))
		return -EINVAL;
	memcpy(host, host_port, (size_t)(colon - host_port));
	host[colon - host_port] = '\0';
	r = getaddrinfo(host, colon + 1, &hints, &info);
	if (r != 0) {
		(void)snprintf(ctl->reason, sizeof(ctl->reason), "%s", gai_strerror(r));
		return -EADDRNOTAVAIL;
	}

	for (;;) {
		fd = connect_any(ctl, info, end);
		r = fd < 0 ? idle(arg) : 0;
		if (fd >= 0 || r < 0 || np_now() > end)
			break;
		(void)poll(NULL, 0, RETRY_MS);
	}
	freeaddrinfo(info);
	if (fd < 0)
		return r < 0 ? r : fd;
	ctl->fd = fd;
	return 0;
}

void np_ctl_close(struct np_ctl *ctl)
{
	if (ctl->fd >= 0)
		(void)close(ctl->fd);
	ctl->fd = -1;
	free(ctl->body);
	ctl->body = NULL;
}

static int send_all(int fd, const void *data, size_t len)
{
	double end = np_now() + SEND_MS / 1000.0;
	const char *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0) {
			struct pollfd pfd = { .fd = fd, .events = POLLOUT };

			if (np_now() > end)
				return -ETIMEDOUT;
			(void)poll(&pfd, 1, IDLE_MS);
			continue;
		}
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int np_ctl_send(struct np_ctl *ctl, enum np_ctl_type type, const void *body, size_t len)
{
	uint32_t head[4] = { htonl(MAGIC), htonl(NP_CTL_VERSION), htonl(type), 0 };
	int r;

	if (ctl->fd < 0)
		return -ENOTCONN;
	if (len > NP_CTL_PAYLOAD_MAX)
		return -EMSGSIZE;
	head[3] = htonl((uint32_t)len);
	r = send_all(ctl->fd, head, sizeof(head));
	return r < 0 ? r : send_all(ctl->fd, body, len);
}

/* Reads what is there, up to @want; 1 where it is complete. */
static int read_some(int fd, unsigned char *to, size_t want, size_t *got)
{
	while (*got < want) {
		ssize_t n = recv(fd, to + *got, want - *got, 0);

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		*got += (size_t)n;
	}
	return 1;
}

static int parse_head(struct np_ctl *ctl)
{
	uint32_t head[4];

	free(ctl->body);
	ctl->body = NULL;
	memcpy(head, ctl->head, sizeof(head));
	ctl->type = ntohl(head[2]);
	ctl->len = ntohl(head[3]);
	if (ntohl(head[0]) == MAGIC && ntohl(head[1]) != NP_CTL_VERSION)
		return -EPROTONOSUPPORT;
	if (ntohl(head[0]) != MAGIC || !ctl->type || ctl->type >= NP_CTL_TYPE_MAX ||
	    ctl->len > NP_CTL_PAYLOAD_MAX)
		return -EBADMSG;

	ctl->body = calloc(1, (size_t)ctl->len + 1);
	ctl->body_got = 0;
	return ctl->body ? 0 : -ENOMEM;
}

int np_ctl_poll(struct np_ctl *ctl)
{
	int r;

	if (ctl->fd < 0)
		return -ENOTCONN;
	if (ctl->head_got < sizeof(ctl->head)) {
		r = read_some(ctl->fd, ctl->head, sizeof(ctl->head), &ctl->head_got);
		if (r <= 0)
			return r;
		r = parse_head(ctl);
		if (r < 0)
			return r;
	}
	r = read_some(ctl->fd, ctl->body, ctl->len, &ctl->body_got);
	if (r <= 0)
		return r;

	ctl->head_got = 0;
	if (ctl->type != NP_CTL_ABORT)
		return 1;
	(void)snprintf(ctl->abort_text, sizeof(ctl->abort_text), "%s", (const char *)ctl->body);
	return -ECONNABORTED;
}

/* Reads what is there and drops it; as np_ctl_poll. */
static int discard(int fd)
{
	unsigned char bytes[4096];
	size_t got = 0;
	int r = read_some(fd, bytes, sizeof(bytes), &got);

	return r < 0 ? r : 0;
}

/* A close with bytes unread resets the connection, and the peer loses our last words. What isn't
 * ours has no end that can be found. */
bool np_ctl_linger(struct np_ctl *ctl)
{
	bool aborted = false, foreign = ctl->head_got == sizeof(ctl->head) && !ctl->body;
	double end = np_now() + LINGER_S;

	if (ctl->fd < 0)
		return false;
	(void)shutdown(ctl->fd, SHUT_WR);
	while (np_now() < end) {
		struct pollfd pfd = { .fd = ctl->fd, .events = POLLIN };
		int r = foreign ? discard(ctl->fd) : np_ctl_poll(ctl);

		if (r == 0)
			(void)poll(&pfd, 1, IDLE_MS);
		if (r == -EBADMSG || r == -EPROTONOSUPPORT)
			foreign = true;
		else if (r < 0 && r != -ECONNABORTED)
			break;
		aborted |= r == -ECONNABORTED;
	}
	return aborted;
}

int np_ctl_wait(struct np_ctl *ctl, enum np_ctl_type type, np_ctl_idle idle, void *arg)
{
	struct pollfd pfd = { .fd = ctl->fd, .events = POLLIN };

	for (;;) {
		int r = np_ctl_poll(ctl);

		if (r < 0)
			return r;
		if (r > 0)
			return ctl->type == type ? 0 : -EPROTO;
		r = idle(arg);
		if (r < 0)
			return r;
		(void)poll(&pfd, 1, IDLE_MS);
	}
}
