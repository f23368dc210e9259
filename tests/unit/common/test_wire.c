/* SPDX-License-Identifier: Apache-2.0 */
/* The codec of registration messages, byte by byte. */
#include "common/wire.h"

#include "tests/unit/common/wire_known.h"

/* Encodes at the end of a heap block with room for @cap bytes; *ret_block is the caller's to free,
 * the message starts at its second byte. */
static int encode(const struct known *known, bool request, size_t cap, uint8_t **ret_block)
{
	static const uint8_t filler[FRAME_MAX];
	uint8_t *block = exact(filler, cap);

	*ret_block = block;
	return request ? mpib_wire_encode_request(block + 1, cap, &known->msg)
		       : mpib_wire_encode_response(block + 1, cap, known->request_type,
						   known->msg.status, known->msg.hint_slot);
}

static void expect_encoding(const struct known *known, bool request)
{
	for (size_t cap = 0; cap <= FRAME_MAX; cap++) {
		mpib_cleanup(mpib_freep) uint8_t *block = NULL;
		int wanted = cap < known->len ? -ENOBUFS : (int)known->len;
		int r = encode(known, request, cap, &block);

		if (r != wanted)
			fail_msg("%s into %zu bytes: %d, not %d", known->name, cap, r, wanted);
		if (r > 0)
			assert_memory_equal(block + 1, known->bytes, known->len);
	}
}

static void encoders_write_the_contract(void **state)
{
	const struct mpib_wire_msg odd[] = { { .type = 0 }, { .type = 3 }, { .type = 128 } };
	uint8_t buf[FRAME_MAX];

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++)
		expect_encoding(&requests[k], true);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(responses); k++)
		expect_encoding(&responses[k], false);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(odd); k++)
		assert_int_equal(mpib_wire_encode_request(buf, sizeof(buf), &odd[k]), -EINVAL);
}

static void decoders_read_the_contract(void **state)
{
	struct mpib_wire_msg msg;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++) {
		memset(&msg, 0xa5, sizeof(msg));
		assert_int_equal(decode_request(requests[k].bytes, requests[k].len, &msg), 0);
		if (!msg_equal(&msg, &requests[k].msg))
			fail_msg("%s: other fields", requests[k].name);
	}

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(responses); k++) {
		memset(&msg, 0xa5, sizeof(msg));
		assert_int_equal(decode_response(responses[k].bytes, responses[k].len,
						 responses[k].request_type, &msg),
				 0);
		if (!msg_equal(&msg, &responses[k].msg))
			fail_msg("%s: other fields", responses[k].name);
	}
}

/* The whole answer to one changed byte, for each byte and each value. */
static int wanted_after_change(size_t pos, uint8_t value, const struct known *known)
{
	if (pos < 4 || pos == 4 || pos == 5)
		return value == known->bytes[pos] ? 0 : -EBADMSG;
	if (pos == 6 && value != known->bytes[pos])
		return value == MPIB_MSG_REGISTER || value == MPIB_MSG_DEREGISTER ? -EPROTO
										  : -ENOTSUP;
	return 0; /* reserved bytes are for later versions, the rest is data */
}

static void decode_request_judges_every_byte(void **state)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++) {
		for (size_t pos = 0; pos < requests[k].len; pos++) {
			for (unsigned int value = 0; value < 256; value++) {
				struct mpib_wire_msg msg = { .type = 250 };
				uint8_t bytes[FRAME_MAX];
				int wanted = wanted_after_change(pos, (uint8_t)value, &requests[k]);
				int r;

				memcpy(bytes, requests[k].bytes, sizeof(bytes));
				bytes[pos] = (uint8_t)value;
				r = decode_request(bytes, requests[k].len, &msg);
				if (r != wanted)
					fail_msg("%s with %u at %zu: %d, not %d", requests[k].name,
						 value, pos, r, wanted);
				assert_int_equal(msg.type, r == -EBADMSG ? 250 : bytes[6]);
			}
		}
	}
}

static void decode_response_judges_every_byte(void **state)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(responses); k++) {
		for (size_t pos = 0; pos < responses[k].len; pos++) {
			for (unsigned int value = 0; value < 256; value++) {
				struct mpib_wire_msg msg = { .type = 250 };
				uint8_t bytes[FRAME_MAX];
				bool good = pos < 7 ? value == responses[k].bytes[pos]
						    : pos != 8 || value <= MPIB_STATUS_INVALID;
				int r;

				memcpy(bytes, responses[k].bytes, sizeof(bytes));
				bytes[pos] = (uint8_t)value;
				r = decode_response(bytes, responses[k].len,
						    responses[k].request_type, &msg);
				if (r != (good ? 0 : -EBADMSG))
					fail_msg("%s with %u at %zu: %d", responses[k].name, value,
						 pos, r);
				assert_int_equal(msg.type, r < 0 ? 250 : MPIB_MSG_RESPONSE);
				if (r == 0 && msg.status != MPIB_STATUS_OK)
					assert_int_equal(msg.hint_slot, 0);
			}
		}
	}
}

/* A frame whose header says @msg_len, and which is so long: only the right length is a message. */
static void known_types_with_other_lengths(void **state)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++) {
		for (size_t len = 8; len < 300; len++) {
			struct mpib_wire_msg msg = { 0 };
			uint8_t bytes[300] = { 0 };

			memcpy(bytes, requests[k].bytes, FRAME_MAX);
			bytes[4] = (uint8_t)len;
			bytes[5] = (uint8_t)(len >> 8);
			assert_int_equal(decode_request(bytes, len, &msg),
					 len == requests[k].len ? 0 : -EPROTO);
			assert_int_equal(msg.type, requests[k].msg.type);
			/* One byte less or more than the header says is no frame at all. */
			assert_int_equal(decode_request(bytes, len - 1, &msg), -EBADMSG);
			if (len + 1 < sizeof(bytes))
				assert_int_equal(decode_request(bytes, len + 1, &msg), -EBADMSG);
		}
	}
}

static void answers_of_the_other_kind_are_refused(void **state)
{
	struct mpib_wire_msg msg;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(responses); k++) {
		bool registered = responses[k].request_type == MPIB_MSG_REGISTER;

		assert_int_equal(
			decode_response(responses[k].bytes, responses[k].len,
					registered ? MPIB_MSG_DEREGISTER : MPIB_MSG_REGISTER, &msg),
			-EBADMSG);
		assert_int_equal(decode_request(responses[k].bytes, responses[k].len, &msg),
				 -ENOTSUP);
	}

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++)
		assert_int_equal(decode_response(requests[k].bytes, requests[k].len,
						 requests[k].msg.type, &msg),
				 -EBADMSG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(encoders_write_the_contract),
		cmocka_unit_test(decoders_read_the_contract),
		cmocka_unit_test(decode_request_judges_every_byte),
		cmocka_unit_test(decode_response_judges_every_byte),
		cmocka_unit_test(known_types_with_other_lengths),
		cmocka_unit_test(answers_of_the_other_kind_are_refused),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
