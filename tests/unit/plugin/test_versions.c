/* SPDX-License-Identifier: Apache-2.0 */
/* A peer of an older wire version, played over plain sockets: both ends say both versions, soon. */
#include "tests/unit/plugin/test.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define OLDER	 (MPIB_WIRE_VERSION - 1)
#define BOUND_MS 5000

static struct pair p;
static int listener, peer;

static int start(void **state)
{
	(void)state;
	pair_env();
	(void)setenv("MPIB_MODE", "0", 1);
	test_log_clear();
	memset(&p, 0, sizeof(p));
	listener = peer = -1;
	return mpib_entry_init_legacy(test_logger) == ncclSuccess ? 0 : -1;
}

static int finish(void **state)
{
	(void)state;
	(void)mpib_entry_close_listen(p.listener);
	if (peer >= 0)
		(void)close(peer);
	if (listener >= 0)
		(void)close(listener);
	return 0;
}

/* The next frame of @type on `peer`; others are passed over. */
static struct mpib_frame frame_of(uint16_t type, uint8_t buf[MPIB_FRAME_MAX])
{
	uint64_t until = mpib_now_ms() + BOUND_MS;
	struct mpib_frame frame = { 0 };
	size_t len = 0, used = 0;

	while (mpib_now_ms() < until) {
		struct pollfd fd = { .fd = peer, .events = POLLIN };
		int r = mpib_frame_decode(buf, len, &frame, &used);
		ssize_t n;

		assert_true(r >= 0);
		if (r > 0 && frame.type == type)
			return frame;
		if (r > 0) {
			memmove(buf, buf + used, len - used);
			len -= used;
			continue;
		}
		if (poll(&fd, 1, 100) <= 0)
			continue;
		n = read(peer, buf + len, MPIB_FRAME_MAX - len);
		assert_true(n > 0);
		len += (size_t)n;
	}
	fail_msg("no frame of type %u within %d ms", type, BOUND_MS);
	return frame;
}

static void assert_text(const uint8_t *text, size_t len, const char *part)
{
	char buf[MPIB_TEXT_MAX + 1];

	mpib_text_decode(text, len, buf);
	if (!strstr(buf, part))
		fail_msg("'%s' doesn't say '%s'", buf, part);
}

static void test_older_listener(void **state)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct mpib_handle handle = { .version = OLDER, .nonce = 0x1234, .prefix_len = 24 };
	socklen_t size = sizeof(addr);
	uint64_t started = mpib_now_ms();
	uint8_t buf[MPIB_FRAME_MAX];
	ncclResult_t r = ncclSuccess;
	struct mpib_frame frame;

	(void)state;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &size), 0);
	memcpy(&handle.addr, &addr, sizeof(addr));
	mpib_handle_encode((uint8_t *)p.handle, &handle);

	while (r == ncclSuccess && mpib_now_ms() - started < BOUND_MS) {
		r = mpib_entry_connect(0, -1, p.handle, &p.send);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, ncclInvalidUsage);
	assert_true(mpib_now_ms() - started < BOUND_MS);
	assert_null(p.send);
	assert_logged("wire version differs: 2 on the accepting side, 3 on the connecting side");

	/* What the older listener reads: its nonce, then the reason. */
	peer = accept(listener, NULL, NULL);
	frame = frame_of(MPIB_FRAME_REFUSE, buf);
	if (!frame.payload || frame.payload_len <= 8) {
		fail_msg("no reason came");
		return;
	}
	assert_int_equal(frame.payload[0] | frame.payload[1] << 8, 0x1234);
	assert_text(frame.payload + 8, frame.payload_len - 8,
		    "wire version differs: 2 on the accepting side, 3 on the connecting side");
}

/* One that went by something else than the handle, which has the newer version. */
static void test_older_connector(void **state)
{
	uint64_t started = mpib_now_ms();
	uint8_t hello[MPIB_FRAME_MAX], payload[194] = { 0 };
	uint8_t buf[MPIB_FRAME_MAX];
	struct mpib_handle handle;
	ncclResult_t r = ncclSuccess;
	struct mpib_frame frame;
	size_t len;

	(void)state;
	assert_int_equal(mpib_entry_listen(NULL, 0, p.handle, &p.listener), ncclSuccess);
	assert_int_equal(mpib_handle_decode((uint8_t *)p.handle, MPIB_HANDLE_SIZE, &handle), 0);
	assert_int_equal(handle.version, MPIB_WIRE_VERSION);
	for (unsigned int k = 0; k < 8; k++)
		payload[k] = (uint8_t)(handle.nonce >> (8 * k));
	len = mpib_frame_encode(hello, MPIB_FRAME_HELLO, payload, sizeof(payload));
	hello[4] = OLDER;
	peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(peer, (struct sockaddr *)&handle.addr, sizeof(struct sockaddr_in)),
			 0);
	assert_int_equal(write(peer, hello, len), (ssize_t)len);

	while (r == ncclSuccess && mpib_now_ms() - started < BOUND_MS) {
		r = mpib_entry_accept(p.listener, &p.recv);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, ncclInvalidUsage);
	assert_null(p.recv);
	assert_logged("wire version differs: 3 on the accepting side, 2 on the connecting side");
	frame = frame_of(MPIB_FRAME_REFUSE, buf);
	assert_text(frame.payload, frame.payload_len,
		    "wire version differs: 3 on the accepting side, 2 on the connecting side");
	assert_true(mpib_now_ms() - started < BOUND_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_older_listener, start, finish),
		cmocka_unit_test_setup_teardown(test_older_connector, start, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
