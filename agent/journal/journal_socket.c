/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's own protocol, a datagram an entry, since the library's call waits for room. */
#include "agent/journal/journal_socket.h"

#include <errno.h>
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

/* A burst of the journal's bound, while nobody reads. */
#define WAITING_MAX (1024u * 1024u)

struct mpib_sink {
	const char *path; /* NULL: lines */
	int fd;		  /* of lines, or the socket: -1 where there is none yet */
	size_t first;	  /* of what waits: a length and so many bytes, again and again */
	size_t end;
	uint8_t waiting[WAITING_MAX]; /* pages that nobody touches cost nothing */
};

int mpib_sink_new(const char *path, int fd, struct mpib_sink **ret)
{
	struct mpib_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return -ENOMEM;

	sink->path = path;
	sink->fd = path ? -1 : fd;
	*ret = sink;
	return 0;
}

struct mpib_sink *mpib_sink_free(struct mpib_sink *sink)
{
	if (!sink)
		return NULL;

	mpib_sink_flush(sink);
	if (sink->path && sink->fd >= 0)
		(void)close(sink->fd);
	free(sink);
	return NULL;
}

/* True where more is to be tried later. */
static bool means_later(int error)
{
	return error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == EINTR;
}

/* True where it is sent, or can't be sent ever. */
static bool send_datagram(struct mpib_sink *sink, const void *data, size_t len)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(sink->path) >= sizeof(address.sun_path))
		return true;
	memcpy(address.sun_path, sink->path, strlen(sink->path));
	if (sink->fd < 0)
		sink->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sink->fd < 0)
		return false;

	/* A journal that is being restarted is not there for a moment. */
	return sendto(sink->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT,
		      (const struct sockaddr *)&address, sizeof(address)) >= 0 ||
	       (!means_later(errno) && errno != ECONNREFUSED && errno != ENOENT);
}

/* The same. A pipe that is ready takes a whole line. */
static bool write_line(const struct mpib_sink *sink, const void *data, size_t len)
{
	struct pollfd p = { .fd = sink->fd, .events = POLLOUT };

	if (poll(&p, 1, 0) == 0)
		return false;
	return write(sink->fd, data, len) >= 0 || !means_later(errno);
}

static bool send_one(struct mpib_sink *sink, const void *data, size_t len)
{
	return sink->path ? send_datagram(sink, data, len) : write_line(sink, data, len);
}

void mpib_sink_flush(struct mpib_sink *sink)
{
	uint32_t len;

	while (sink->first < sink->end) {
		memcpy(&len, sink->waiting + sink->first, sizeof(len));
		if (!send_one(sink, sink->waiting + sink->first + sizeof(len), len))
			return;
		sink->first += sizeof(len) + len;
	}

	sink->first = 0;
	sink->end = 0;
}

static bool keep(struct mpib_sink *sink, const void *data, uint32_t len)
{
	if (sizeof(len) + len > WAITING_MAX - sink->end && sink->first) {
		memmove(sink->waiting, sink->waiting + sink->first, sink->end - sink->first);
		sink->end -= sink->first;
		sink->first = 0;
	}
	if (sizeof(len) + len > WAITING_MAX - sink->end)
		return false;

	memcpy(sink->waiting + sink->end, &len, sizeof(len));
	memcpy(sink->waiting + sink->end + sizeof(len), data, len);
	sink->end += sizeof(len) + len;
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

bool mpib_sink_put(struct mpib_sink *sink, const struct iovec *fields, int n_fields,
		   const char *message)
{
	char data[ENTRY_MAX];
	size_t len;

	if (sink->path)
		len = format_fields(fields, n_fields, data);
	else
		len = (size_t)snprintf(data, sizeof(data), "mpib-agentd: %.4000s\n", message);

	mpib_sink_flush(sink);
	if (sink->first == sink->end && send_one(sink, data, len))
		return true;
	return keep(sink, data, (uint32_t)len);
}
