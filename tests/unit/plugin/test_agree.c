/* SPDX-License-Identifier: Apache-2.0 */
/* What two ends have to agree on, and what is said where they differ. */
#include "tests/unit/plugin/test.h"

#include <stdbool.h>

#include "plugin/base/result.h"
#include "tests/unit/plugin/payloads.h"

static void expect_differs(const struct mpib_peer *local, const struct mpib_peer *remote,
			   const char *name, unsigned int here, unsigned int there)
{
	char text[MPIB_TEXT_MAX + 1] = "", want[128];

	assert_int_equal(mpib_peer_agree(local, remote, text, sizeof(text)), -MPIB_EUSAGE);
	(void)snprintf(want, sizeof(want), "%s differs: %u on the accepting side, %u on the conn",
		       name, here, there);
	if (!strstr(text, want))
		fail_msg("'%s' doesn't say '%s'", text, want);
}

static void test_agree_names_both_values(void **state)
{
	struct mpib_peer local = peer(), remote = peer();
	char text[MPIB_TEXT_MAX + 1];

	(void)state;
	remote.pid++;
	remote.rail[0].mtu = 3; /* each end may have its own */
	remote.rail[1].ipv4_be++;
	assert_int_equal(mpib_peer_agree(&local, &remote, text, sizeof(text)), 0);

	remote.prefix_len = 24;
	expect_differs(&local, &remote, "MPIB_ISLAND_PREFIX_LEN", 16, 24);
	remote.mode = MPIB_MODE_ADVANCED; /* the first difference is named */
	expect_differs(&local, &remote, "MPIB_MODE", 0, 1);
	remote = peer();
	remote.qps[MPIB_SOUT] = 1;
	expect_differs(&local, &remote, "MPIB_SOUT_QP", 2, 1);
	remote = peer();
	remote.qps[MPIB_SUP] = 16;
	expect_differs(&local, &remote, "MPIB_SUP_QP", 4, 16);
	remote = peer();
	remote.rail[MPIB_SUP].link_layer = 1;
	expect_differs(&local, &remote, "link layer of SUP", 2, 1);
	remote = peer();
	remote.traffic_class = 0;
	expect_differs(&local, &remote, "MPIB_IB_TC", 106, 0);
	remote = peer();
	remote.cts_traffic_class = 106;
	expect_differs(&local, &remote, "MPIB_IB_FIFO_TC", 192, 106);
	remote = peer();
	remote.service_level = 0;
	expect_differs(&local, &remote, "MPIB_IB_SL", 5, 0);
	remote = peer();
	remote.features = 0; /* what both have is in force */
	assert_int_equal(mpib_peer_agree(&local, &remote, text, sizeof(text)), 0);
}

/* A limited member of a partition reaches full ones, and no other partition's. */
static void test_agree_on_partitions(void **state)
{
	static const struct {
		uint16_t here, there;
		const char *refused; /* NULL: they meet */
	} rows[] = {
		{ 0xffff, 0xffff, NULL },
		{ 0x8003, 0x0003, NULL },
		{ 0x0003, 0x8003, NULL },
		{ 0x8003, 0xffff, "SUP differs: 0x8003 on the accepting side, 0xffff on the co" },
		{ 0x8003, 0x8004, "SUP differs: 0x8003 on the accepting side, 0x8004 on the co" },
		{ 0x0003, 0x0003, "0x0003 on the connecting side, both limited members" },
		{ 0x7fff, 0x7fff, "0x7fff on the connecting side, both limited members" },
	};
	struct mpib_peer local = peer(), remote = peer();
	char text[MPIB_TEXT_MAX + 1];

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		int r;

		local.rail[MPIB_SUP].pkey = rows[k].here;
		remote.rail[MPIB_SUP].pkey = rows[k].there;
		text[0] = '\0';
		r = mpib_peer_agree(&local, &remote, text, sizeof(text));
		assert_int_equal(r, rows[k].refused ? -MPIB_EUSAGE : 0);
		if (rows[k].refused && !strstr(text, rows[k].refused))
			fail_msg("'%s' doesn't say '%s'", text, rows[k].refused);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agree_names_both_values),
		cmocka_unit_test(test_agree_on_partitions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
