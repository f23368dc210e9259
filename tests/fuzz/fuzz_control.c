/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection: a stream of frames, and whatever each of them carries. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "plugin/wire/failover.h"
#include "plugin/wire/handshake.h"
#include "plugin/base/result.h"
#include "tests/fuzz/fuzz.h"

static void check_peer(const uint8_t *data, size_t size)
{
	struct mpib_peer peer, again, local;
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	char text[MPIB_TEXT_MAX + 1] = "";
	size_t used = 0, more;
	int r;

	if (mpib_peer_decode(data, size, &peer, &used) < 0)
		return;
	FUZZ_CHECK(used <= size);
	FUZZ_CHECK(mpib_peer_encode(buf, &peer) == used);
	FUZZ_CHECK(mpib_peer_decode(buf, used, &again, &more) == 0 && more == used);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is zeroed or copied */
	FUZZ_CHECK(memcmp(&peer, &again, sizeof(peer)) == 0);

	/* Two limited members of one partition can't meet. */
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		peer.rail[rail].pkey |= MPIB_PKEY_FULL;
	FUZZ_CHECK(mpib_peer_agree(&peer, &peer, text, sizeof(text)) == 0);
	local = peer;
	local.rail[MPIB_SUP].pkey ^= 1;
	r = mpib_peer_agree(&local, &peer, text, sizeof(text));
	FUZZ_CHECK(r == -MPIB_EUSAGE && strstr(text, "partition key of SUP differs"));
	local = peer;
	local.prefix_len = (uint8_t)(peer.prefix_len ^ 1);
	r = mpib_peer_agree(&local, &peer, text, sizeof(text));
	FUZZ_CHECK(r == -MPIB_EUSAGE && strstr(text, "MPIB_ISLAND_PREFIX_LEN differs"));
}

static void check_qps(const uint8_t *data, size_t size)
{
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_peer_qps qps, again;
	size_t used = 0, more;

	if (mpib_peer_qps_decode(data, size, &qps, &used) < 0)
		return;
	FUZZ_CHECK(used <= size && qps.rail_mask >= 1 && qps.rail_mask <= 3);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		FUZZ_CHECK(qps.qps[rail] <= MPIB_QPS_MAX);
	FUZZ_CHECK(mpib_peer_qps_encode(buf, &qps) == used);
	FUZZ_CHECK(mpib_peer_qps_decode(buf, used, &again, &more) == 0 && more == used);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is zeroed or copied */
	FUZZ_CHECK(memcmp(&qps, &again, sizeof(qps)) == 0);
}

static void check_bye(const uint8_t *data, size_t size)
{
	uint8_t buf[MPIB_BYE_SIZE];
	uint32_t rows = 0;

	FUZZ_CHECK((mpib_bye_decode(data, size, &rows) == 0) == (size >= MPIB_BYE_SIZE));
	if (size < MPIB_BYE_SIZE)
		return;
	FUZZ_CHECK(mpib_bye_encode(buf, rows) == MPIB_BYE_SIZE);
	FUZZ_CHECK(memcmp(buf, data, MPIB_BYE_SIZE) == 0);
}

static void check_rail_down(const uint8_t *data, size_t size, bool receiver)
{
	size_t whole = receiver ? MPIB_RAIL_DOWN_RECEIVER : MPIB_RAIL_DOWN_SENDER;
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_rail_down down, again;
	int r = mpib_rail_down_decode(data, size, receiver, &down);

	FUZZ_CHECK((r == 0) == (size >= whole && data[0] < MPIB_RAIL_MAX));
	if (r < 0)
		return;
	FUZZ_CHECK(down.cause <= MPIB_CAUSE_RETURN);
	FUZZ_CHECK(mpib_rail_down_encode(buf, &down, receiver) == whole);
	FUZZ_CHECK(mpib_rail_down_decode(buf, whole, receiver, &again) == 0);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is zeroed */
	FUZZ_CHECK(memcmp(&down, &again, sizeof(down)) == 0);
	for (uint32_t n = 0; n < 3 * MPIB_ROWS; n++) {
		uint32_t row = down.rows + MPIB_ROWS - n;
		bool arrived = mpib_rail_has_arrived(&down, row, n % MPIB_RAIL_MAX);

		FUZZ_CHECK(n > MPIB_ROWS || !arrived);
		FUZZ_CHECK(n <= 2 * MPIB_ROWS || arrived);
	}
}

static void check_rail_up(const uint8_t *data, size_t size)
{
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_rail_up up, again;
	unsigned int rail;
	uint32_t epoch;
	size_t len;

	FUZZ_CHECK((mpib_rail_ready_decode(data, size, &rail, &epoch) == 0) ==
		   (size >= MPIB_RAIL_READY_SIZE && data[0] < MPIB_RAIL_MAX));
	if (mpib_rail_up_decode(data, size, &up) < 0)
		return;
	FUZZ_CHECK(up.rail < MPIB_RAIL_MAX && up.qps.qps[up.rail] <= MPIB_QPS_MAX);
	len = mpib_rail_up_encode(buf, &up);
	FUZZ_CHECK(len <= size && mpib_rail_up_decode(buf, len, &again) == 0);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is zeroed */
	FUZZ_CHECK(memcmp(&up, &again, sizeof(up)) == 0);
}

/* One end of a connection that hears the frames of the stream. */
struct rail_ends {
	bool receiver;
	struct mpib_rail_end rail[MPIB_RAIL_MAX];
};

static void hear(struct rail_ends *ends, const struct mpib_frame *frame)
{
	struct mpib_rail_end *end = &ends->rail[frame->payload_len ? frame->payload[0] & 1 : 0];
	uint32_t before = end->epoch, epoch = 0;
	struct mpib_rail_down down;
	struct mpib_rail_up up;
	unsigned int rail;
	int todo = -EBADMSG;

	if (frame->type == MPIB_FRAME_RAIL_DOWN &&
	    mpib_rail_down_decode(frame->payload, frame->payload_len, !ends->receiver, &down) == 0)
		todo = mpib_rail_on_down(end, epoch = down.epoch);
	else if (frame->type == MPIB_FRAME_RAIL_UP &&
		 mpib_rail_up_decode(frame->payload, frame->payload_len, &up) == 0)
		todo = mpib_rail_on_up(end, ends->receiver, epoch = up.epoch);
	else if (frame->type == MPIB_FRAME_RAIL_READY &&
		 mpib_rail_ready_decode(frame->payload, frame->payload_len, &rail, &epoch) == 0)
		todo = mpib_rail_on_ready(end, ends->receiver, epoch);
	FUZZ_CHECK(todo >= MPIB_TODO_NOTHING || todo == -EBADMSG || todo == -EPROTO);
	if (todo == MPIB_TODO_SETTLE || todo == MPIB_TODO_STOP_AND_SETTLE) {
		FUZZ_CHECK(epoch == before && end->state != MPIB_RAIL_LOST);
		end->state = MPIB_RAIL_LOST;
		/* The sender tries to bring it back at once. */
		if (!ends->receiver) {
			end->state = MPIB_RAIL_MADE;
			end->epoch++;
		}
	} else if (todo == MPIB_TODO_MAKE) {
		FUZZ_CHECK(ends->receiver && epoch == before + 1);
		end->state = MPIB_RAIL_MADE;
		end->epoch = epoch;
	} else if (todo > MPIB_TODO_NOTHING) {
		FUZZ_CHECK((todo == MPIB_TODO_USE) == ends->receiver && epoch == before);
		FUZZ_CHECK(end->state == MPIB_RAIL_MADE);
		end->state = MPIB_RAIL_UP;
	}
}

static void check_payload(const uint8_t *data, size_t size)
{
	char text[MPIB_TEXT_MAX + 1];
	uint64_t nonce;

	check_peer(data, size);
	check_qps(data, size);
	check_bye(data, size);
	check_rail_down(data, size, false);
	check_rail_down(data, size, true);
	check_rail_up(data, size);
	FUZZ_CHECK((mpib_hello_nonce(data, size, &nonce) == 0) == (size >= 8));
	FUZZ_CHECK(mpib_fail_decode(data, size, text) <= MPIB_FAIL_DEVICE);
	FUZZ_CHECK(strlen(text) <= MPIB_TEXT_MAX);
	mpib_text_decode(data, size, text);
	FUZZ_CHECK(strlen(text) <= MPIB_TEXT_MAX);
	for (const char *c = text; *c; c++)
		FUZZ_CHECK(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rail_ends sender = { .receiver = false }, receiver = { .receiver = true };
	struct mpib_frame frame;
	size_t start = 0, used;
	bool more = true;

	/* Whole input as one payload, and as a stream of frames. */
	check_payload(data, size);
	while (more) {
		int r = mpib_frame_decode(data + start, size - start, &frame, &used);

		FUZZ_CHECK(r == 1 || r == 0 || r == -EBADMSG);
		more = r == 1;
		if (!more)
			break;
		FUZZ_CHECK(used <= size - start && used >= MPIB_FRAME_HEADER);
		FUZZ_CHECK(frame.payload_len == used - MPIB_FRAME_HEADER);
		FUZZ_CHECK(frame.payload == data + start + MPIB_FRAME_HEADER);
		check_payload(frame.payload, frame.payload_len);
		hear(&sender, &frame);
		hear(&receiver, &frame);
		start += used;
	}
	return 0;
}
