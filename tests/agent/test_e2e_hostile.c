/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent under attack by one user: 300 clients of another are served in a millisecond, and
 * the heartbeat keeps its interval (A02, A03, A08, A10, and all of them at once). An attack is
 * measured again where it took longer: the least of three is the agent's, what is beyond that the
 * machine's, which can only add. */
#include <signal.h>

#include "common/hint.h"
#include "tests/agent/harness/hostile.h"
#include "tests/agent/harness/fresh.h"
#include "tests/agent/harness/calm.h"

#define P99_US 1000.0
#define TRIES  3u

/* All attacks whose name begins with @name. */
static struct calm_figures attack(const char *name)
{
	struct calm *calm = calm_start(&agent);
	uint64_t started = harness_now_ms();
	const struct hostile *last = NULL;
	struct calm_figures figures;
	pid_t pids[16] = { 0 };

	for (unsigned int n = 0; n < n_hostiles; n++) {
		if (strncmp(hostiles[n].name, name, strlen(name)) != 0)
			continue;
		pids[n] = hostile_start(&hostiles[n], &agent);
		last = &hostiles[n];
	}
	assert_non_null(last);
	for (unsigned int n = n_hostiles; n-- > 0;) {
		if (pids[n])
			hostile_end(&hostiles[n], pids[n], started);
	}
	/* What it leaves behind is a part of it. */
	(void)sleep(2);
	figures = calm_stop(calm);
	calm_print(*name ? last->what : "all attacks at once", &figures);
	assert_true(agent_await_flows(agent_map_hints(&agent), 0, 5000));
	return figures;
}

/* "" is all of them at once. */
static void withstand(const char *name)
{
	struct calm_figures figures;
	unsigned int n = 0;
	double bound;

	agent_start(&agent);
	if (!harness_cores(agent.pid).used) {
		print_message("the kernel doesn't count time on a core (schedstat)\n");
		skip();
	}
	do {
		figures = attack(name);
		calm_judge(&figures);
		bound = calm_scaled_bound(&figures, P99_US);
	} while (figures.p99_us > bound && ++n < TRIES);
	if (figures.p99_us > bound)
		fail_msg("p99 of a registration is %.0f us, not %.0f", figures.p99_us, bound);
}

static void a02_a_process_with_all_registrations_ends(void **state)
{
	(void)state;
	withstand("a02");
}

/* In the largest table that there may be: whatever walks over it all takes long. */
static void a03_long_answers_are_asked_for_and_read_slowly(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 65536\n");
	withstand("a03");
}

static void a08_clients_come_and_go(void **state)
{
	(void)state;
	withstand("a08");
}

static void a10_users_take_all_that_there_is(void **state)
{
	(void)state;
	withstand("a10");
}

static void all_attacks_at_once(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 65536\n");
	withstand("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(a02_a_process_with_all_registrations_ends),
		AGENT_TEST(a03_long_answers_are_asked_for_and_read_slowly),
		AGENT_TEST(a08_clients_come_and_go),
		AGENT_TEST(a10_users_take_all_that_there_is),
		AGENT_TEST(all_attacks_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
