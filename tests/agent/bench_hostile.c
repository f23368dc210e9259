/* SPDX-License-Identifier: Apache-2.0 */
/* Figures for tests/bench: what 300 well-behaved clients and the heartbeat see of one attack, named
 * on the command line; "quiet" is none, "all" is all at once. One line of JSON on standard output.
 */
#include <signal.h>
#include <stdio.h>

#include "tests/agent/harness/calm.h"
#include "tests/agent/harness/hostile.h"

#define QUIET_SEC 5u

static struct agent agent;

static void attack(const char *name)
{
	const char *only = strcmp(name, "all") == 0 ? "" : name;
	uint64_t started = harness_now_ms();
	pid_t pids[16] = { 0 };

	for (unsigned int n = 0; n < n_hostiles; n++) {
		if (strncmp(hostiles[n].name, only, strlen(only)) == 0)
			pids[n] = hostile_start(&hostiles[n], &agent);
	}
	for (unsigned int n = n_hostiles; n-- > 0;) {
		if (pids[n])
			hostile_end(&hostiles[n], pids[n], started);
	}
}

int main(int argc, char *argv[])
{
	const char *name = argc == 2 ? argv[1] : "quiet";
	struct calm_figures f;
	struct calm *calm;

	agent_init(&agent);
	agent_write_ini(&agent, "[agent]\nslots = 65536\n");
	agent_start(&agent);
	calm = calm_start(&agent);
	if (strcmp(name, "quiet") == 0)
		(void)sleep(QUIET_SEC);
	else
		attack(name);
	f = calm_stop(calm);
	(void)agent_stop(&agent, SIGTERM);
	agent_fini(&agent);
	(void)printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"worst_us\": %.1f, \"count\": %u, "
		     "\"failed\": %u, \"beat_gap_ms\": %.0f, \"agent_percent\": %.1f}\n",
		     f.p50_us, f.p99_us, f.worst_us, f.requests, f.failed, f.beat_gap_ms,
		     f.agent_percent);
	return f.failed != 0;
}
