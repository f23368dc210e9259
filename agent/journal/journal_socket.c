/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's own protocol, a datagram an entry, since the library's call waits for room. */
#include "agent/journal/journal_socket.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* As an entry of the journal, or a line. */
#define ENTRY_MAX 4096u
_Static_assert(ENTRY_MAX <= PIPE_BUF, "a pipe takes a line whole");

/* A burst of the journal's bound, while nobody reads. */
#define WAITING_MAX (1024u * 1024u)

struct mpib_journal_socket {
	const char *path; /* NULL: lines */
	int fd;		  /* of lines, or the socket: -1 where there is none yet */
	size_t first;	  /* of what waits: a length and so many bytes, again and again */
	size_t end;
	uint8_t waiting[WAITING_MAX]; /* pages that nobody touches cost nothing */
};

int mpib_journal_socket_new(const char *path, int fd, struct mpib_journal_socket **ret)
{
	struct mpib_journal_socket *js = calloc(1, sizeof(*js));

	if (!js)
		return -ENOMEM;

	js->path = path;
	js->fd = path ? -1 : fd;
	*ret = js;
	return 0;
}

struct mpib_journal_socket *mpib_journal_socket_free(struct mpib_journal_socket *js)
{
	if (!js)
		return NULL;

	mpib_journal_socket_flush(js);
	if (js->path && js->fd >= 0)
		(void)close(js->fd);
	free(js);
	return NULL;
}

/* True where more is to be tried later. */
static bool means_later(int error)
{
	return error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == EINTR;
}

/* True where it is sent, or can't be sent ever. */
static bool send_datagram(struct mpib_journal_socket *js, const void *data, size_t len)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(js->path) >= sizeof(address.sun_path))
		return true;
	memcpy(address.sun_path, js->path, strlen(js->path));
	if (js->fd < 0)
		js->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (js->fd < 0)
		return false;

	/* A journal that is being restarted is not there for a moment. */
	return sendto(js->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT,
		      (const struct sockaddr *)&address, sizeof(address)) >= 0 ||
	       (!means_later(errno) && errno != ECONNREFUSED && errno != ENOENT);
}

/* Writes as many lines as a pipe that is ready takes whole. False where none fits. */
static bool write_lines(struct mpib_journal_socket *js)
{
	struct pollfd p = { .fd = js->fd, .events = POLLOUT };
	char lines[PIPE_BUF];
	size_t at = js->first;
	size_t bytes = 0;

	while (at < js->end) {
		uint32_t len;

		memcpy(&len, js->waiting + at, sizeof(len));
		if (bytes + len > sizeof(lines))
			break;
		memcpy(lines + bytes, js->waiting + at + sizeof(len), len);
		bytes += len;
		at += sizeof(len) + len;
	}

	if (poll(&p, 1, 0) == 0 || (write(js->fd, lines, bytes) < 0 && means_later(errno)))
		return false;
	js->first = at;
	return true;
}

/* The same. */
static bool send_entry(struct mpib_journal_socket *js)
{
	uint32_t len;

	memcpy(&len, js->waiting + js->first, sizeof(len));
	if (!send_datagram(js, js->waiting + js->first + sizeof(len), len))
		return false;
	js->first += sizeof(len) + len;
	return true;
}

void mpib_journal_socket_flush(struct mpib_journal_socket *js)
{
	while (js->first < js->end) {
		if (!(js->path ? send_entry(js) : write_lines(js)))
			return;
	}

	js->first = 0;
	js->end = 0;
}

static bool keep(struct mpib_journal_socket *js, const void *data, uint32_t len)
{
	if (sizeof(len) + len > WAITING_MAX - js->end)
		mpib_journal_socket_flush(js);
	if (sizeof(len) + len > WAITING_MAX - js->end && js->first) {
		memmove(js->waiting, js->waiting + js->first, js->end - js->first);
		js->end -= js->first;
		js->first = 0;
	}
	if (sizeof(len) + len > WAITING_MAX - js->end)
		return false;

	memcpy(js->waiting + js->end, &len, sizeof(len));
	memcpy(js->waiting + js->end + sizeof(len), data, len);
	js->end += sizeof(len) + len;
	return true;
}

/* Returns the bytes of @data. */
static size_t format_fields(const struct iovec *fields, int n_fields, char data[ENTRY_MAX])
{
	static const char identifier[] = "SYSLOG_IDENTIFIER=mpib-agentd\n";
	size_t len = sizeof(identifier) - 1;

	memcpy(data, identifier, len);
	for (int n = 0; n < n_fields; n++) {
		if (len + fields[n].iov_len + 1 > ENTRY_MAX)
			break;
		memcpy(data + len, fields[n].iov_base, fields[n].iov_len);
		len += fields[n].iov_len;
		data[len++] = '\n';
	}

	return len;
}

bool mpib_journal_socket_put(struct mpib_journal_socket *js, const struct iovec *fields,
			     int n_fields, const char *message)
{
	char data[ENTRY_MAX];
	size_t len;

	if (js->path)
		len = format_fields(fields, n_fields, data);
	else
		len = (size_t)snprintf(data, sizeof(data), "mpib-agentd: %.4000s\n", message);

	return keep(js, data, (uint32_t)len);
}
