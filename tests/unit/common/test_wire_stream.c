/* SPDX-License-Identifier: Apache-2.0 */
/* Registration messages as they come off a socket: in fragments, several at once, or garbage. */
#include "common/wire.h"

#include "tests/unit/common/random.h"
#include "tests/unit/common/wire_known.h"

#define GARBAGE_ROUNDS 100000

static void frame_waits_for_fragments(void **state)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(requests); k++) {
		for (size_t len = 0; len <= FRAME_MAX; len++) {
			size_t wanted_len = len < 8 ? 8 : requests[k].len;
			size_t frame_len = 0;
			int r = find_frame(requests[k].bytes, len, &frame_len);

			if (r != (len >= requests[k].len) || frame_len != wanted_len)
				fail_msg("%s, %zu bytes of it: %d, length %zu", requests[k].name,
					 len, r, frame_len);
		}
	}
}

/* A wrong magic is seen with its first wrong byte, a length below the header's with the header. */
static void frame_refuses_strangers(void **state)
{
	static const uint8_t header[] = { MAGIC_BYTES, 8, 0, 9, 0 };
	size_t frame_len = 4242;

	for (size_t pos = 0; pos < 4; pos++) {
		uint8_t bytes[sizeof(header)];

		memcpy(bytes, header, sizeof(bytes));
		bytes[pos] ^= 0x20;
		for (size_t len = 1; len <= sizeof(bytes); len++)
			assert_int_equal(find_frame(bytes, len, &frame_len) == -EBADMSG, len > pos);
	}

	frame_len = 4242;
	for (uint8_t msg_len = 0; msg_len < 8; msg_len++) {
		uint8_t bytes[sizeof(header)];

		memcpy(bytes, header, sizeof(bytes));
		bytes[4] = msg_len;
		assert_int_equal(find_frame(bytes, sizeof(bytes), &frame_len), -EBADMSG);
		assert_int_equal(frame_len, 4242);
	}

	assert_int_equal(find_frame(header, sizeof(header), &frame_len), 1);
	assert_int_equal(frame_len, 8);
}

static void frame_length_is_16_bits(void **state)
{
	static const uint8_t header[] = { MAGIC_BYTES, 0xff, 0xff, 1, 0 };
	uint8_t bytes[65535] = { 0 };
	size_t frame_len = 0;

	memcpy(bytes, header, sizeof(header));
	assert_int_equal(find_frame(bytes, 65534, &frame_len), 0);
	assert_int_equal(frame_len, 65535);
	assert_int_equal(find_frame(bytes, 65535, &frame_len), 1);
	assert_int_equal(frame_len, 65535);
}

/* Several requests in one buffer, one of them of a type from the future, in chunks of each size. */
static void frames_of_a_stream_come_apart(void **state)
{
	static const uint8_t future[] = { MAGIC_BYTES, 9, 0, 99, 0, 1 };
	static const int wanted[] = { 0, 0, -ENOTSUP, 0 };
	uint8_t stream[28 + 12 + sizeof(future) + 28];

	memcpy(stream, requests[0].bytes, 28);
	memcpy(stream + 28, requests[1].bytes, 12);
	memcpy(stream + 40, future, sizeof(future));
	memcpy(stream + 40 + sizeof(future), requests[0].bytes, 28);

	for (size_t chunk = 1; chunk <= sizeof(stream); chunk++) {
		size_t start = 0;
		size_t frames = 0;

		for (size_t have = 0; have < sizeof(stream);) {
			size_t frame_len;

			have = have + chunk < sizeof(stream) ? have + chunk : sizeof(stream);
			while (find_frame(stream + start, have - start, &frame_len) == 1) {
				struct mpib_wire_msg msg;

				assert_true(frames < MPIB_ARRAY_SIZE(wanted));
				assert_int_equal(decode_request(stream + start, frame_len, &msg),
						 wanted[frames]);
				frames++;
				start += frame_len;
			}
		}
		assert_int_equal(frames, MPIB_ARRAY_SIZE(wanted));
		assert_int_equal(start, sizeof(stream));
	}
}

static void random_messages_come_back(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(1);

	for (unsigned int n = 0; n < 20000; n++) {
		struct mpib_wire_msg sent = {
			.type = MPIB_MSG_REGISTER,
			.conn_id = (uint32_t)mpib_test_random_next(&random),
			.sout_src_be = (uint32_t)mpib_test_random_next(&random),
			.sout_dst_be = (uint32_t)mpib_test_random_next(&random),
			.sup_src_be = (uint32_t)mpib_test_random_next(&random),
			.sup_dst_be = (uint32_t)mpib_test_random_next(&random),
		};
		struct mpib_wire_msg got;
		uint8_t bytes[FRAME_MAX];
		uint32_t slot = (uint32_t)mpib_test_random_next(&random);
		int len;

		len = mpib_wire_encode_request(bytes, sizeof(bytes), &sent);
		assert_int_equal(decode_request(bytes, (size_t)len, &got), 0);
		assert_true(msg_equal(&sent, &got));

		len = mpib_wire_encode_response(bytes, sizeof(bytes), MPIB_MSG_REGISTER, 0, slot);
		assert_int_equal(decode_response(bytes, (size_t)len, MPIB_MSG_REGISTER, &got), 0);
		assert_int_equal(got.hint_slot, slot);
	}
}

/* Noise that looks more and more like a frame the more bits of @shape are set. */
static size_t make_garbage(struct mpib_test_random *random, uint8_t *bytes, size_t cap)
{
	static const uint8_t types[] = { 1, 2, 128, 3 };
	static const uint8_t magic[] = { MAGIC_BYTES };
	uint64_t shape = mpib_test_random_next(random);
	size_t len = shape & 1 ? (size_t[]){ 8, 12, 16, 28 }[shape >> 8 & 3]
			       : mpib_test_random_below(random, cap + 1);

	for (size_t pos = 0; pos < len; pos++)
		bytes[pos] = (uint8_t)mpib_test_random_next(random);
	if (shape & 6 && len >= 4)
		memcpy(bytes, magic, sizeof(magic));
	if (shape & 24 && len >= 6) {
		bytes[4] = (uint8_t)len;
		bytes[5] = (uint8_t)(len >> 8);
	}
	if (shape & 32 && len >= 7)
		bytes[6] = types[shape >> 16 & 3];
	return len;
}

static void garbage_is_judged_within_its_length(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(2);
	unsigned int taken = 0;

	for (unsigned int n = 0; n < GARBAGE_ROUNDS; n++) {
		uint8_t bytes[64];
		size_t len = make_garbage(&random, bytes, sizeof(bytes));
		uint8_t request_type = (uint8_t)(1 + n % 3);
		struct mpib_wire_msg msg = { 0 };
		size_t frame_len = 0;
		int r;

		r = find_frame(bytes, len, &frame_len);
		assert_true(r == -EBADMSG || r == 0 || r == 1);
		if (r >= 0) {
			assert_in_range(frame_len, 8, 65535);
			assert_int_equal(r, frame_len <= len && len >= 8);
		}

		r = decode_request(bytes, len, &msg);
		assert_true(r == 0 || r == -EBADMSG || r == -EPROTO || r == -ENOTSUP);
		if (r == 0) {
			uint8_t again[FRAME_MAX];

			bytes[7] = 0; /* reserved: not kept */
			assert_int_equal(mpib_wire_encode_request(again, sizeof(again), &msg), len);
			assert_memory_equal(again, bytes, len);
			taken++;
		}

		r = decode_response(bytes, len, request_type, &msg);
		assert_true(r == 0 || r == -EBADMSG);
		taken += r == 0;
	}

	/* Noise that never gets past the door proves little. */
	assert_true(taken > GARBAGE_ROUNDS / 1000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(frame_waits_for_fragments),
		cmocka_unit_test(frame_refuses_strangers),
		cmocka_unit_test(frame_length_is_16_bits),
		cmocka_unit_test(frames_of_a_stream_come_apart),
		cmocka_unit_test(random_messages_come_back),
		cmocka_unit_test(garbage_is_judged_within_its_length),
	};

	return cmocka_run_group_tests_name("wire_stream", tests, NULL, NULL);
}
