/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the registration messages. Every field goes through memcpy: a frame may
 * start at any address of a receive buffer. */
#include "common/wire.h"

#include <errno.h>
#include <string.h>

/* Length of an answer. Only the one to REGISTER names a slot; whatever else was asked, a type that
 * this version doesn't know included, gets the short form. */
static size_t response_len(uint8_t request_type)
{
	return request_type == MPIB_MSG_REGISTER ? sizeof(struct mpib_msg_register_response)
						 : sizeof(struct mpib_msg_deregister_response);
}

static struct mpib_msg_header header_make(uint8_t type, size_t len)
{
	return (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)len,
		.msg_type = type,
	};
}

int mpib_wire_frame(const void *buf, size_t len, size_t *ret_len)
{
	static const uint32_t magic = MPIB_MSG_MAGIC;
	struct mpib_msg_header header;

	/* Even a part of the magic tells a stranger: don't wait for the rest of it. */
	if (len && memcmp(buf, &magic, len < sizeof(magic) ? len : sizeof(magic)) != 0)
		return -EBADMSG;

	if (len < sizeof(header)) {
		*ret_len = sizeof(header);
		return 0;
	}

	memcpy(&header, buf, sizeof(header));
	if (header.msg_len < sizeof(header))
		return -EBADMSG;

	*ret_len = header.msg_len;
	return len >= header.msg_len;
}

/* Reads the header of a frame that has to fill @len exactly. */
static int whole_frame(const void *buf, size_t len, struct mpib_msg_header *ret)
{
	size_t frame_len;
	int r;

	r = mpib_wire_frame(buf, len, &frame_len);
	if (r < 0)
		return r;
	if (r == 0 || frame_len != len)
		return -EBADMSG;

	memcpy(ret, buf, sizeof(*ret));
	return 0;
}

int mpib_wire_decode_request(const void *buf, size_t len, struct mpib_wire_msg *ret)
{
	struct mpib_msg_header header;
	struct mpib_msg_register reg;
	struct mpib_msg_deregister dereg;
	int r;

	r = whole_frame(buf, len, &header);
	if (r < 0)
		return r;

	*ret = (struct mpib_wire_msg){ .type = header.msg_type };

	switch (header.msg_type) {
	case MPIB_MSG_REGISTER:
		if (len != sizeof(reg))
			return -EPROTO;
		memcpy(&reg, buf, sizeof(reg));
		ret->conn_id = reg.conn_id;
		ret->sout_src_be = reg.sout_src_ip;
		ret->sout_dst_be = reg.sout_dst_ip;
		ret->sup_src_be = reg.sup_src_ip;
		ret->sup_dst_be = reg.sup_dst_ip;
		return 0;
	case MPIB_MSG_DEREGISTER:
		if (len != sizeof(dereg))
			return -EPROTO;
		memcpy(&dereg, buf, sizeof(dereg));
		ret->conn_id = dereg.conn_id;
		return 0;
	default:
		return -ENOTSUP;
	}
}

int mpib_wire_decode_response(const void *buf, size_t len, uint8_t request_type,
			      struct mpib_wire_msg *ret)
{
	struct mpib_msg_register_response response = { 0 };
	int r;

	r = whole_frame(buf, len, &response.header);
	if (r < 0)
		return r;
	if (response.header.msg_type != MPIB_MSG_RESPONSE || len != response_len(request_type))
		return -EBADMSG;

	/* The short answer is the start of the long one. */
	memcpy(&response, buf, len);
	if (response.status > MPIB_STATUS_INVALID)
		return -EBADMSG;

	*ret = (struct mpib_wire_msg){
		.type = MPIB_MSG_RESPONSE,
		.status = response.status,
		.hint_slot = response.status == MPIB_STATUS_OK ? response.hint_slot : 0,
	};
	return 0;
}

/* Copies a message of @len bytes into a buffer of @cap. */
static int emit(void *buf, size_t cap, const void *message, size_t len)
{
	if (cap < len)
		return -ENOBUFS;

	memcpy(buf, message, len);
	return (int)len;
}

int mpib_wire_encode_request(void *buf, size_t cap, const struct mpib_wire_msg *msg)
{
	struct mpib_msg_register reg;
	struct mpib_msg_deregister dereg;

	switch (msg->type) {
	case MPIB_MSG_REGISTER:
		reg = (struct mpib_msg_register){
			.header = header_make(MPIB_MSG_REGISTER, sizeof(reg)),
			.conn_id = msg->conn_id,
			.sout_src_ip = msg->sout_src_be,
			.sout_dst_ip = msg->sout_dst_be,
			.sup_src_ip = msg->sup_src_be,
			.sup_dst_ip = msg->sup_dst_be,
		};
		return emit(buf, cap, &reg, sizeof(reg));
	case MPIB_MSG_DEREGISTER:
		dereg = (struct mpib_msg_deregister){
			.header = header_make(MPIB_MSG_DEREGISTER, sizeof(dereg)),
			.conn_id = msg->conn_id,
		};
		return emit(buf, cap, &dereg, sizeof(dereg));
	default:
		return -EINVAL;
	}
}

int mpib_wire_encode_response(void *buf, size_t cap, uint8_t request_type, uint8_t status,
			      uint32_t hint_slot)
{
	size_t len = response_len(request_type);
	struct mpib_msg_register_response response = {
		.header = header_make(MPIB_MSG_RESPONSE, len),
		.status = status,
		.hint_slot = hint_slot,
	};

	return emit(buf, cap, &response, len);
}
