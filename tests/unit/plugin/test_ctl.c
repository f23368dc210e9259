/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, and the control connection that carries them over a socket. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/wire/ctl.h"
#include "tests/unit/common/random.h"

static const uint8_t header[MPIB_FRAME_HEADER] = { 0x4d, 0x50, 0x42, 0x46, 3, 0, 3, 0, 5, 0 };

static void test_frame_known_bytes(void **state)
{
	uint8_t buf[MPIB_FRAME_MAX];
	struct mpib_frame frame;
	size_t used = 0;

	(void)state;
	assert_int_equal(mpib_frame_encode(buf, MPIB_FRAME_ACCEPT, "hello", 5), 21);
	assert_memory_equal(buf, header, sizeof(header));
	assert_memory_equal(buf + 16, "hello", 5);
	for (size_t len = 0; len < 21; len++)
		assert_int_equal(mpib_frame_decode(buf, len, &frame, &used), 0);
	assert_int_equal(mpib_frame_decode(buf, 21, &frame, &used), 1);
	assert_int_equal(used, 21);
	assert_int_equal(frame.version, MPIB_WIRE_VERSION);
	assert_int_equal(frame.type, MPIB_FRAME_ACCEPT);
	assert_int_equal(frame.payload_len, 5);
	assert_ptr_equal(frame.payload, buf + 16);
}

/* A stranger is known by the first byte that differs, not after a header's worth of them. */
static void test_frame_wrong_magic(void **state)
{
	uint8_t buf[MPIB_FRAME_HEADER];
	struct mpib_frame frame;
	size_t used;

	(void)state;
	for (size_t wrong = 0; wrong < 4; wrong++) {
		memcpy(buf, header, sizeof(buf));
		buf[wrong] ^= 1;
		for (size_t len = 0; len <= sizeof(buf); len++)
			assert_int_equal(mpib_frame_decode(buf, len, &frame, &used),
					 len <= wrong ? 0 : -EBADMSG);
	}
	assert_int_equal(mpib_frame_decode((const uint8_t *)"GET / HTTP/1.1", 1, &frame, &used),
			 -EBADMSG);
}

static void test_frame_oversize(void **state)
{
	uint8_t buf[MPIB_FRAME_HEADER];
	struct mpib_frame frame;
	size_t used;

	(void)state;
	memcpy(buf, header, sizeof(buf));
	for (uint32_t len = MPIB_FRAME_PAYLOAD_MAX; len > 0; len += len / 2 + 1) {
		memcpy(buf + 8, &len, 4);
		assert_int_equal(mpib_frame_decode(buf, sizeof(buf), &frame, &used),
				 len > MPIB_FRAME_PAYLOAD_MAX ? -EBADMSG : 0);
		if (len > UINT32_MAX / 2)
			break;
	}
	memset(buf + 8, 0xff, 4);
	assert_int_equal(mpib_frame_decode(buf, sizeof(buf), &frame, &used), -EBADMSG);
}

static void pair(struct mpib_ctl ctl[2])
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	mpib_ctl_init(&ctl[0], fd[0]);
	mpib_ctl_init(&ctl[1], fd[1]);
}

static void close_pair(struct mpib_ctl ctl[2])
{
	mpib_ctl_close(&ctl[0]);
	mpib_ctl_close(&ctl[1]);
	assert_int_equal(ctl[0].fd, -1);
	mpib_ctl_close(&ctl[0]); /* twice is fine */
}

static void test_ctl_byte_by_byte(void **state)
{
	uint8_t stream[3 * MPIB_FRAME_MAX], payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_frame frame;
	struct mpib_ctl ctl[2];
	unsigned int got = 0;
	size_t len;

	(void)state;
	memset(payload, 'p', sizeof(payload));
	len = mpib_frame_encode(stream, 1, payload, 0);
	len += mpib_frame_encode(stream + len, 2, payload, sizeof(payload));
	len += mpib_frame_encode(stream + len, 3, payload, 1);
	pair(ctl);
	for (size_t k = 0; k < len; k++) {
		assert_int_equal(send(ctl[0].fd, stream + k, 1, 0), 1);
		while (mpib_ctl_recv(&ctl[1], &frame) > 0) {
			got++;
			assert_int_equal(frame.type, got);
			assert_int_equal(frame.payload_len, got == 1   ? 0
							    : got == 2 ? sizeof(payload)
								       : 1);
		}
	}
	assert_int_equal(got, 3);
	close_pair(ctl);
}

static void test_ctl_several_in_one(void **state)
{
	struct mpib_frame frame;
	struct mpib_ctl ctl[2];

	(void)state;
	pair(ctl);
	for (uint16_t k = 1; k <= 20; k++)
		assert_int_equal(mpib_ctl_send(&ctl[0], k, &k, sizeof(k)), 0);
	for (uint16_t k = 1; k <= 20; k++) {
		assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), 1);
		assert_int_equal(frame.type, k);
		assert_memory_equal(frame.payload, &k, sizeof(k));
	}
	assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), 0);
	mpib_ctl_close(&ctl[0]);
	assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), -ECONNRESET);
	mpib_ctl_close(&ctl[1]);
}

static void test_ctl_garbage(void **state)
{
	struct mpib_frame frame;
	struct mpib_ctl ctl[2];

	(void)state;
	pair(ctl);
	assert_int_equal(send(ctl[0].fd, "\xff", 1, 0), 1);
	assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), -EBADMSG);
	close_pair(ctl);
}

/* A peer that stops reading fills the socket, then the buffer, and then sending says so; nothing
 * is lost or torn once it reads again. */
static void test_ctl_partial_sends(void **state)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	int size = 2048, r, sent = 0, got = 0;
	struct mpib_frame frame;
	struct mpib_ctl ctl[2];

	(void)state;
	pair(ctl);
	assert_int_equal(setsockopt(ctl[0].fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	for (;;) {
		memset(payload, sent & 0xff, sizeof(payload));
		r = mpib_ctl_send(&ctl[0], (uint16_t)(sent + 1), payload, sizeof(payload));
		if (r < 0)
			break;
		sent++;
		assert_true(sent < 1000);
	}
	assert_int_equal(r, -ENOBUFS);
	assert_int_equal(mpib_ctl_flush(&ctl[0]), 0);
	while (got < sent) {
		r = mpib_ctl_recv(&ctl[1], &frame);
		if (r == 0) {
			assert_true(mpib_ctl_flush(&ctl[0]) >= 0);
			continue;
		}
		assert_int_equal(r, 1);
		assert_int_equal(frame.type, got + 1);
		assert_int_equal(frame.payload_len, sizeof(payload));
		assert_int_equal(frame.payload[sizeof(payload) - 1], got & 0xff);
		got++;
	}
	assert_int_equal(mpib_ctl_flush(&ctl[0]), 1);
	assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), 0);
	close_pair(ctl);
}

/* Sending to a closed socket is an error and no signal, with the default disposition. */
static void test_ctl_no_sigpipe(void **state)
{
	struct mpib_ctl ctl[2];
	int r = 0;

	(void)state;
	(void)signal(SIGPIPE, SIG_DFL);
	pair(ctl);
	mpib_ctl_close(&ctl[1]);
	for (int k = 0; k < 3 && r == 0; k++)
		r = mpib_ctl_send(&ctl[0], MPIB_FRAME_BYE, NULL, 0);
	assert_int_equal(r, -EPIPE);
	mpib_ctl_send_text(&ctl[0], MPIB_FRAME_FAIL, "still no signal");
	mpib_ctl_close(&ctl[0]);
	mpib_ctl_send_text(&ctl[0], MPIB_FRAME_FAIL, "closed: nothing happens");
}

static void test_ctl_too_long(void **state)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX + 1] = { 0 };
	struct mpib_ctl ctl[2];

	(void)state;
	pair(ctl);
	assert_int_equal(mpib_ctl_send(&ctl[0], 1, payload, sizeof(payload)), -ENOBUFS);
	close_pair(ctl);
}

/* The same stream in random pieces gives the same frames. */
static void test_ctl_random_pieces(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(17);
	uint8_t buf[MPIB_FRAME_MAX], payload[MPIB_FRAME_PAYLOAD_MAX] = { 0 };
	struct mpib_frame frame;
	struct mpib_ctl ctl[2];

	(void)state;
	pair(ctl);
	for (unsigned int n = 0; n < 2000; n++) {
		size_t want = mpib_test_random_below(&random, sizeof(payload) + 1);
		size_t len = mpib_frame_encode(buf, (uint16_t)n, payload, want), at = 0;

		while (at < len) {
			size_t piece = 1 + mpib_test_random_below(&random, len - at);

			assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), 0);
			assert_int_equal(send(ctl[0].fd, buf + at, piece, 0), piece);
			at += piece;
		}
		assert_int_equal(mpib_ctl_recv(&ctl[1], &frame), 1);
		assert_int_equal(frame.type, (uint16_t)n);
		assert_int_equal(frame.payload_len, want);
	}
	close_pair(ctl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_known_bytes),  cmocka_unit_test(test_frame_wrong_magic),
		cmocka_unit_test(test_frame_oversize),	   cmocka_unit_test(test_ctl_byte_by_byte),
		cmocka_unit_test(test_ctl_several_in_one), cmocka_unit_test(test_ctl_garbage),
		cmocka_unit_test(test_ctl_partial_sends),  cmocka_unit_test(test_ctl_no_sigpipe),
		cmocka_unit_test(test_ctl_too_long),	   cmocka_unit_test(test_ctl_random_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
