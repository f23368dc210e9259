/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: what it handed out is never lost and never goes back, whatever becomes of the
 * disk, of the state file, and of the agent that wrote it (A04, A05, A06), and a policy that isn't
 * the one of the file is told (A12, A13). */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mount.h>

#include "agent/base/crc32.h"
#include "agent/state/adopt.h"
#include "common/hint.h"
#include "common/ipv4.h"
#include "tests/agent/harness/disk.h"
#include "tests/agent/harness/fresh.h"
#include "tests/agent/harness/table.h"

#define FLOWS 80

static const struct mpib_hint_header *header;

static int tear_down(void **state)
{
	if (agent.pid)
		(void)agent_stop(&agent, SIGKILL);
	(void)umount2(agent.dir, MNT_DETACH);
	return agent_tear_down(state);
}

static void path_of(const char *name, char path[TEMPDIR_MAX + 64])
{
	(void)snprintf(path, TEMPDIR_MAX + 64, "%s/%s", agent.dir, name);
}

/* ---- flows ---------------------------------------------------------------------------------- */

static void hold(uint32_t n)
{
	struct answer answer = agent_register_once(&agent, 0x10000 + n, 1, 100 + n);

	assert_int_equal(answer.status, MPIB_STATUS_OK);
	assert_true(answer.ok);
}

static void restart(void)
{
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent_start(&agent);
}

static void begin(void)
{
	agent_write_ini(&agent, "[policy]\ninter = 333\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	for (uint32_t n = 0; n < FLOWS; n++)
		hold(n);
}

/* ---- A04, A05: disks ------------------------------------------------------------------------ */

/* @left pages: from full to as much as half a state file takes. */
static void restart_on_a_full_disk(unsigned int left)
{
	struct mpib_hint_entry *before;

	disk_mount(&agent, "size=1m,mode=0755");
	begin();
	disk_fill(&agent, left);
	restart();
	/* Other flows in the place of some: what is saved must be of now. */
	for (uint32_t n = 0; n < FLOWS / 2; n++)
		assert_int_equal(agent_deregister_once(&agent, 0x10000 + n).status, MPIB_STATUS_OK);
	for (uint32_t n = 0; n < FLOWS; n++)
		hold(FLOWS + n);
	before = table_snapshot(header);
	restart();
	table_expect_same(header, before);
	restart();
	table_expect_same(header, before);
	table_expect_none_given_twice(&agent, header, before);
	disk_empty(&agent);
	restart();
	table_expect_same(header, before);
	free(before);
}

static void a_04_a_restart_on_a_nearly_full_disk_loses_no_slot(void **state)
{
	(void)state;
	restart_on_a_full_disk(1);
}

static void a_05_a_restart_on_a_full_disk_brings_back_what_is_now(void **state)
{
	(void)state;
	restart_on_a_full_disk(0);
}

static int registers_and_ends(void *arg)
{
	(void)arg;
	return agent_register_once(&agent, 7, 1, 100 + 2 * FLOWS - 1).status;
}

/* The state file has no block for more: told, tried again, and nothing is lost meanwhile. */
static void a_05_what_cannot_be_saved_is_told_and_kept(void **state)
{
	struct mpib_hint_entry *before;

	(void)state;
	disk_mount(&agent, "size=24k,mode=0755"); /* hints 2 pages, lock 1, state 1: 63 records */
	begin();
	disk_fill(&agent, 0);
	for (uint32_t n = FLOWS; n < 2 * FLOWS; n++)
		hold(n);
	/* One flow held by a living process that isn't in the file and by one that ends. */
	assert_int_equal(harness_reap(harness_fork(registers_and_ends, NULL)), 0);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL),
		       "\"state_unsaved\": true");
	harness_expect(agent_ctl_words(&agent, 0, "status", NULL), "No space left on device");
	harness_expect(agent_ctl_words(&agent, 0, "metrics", NULL), "mpib_state_unsaved 1");
	assert_int_equal(agent_log_count(&agent, "the state can't be saved"), 1);

	before = table_snapshot(header);
	restart();
	table_expect_same(header, before);
	table_expect_none_given_twice(&agent, header, before);
	restart();
	table_expect_same(header, before);

	if (mount("tmpfs", agent.dir, "tmpfs", MS_REMOUNT, "size=1m,mode=0755") < 0)
		fail_msg("can't enlarge the tmpfs: %s", strerror(errno));
	agent_await_log(&agent, "the state is saved again");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL),
		       "\"state_unsaved\": false");
	restart();
	table_expect_same(header, before);
	free(before);
}

/* ---- A06: another writer -------------------------------------------------------------------- */

static void rewrite_header(void (*change)(struct mpib_adopt_header *h))
{
	struct mpib_adopt_header h;
	char path[TEMPDIR_MAX + 64];
	int fd;

	path_of("state", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	change(&h);
	h.checksum = mpib_crc32(&h, offsetof(struct mpib_adopt_header, checksum));
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(close(fd), 0);
}

static void older(struct mpib_adopt_header *h)
{
	h->version = 0;
}

static void newer(struct mpib_adopt_header *h)
{
	h->version = 2;
	h->record_size = 96;
}

static void other_boot(struct mpib_adopt_header *h)
{
	h->boot_id[3] ^= 1;
}

static void other_namespace(struct mpib_adopt_header *h)
{
	h->pid_ns++;
}

static void other_reserved(struct mpib_adopt_header *h)
{
	h->reserved[0] = 1;
}

static void a_06_the_state_of_another_writer_costs_no_living_slot(void **state)
{
	static void (*const changes[])(struct mpib_adopt_header * h) = {
		older, newer, other_boot, other_namespace, other_reserved,
	};
	struct mpib_hint_entry *before;

	(void)state;
	begin();
	before = table_snapshot(header);
	for (size_t n = 0; n < sizeof(changes) / sizeof(changes[0]); n++) {
		assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
		rewrite_header(changes[n]);
		agent_start(&agent);
		table_expect_same(header, before);
	}
	table_expect_none_given_twice(&agent, header, before);

	/* A holder that comes back is known again, and its end frees the slot. */
	for (uint32_t n = 0; n < FLOWS; n++)
		hold(n);
	table_expect_same(header, before);
	free(before);
}

static void a_06_an_agent_of_another_pid_namespace_keeps_all_slots(void **state)
{
	struct mpib_hint_entry *before;

	(void)state;
	if (geteuid() != 0)
		skip();
	begin();
	before = table_snapshot(header);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent.pid_namespace = true;
	agent_start(&agent);
	table_expect_same(header, before);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent.pid_namespace = false;
	agent_start_when_free(&agent);
	table_expect_same(header, before);
	table_expect_none_given_twice(&agent, header, before);
	free(before);
}

/* The version before, given by MPIB_OLD_AGENTD, in turns with this one. */
static void a_06_up_and_down_between_versions_moves_nothing(void **state)
{
	const char *old = getenv("MPIB_OLD_AGENTD"), *now = getenv("MPIB_AGENTD");
	struct mpib_hint_entry *before;
	char *mine;

	(void)state;
	if (!old || !*old) {
		print_message("MPIB_OLD_AGENTD names no daemon of the version before\n");
		skip();
		return;
	}
	mine = now ? strdup(now) : NULL;
	if (!mine) {
		fail_msg("MPIB_AGENTD names no daemon, or no memory");
		return;
	}
	begin();
	before = table_snapshot(header);
	for (unsigned int n = 0; n < 4; n++) {
		assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
		assert_int_equal(setenv("MPIB_AGENTD", n % 2 ? mine : old, 1), 0);
		agent_start(&agent);
		table_expect_same(header, before);
		hold(FLOWS + n);
		free(before);
		before = table_snapshot(header);
	}
	table_expect_none_given_twice(&agent, header, before);
	assert_int_equal(setenv("MPIB_AGENTD", mine, 1), 0);
	free(before);
	free(mine);
}

/* What an older one says of a share that finds itself nobody knows; what it makes of the table and
 * of other shares is told here. */
static void a_06_a_share_that_finds_itself_is_no_harm_on_the_way_back(void **state)
{
	const char *old = getenv("MPIB_OLD_AGENTD"), *now = getenv("MPIB_AGENTD");
	struct mpib_hint_entry *before;
	char flows[2][MPIB_FLOW_TEXT_MAX];
	uint32_t share;
	char *mine;

	(void)state;
	if (!old || !*old) {
		print_message("MPIB_OLD_AGENTD names no daemon of the version before\n");
		skip();
		return;
	}
	mine = now ? strdup(now) : NULL;
	if (!mine) {
		fail_msg("MPIB_AGENTD names no daemon, or no memory");
		return;
	}
	begin();
	(void)mpib_flow_format(1, 100, flows[0]);
	(void)mpib_flow_format(1, 101, flows[1]);
	harness_expect(agent_ctl_words(&agent, 0, "set", flows[0], "auto", "10%..30%", NULL),
		       "after: 307 (30.0%)");
	harness_expect(agent_ctl_words(&agent, 0, "set", flows[1], "100", NULL), "after: 100");
	before = table_snapshot(header);

	/* The older one: the policy for the one, what was set for the other, the slots as they are.
	 */
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	assert_int_equal(setenv("MPIB_AGENTD", old, 1), 0);
	agent_start(&agent);
	assert_int_equal(agent_log_count(&agent, "is damaged"), 0);
	for (uint32_t n = 0; n < FLOWS; n++)
		hold(n);
	assert_true(mpib_hint_read(agent_entry(header, 1), &share));
	assert_int_equal(share, 100);
	assert_true(mpib_hint_read(agent_entry(header, 2), &share));
	assert_int_equal(share, 333);

	/* And this one again. */
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	assert_int_equal(setenv("MPIB_AGENTD", mine, 1), 0);
	agent_start(&agent);
	for (uint32_t n = 0; n < FLOWS; n++)
		hold(n);
	table_expect_same(header, before);
	harness_expect(agent_ctl_words(&agent, 0, "explain", flows[0], NULL), "auto 102..307");
	free(before);
	free(mine);
}

/* Each byte of the state file, one after the other. */
static void a_damaged_byte_of_the_state_costs_no_living_slot(void **state)
{
	char path[TEMPDIR_MAX + 64];
	struct mpib_hint_entry *before;
	int fd;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	hold(0);
	hold(1);
	before = table_snapshot(header);
	path_of("state", path);
	for (off_t at = 0; at < 64 * 4; at += 5) {
		uint8_t byte;

		assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 0x55;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		assert_int_equal(close(fd), 0);
		agent_start(&agent);
		table_expect_same(header, before);
		assert_int_equal(agent_register_once(&agent, 3, 3, 3).slot, 2);
		assert_int_equal(agent_deregister_once(&agent, 3).status, MPIB_STATUS_OK);
	}
	free(before);
}

/* ---- A12, A13: what is in force ------------------------------------------------------------- */

static void a_12_a_reload_without_the_policy_file_is_refused(void **state)
{
	(void)state;
	begin();
	assert_int_equal(unlink(agent.ini), 0);
	free(agent_ctl_words(&agent, 1, "reload", NULL));
	assert_int_equal(agent_entry(header, 0)->sup_bw, 333);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL),
		       "\"reload_refused\": true");
	/* by the agent and by mpibctl */
	assert_int_equal(agent_log_count(&agent, "no such file; the policy in force stays"), 2);
}

static void a_12_a_start_without_the_policy_file_is_told(void **state)
{
	(void)state;
	if (access("/etc/mpib/agent.ini", F_OK) == 0)
		skip();
	agent.default_config = true;
	agent_start(&agent);
	assert_int_equal(agent_log_count(&agent, "there is no policy file"), 1);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL),
		       "\"policy_missing\": true");
	free(agent_ctl_words(&agent, 1, "reload", NULL));
}

static void a_13_fewer_slots_than_the_table_has_are_told(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 100\n");
	agent_start(&agent);
	agent_write_ini(&agent, "[agent]\nslots = 50\n");
	free(agent_ctl_words(&agent, 0, "reload", NULL));
	assert_int_equal(agent_log_count(&agent, "slots = 50, but the table has 100"), 1);
	harness_expect(agent_ctl_words(&agent, 0, "policy", NULL), "slots = 100");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL), "\"slots\": 100");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, agent_set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_04_a_restart_on_a_nearly_full_disk_loses_no_slot),
		T(a_05_a_restart_on_a_full_disk_brings_back_what_is_now),
		T(a_05_what_cannot_be_saved_is_told_and_kept),
		T(a_06_the_state_of_another_writer_costs_no_living_slot),
		T(a_06_an_agent_of_another_pid_namespace_keeps_all_slots),
		T(a_06_up_and_down_between_versions_moves_nothing),
		T(a_06_a_share_that_finds_itself_is_no_harm_on_the_way_back),
		T(a_damaged_byte_of_the_state_costs_no_living_slot),
		T(a_12_a_reload_without_the_policy_file_is_refused),
		T(a_12_a_start_without_the_policy_file_is_told),
		T(a_13_fewer_slots_than_the_table_has_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
