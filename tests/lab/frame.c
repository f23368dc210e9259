/* SPDX-License-Identifier: Apache-2.0 */
/* Frames on a TCP connection: the part that labd and labx share. */
#include "tests/lab/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define HEADER_LEN 5u

static int send_full(int fd, const void *data, size_t len, int flags)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}

	return 0;
}

int mpib_lab_frame_send(int fd, uint8_t type, const void *data, size_t len)
{
	uint8_t header[HEADER_LEN] = { type, (uint8_t)len, (uint8_t)(len >> 8),
				       (uint8_t)(len >> 16), (uint8_t)(len >> 24) };
	int r;

	if (len > MPIB_LAB_FRAME_MAX)
		return -EMSGSIZE;

	r = send_full(fd, header, sizeof(header), len > 0 ? MSG_MORE : 0);
	if (r < 0 || len == 0)
		return r;

	return send_full(fd, data, len, 0);
}

/* 1 with all of it, 0 where the peer closed before the first byte. */
static int recv_full(int fd, void *data, size_t len)
{
	char *p = data;
	size_t got = 0;

	while (got < len) {
		ssize_t n = recv(fd, p + got, len - got, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return got == 0 ? 0 : -EPIPE;
		got += (size_t)n;
	}

	return 1;
}

int mpib_lab_frame_recv(int fd, struct mpib_lab_frame *ret_frame)
{
	uint8_t header[HEADER_LEN];
	uint32_t len;
	int r;

	r = recv_full(fd, header, sizeof(header));
	if (r <= 0)
		return r;

	len = (uint32_t)header[1] | (uint32_t)header[2] << 8 | (uint32_t)header[3] << 16 |
	      (uint32_t)header[4] << 24;
	if (len > MPIB_LAB_FRAME_MAX)
		return -EBADMSG;
	if (len > 0) {
		r = recv_full(fd, ret_frame->data, len);
		if (r <= 0)
			return r < 0 ? r : -EPIPE;
	}

	ret_frame->type = header[0];
	ret_frame->len = len;
	return 1;
}

int mpib_lab_write_full(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}

	return 0;
}
