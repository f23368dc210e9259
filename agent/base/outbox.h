/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way to a client, bounded. */
#ifndef MPIB_AGENT_OUTBOX_H
#define MPIB_AGENT_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for a few of the longest frames. */
#define MPIB_OUTBOX_SIZE 16384u

struct mpib_outbox {
	size_t n;
	bool overrun; /* something had no room: the connection ends once the rest is out */
	uint8_t bytes[MPIB_OUTBOX_SIZE];
};

/* Bytes that it still takes. */
size_t mpib_outbox_room(const struct mpib_outbox *out);
/* Appends; the caller has looked at the room. */
void mpib_outbox_put(struct mpib_outbox *out, const void *data, size_t len);
/* Appends the contract's answer to a request of type @request_type. */
void mpib_outbox_answer(struct mpib_outbox *out, uint8_t request_type, uint8_t status,
			uint32_t slot);
/* The first @n bytes have gone. */
void mpib_outbox_sent(struct mpib_outbox *out, size_t n);

#endif
