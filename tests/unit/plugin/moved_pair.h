/* SPDX-License-Identifier: Apache-2.0 */
/* A pair over which messages are moved: within an island, between two, or in advanced mode. Nothing
 * may be left after a test. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_MOVED_PAIR_H
#define MPIB_TESTS_UNIT_PLUGIN_MOVED_PAIR_H

#include "plugin/connection/comm.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"
#include "tests/unit/plugin/test.h"

static struct pair p;

static inline void set_mode(const char *mode)
{
	(void)setenv("MPIB_MODE", mode, 1);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
}

static inline int start(const char *mode, int to_dev)
{
	pair_env();
	set_mode(mode);
	test_log_clear();
	if (pair_open(&p, test_logger, to_dev) == ncclSuccess)
		return 0;
	(void)fprintf(stderr, "%s\n", test_log_state.text);
	return -1;
}

static inline int start_intra(void **state)
{
	(void)state;
	return start("0", 0);
}

static inline int start_inter(void **state)
{
	(void)state;
	return start("0", 1);
}

static inline int start_advanced(void **state)
{
	(void)state;
	return start("1", 0);
}

static inline int finish(void **state)
{
	(void)state;
	pair_close(&p);
	fake_set_max_msg(1u << 30);
	if (fake_live() == 0)
		return 0;
	(void)fprintf(stderr, "%u objects are left\n", fake_live());
	return -1;
}

static inline struct mpib_comm *send_comm(void)
{
	return p.send;
}

static inline struct mpib_comm *recv_comm(void)
{
	return p.recv;
}

#define INTRA(test)    cmocka_unit_test_setup_teardown(test, start_intra, finish)
#define INTER(test)    cmocka_unit_test_setup_teardown(test, start_inter, finish)
#define ADVANCED(test) cmocka_unit_test_setup_teardown(test, start_advanced, finish)

#endif
