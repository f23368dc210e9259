/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP control connection: frames in and out of a non-blocking socket, bounded buffers. */
#ifndef MPIB_PLUGIN_CTL_H
#define MPIB_PLUGIN_CTL_H

#include "plugin/wire/handshake.h"

struct mpib_ctl {
	int fd; /* -1 when closed; owned */
	size_t rx_len, rx_used;
	size_t tx_len, tx_off;
	uint8_t rx[MPIB_FRAME_MAX];
	uint8_t tx[2 * MPIB_FRAME_MAX];
};

/* Takes over @fd. */
void mpib_ctl_init(struct mpib_ctl *ctl, int fd);
void mpib_ctl_close(struct mpib_ctl *ctl);

/* Queues a frame and sends what the socket takes. 0, -ENOBUFS where the peer stopped reading, or
 * the socket's error. SIGPIPE is never raised. */
int mpib_ctl_send(struct mpib_ctl *ctl, uint16_t type, const void *payload, size_t len);

/* Sends what is queued: 1 when all is out, 0 when the socket is full, negative errno. */
int mpib_ctl_flush(struct mpib_ctl *ctl);

/* 1 and a frame (valid until the next call), 0 where none is whole yet, -ECONNRESET at the end of
 * the stream, -EBADMSG for bytes that are not our protocol, or the socket's error. */
int mpib_ctl_recv(struct mpib_ctl *ctl, struct mpib_frame *ret);

/* For one whose socket broke: whether the peer said why before. 1, the frame's type and its text
 * (MPIB_TEXT_MAX + 1 bytes), or 0. */
int mpib_ctl_reason(struct mpib_ctl *ctl, uint16_t *ret_type, char *ret_text);

/* Best effort: a last frame before the connection closes; waits 50 ms at most for a socket that is
 * full. The second one sends a reason. */
void mpib_ctl_send_last(struct mpib_ctl *ctl, uint16_t type, const void *payload, size_t len);
void mpib_ctl_send_text(struct mpib_ctl *ctl, uint16_t type, const char *text);

#endif
