/* SPDX-License-Identifier: Apache-2.0 */
/* The pair of a test: devices as at the start, the plugin's variables unset; nothing may be left
 * after it. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_ONE_PAIR_H
#define MPIB_TESTS_UNIT_PLUGIN_ONE_PAIR_H

#include "plugin/connection/comm.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"
#include "tests/unit/plugin/test.h"

enum { SOUT, SUP, SOUT2, SUP2 }; /* devices of fake_verbs.h */

static struct pair p;

static inline int one_pair_clean(void **state)
{
	static const char *const names[] = {
		"MPIB_IB_TC",	"MPIB_IB_SL",	  "MPIB_IB_TIMEOUT",   "MPIB_IB_RETRY_CNT",
		"MPIB_IB_ECE",	"MPIB_NODE_ADDR", "MPIB_GPUDIRECT",    "MPIB_FLUSH",
		"MPIB_IB_PKEY", "MPIB_MODE",	  "MPIB_IB_GID_INDEX", "MPIB_ISLAND_PREFIX_LEN"
	};

	(void)state;
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
		(void)unsetenv(names[k]);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	pair_env();
	fake_reset_ports();
	test_log_clear();
	memset(&p, 0, sizeof(p));
	return 0;
}

static inline int one_pair_finish(void **state)
{
	(void)state;
	pair_close(&p);
	fake_set_max_msg(1u << 30);
	return fake_live() == 0 ? 0 : -1;
}

/* The test fails where it can't be opened. */
static inline void open_pair(int to_dev)
{
	if (pair_open(&p, test_logger, to_dev) != ncclSuccess)
		fail_msg("no connection: %s", test_log_state.text);
}

static inline struct mpib_comm *send_base(void)
{
	return p.send;
}

static inline struct mpib_comm *recv_base(void)
{
	return p.recv;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, one_pair_clean, one_pair_finish)

#endif
