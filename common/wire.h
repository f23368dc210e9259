/* SPDX-License-Identifier: Apache-2.0 */
/* The registration messages as pure functions over a buffer with a length; no I/O, no allocation.
 * The formats are stated in common/mpib_agent_iface.h. */
#ifndef MPIB_COMMON_WIRE_H
#define MPIB_COMMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/mpib_agent_iface.h"

/* A decoded request or answer; fields that the type doesn't carry are 0. */
struct mpib_wire_msg {
	uint8_t type;	      /* enum mpib_msg_type; unknown values are passed on */
	uint8_t status;	      /* RESPONSE */
	uint32_t conn_id;     /* REGISTER, DEREGISTER */
	uint32_t sout_src_be; /* REGISTER, network order, as all four */
	uint32_t sout_dst_be;
	uint32_t sup_src_be;
	uint32_t sup_dst_be;
	uint32_t hint_slot; /* RESPONSE to REGISTER */
};

/* Looks for one frame at the start of @buf. Returns 1 and its whole length where the frame is
 * complete, 0 where more bytes are needed (*ret_len is then the wanted total: 8, or the message's
 * length once that is known), -EBADMSG for a wrong magic (seen as soon as one of its bytes differs)
 * or a length under 8. */
int mpib_wire_frame(const void *buf, size_t len, size_t *ret_len);

/* Decodes one whole frame of @len bytes as the agent sees it. 0; -EBADMSG where the frame is not
 * one (magic, msg_len unlike @len); -EPROTO for a known type with another length than the contract
 * states; -ENOTSUP for an unknown type. For the last two ret->type is set: they deserve an answer.
 */
int mpib_wire_decode_request(const void *buf, size_t len, struct mpib_wire_msg *ret);

/* Decodes one whole frame as the answer to a request of type @request_type. 0 or -EBADMSG. A status
 * outside the contract is -EBADMSG too. ret->hint_slot is 0 unless the status is OK. */
int mpib_wire_decode_response(const void *buf, size_t len, uint8_t request_type,
			      struct mpib_wire_msg *ret);

/* Encoders: bytes written, or -ENOBUFS where @cap is too small. A request other than REGISTER and
 * DEREGISTER is -EINVAL; an answer to any type but REGISTER has the short form, without a slot. */
int mpib_wire_encode_request(void *buf, size_t cap, const struct mpib_wire_msg *msg);
int mpib_wire_encode_response(void *buf, size_t cap, uint8_t request_type, uint8_t status,
			      uint32_t hint_slot);

#endif
