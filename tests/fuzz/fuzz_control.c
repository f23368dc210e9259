/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection: a stream of frames, and whatever each of them carries. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

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

static void check_payload(const uint8_t *data, size_t size)
{
	char text[MPIB_TEXT_MAX + 1];
	uint64_t nonce;

	check_peer(data, size);
	check_qps(data, size);
	check_bye(data, size);
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
		start += used;
	}
	return 0;
}
