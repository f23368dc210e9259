/* SPDX-License-Identifier: Apache-2.0 */
/* The registration messages: a stream of bytes as the agent gets it from a client, and a plugin
 * from an agent. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "common/wire.h"
#include "tests/fuzz/fuzz.h"

#define FRAME_MAX 64

/* What is decoded encodes to the same bytes, the reserved one aside. */
static void check_request(const uint8_t *frame, size_t len)
{
	struct mpib_wire_msg msg = { .type = 250 };
	uint8_t again[FRAME_MAX];
	int r;

	r = mpib_wire_decode_request(frame, len, &msg);
	switch (r) {
	case 0:
		FUZZ_CHECK(mpib_wire_encode_request(again, sizeof(again), &msg) == (int)len);
		again[7] = frame[7];
		FUZZ_CHECK(memcmp(again, frame, len) == 0);
		break;
	case -EPROTO:
		FUZZ_CHECK(msg.type == MPIB_MSG_REGISTER || msg.type == MPIB_MSG_DEREGISTER);
		FUZZ_CHECK(msg.type == frame[6]);
		break;
	case -ENOTSUP:
		FUZZ_CHECK(msg.type == frame[6]);
		break;
	default:
		FUZZ_CHECK(r == -EBADMSG);
		FUZZ_CHECK(msg.type == 250);
	}
}

static void check_response(const uint8_t *frame, size_t len, uint8_t request_type)
{
	struct mpib_wire_msg msg = { .type = 250 };
	uint8_t again[FRAME_MAX];
	int r;

	r = mpib_wire_decode_response(frame, len, request_type, &msg);
	if (r < 0) {
		FUZZ_CHECK(r == -EBADMSG);
		FUZZ_CHECK(msg.type == 250);
		return;
	}

	FUZZ_CHECK(msg.type == MPIB_MSG_RESPONSE);
	FUZZ_CHECK(msg.status <= MPIB_STATUS_INVALID);
	FUZZ_CHECK(msg.status == MPIB_STATUS_OK || msg.hint_slot == 0);
	r = mpib_wire_encode_response(again, sizeof(again), request_type, msg.status,
				      msg.hint_slot);
	FUZZ_CHECK(r == (int)len);
	FUZZ_CHECK(memcmp(again, frame, 7) == 0 && again[8] == frame[8]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t start = 0;
	bool more = true;

	/* Whole input as one frame, true or not. */
	check_request(data, size);
	for (uint8_t request_type = 1; request_type <= 3; request_type++)
		check_response(data, size, request_type);

	/* And as a stream of frames. */
	while (more) {
		size_t left = size - start;
		size_t len = 0;
		int r = mpib_wire_frame(data + start, left, &len);

		FUZZ_CHECK(r == 1 || r == 0 || r == -EBADMSG);
		more = r == 1;
		if (r == -EBADMSG)
			break;

		FUZZ_CHECK(len >= sizeof(struct mpib_msg_header) && len <= UINT16_MAX);
		FUZZ_CHECK((r == 1) == (len <= left && left >= sizeof(struct mpib_msg_header)));
		if (r == 1) {
			check_request(data + start, len);
			check_response(data + start, len, MPIB_MSG_REGISTER);
			check_response(data + start, len, MPIB_MSG_DEREGISTER);
			start += len;
		}
	}

	return 0;
}
