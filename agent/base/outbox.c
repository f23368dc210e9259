/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/outbox.h"

#include <string.h>

#include "common/wire.h"

size_t mpib_outbox_room(const struct mpib_outbox *out)
{
	return sizeof(out->bytes) - out->n;
}

void mpib_outbox_put(struct mpib_outbox *out, const void *data, size_t len)
{
	if (len > mpib_outbox_room(out)) {
		out->overrun = true; /* callers look at the room first */
		return;
	}
	memcpy(out->bytes + out->n, data, len);
	out->n += len;
}

void mpib_outbox_answer(struct mpib_outbox *out, uint8_t request_type, uint8_t status,
			uint32_t slot)
{
	int len = mpib_wire_encode_response(out->bytes + out->n, mpib_outbox_room(out),
					    request_type, status, slot);

	if (len < 0)
		out->overrun = true;
	else
		out->n += (size_t)len;
}

void mpib_outbox_sent(struct mpib_outbox *out, size_t n)
{
	memmove(out->bytes, out->bytes + n, out->n - n);
	out->n -= n;
}
