/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/ctl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void mpib_ctl_init(struct mpib_ctl *ctl, int fd)
{
	ctl->fd = fd;
	ctl->rx_len = ctl->rx_used = 0;
	ctl->tx_len = ctl->tx_off = 0;
}

void mpib_ctl_close(struct mpib_ctl *ctl)
{
	/* A forked child may hold a copy of the descriptor: end the connection, not just our part.
	 */
	if (ctl->fd >= 0) {
		(void)shutdown(ctl->fd, SHUT_RDWR);
		(void)close(ctl->fd);
	}
	ctl->fd = -1;
}

int mpib_ctl_flush(struct mpib_ctl *ctl)
{
	while (ctl->tx_off < ctl->tx_len) {
		ssize_t n = send(ctl->fd, ctl->tx + ctl->tx_off, ctl->tx_len - ctl->tx_off,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0)
			return -errno;
		ctl->tx_off += (size_t)n;
	}

	ctl->tx_off = ctl->tx_len = 0;
	return 1;
}

int mpib_ctl_send(struct mpib_ctl *ctl, uint16_t type, const void *payload, size_t len)
{
	int r;

	if (len > MPIB_FRAME_PAYLOAD_MAX || sizeof(ctl->tx) - ctl->tx_len < MPIB_FRAME_HEADER + len)
		return -ENOBUFS;

	ctl->tx_len += mpib_frame_encode(ctl->tx + ctl->tx_len, type, payload, len);
	r = mpib_ctl_flush(ctl);
	return r < 0 ? r : 0;
}

int mpib_ctl_recv(struct mpib_ctl *ctl, struct mpib_frame *ret)
{
	int r;

	if (ctl->rx_used) {
		memmove(ctl->rx, ctl->rx + ctl->rx_used, ctl->rx_len - ctl->rx_used);
		ctl->rx_len -= ctl->rx_used;
		ctl->rx_used = 0;
	}

	for (;;) {
		ssize_t n;

		r = mpib_frame_decode(ctl->rx, ctl->rx_len, ret, &ctl->rx_used);
		if (r != 0)
			return r;

		n = recv(ctl->fd, ctl->rx + ctl->rx_len, sizeof(ctl->rx) - ctl->rx_len,
			 MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		ctl->rx_len += (size_t)n;
	}
}

void mpib_ctl_send_text(struct mpib_ctl *ctl, uint16_t type, const char *text)
{
	if (ctl->fd >= 0)
		(void)mpib_ctl_send(ctl, type, text, strnlen(text, MPIB_TEXT_MAX));
}
