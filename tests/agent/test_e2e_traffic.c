/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: counters that a process hands over, good ones and bad ones. */
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/agent/harness/counters.h"
#include "tests/agent/harness/fresh.h"

static unsigned int count_fds(pid_t pid)
{
	unsigned int count = 0;

	for (unsigned int n = 0; n < 256; n++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "/proc/%ld/fd/%u", (long)pid, n);
		count += faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	}
	return count;
}

static void bytes_and_rates_a_rail_are_shown(void **state)
{
	struct mpib_counters_header *header;
	struct mpib_counter_entry *send;
	struct mpib_counter_entry *recv;
	int fd;
	int socket;

	(void)state;
	agent_start(&agent);
	header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK | F_SEAL_GROW, &fd);
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 77, 1, 2).slot, 0);
	assert_int_equal(agent_register(socket, 78, 1, 2).slot, 0);
	assert_int_equal(agent_register(socket, 79, 1, 3).slot, 1);
	assert_int_equal(counters_hand_over(socket, fd, 1, MPIB_COUNTERS_SIZE), MPIB_STATUS_OK);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"last_byte_usec\": 0");

	send = counters_entry(header, 3);
	recv = counters_entry(header, 4000);
	*send = (struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND, .conn_id = 77 };
	*recv = (struct mpib_counter_entry){ .kind = MPIB_COUNTER_RECV, .conn_id = 78 };
	send->rail[0].bytes = 1000;
	send->rail[1].bytes = 3000;
	recv->rail[1].bytes = 70000000;
	send->state = recv->state = MPIB_COUNTER_LIVE;
	counters_await_flows(&agent, "\"sout_bytes\": 1000, \"sup_bytes\": 70003000, ");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"sup_received\": 70000000, ");
	/* sent bytes beside the share that governs them, received ones apart */
	harness_expect(
		agent_ctl_words(&agent, 0, "flows", NULL),
		"FLOW             SHARE  RAILS  RULE   TX-SOUT  TX-SUP  RX-SOUT  RX-SUP  CONNS");
	harness_expect(
		agent_ctl_words(&agent, 0, "flows", NULL),
		"1.0.0.0-2.0.0.0   0.0%  -      inter    1.0kB   3.0kB       0B  70.0MB      2 ");
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "\ntotal 2                                 1.0kB   3.0kB       0B  70.0MB   "
		       "   3\n");
	harness_expect(agent_ctl_words(&agent, 0, "metrics", NULL),
		       "mpib_flow_bytes_total{flow=\"1.0.0.0-2.0.0.0\",rail=\"sup\",direction="
		       "\"received\"}"
		       " 70000000\n");
	/* nothing moves any more: the rate goes to 0, the bytes stay, also those of a new entry
	 * for the connection */
	counters_await_flows(
		&agent, "\"sout_sent\": 1000, \"sout_sent_rate\": 0, \"sup_sent\": 3000, "
			"\"sup_sent_rate\": 0, \"sout_received\": 0, \"sout_received_rate\": 0, "
			"\"sup_received\": 70000000, \"sup_received_rate\": 0, \"rate\": 0, ");
	send->rail[0].bytes = 5;
	counters_await_flows(&agent, "\"sout_bytes\": 1005");
	/* the last bytes count when the connection goes */
	send->rail[0].bytes = 1000005;
	assert_int_equal(agent_deregister(socket, 77).status, MPIB_STATUS_OK);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"sout_bytes\": 1001005");
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL), "  1.0MB ");
	harness_expect(agent_ctl_words(&agent, 0, "--count", "2", "top", NULL), "TX-SUP%  TX-SOUT");
	(void)close(fd);
	(void)close(socket);
}

/* Device-initiated communication: what a mesh put is part of what the flow sent, and told apart. */
static void meshes_are_told_from_connections(void **state)
{
	struct mpib_counters_header *header;
	struct mpib_counter_entry *mesh;
	int fd;
	int socket;
	char *out;

	(void)state;
	agent_start(&agent);
	header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK | F_SEAL_GROW, &fd);
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 77, 1, 2).slot, 0);
	assert_int_equal(agent_register(socket, 78, 1, 2).slot, 0);
	assert_int_equal(agent_register(socket, 79, 1, 3).slot, 1);
	assert_int_equal(counters_hand_over(socket, fd, 1, MPIB_COUNTERS_SIZE), MPIB_STATUS_OK);
	*counters_entry(header, 1) =
		(struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND, .conn_id = 77 };
	counters_entry(header, 1)->rail[0].bytes = 100;
	counters_entry(header, 1)->rail[0].requests = 9;
	counters_entry(header, 1)->state = MPIB_COUNTER_LIVE;
	counters_await_flows(&agent, "\"sout_sent\": 100, ");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"kind\": \"net\", \"gin_connections\": 0, \"sout_puts\": 0, ");
	assert_null(strstr(out = agent_ctl_words(&agent, 0, "metrics", NULL), "flow_puts_total{"));
	free(out);

	for (uint32_t n = 0; n < 2; n++) {
		mesh = counters_entry(header, 2 + n);
		*mesh = (struct mpib_counter_entry){ .kind = MPIB_COUNTER_GIN, .conn_id = 78 + n };
		mesh->rail[0].bytes = 1000;
		mesh->rail[0].requests = 3;
		mesh->rail[1].bytes = 70000 * n;
		mesh->rail[1].requests = n;
		mesh->rail[1].cts = 55 * n;
		mesh->state = MPIB_COUNTER_LIVE;
	}
	counters_await_flows(&agent, "\"kind\": \"gin\", \"gin_connections\": 1, \"sout_puts\": 3, "
				     "\"sup_puts\": 1, \"sout_put_bytes\": 1000, "
				     "\"sup_put_bytes\": 70000");
	out = agent_ctl_words(&agent, 0, "--json", "flows", NULL);
	harness_expect(strdup(out),
		       "\"kind\": \"net+gin\", \"gin_connections\": 1, \"sout_puts\": 3, "
		       "\"sup_puts\": 0, \"sout_put_bytes\": 1000, \"sup_put_bytes\": 0");
	harness_expect(strdup(out), "\"sout_sent\": 1100, ");
	harness_expect(out, "\"sup_received\": 55, ");
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL), "CONNS  KIND");
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL), "  2  net+gin  ");
	harness_expect(agent_ctl_words(&agent, 0, "explain", "1.0.0.0-3.0.0.0", NULL), "gin");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "explain", "1.0.0.0-2.0.0.0", NULL),
		       "\"kind\": \"net+gin\", \"gin_connections\": 1, \"sout_puts\": 3, ");
	out = agent_ctl_words(&agent, 0, "metrics", NULL);
	harness_expect(strdup(out),
		       "mpib_flow_puts_total{flow=\"1.0.0.0-3.0.0.0\",rail=\"sup\"} 1\n");
	harness_expect(strdup(out),
		       "mpib_flow_put_bytes_total{flow=\"1.0.0.0-2.0.0.0\",rail=\"sout\"} 1000\n");
	harness_expect(out, "mpib_flow_gin_connections{flow=\"1.0.0.0-3.0.0.0\"} 1\n");

	/* one that ends takes its last puts along, and no mesh is left */
	counters_entry(header, 2)->rail[0].requests = 8;
	assert_int_equal(agent_deregister(socket, 78).status, MPIB_STATUS_OK);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"kind\": \"net\", \"gin_connections\": 0, \"sout_puts\": 8, ");
	assert_int_equal(agent_log_count(&agent, "deregistered: GIN connection 0x0000004e of pid"),
			 1);
	(void)close(fd);
	(void)close(socket);
}

static void others_flows_are_not_touched(void **state)
{
	struct mpib_counters_header *header;
	int socket;
	int fd;

	(void)state;
	agent_start(&agent);
	header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK, &fd);
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 1, 1, 2).slot, 0);
	counters_entry(header, 0)->conn_id = 2; /* nobody's, or another process's */
	counters_entry(header, 0)->kind = MPIB_COUNTER_SEND;
	counters_entry(header, 0)->rail[0].bytes = 9;
	counters_entry(header, 0)->state = MPIB_COUNTER_LIVE;
	counters_entry(header, 1)->conn_id = 1;
	counters_entry(header, 1)->kind = 99;
	counters_entry(header, 1)->rail[0].bytes = 9;
	counters_entry(header, 1)->state = MPIB_COUNTER_LIVE;
	assert_int_equal(counters_hand_over(socket, fd, 1, MPIB_COUNTERS_SIZE), MPIB_STATUS_OK);
	assert_int_equal(agent_deregister(socket, 1).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(socket, 2, 1, 2).slot, 0);
	counters_await_flows(&agent, "\"sout_bytes\": 9");
	/* what the header says later is not believed */
	header->entries = UINT32_MAX;
	header->entry_size = 1;
	counters_await_flows(&agent, "\"sout_bytes\": 9");
	(void)close(socket);
	(void)close(fd);
}

static void bad_tables_are_refused(void **state)
{
	const uint32_t size = MPIB_COUNTERS_SIZE;
	struct mpib_counters_header *header;
	unsigned int fds;
	int socket;
	int fd;

	(void)state;
	agent_start(&agent);
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 1, 1, 2).slot, 0);
	fds = count_fds(agent.pid);

	assert_int_equal(counters_hand_over(socket, -1, 0, size), MPIB_STATUS_INVALID); /* none */
	header = counters_make(size, F_SEAL_GROW, &fd); /* can shrink */
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	(void)close(fd);
	(void)munmap(header, size);

	header = counters_make(size, F_SEAL_SHRINK, &fd);
	assert_int_equal(counters_hand_over(socket, fd, 1, size + 1), MPIB_STATUS_INVALID);
	assert_int_equal(counters_hand_over(socket, fd, 1, 63), MPIB_STATUS_INVALID);
	assert_int_equal(counters_hand_over(socket, fd, 1, 64),
			 MPIB_STATUS_INVALID); /* entries don't fit */
	assert_int_equal(counters_hand_over(socket, fd, 1, UINT32_MAX), MPIB_STATUS_INVALID);
	header->magic++;
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	header->magic--;
	header->version++;
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	header->version--;
	header->entry_size = 0;
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	header->entry_size = sizeof(struct mpib_counter_entry) + 4;
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	header->entry_size = sizeof(struct mpib_counter_entry);
	/* more descriptors than one: the kernel closes what the agent has no room for */
	assert_int_equal(counters_hand_over(socket, fd, 8, size), MPIB_STATUS_OK);
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_OK); /* again */
	(void)close(fd);
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	assert_int_equal(counters_hand_over(socket, fd, 1, size), MPIB_STATUS_INVALID);
	(void)close(fd);
	assert_int_equal(count_fds(agent.pid), fds);
	assert_int_equal(agent_deregister(socket, 1).status, MPIB_STATUS_OK);
	(void)close(socket);
}

static void a_descriptor_that_nobody_asked_for_is_closed(void **state)
{
	struct mpib_msg_header status = { MPIB_MSG_MAGIC, sizeof(status), 200, 0 };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { { 0 } };
	struct iovec part = { &status, sizeof(status) };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = CMSG_LEN(sizeof(int)) };
	unsigned int fds;
	int socket;

	(void)state;
	agent_start(&agent);
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 1, 1, 2).slot, 0);
	fds = count_fds(agent.pid);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = msg.msg_controllen;
	memcpy(CMSG_DATA(&control.header), &agent.notify_fd, sizeof(int));
	for (unsigned int n = 0; n < 100; n++) {
		assert_int_equal(sendmsg(socket, &msg, MSG_NOSIGNAL), sizeof(status));
		assert_int_equal(answer_read(socket, 200).status, MPIB_STATUS_INVALID);
	}
	assert_true(count_fds(agent.pid) <= fds + 1);
	(void)close(socket);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(bytes_and_rates_a_rail_are_shown),
		AGENT_TEST(meshes_are_told_from_connections),
		AGENT_TEST(others_flows_are_not_touched),
		AGENT_TEST(bad_tables_are_refused),
		AGENT_TEST(a_descriptor_that_nobody_asked_for_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
