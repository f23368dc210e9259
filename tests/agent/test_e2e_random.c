/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent at random against a reference of who holds what: jobs register, deregister and
 * die, policies are reloaded, the agent is killed and started again, its disk is full, its files
 * are deleted. A flow that a living job holds has the slot and the share that the job was told, and
 * no other flow has that slot. MPIB_TEST_STEPS makes a run long, MPIB_TEST_SEED repeats one. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/disk.h"
#include "tests/agent/harness/fresh.h"

#define STEPS	500u
#define LIFE	250u /* steps from one empty directory to the next */
#define N_JOBS	6u
#define N_CONNS 5u
#define N_FLOWS 20u
#define N_SLOTS 16u
#define NO_SLOT UINT32_MAX

/* What a job is told to do, and what it says. */
struct command {
	uint32_t conn;
	uint32_t flow; /* NO_FLOW: deregister */
};
#define NO_FLOW UINT32_MAX

struct held {
	bool is;
	bool adopted; /* its agent has it of one before */
	uint32_t flow;
	uint32_t slot;
};

struct job {
	pid_t pid; /* 0: none */
	int fd;	   /* commands and answers */
	struct held conns[N_CONNS];
};

static struct job jobs[N_JOBS];
static const struct mpib_hint_header *header;
static uint32_t share; /* of the policy in force */
static bool has_disk;
static bool full;
static bool doubt; /* something couldn't be saved: agents may not know all holders by now */
static unsigned int random_seed;

static uint32_t any(uint32_t below)
{
	return (uint32_t)rand_r(&random_seed) % below;
}

static uint32_t src_of(uint32_t flow)
{
	return htobe32(0x0A000100u + flow % 3);
}

static uint32_t dst_of(uint32_t flow)
{
	return htobe32(0x0A000200u + flow);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static int run_job(void *arg)
{
	int fd = *(int *)arg;
	struct command command;

	while (recv(fd, &command, sizeof(command), 0) == sizeof(command)) {
		struct answer answer =
			command.flow == NO_FLOW
				? agent_deregister_once(&agent, command.conn)
				: agent_register_once(&agent, command.conn, src_of(command.flow),
						      dst_of(command.flow));

		if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			return 1;
	}
	return 0;
}

static void start_job(struct job *job)
{
	int ends[2];

	*job = (struct job){ 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	job->pid = harness_fork(run_job, &ends[1]);
	(void)close(ends[1]);
	job->fd = ends[0];
}

static void kill_job(struct job *job)
{
	assert_int_equal(kill(job->pid, SIGKILL), 0);
	(void)harness_reap(job->pid);
	(void)close(job->fd);
	*job = (struct job){ 0 };
}

static struct answer order(const struct job *job, uint32_t conn, uint32_t flow)
{
	struct command command = { conn, flow };
	struct answer answer = { 0 };

	assert_int_equal(send(job->fd, &command, sizeof(command), MSG_NOSIGNAL), sizeof(command));
	assert_int_equal(recv(job->fd, &answer, sizeof(answer), 0), sizeof(answer));
	if (!answer.ok)
		fail_msg("the agent gave no answer");
	return answer;
}

/* ---- what has to hold ----------------------------------------------------------------------- */

/* The slot that living jobs were told for @flow, or NO_SLOT. */
static uint32_t told_slot(uint32_t flow)
{
	for (unsigned int j = 0; j < N_JOBS; j++) {
		for (unsigned int c = 0; c < N_CONNS; c++) {
			const struct held *held = &jobs[j].conns[c];

			if (held->is && held->flow == flow)
				return held->slot;
		}
	}
	return NO_SLOT;
}

static void check(unsigned int step, const char *what)
{
	for (uint32_t flow = 0; flow < N_FLOWS; flow++) {
		uint32_t slot = told_slot(flow);
		struct mpib_hint_entry entry;

		if (slot == NO_SLOT)
			continue;
		assert_true(mpib_hint_read_entry(agent_entry(header, slot), &entry));
		if (entry.src_ip != src_of(flow) || entry.dst_ip != dst_of(flow) ||
		    entry.sup_bw != share)
			fail_msg("step %u, %s: slot %u of flow %u has %08x-%08x share %u, not "
				 "%08x-%08x share %u",
				 step, what, slot, flow, entry.src_ip, entry.dst_ip, entry.sup_bw,
				 src_of(flow), dst_of(flow), share);
	}
}

/* Nobody's flow is in the table for long. Kept slots of before may be, where something was lost. */
static void check_none_leaks(void)
{
	uint32_t want = 0;

	for (uint32_t flow = 0; flow < N_FLOWS; flow++)
		want += told_slot(flow) != NO_SLOT;
	if (!agent_await_flows(header, want, 10000))
		fail_msg("%u flows in the table, %u are held", agent_count_flows(header), want);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void map_table(void)
{
	if (header)
		(void)munmap((void *)(uintptr_t)header, MPIB_HINTS_SIZE(header->max_entries));
	header = agent_map_hints(&agent);
}

static void write_policy(uint32_t inter)
{
	char text[128];

	(void)snprintf(text, sizeof(text),
		       "[agent]\nslots = %u\n[policy]\nintra = %u\ninter = %u\n", N_SLOTS, inter,
		       inter);
	agent_write_ini(&agent, text);
}

static const char *use_connection(void)
{
	struct job *job = &jobs[any(N_JOBS)];
	struct held *held = &job->conns[any(N_CONNS)];
	uint32_t conn = (uint32_t)(held - job->conns);
	uint32_t flow = any(N_FLOWS);
	uint32_t told = told_slot(flow);
	struct answer answer;

	if (!job->pid) {
		start_job(job);
		return "start";
	}
	if (held->is && any(2)) {
		answer = order(job, conn, NO_FLOW);
		if (!doubt)
			assert_int_equal(answer.status, MPIB_STATUS_OK);
		held->is = false;
		return "deregister";
	}

	/* One connection has one flow; an agent that lost it, or has it of one before whose end of
	 * it may be lost, can't know. */
	if (held->is && held->flow != flow && (doubt || held->adopted))
		return "nothing";
	answer = order(job, conn, flow);
	if (held->is && held->flow != flow) {
		assert_int_equal(answer.status, MPIB_STATUS_INVALID);
		return "register another flow";
	}
	if (answer.status != MPIB_STATUS_OK) {
		/* No slot, or none that a restart would know of. */
		assert_int_equal(answer.status, MPIB_STATUS_NO_SLOT);
		assert_false(held->is);
		return "no slot";
	}
	if (told != NO_SLOT && told != answer.slot)
		fail_msg("flow %u has slots %u and %u", flow, told, answer.slot);
	*held = (struct held){ true, false, flow, answer.slot };
	return "register";
}

static const char *end_job(void)
{
	struct job *job = &jobs[any(N_JOBS)];

	if (job->pid)
		kill_job(job);
	return "kill a job";
}

static const char *reload(void)
{
	if (any(4) == 0) {
		agent_write_ini(&agent, "[policy]\ninter = 2000\n");
		free(agent_ctl_words(&agent, 1, "reload", NULL));
		write_policy(share);
		return "refused reload";
	}
	share = any(1025);
	write_policy(share);
	free(agent_ctl_words(&agent, 0, "reload", NULL));
	return "reload";
}

static const char *restart(void)
{
	bool gently = any(3) == 0;

	assert_int_equal(agent_stop(&agent, gently ? SIGTERM : SIGKILL), gently ? 0 : -SIGKILL);
	if (any(2)) {
		/* Meanwhile some end. */
		(void)end_job();
		(void)end_job();
	}
	for (unsigned int n = 0; n < N_JOBS * N_CONNS; n++)
		jobs[n / N_CONNS].conns[n % N_CONNS].adopted = true;
	agent_start(&agent);
	return gently ? "SIGTERM" : "SIGKILL";
}

static const char *use_disk(void)
{
	if (!has_disk)
		return "no disk";
	if (full)
		disk_empty(&agent);
	else
		disk_fill(&agent, any(3));
	full = !full;
	doubt = true;
	return full ? "full disk" : "free disk";
}

/* The agent has what was deleted made anew within a second or two, where there is room. */
static const char *delete_file(void)
{
	static const char *const names[] = { "hints", "state", "agent.sock", "lock" };
	const char *name = names[any(4)];
	const struct timespec pause = { .tv_nsec = 2000000 };
	uint64_t end = harness_now_ms() + 20000;
	char path[TEMPDIR_MAX + 64];

	if (full)
		return "nothing deleted";
	(void)snprintf(path, sizeof(path), "%s/%s", agent.dir, name);
	assert_int_equal(unlink(path), 0);
	while (access(path, F_OK) < 0) {
		if (harness_now_ms() >= end)
			fail_msg("%s isn't made anew", name);
		(void)nanosleep(&pause, NULL);
	}
	map_table();
	return name;
}

static const char *take_step(void)
{
	uint32_t kind = any(1000);

	if (kind < 800)
		return use_connection();
	if (kind < 860)
		return end_job();
	if (kind < 930)
		return reload();
	if (kind < 970)
		return restart();
	if (kind < 995)
		return use_disk();
	return delete_file();
}

static unsigned int from_environment(const char *name, unsigned int otherwise)
{
	const char *value = getenv(name);

	return value && *value ? (unsigned int)strtoul(value, NULL, 10) : otherwise;
}

static void start_life(bool with_disk)
{
	has_disk = with_disk && disk_try_mount(&agent, "size=256k,mode=0755");
	full = false;
	doubt = false;
	share = 333;
	write_policy(share);
	agent_start(&agent);
	map_table();
}

static void end_jobs(unsigned int each)
{
	for (unsigned int n = 0; n < N_JOBS; n += each) {
		if (jobs[n].pid)
			kill_job(&jobs[n]);
	}
}

static void end_life(void)
{
	if (agent.pid)
		(void)agent_stop(&agent, SIGKILL);
	(void)umount2(agent.dir, MNT_DETACH);
	agent_fini(&agent);
}

static void live(bool with_disk, unsigned int steps)
{
	start_life(with_disk);
	for (unsigned int step = 0; step < steps; step++)
		check(step, take_step());

	end_jobs(2);
	check(steps, "the end of some");
	if (!doubt)
		check_none_leaks();
	end_jobs(1);
	if (!doubt)
		check_none_leaks();
	end_life();
	agent_init(&agent);
}

static void nobody_loses_a_slot_or_a_share(void **state)
{
	unsigned int steps = from_environment("MPIB_TEST_STEPS", STEPS);
	struct timespec now;

	(void)state;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	random_seed = from_environment("MPIB_TEST_SEED", (unsigned int)now.tv_nsec);
	print_message("# MPIB_TEST_SEED=%u\n", random_seed);
	for (unsigned int life = 0; life * LIFE < steps; life++)
		live(life % 2, LIFE);
}

static int tear_down(void **state)
{
	(void)state;
	end_life();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody_loses_a_slot_or_a_share, agent_set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
