/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: requests in every shape, and whose registration is whose. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/sched.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

static int request(uint8_t *buf, size_t cap, uint8_t type, uint32_t conn_id, uint32_t dst)
{
	struct mpib_wire_msg msg = {
		.type = type,
		.conn_id = conn_id,
		.sout_src_be = 1,
		.sout_dst_be = dst,
	};

	return mpib_wire_encode_request(buf, cap, &msg);
}

static void requests_byte_by_byte_are_answered(void **state)
{
	uint8_t buf[64];
	struct answer answer;
	int len;
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	len = request(buf, sizeof(buf), MPIB_MSG_REGISTER, 1, 2);
	for (int n = 0; n < len; n++)
		assert_int_equal(send(fd, buf + n, 1, MSG_NOSIGNAL), 1);
	answer = answer_read(fd, MPIB_MSG_REGISTER);
	assert_true(answer.ok);
	assert_int_equal(answer.status, MPIB_STATUS_OK);
	assert_int_equal(close(fd), 0);
}

static void many_requests_in_one_write_are_answered_in_order(void **state)
{
	uint8_t buf[200 * 28];
	size_t used = 0;
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	for (uint32_t n = 0; n < 200; n++)
		used += (size_t)request(buf + used, sizeof(buf) - used, MPIB_MSG_REGISTER, n,
					n + 1);
	assert_int_equal(send(fd, buf, used, MSG_NOSIGNAL), used);
	for (uint32_t n = 0; n < 200; n++) {
		struct answer answer = answer_read(fd, MPIB_MSG_REGISTER);

		assert_true(answer.ok);
		assert_int_equal(answer.status, MPIB_STATUS_OK);
		assert_int_equal(answer.slot, n);
	}
	assert_int_equal(close(fd), 0);
}

static void answers_come_after_the_client_closed_its_sending_side(void **state)
{
	uint8_t buf[64];
	int len;
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	len = request(buf, sizeof(buf), MPIB_MSG_REGISTER, 1, 2);
	assert_int_equal(send(fd, buf, (size_t)len, MSG_NOSIGNAL), len);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_int_equal(answer_read(fd, MPIB_MSG_REGISTER).status, MPIB_STATUS_OK);
	assert_int_equal(recv(fd, buf, 1, 0), 0); /* and then it is over */
	assert_int_equal(close(fd), 0);
}

static void send_header(int fd, uint8_t type, uint16_t len)
{
	static const uint8_t zeros[UINT16_MAX];
	struct mpib_msg_header header = {
		.magic = MPIB_MSG_MAGIC,
		.msg_len = len,
		.msg_type = type,
	};
	size_t rest = len > sizeof(header) ? len - sizeof(header) : 0;

	assert_int_equal(send(fd, &header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
	assert_int_equal(send(fd, zeros, rest, MSG_NOSIGNAL), rest);
}

static void unknown_types_and_wrong_lengths_get_status_2_and_cost_nothing_else(void **state)
{
	static const struct {
		uint8_t type;
		uint16_t len;
	} cases[] = {
		{ 3, 8 },      { 0, 8 },     { 255, 12 },   { MPIB_MSG_RESPONSE, 16 },
		{ 200, 4096 }, { 9, 4097 },  { 9, 65535 },  { MPIB_MSG_DEREGISTER, 8 },
		{ 64, 9 },     { 65, 4000 }, { 77, 65000 }, { MPIB_MSG_DEREGISTER, 65535 },
	};
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		struct answer answer;

		send_header(fd, cases[n].type, cases[n].len);
		answer = answer_read(fd, cases[n].type);
		assert_true(answer.ok);
		assert_int_equal(answer.status, MPIB_STATUS_INVALID);
	}
	send_header(fd, MPIB_MSG_REGISTER, 29);
	assert_int_equal(answer_read(fd, MPIB_MSG_REGISTER).status, MPIB_STATUS_INVALID);
	send_header(fd, MPIB_MSG_REGISTER, 12);
	assert_int_equal(answer_read(fd, MPIB_MSG_REGISTER).status, MPIB_STATUS_INVALID);
	assert_int_equal(agent_register(fd, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(close(fd), 0);
}

static void garbage_costs_its_own_connection_alone(void **state)
{
	static const char *const garbage[] = { "GET / HTTP/1.0\r\n\r\n", "R", "XXXXXXXXXXXX",
					       "RIP" };
	int good;
	char byte;

	(void)state;
	agent_start(&agent);
	good = agent_connect(&agent);
	assert_true(good >= 0);
	for (size_t n = 0; n < sizeof(garbage) / sizeof(garbage[0]); n++) {
		size_t len = strlen(garbage[n]);
		int fd = agent_connect(&agent);

		assert_true(fd >= 0);
		assert_int_equal(send(fd, garbage[n], len, MSG_NOSIGNAL), len);
		if (strncmp(garbage[n], "RIP", len) == 0) {
			/* the magic's first bytes: could still become a message */
			assert_int_equal(shutdown(fd, SHUT_WR), 0);
		}
		assert_true(recv(fd, &byte, 1, 0) <= 0);
		assert_int_equal(close(fd), 0);
	}
	assert_int_equal(agent_register(good, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(close(good), 0);
	assert_int_equal(agent_log_count(&agent, "something else than MPIB messages"), 2);
}

static void random_bytes_never_stop_the_agent(void **state)
{
	unsigned int seed = 11;

	(void)state;
	agent_start(&agent);
	for (unsigned int round = 0; round < 3000; round++) {
		uint8_t buf[256];
		size_t len = 1 + (size_t)rand_r(&seed) % sizeof(buf);
		struct mpib_msg_header header = { .magic = MPIB_MSG_MAGIC };
		int fd = agent_connect(&agent);

		assert_true(fd >= 0);
		for (size_t n = 0; n < len; n++)
			buf[n] = (uint8_t)rand_r(&seed);
		if (round % 4) { /* most get past the magic */
			header.msg_len = (uint16_t)(rand_r(&seed) % 64);
			header.msg_type = (uint8_t)(rand_r(&seed) % 70);
			memcpy(buf, &header, len < sizeof(header) ? len : sizeof(header));
		}
		(void)send(fd, buf, len, MSG_NOSIGNAL);
		assert_int_equal(close(fd), 0);
	}
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
}

static void a_registration_outlives_its_socket_and_is_idempotent(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register_once(&agent, 2, 1, 3).slot, 1);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register_once(&agent, 1, 1, 9).status, MPIB_STATUS_INVALID);
	assert_int_equal(agent_count_flows(header), 2);
	assert_int_equal(agent_deregister_once(&agent, 1).status, MPIB_STATUS_OK);
	assert_int_equal(agent_count_flows(header), 1);
	assert_int_equal(agent_deregister_once(&agent, 1).status, MPIB_STATUS_INVALID);
}

static void an_address_of_zero_gets_status_2(void **state)
{
	(void)state;
	agent_start(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 0, 2).status, MPIB_STATUS_INVALID);
	assert_int_equal(agent_register_once(&agent, 1, 1, 0).status, MPIB_STATUS_INVALID);
}

/* In another process: registers conn 1 in flow 1-7, tries to end conn 5 of its parent, says how
 * that went through its exit code, or stays when it went well. */
static int child_registers(void *arg)
{
	int ready = *(int *)arg;
	bool good = agent_register_once(&agent, 1, 1, 7).status == MPIB_STATUS_OK;

	good = good && agent_deregister_once(&agent, 5).status == MPIB_STATUS_INVALID;
	good = good && agent_register_once(&agent, 5, 1, 8).status == MPIB_STATUS_OK;
	if (write(ready, good ? "y" : "n", 1) != 1)
		return 1;
	(void)pause();
	return 0;
}

static void a_process_touches_only_its_own_and_its_end_frees_them(void **state)
{
	const struct mpib_hint_header *header;
	int ready[2];
	char byte = 0;
	pid_t child;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(agent_register_once(&agent, 5, 1, 2).status, MPIB_STATUS_OK);
	child = harness_fork(child_registers, &ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(agent_count_flows(header), 3);

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_true(agent_await_flows(header, 1, 1000)); /* before anybody reaps it */
	assert_int_equal(harness_reap(child), -SIGKILL);
	assert_int_equal(agent_entry(header, 0)->dst_ip, 2);
	assert_int_equal(agent_deregister_once(&agent, 5).status, MPIB_STATUS_OK);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

static pid_t fork_with_pid(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&pid,
		.set_tid_size = 1,
	};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* The agent sleeps while a process dies and another gets its pid. */
static void a_reused_pid_is_another_process(void **state)
{
	const struct mpib_hint_header *header;
	int ready[2];
	char byte = 0;
	pid_t old;
	pid_t young;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(agent_register_once(&agent, 5, 1, 2).status, MPIB_STATUS_OK);
	old = harness_fork(child_registers, &ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');

	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	assert_int_equal(kill(old, SIGKILL), 0);
	assert_int_equal(harness_reap(old), -SIGKILL);
	young = fork_with_pid(old);
	if (young < 0) {
		print_message("can't choose a pid here: %s\n", strerror(errno));
		assert_int_equal(kill(agent.pid, SIGCONT), 0);
		skip();
	}
	if (young == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* conn 1 was the dead process's */
		_exit(agent_deregister_once(&agent, 1).status == MPIB_STATUS_INVALID &&
				      agent_register_once(&agent, 1, 1, 30).status == MPIB_STATUS_OK
			      ? 0
			      : 1);
	}
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	assert_int_equal(harness_reap(young), 0);
	assert_true(agent_await_flows(header, 1, 1000));
	(void)close(ready[0]);
	(void)close(ready[1]);
}

static void peers_of_another_pid_namespace_live_as_long_as_their_connection(void **state)
{
	const struct mpib_hint_header *header;
	int first;
	int second;
	int r;

	(void)state;
	agent.pid_namespace = true;
	r = agent_try_start(&agent);
	if (r == 97) {
		print_message("can't make a pid namespace here\n");
		skip();
	}
	assert_int_equal(r, 0);
	header = agent_map_hints(&agent);
	first = agent_connect(&agent);
	second = agent_connect(&agent);
	assert_true(first >= 0 && second >= 0);
	assert_int_equal(agent_register(first, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(second, 1, 1, 3).status, MPIB_STATUS_OK);
	assert_int_equal(agent_count_flows(header), 2);
	assert_int_equal(agent_deregister_once(&agent, 1).status, MPIB_STATUS_INVALID);
	assert_int_equal(close(first), 0);
	assert_true(agent_await_flows(header, 1, 1000));
	assert_int_equal(agent_entry(header, 1)->dst_ip, 3);
	assert_int_equal(close(second), 0);
	assert_true(agent_await_flows(header, 0, 1000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(requests_byte_by_byte_are_answered),
		AGENT_TEST(many_requests_in_one_write_are_answered_in_order),
		AGENT_TEST(answers_come_after_the_client_closed_its_sending_side),
		AGENT_TEST(unknown_types_and_wrong_lengths_get_status_2_and_cost_nothing_else),
		AGENT_TEST(garbage_costs_its_own_connection_alone),
		AGENT_TEST(random_bytes_never_stop_the_agent),
		AGENT_TEST(a_registration_outlives_its_socket_and_is_idempotent),
		AGENT_TEST(an_address_of_zero_gets_status_2),
		AGENT_TEST(a_process_touches_only_its_own_and_its_end_frees_them),
		AGENT_TEST(a_reused_pid_is_another_process),
		AGENT_TEST(peers_of_another_pid_namespace_live_as_long_as_their_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
