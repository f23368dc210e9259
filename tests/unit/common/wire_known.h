/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with the bytes that the contract gives them, and calls of the codec with every input in
 * a heap block of exactly its length, so that a sanitizer sees one byte too many. */
#ifndef MPIB_TESTS_UNIT_COMMON_WIRE_KNOWN_H
#define MPIB_TESTS_UNIT_COMMON_WIRE_KNOWN_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/macros.h"
#include "common/wire.h"
#include "tests/unit/common/cmocka_all.h"

#define FRAME_MAX   32
#define MAGIC_BYTES 0x52, 0x49, 0x50, 0x4d

/* A message and the bytes that the contract gives it. */
struct known {
	const char *name;
	size_t len;
	uint8_t bytes[FRAME_MAX];
	uint8_t request_type; /* for answers */
	struct mpib_wire_msg msg;
};

static const struct known requests[] = {
	{
		.name = "REGISTER",
		.len = 28,
		.bytes = { MAGIC_BYTES, 28, 0, 1, 0,  0x78, 0x56, 0x34, 0x12, 10, 0, 1, 1,
			   10,		0,  1, 2, 10, 9,    1,	  1,	10,   9,  1, 2 },
		.msg = { .type = MPIB_MSG_REGISTER,
			 .conn_id = 0x12345678,
			 .sout_src_be = 0x0101000a,
			 .sout_dst_be = 0x0201000a,
			 .sup_src_be = 0x0101090a,
			 .sup_dst_be = 0x0201090a },
	},
	{
		.name = "DEREGISTER",
		.len = 12,
		.bytes = { MAGIC_BYTES, 12, 0, 2, 0, 0xef, 0xbe, 0xad, 0xde },
		.msg = { .type = MPIB_MSG_DEREGISTER, .conn_id = 0xdeadbeef },
	},
};

static const struct known responses[] = {
	{
		.name = "answer to REGISTER: ok",
		.len = 16,
		.bytes = { MAGIC_BYTES, 16, 0, 128, 0, 0, 0, 0, 0, 4, 3, 2, 1 },
		.request_type = MPIB_MSG_REGISTER,
		.msg = { .type = MPIB_MSG_RESPONSE, .hint_slot = 0x01020304 },
	},
	{
		.name = "answer to REGISTER: no slot",
		.len = 16,
		.bytes = { MAGIC_BYTES, 16, 0, 128, 0, 1 },
		.request_type = MPIB_MSG_REGISTER,
		.msg = { .type = MPIB_MSG_RESPONSE, .status = MPIB_STATUS_NO_SLOT },
	},
	{
		.name = "answer to DEREGISTER: ok",
		.len = 12,
		.bytes = { MAGIC_BYTES, 12, 0, 128, 0, 0 },
		.request_type = MPIB_MSG_DEREGISTER,
		.msg = { .type = MPIB_MSG_RESPONSE },
	},
	{
		.name = "answer to DEREGISTER: invalid",
		.len = 12,
		.bytes = { MAGIC_BYTES, 12, 0, 128, 0, 2 },
		.request_type = MPIB_MSG_DEREGISTER,
		.msg = { .type = MPIB_MSG_RESPONSE, .status = MPIB_STATUS_INVALID },
	},
	{
		.name = "answer to a type of the future",
		.len = 12,
		.bytes = { MAGIC_BYTES, 12, 0, 128, 0, 2 },
		.request_type = 77,
		.msg = { .type = MPIB_MSG_RESPONSE, .status = MPIB_STATUS_INVALID },
	},
};

/* A heap block of @len + 1 bytes whose second byte starts a copy: it ends where the block ends, and
 * lies at an odd address. */
static inline uint8_t *exact(const void *bytes, size_t len)
{
	uint8_t *block = malloc(len + 1);

	assert_non_null(block);
	memcpy(block + 1, bytes, len);
	return block;
}

static inline int decode_request(const void *bytes, size_t len, struct mpib_wire_msg *ret)
{
	mpib_cleanup(mpib_freep) uint8_t *block = exact(bytes, len);

	return mpib_wire_decode_request(block + 1, len, ret);
}

static inline int decode_response(const void *bytes, size_t len, uint8_t request_type,
				  struct mpib_wire_msg *ret)
{
	mpib_cleanup(mpib_freep) uint8_t *block = exact(bytes, len);

	return mpib_wire_decode_response(block + 1, len, request_type, ret);
}

static inline int find_frame(const void *bytes, size_t len, size_t *ret_len)
{
	mpib_cleanup(mpib_freep) uint8_t *block = exact(bytes, len);

	return mpib_wire_frame(block + 1, len, ret_len);
}

static inline bool msg_equal(const struct mpib_wire_msg *a, const struct mpib_wire_msg *b)
{
	return a->type == b->type && a->status == b->status && a->conn_id == b->conn_id &&
	       a->sout_src_be == b->sout_src_be && a->sout_dst_be == b->sout_dst_be &&
	       a->sup_src_be == b->sup_src_be && a->sup_dst_be == b->sup_dst_be &&
	       a->hint_slot == b->hint_slot;
}

#endif
