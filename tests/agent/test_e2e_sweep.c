/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent is killed at each of its system calls, one after the other, or each one fails or
 * is a short write, at a start, a registration, an end and a reload (trace_agent.c); and disks that
 * can't be written at all. Whatever happens, nobody who was told a slot loses it or reads another
 * share, and the next agent serves. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"
#include "tests/agent/harness/trace.h"

#define HELD  6
#define OTHER 0x30000u /* connection that comes and goes */
#define SHARE 333u

static const struct mpib_hint_header *header;
static struct trace_page *page;
static int page_fd;
static uint32_t slots[HELD];
static bool policy_changes; /* a reload was begun: either share is right */

/* ---- the agent under the tracer ------------------------------------------------------------- */

static int set_up(void **state)
{
	char number[16];

	(void)agent_set_up(state);
	page_fd = memfd_create("trace", 0);
	if (page_fd < 0 || ftruncate(page_fd, sizeof(*page)) < 0)
		return 1;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (page == MAP_FAILED)
		return 1;
	(void)snprintf(number, sizeof(number), "%d", page_fd);
	(void)setenv(TRACE_FD_ENV, number, 1);
	policy_changes = false;
	return 0;
}

static int tear_down(void **state)
{
	if (agent.pid)
		(void)agent_stop(&agent, SIGKILL);
	(void)umount2(agent.dir, MNT_DETACH);
	(void)agent_tear_down(state);
	(void)munmap(page, sizeof(*page));
	(void)close(page_fd);
	return 0;
}

static void arm(enum trace_fault fault, int error, unsigned int skip)
{
	atomic_store(&page->error, error);
	atomic_store(&page->skip, skip);
	atomic_store(&page->calls, 0);
	atomic_store(&page->hit, 0);
	atomic_store(&page->all, getenv("MPIB_TEST_SWEEP") != NULL);
	atomic_store(&page->fault, fault);
}

static bool disarm(void)
{
	atomic_store(&page->fault, TRACE_NOTHING);
	return atomic_load(&page->hit);
}

static bool agent_is_gone(void)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)agent.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == agent.pid;
}

/* After a kill; and where the agent lives on, it goes through a restart as well. */
static void restart(void)
{
	if (agent.pid)
		(void)agent_stop(&agent, SIGKILL);
	agent_start_when_free(&agent);
}

/* ---- what must hold ------------------------------------------------------------------------- */

static void expect_held(const char *stage, unsigned int n)
{
	for (uint32_t k = 0; k < HELD; k++) {
		struct mpib_hint_entry now = { 0 };

		if (!mpib_hint_read_entry(agent_entry(header, slots[k]), &now))
			fail_msg("%s, call %u: slot %u is half written", stage, n, slots[k]);
		if (now.src_ip != 1 || now.dst_ip != 100 + k)
			fail_msg("%s, call %u (system call %u): slot %u has flow %u-%u, not 1-%u",
				 stage, n, atomic_load(&page->number), slots[k], now.src_ip,
				 now.dst_ip, 100 + k);
		if (now.sup_bw != SHARE && !(policy_changes && now.sup_bw == SHARE + 1))
			fail_msg("%s, call %u (system call %u): share %u of slot %u", stage, n,
				 atomic_load(&page->number), now.sup_bw, slots[k]);
	}
}

/* A holder gets its slot again, and a new flow none that is held. */
static void expect_served(const char *stage, unsigned int n)
{
	struct answer answer = agent_register_once(&agent, 0x10000 + n % HELD, 1, 100 + n % HELD);

	if (answer.status != MPIB_STATUS_OK || !answer.ok || answer.slot != slots[n % HELD])
		fail_msg("%s, call %u: the holder of slot %u got %u (status %u)", stage, n,
			 slots[n % HELD], answer.slot, answer.status);
	answer = agent_register_once(&agent, 0x40000, 2, 2);
	if (answer.status != MPIB_STATUS_OK || !answer.ok)
		fail_msg("%s, call %u: a new flow got status %u", stage, n, answer.status);
	for (uint32_t k = 0; k < HELD; k++)
		assert_int_not_equal(answer.slot, slots[k]);
	assert_int_equal(agent_deregister_once(&agent, 0x40000).status, MPIB_STATUS_OK);
}

static void begin(void)
{
	agent_write_ini(&agent, "[policy]\ninter = 333\nintra = 333\n");
	if (agent_try_start(&agent) == TRACE_EXIT_UNABLE) {
		print_message("processes can't be traced here\n");
		skip();
	}
	header = agent_map_hints(&agent);
	for (uint32_t k = 0; k < HELD; k++) {
		struct answer answer = agent_register_once(&agent, 0x10000 + k, 1, 100 + k);

		assert_int_equal(answer.status, MPIB_STATUS_OK);
		slots[k] = answer.slot;
	}
}

/* ---- stages --------------------------------------------------------------------------------- */

static void stage_start(void)
{
	if (agent.pid)
		(void)agent_stop(&agent, SIGKILL);
	/* One after a kill may find the lock of the one before still held for a moment. */
	while (agent_try_start(&agent) == 75 && !atomic_load(&page->hit))
		atomic_store(&page->calls, 0);
}

static void stage_register(void)
{
	(void)agent_register_once(&agent, OTHER, 1, 99);
}

static void stage_deregister(void)
{
	(void)agent_deregister_once(&agent, OTHER);
}

static int child_registers(void *arg)
{
	(void)arg;
	return agent_register_once(&agent, 5, 7, 7).status;
}

/* A process that holds a flow ends, and the agent learns it. */
static void stage_process_end(void)
{
	(void)harness_reap(harness_fork(child_registers, NULL));
	/* Answered after what went before. */
	(void)agent_deregister_once(&agent, 0x999);
}

static void stage_reload(void)
{
	const char *const words[] = { "reload", NULL };

	policy_changes = true;
	agent_write_ini(&agent, "[policy]\ninter = 334\nintra = 334\n");
	(void)agent_ctl(&agent, geteuid(), words, NULL);
	agent_write_ini(&agent, "[policy]\ninter = 333\nintra = 333\n");
}

static const struct {
	const char *name;
	void (*run)(void);
} stages[] = {
	{ "start", stage_start },	    { "register", stage_register },
	{ "deregister", stage_deregister }, { "end of a process", stage_process_end },
	{ "reload", stage_reload },
};

/* With a sanitizer each call takes three times as long. */
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 2
#else
#define SWEEP_STEP 1
#endif

/* One stage again and again, with another call each time, until it has no more calls. */
static unsigned int sweep_stage(size_t s, enum trace_fault fault, int error)
{
	unsigned int n = 0;
	bool hit;

	do {
		if (!agent.pid)
			agent_start_when_free(&agent);
		if (stages[s].run == stage_deregister)
			stage_register();
		arm(fault, error, n);
		stages[s].run();
		hit = disarm();
		if (getenv("MPIB_TEST_VERBOSE"))
			print_message("%s %u: system call %u\n", stages[s].name, n,
				      hit ? atomic_load(&page->number) : 0);
		if (agent.pid && agent_is_gone())
			(void)harness_reap(agent.pid), agent.pid = 0;
		expect_held(stages[s].name, n);
		restart();
		policy_changes = false;
		expect_held(stages[s].name, n);
		expect_served(stages[s].name, n);
		n += SWEEP_STEP;
	} while (hit);
	return n - SWEEP_STEP;
}

static void sweep(enum trace_fault fault, int error, const char *name)
{
	begin();
	for (size_t s = 0; s < sizeof(stages) / sizeof(stages[0]); s++) {
		unsigned int n = sweep_stage(s, fault, error);

		print_message("%s: %u calls of %s\n", name, n, stages[s].name);
		if (stages[s].run == stage_start)
			assert_true(n >= 3);
	}
	/* What an earlier agent wrote is in the page cache: there is no sync that could fail. */
	assert_int_equal(atomic_load(&page->syncs), 0);
}

static void a_kill_at_each_call_loses_no_slot(void **state)
{
	(void)state;
	sweep(TRACE_KILLS, 0, "killed");
}

static void no_space_at_each_call_loses_no_slot(void **state)
{
	(void)state;
	sweep(TRACE_FAILS, ENOSPC, "ENOSPC");
}

static void an_io_error_at_each_call_loses_no_slot(void **state)
{
	(void)state;
	sweep(TRACE_FAILS, EIO, "EIO");
}

static void each_write_cut_short_loses_no_slot(void **state)
{
	(void)state;
	sweep(TRACE_HALVES, 0, "short");
}

/* ---- a disk that can't be written -------------------------------------------------------------
 */

/* The tracer's end is not quite the agent's: its files may be open for a moment. */
static void remount(unsigned long flags)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + 10000;

	while (mount("tmpfs", agent.dir, "tmpfs", MS_REMOUNT | flags, "mode=0755") < 0) {
		if (errno != EBUSY || harness_now_ms() >= end)
			fail_msg("can't remount: %s", strerror(errno));
		(void)nanosleep(&pause, NULL);
	}
}

static void a_start_on_a_read_only_disk_is_refused_and_moves_nothing(void **state)
{
	int status;

	(void)state;
	assert_int_equal(mkdir(agent.dir, 0755), 0);
	if (mount("tmpfs", agent.dir, "tmpfs", 0, "size=1m,mode=0755") < 0) {
		print_message("can't mount a tmpfs here: %s\n", strerror(errno));
		skip();
	}
	begin();
	(void)agent_stop(&agent, SIGTERM);
	remount(MS_RDONLY);
	status = agent_try_start(&agent);
	if (status == 0 || status == 75)
		fail_msg("a start on a read-only disk: exit %d", status);
	assert_true(agent_log_count(&agent, "Read-only file system") == 1);
	expect_held("read-only disk", 0);
	remount(0);
	agent_start(&agent);
	expect_held("read-only disk", 1);
	expect_served("read-only disk", 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_kill_at_each_call_loses_no_slot),
		T(no_space_at_each_call_loses_no_slot),
		T(an_io_error_at_each_call_loses_no_slot),
		T(each_write_cut_short_loses_no_slot),
		T(a_start_on_a_read_only_disk_is_refused_and_moves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
