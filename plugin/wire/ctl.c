/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/wire/ctl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/wire/net.h"

/* A last frame that the socket doesn't take at once. */
#define LAST_TRIES   10
#define LAST_WAIT_MS 5

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
		if (n < 0)
			return mpib_net_is_transient(errno) ? 0 : -errno;
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
			return mpib_net_is_transient(errno) ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		ctl->rx_len += (size_t)n;
	}
}

void mpib_ctl_send_text(struct mpib_ctl *ctl, uint16_t type, const char *text)
{
	size_t len = strlen(text);

	mpib_ctl_send_last(ctl, type, text, len < MPIB_TEXT_MAX ? len : MPIB_TEXT_MAX);
}

void mpib_ctl_send_last(struct mpib_ctl *ctl, uint16_t type, const void *payload, size_t len)
{
	struct pollfd p = { .fd = ctl->fd, .events = POLLOUT };

	if (ctl->fd < 0 || mpib_ctl_send(ctl, type, payload, len) < 0)
		return;
	for (unsigned int k = 0; k < LAST_TRIES && mpib_ctl_flush(ctl) == 0; k++)
		(void)poll(&p, 1, LAST_WAIT_MS);
}

int mpib_ctl_reason(struct mpib_ctl *ctl, uint16_t *ret_type, char *ret_text)
{
	struct mpib_frame frame;

	while (ctl->fd >= 0 && mpib_ctl_recv(ctl, &frame) > 0) {
		if (frame.type != MPIB_FRAME_REFUSE && frame.type != MPIB_FRAME_FAIL)
			continue;
		*ret_type = frame.type;
		mpib_text_decode(frame.payload, frame.payload_len, ret_text);
		return 1;
	}
	return 0;
}
