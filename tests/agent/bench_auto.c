/* SPDX-License-Identifier: Apache-2.0 */
/* What flows whose share finds itself cost the agent: FLOWS of them, or as many as the command line
 * says, all of which move bytes all the time. One line of JSON on standard output. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/agent/harness/counters.h"

#define FLOWS	  256u
#define FLOWS_MAX 2048u
#define SECONDS	  5u

static struct agent agent;

/* What a step of @usec on rails of 1:4 adds to each connection, at any share. */
static void carry(struct mpib_counters_header *header, unsigned int flows, uint64_t usec)
{
	for (unsigned int n = 0; n < flows; n++) {
		struct mpib_counter_entry *entry = counters_entry(header, n);

		for (unsigned int rail = 0; rail < 2; rail++) {
			uint64_t bytes = usec * (rail ? 400 : 100);

			entry->rail[rail].bytes += bytes;
			__atomic_fetch_add(&entry->rail[rail].requests, 1, __ATOMIC_RELEASE);
			__atomic_fetch_add(&entry->rail[rail].completions, 1, __ATOMIC_RELEASE);
			__atomic_fetch_add(&entry->busy[rail], 2 * usec * 1000, __ATOMIC_RELEASE);
		}
	}
}

static struct mpib_counters_header *open_flows(unsigned int flows)
{
	struct mpib_counters_header *header;
	int fd;
	int socket = agent_connect(&agent);

	header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK | F_SEAL_GROW, &fd);
	header->features = MPIB_COUNTERS_HAVE_BUSY;
	header->ticks_per_ms = 1000000;
	for (unsigned int n = 0; n < flows; n++) {
		*counters_entry(header, n) =
			(struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND,
						     .conn_id = 100 + n,
						     .qps = { 1, 1 },
						     .rails_up = 3,
						     .timed = 1,
						     .state = MPIB_COUNTER_LIVE };
		assert_int_equal(agent_register(socket, 100 + n, 0x0100000a, 0x0200000a + n).status,
				 MPIB_STATUS_OK);
	}
	assert_int_equal(counters_hand_over(socket, fd, 1, MPIB_COUNTERS_SIZE), MPIB_STATUS_OK);
	return header;
}

/* Processor time of the agent in @seconds, as a part of one core. */
static double cost(struct mpib_counters_header *header, unsigned int flows, unsigned int seconds)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	struct harness_cores before = harness_cores(agent.pid);
	uint64_t start = harness_now_ms();
	uint64_t now = start;

	while (now - start < seconds * 1000) {
		uint64_t then = now;

		(void)nanosleep(&pause, NULL);
		now = harness_now_ms();
		carry(header, flows, (now - then) * 1000);
	}
	return (double)(harness_cores(agent.pid).used - before.used) / 1e6 / (double)(now - start);
}

int main(int argc, char *argv[])
{
	unsigned int flows = argc == 2 ? (unsigned int)strtoul(argv[1], NULL, 10) : FLOWS;
	struct mpib_counters_header *header;
	double idle, busy;

	if (flows < 1 || flows > FLOWS_MAX) {
		(void)fprintf(stderr, "use: bench-auto [1..%u]\n", FLOWS_MAX);
		return 2;
	}
	agent_init(&agent);
	agent_write_ini(&agent, "[agent]\nslots = 4096\n[policy]\nintra = auto\ninter = auto\n");
	agent_start(&agent);
	header = open_flows(flows);
	(void)cost(header, flows, 1); /* the first windows */
	busy = cost(header, flows, SECONDS);
	(void)sleep(5); /* silent by then */
	idle = cost(header, 0, 2);
	(void)agent_stop(&agent, SIGTERM);
	agent_fini(&agent);
	(void)printf("{\"flows\": %u, \"core_percent\": %.2f, \"silent_core_percent\": %.2f}\n",
		     flows, busy * 100, idle * 100);
	return 0;
}
