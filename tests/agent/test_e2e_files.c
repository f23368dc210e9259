/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: its files deleted or replaced while it runs (A09). Within a second they are there
 * again with the same contents, a line tells of it, and clients are sent to the new table. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

#define FLOWS	 20
#define BOUND_MS 2500 /* a second, and a crowded machine */

static int client;

static int set_up(void **state)
{
	(void)agent_set_up(state);
	agent_write_ini(&agent, "[policy]\ninter = 333\n");
	agent_start(&agent);
	client = agent_connect(&agent);
	for (uint32_t n = 0; n < FLOWS; n++)
		assert_int_equal(agent_register(client, 0x10000 + n, 1, 100 + n).slot, n);
	return 0;
}

static int tear_down(void **state)
{
	(void)close(client);
	return agent_tear_down(state);
}

static void path_of(const char *name, char path[TEMPDIR_MAX + 64])
{
	(void)snprintf(path, TEMPDIR_MAX + 64, "%s/%s", agent.dir, name);
}

/* Until the file is there and isn't the one of before. */
static struct stat await_new(const char *name, const struct stat *before)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + BOUND_MS;
	char path[TEMPDIR_MAX + 64];
	struct stat st;

	path_of(name, path);
	while (lstat(path, &st) < 0 || st.st_ino == before->st_ino ||
	       st.st_size < before->st_size) {
		if (harness_now_ms() > end)
			fail_msg("%s wasn't made anew", path);
		(void)nanosleep(&pause, NULL);
	}
	return st;
}

static void await_disconnect(void)
{
	struct pollfd p = { .fd = client, .events = POLLIN };
	char byte;

	assert_int_equal(poll(&p, 1, BOUND_MS), 1);
	assert_int_equal(recv(client, &byte, 1, 0), 0);
	(void)close(client);
}

/* As a plugin does: connect again, map again, register again. */
static void expect_served(void)
{
	const struct mpib_hint_header *header = agent_map_hints(&agent);
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + BOUND_MS;
	uint32_t beat = mpib_hint_load(&header->heartbeat);

	client = agent_connect(&agent);
	assert_true(client >= 0);
	assert_int_equal(agent_count_flows(header), FLOWS);
	for (uint32_t n = 0; n < FLOWS; n++) {
		assert_int_equal(agent_entry(header, n)->sup_bw, 333);
		assert_int_equal(agent_register(client, 0x10000 + n, 1, 100 + n).slot, n);
	}
	while (mpib_hint_load(&header->heartbeat) == beat) {
		if (harness_now_ms() > end)
			fail_msg("the new table has no heartbeat");
		(void)nanosleep(&pause, NULL);
	}
	assert_true(agent_deregister(client, 0x10000).ok);
	assert_int_equal(agent_count_flows(header), FLOWS - 1);
	assert_int_equal(agent_register(client, 0x10000, 1, 100).slot, 0);

	/* A later agent finds all of it, too. */
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent_start(&agent);
	assert_int_equal(agent_count_flows(agent_map_hints(&agent)), FLOWS);
}

static struct stat stat_of(const char *name)
{
	char path[TEMPDIR_MAX + 64];
	struct stat st;

	path_of(name, path);
	assert_int_equal(lstat(path, &st), 0);
	return st;
}

static void a_09_a_deleted_table_is_made_anew(void **state)
{
	struct stat before = stat_of("hints");
	char path[TEMPDIR_MAX + 64];
	struct stat now;

	(void)state;
	path_of("hints", path);
	assert_int_equal(unlink(path), 0);
	now = await_new("hints", &before);
	assert_int_equal(now.st_mode & 07777, 0644);
	assert_int_equal(now.st_size, before.st_size);
	await_disconnect();
	agent_await_log(&agent, "/hints was deleted or replaced");
	expect_served();
}

static void a_09_a_replaced_table_is_made_anew(void **state)
{
	struct stat before = stat_of("hints");
	char other[TEMPDIR_MAX + 64];
	char path[TEMPDIR_MAX + 64];
	int fd;

	(void)state;
	path_of("hints", path);
	path_of("other", other);
	fd = open(other, O_CREAT | O_WRONLY, 0644);
	assert_int_equal(close(fd), 0);
	assert_int_equal(rename(other, path), 0);
	(void)await_new("hints", &before);
	await_disconnect();
	expect_served();
}

static void a_09_a_deleted_socket_is_made_anew(void **state)
{
	struct stat before = stat_of("agent.sock");
	char path[TEMPDIR_MAX + 64];

	(void)state;
	path_of("agent.sock", path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(await_new("agent.sock", &before).st_mode & 07777, 0666);
	assert_int_equal(agent_register(client, 0x10000, 1, 100).slot, 0); /* still there */
	(void)close(client);
	agent_await_log(&agent, "/agent.sock was deleted or replaced");
	expect_served();
}

static void a_09_what_is_in_the_sockets_way_is_told_and_stays(void **state)
{
	char path[TEMPDIR_MAX + 64];
	struct stat before;

	(void)state;
	path_of("agent.sock", path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	agent_await_log(&agent, "is in the way and is not a socket");
	before = stat_of("agent.sock");
	assert_true(S_ISDIR(before.st_mode));
	assert_int_equal(rmdir(path), 0);
	agent_await_log(&agent, "/agent.sock was deleted or replaced");
	assert_int_equal(agent_log_count(&agent, "is in the way and is not a socket"), 1);
	(void)close(client);
	expect_served();
}

static void a_09_a_deleted_directory_is_made_anew(void **state)
{
	struct stat before = stat_of("hints");

	(void)state;
	tempdir_remove(agent.dir);
	(void)await_new("hints", &before);
	await_disconnect();
	assert_int_equal(stat_of(".").st_mode & 07777, 0755);
	assert_int_equal(await_new("state", &(struct stat){ 0 }).st_mode & 07777, 0600);
	expect_served();
}

static void a_09_a_replaced_directory_is_made_anew(void **state)
{
	struct stat before = stat_of("hints");
	char away[TEMPDIR_MAX + 64];

	(void)state;
	(void)snprintf(away, sizeof(away), "%s/away", agent.base);
	assert_int_equal(rename(agent.dir, away), 0);
	assert_int_equal(mkdir(agent.dir, 0755), 0);
	(void)await_new("hints", &before);
	await_disconnect();
	expect_served();
}

static void a_09_a_planted_directory_is_told_and_left(void **state)
{
	struct stat before = stat_of("hints");
	char away[TEMPDIR_MAX + 64];

	(void)state;
	(void)snprintf(away, sizeof(away), "%s/away", agent.base);
	assert_int_equal(rename(agent.dir, away), 0);
	assert_int_equal(symlink("away", agent.dir), 0);
	agent_await_log(&agent, "is a symbolic link");
	assert_int_equal(agent_register(client, 0x10000, 1, 100).slot, 0); /* jobs go on */
	assert_int_equal(unlink(agent.dir), 0);
	(void)await_new("hints", &before);
	assert_int_equal(agent_log_count(&agent, "is a symbolic link"), 1);
	await_disconnect();
	expect_served();
}

static void a_09_a_deleted_lock_lets_no_second_agent_in(void **state)
{
	struct stat before = stat_of("lock");
	struct agent second = agent;
	char path[TEMPDIR_MAX + 64];

	(void)state;
	path_of("lock", path);
	assert_int_equal(unlink(path), 0);
	(void)await_new("lock", &before);
	second.pid = 0;
	assert_int_equal(agent_try_start(&second), 75);
}

static void a_09_a_deleted_state_file_is_written_again(void **state)
{
	struct stat before = stat_of("state");
	char path[TEMPDIR_MAX + 64];
	int held;

	(void)state;
	path_of("state", path);
	held = open(path, O_RDONLY | O_CLOEXEC); /* its inode number is not given again */
	assert_int_equal(unlink(path), 0);
	(void)await_new("state", &before);
	(void)close(held);
	(void)close(client);
	expect_served();
	/* as whole as it was: these registrations can be ended */
	for (uint32_t n = 0; n < FLOWS; n++)
		assert_int_equal(agent_deregister_once(&agent, 0x10000 + n).status, MPIB_STATUS_OK);
	assert_int_equal(agent_count_flows(agent_map_hints(&agent)), 0);
	client = -1;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_09_a_deleted_table_is_made_anew),
		T(a_09_a_replaced_table_is_made_anew),
		T(a_09_a_deleted_socket_is_made_anew),
		T(a_09_what_is_in_the_sockets_way_is_told_and_stays),
		T(a_09_a_deleted_directory_is_made_anew),
		T(a_09_a_replaced_directory_is_made_anew),
		T(a_09_a_planted_directory_is_told_and_left),
		T(a_09_a_deleted_lock_lets_no_second_agent_in),
		T(a_09_a_deleted_state_file_is_written_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
