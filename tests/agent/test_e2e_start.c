/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: how it starts, refuses to, stops and comes back (C23, C29, X3, X5). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

#define EXIT_BUSY   75
#define EXIT_CONFIG 78

static struct stat stat_of(const char *name)
{
	char path[TEMPDIR_MAX + 64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%s", agent.dir, name);
	assert_int_equal(lstat(path, &st), 0);
	return st;
}

static void modes_are_right_whatever_the_umask(void **state)
{
	static const mode_t masks[] = { 0000, 0077 };

	(void)state;
	for (size_t n = 0; n < 2; n++) {
		agent.umask = masks[n];
		agent_start(&agent);
		assert_int_equal(stat_of(".").st_mode & 07777, 0755);
		assert_int_equal(stat_of("hints").st_mode & 07777, 0644);
		assert_int_equal(stat_of("agent.sock").st_mode & 07777, 0666);
		assert_int_equal(stat_of("state").st_mode & 07777, 0600);
		assert_int_equal(agent_stop(&agent, SIGTERM), 0);
		tempdir_remove(agent.dir);
	}
}

/* C23, first part, and re-adoption: same slots, same inode, new generation. */
static void a_killed_agent_is_followed_by_one_that_knows_its_flows(void **state)
{
	const struct mpib_hint_header *header;
	uint32_t generation;
	ino_t inode;

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 100\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	inode = stat_of("hints").st_ino;
	for (uint32_t n = 0; n < 10; n++)
		assert_int_equal(agent_register_once(&agent, n, 1, 100 + n).slot, n);
	assert_int_equal(agent_deregister_once(&agent, 3).status, MPIB_STATUS_OK);
	generation = header->generation;

	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	assert_true(S_ISSOCK(stat_of("agent.sock").st_mode)); /* left behind */
	agent_write_ini(&agent, "[policy]\ninter = 200\n");
	agent_start(&agent);

	assert_int_equal(stat_of("hints").st_ino, inode);
	assert_int_not_equal(header->generation, generation);
	assert_int_equal(agent_count_flows(header), 9);
	for (uint32_t n = 0; n < 10; n++) {
		assert_int_equal(agent_entry(header, n)->sup_bw, n == 3 ? 0 : 200);
		assert_int_equal(agent_entry(header, n)->dst_ip, n == 3 ? 0 : 100 + n);
	}
	/* known, so idempotent; and ours to end */
	assert_int_equal(agent_register_once(&agent, 7, 1, 107).slot, 7);
	assert_int_equal(agent_register_once(&agent, 7, 1, 108).status, MPIB_STATUS_INVALID);
	assert_int_equal(agent_deregister_once(&agent, 7).status, MPIB_STATUS_OK);
	assert_int_equal(agent_count_flows(header), 8);
}

static int registers_and_stays(void *arg)
{
	int ready = *(int *)arg;
	bool good = agent_register_once(&agent, 1, 9, 9).status == MPIB_STATUS_OK;

	if (write(ready, good ? "y" : "n", 1) != 1)
		return 1;
	(void)pause();
	return 0;
}

static void flows_of_processes_that_died_meanwhile_are_not_adopted(void **state)
{
	const struct mpib_hint_header *header;
	int ready[2];
	char byte = 0;
	pid_t child;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	child = harness_fork(registers_and_stays, &ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(agent_count_flows(header), 2);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	assert_int_equal(agent_count_flows(header), 2); /* stopping changes nothing */

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(harness_reap(child), -SIGKILL);
	agent_start(&agent);
	assert_int_equal(agent_count_flows(header), 1);
	assert_int_equal(agent_log_count(&agent, "1 of ended processes dropped"), 1);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* Whatever became of the state file, a flow that registers again finds its old slot. */
static void a_lost_or_damaged_state_file_keeps_slots_for_their_flows(void **state)
{
	const struct mpib_hint_header *header;
	char path[TEMPDIR_MAX + 32];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/state", agent.dir);
	agent_write_ini(&agent, "[policy]\ninter = 100\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	for (uint32_t n = 0; n < 4; n++)
		assert_int_equal(agent_register_once(&agent, n, 1, 100 + n).slot, n);

	for (unsigned int way = 0; way < 3; way++) {
		assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
		if (way == 0)
			assert_int_equal(unlink(path), 0);
		else
			assert_int_equal(truncate(path, way == 1 ? 0 : 100), 0);
		agent_start(&agent);
		assert_int_equal(agent_count_flows(header), 4);
		assert_int_equal(agent_entry(header, 2)->sup_bw, 100);
		/* a stranger gets a free slot, the flow its own */
		assert_int_equal(agent_register_once(&agent, 50, 7, 7).slot, 4);
		assert_int_equal(agent_deregister_once(&agent, 50).status, MPIB_STATUS_OK);
		for (uint32_t n = 4; n-- > 0;)
			assert_int_equal(agent_register_once(&agent, n, 1, 100 + n).slot, n);
	}
}

static void a_larger_table_is_kept_by_a_smaller_setting(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 1024\n");
	agent_start(&agent);
	assert_int_equal(agent_map_hints(&agent)->max_entries, 1024);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_write_ini(&agent, "[agent]\nslots = 16\n");
	agent_start(&agent);
	assert_int_equal(agent_map_hints(&agent)->max_entries, 1024);
	assert_int_equal(stat_of("hints").st_size, 16 + 1024 * 16);
}

/* C23, second part. */
static void a_second_instance_leaves_even_a_stopped_first_one_alone(void **state)
{
	struct agent second;
	ino_t inode;
	int fd;

	(void)state;
	agent_start(&agent);
	inode = stat_of("agent.sock").st_ino;
	second = agent;
	second.pid = 0;
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	assert_int_equal(agent_try_start(&second), EXIT_BUSY);
	assert_int_equal(agent_log_count(&agent, "another mpib-agentd (pid "), 1);
	assert_int_equal(stat_of("agent.sock").st_ino, inode);
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	assert_int_equal(agent_register(fd, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(close(fd), 0);
}

/* C23, third part. */
static void what_is_in_the_sockets_way_is_refused_and_stays(void **state)
{
	char path[TEMPDIR_MAX + 32];
	struct stat before;
	int fd;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/agent.sock", agent.dir);
	assert_int_equal(mkdir(agent.dir, 0755), 0);
	for (unsigned int way = 0; way < 3; way++) {
		if (way == 0) {
			fd = open(path, O_CREAT | O_WRONLY, 0644);
			assert_int_equal(write(fd, "precious", 8), 8);
			assert_int_equal(close(fd), 0);
		} else if (way == 1) {
			assert_int_equal(mkdir(path, 0700), 0);
		} else {
			assert_int_equal(symlink("/etc/passwd", path), 0);
		}
		before = stat_of("agent.sock");
		assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
		assert_int_equal(stat_of("agent.sock").st_ino, before.st_ino);
		assert_int_equal(stat_of("agent.sock").st_size, before.st_size);
		assert_int_equal(agent_log_count(&agent, "is in the way and is not a socket"),
				 way + 1);
		assert_int_equal(remove(path), 0);
	}
	agent_start(&agent);
}

/* C29's planted directories, as the process sees them. */
static void planted_directories_are_refused_in_one_line_with_the_cure(void **state)
{
	(void)state;
	assert_int_equal(symlink("/var/tmp", agent.dir), 0);
	assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
	assert_int_equal(unlink(agent.dir), 0);

	assert_int_equal(mkdir(agent.dir, 0755), 0);
	assert_int_equal(chmod(agent.dir, 0777), 0);
	assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
	assert_int_equal(agent_log_count(&agent, "remove it and start again"), 2);
	assert_int_equal(chmod(agent.dir, 0755), 0);

	if (geteuid() == 0) {
		assert_int_equal(chown(agent.dir, HARNESS_NOBODY, HARNESS_NOBODY), 0);
		assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
		assert_int_equal(agent_log_count(&agent, "belongs to uid 65534"), 1);
	}
	assert_int_equal(agent_log_count(&agent, ""), geteuid() == 0 ? 3 : 2);
}

static void a_broken_policy_fails_the_start_with_its_line(void **state)
{
	char wanted[TEMPDIR_MAX + 64];
	struct stat st;

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\nintra = lots\n");
	assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
	(void)snprintf(wanted, sizeof(wanted), "%s:3: intra = lots is not a share", agent.ini);
	assert_int_equal(agent_log_count(&agent, wanted), 1);
	assert_int_equal(lstat(agent.dir, &st), -1); /* nothing was touched */
}

static void a_named_policy_file_must_exist(void **state)
{
	(void)state;
	assert_int_equal(unlink(agent.ini), 0);
	assert_int_equal(agent_try_start(&agent), EXIT_CONFIG);
	assert_int_equal(agent_log_count(&agent, "agent.ini: No such file or directory"), 1);
}

static void stopping_leaves_the_shares_and_takes_the_socket_away(void **state)
{
	static const int signals[] = { SIGTERM, SIGINT };

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 300\n");
	for (unsigned int n = 0; n < 2; n++) {
		const struct mpib_hint_header *header;
		uint32_t share = 0;

		agent_start(&agent);
		header = agent_map_hints(&agent);
		assert_int_equal(agent_register_once(&agent, 1, 1, 2).slot, 0);
		assert_int_equal(agent_stop(&agent, signals[n]), 0);
		assert_true(mpib_hint_read(agent_entry(header, 0), &share));
		assert_int_equal(share, 300);
		assert_int_equal(agent_connect(&agent), -ENOENT);
	}
	assert_int_equal(agent_log_count(&agent, "stopped: 1 flow of"), 2);
}

/* X3 on each start path: a connection after READY is never refused. */
static void a_passed_socket_is_served_and_left_in_place(void **state)
{
	ino_t inode;

	(void)state;
	agent.pass_socket = true;
	agent_start(&agent);
	inode = stat_of("agent.sock").st_ino;
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	assert_int_equal(stat_of("agent.sock").st_ino, inode);
}

/* X5: the process on a file system that is full. */
static void a_full_file_system_fails_the_start_with_its_cause(void **state)
{
	char filler[TEMPDIR_MAX + 32];
	char block[4096] = { 1 };
	int status;
	int fd;

	(void)state;
	assert_int_equal(mkdir(agent.dir, 0755), 0);
	if (mount("tmpfs", agent.dir, "tmpfs", 0, "size=16k,mode=0755") < 0) {
		print_message("can't mount a tmpfs here: %s\n", strerror(errno));
		skip();
	}
	(void)snprintf(filler, sizeof(filler), "%s/filler", agent.dir);
	fd = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	(void)close(fd);
	status = agent_try_start(&agent);
	(void)umount2(agent.dir, MNT_DETACH);
	assert_int_equal(status, 1);
	assert_int_equal(agent_log_count(&agent, "hints: No space left on device"), 1);
}

/* A07: without descriptors 0 to 2 no file of the agent becomes its standard error. */
static void started_without_standard_descriptors_it_writes_into_no_file(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char text[64];
	struct stat st;

	(void)state;
	agent.no_standard_fds = true;
	agent_start(&agent);
	for (uint32_t n = 1; n <= 8; n++)
		assert_int_equal(agent_register_once(&agent, n, 1, n).status, MPIB_STATUS_OK);
	(void)snprintf(path, sizeof(path), "%s/hints", agent.dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, MPIB_HINTS_SIZE(MPIB_HINT_ENTRIES_DEFAULT));
	assert_int_equal(agent_map_hints(&agent)->magic, MPIB_HINT_MAGIC);
	for (int n = 0; n < 3; n++) {
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)agent.pid, n);
		len = readlink(path, text, sizeof(text) - 1);
		assert_true(len > 0);
		text[len] = '\0';
		assert_string_equal(text, "/dev/null");
	}
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
}

/* Of the ground itself: what fails outside of a test, or is killed, leaves no agent behind. */
static void an_agent_ends_with_the_program_that_started_it(void **state)
{
	struct pollfd left = { .events = POLLIN };
	int held[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(held), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(held[0]);
		_exit(agent_try_start(&agent));
	}
	(void)close(held[1]);
	assert_int_equal(harness_reap(pid), 0);
	left.fd = held[0];
	assert_int_equal(poll(&left, 1, 10000), 1);
	(void)close(held[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(started_without_standard_descriptors_it_writes_into_no_file),
		AGENT_TEST(modes_are_right_whatever_the_umask),
		AGENT_TEST(an_agent_ends_with_the_program_that_started_it),
		AGENT_TEST(a_killed_agent_is_followed_by_one_that_knows_its_flows),
		AGENT_TEST(flows_of_processes_that_died_meanwhile_are_not_adopted),
		AGENT_TEST(a_lost_or_damaged_state_file_keeps_slots_for_their_flows),
		AGENT_TEST(a_larger_table_is_kept_by_a_smaller_setting),
		AGENT_TEST(a_second_instance_leaves_even_a_stopped_first_one_alone),
		AGENT_TEST(what_is_in_the_sockets_way_is_refused_and_stays),
		AGENT_TEST(planted_directories_are_refused_in_one_line_with_the_cure),
		AGENT_TEST(a_broken_policy_fails_the_start_with_its_line),
		AGENT_TEST(a_named_policy_file_must_exist),
		AGENT_TEST(stopping_leaves_the_shares_and_takes_the_socket_away),
		AGENT_TEST(a_passed_socket_is_served_and_left_in_place),
		AGENT_TEST(a_full_file_system_fails_the_start_with_its_cause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
