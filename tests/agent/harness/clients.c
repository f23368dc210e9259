/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/harness.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include "common/hint.h"

int agent_connect(const struct agent *agent)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval bound = { .tv_sec = 10 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", agent->dir);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound)) < 0 ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int r = -errno;

		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	return fd;
}

struct answer answer_read(int fd, uint8_t request_type)
{
	struct answer answer = { 0 };
	struct mpib_wire_msg msg;
	uint8_t buf[16];
	size_t len = request_type == MPIB_MSG_REGISTER ? 16 : 12;

	if (recv(fd, buf, len, MSG_WAITALL) != (ssize_t)len ||
	    mpib_wire_decode_response(buf, len, request_type, &msg) < 0)
		return answer;

	answer.ok = true;
	answer.status = msg.status;
	answer.slot = msg.hint_slot;
	return answer;
}

static struct answer ask(int fd, const struct mpib_wire_msg *msg)
{
	uint8_t buf[32];
	int len = mpib_wire_encode_request(buf, sizeof(buf), msg);

	if (len < 0 || send(fd, buf, (size_t)len, MSG_NOSIGNAL) != len)
		return (struct answer){ 0 };
	return answer_read(fd, msg->type);
}

struct answer agent_register(int fd, uint32_t conn_id, uint32_t src, uint32_t dst)
{
	struct mpib_wire_msg msg = {
		.type = MPIB_MSG_REGISTER,
		.conn_id = conn_id,
		.sout_src_be = src,
		.sout_dst_be = dst,
		.sup_src_be = src,
		.sup_dst_be = dst,
	};

	return ask(fd, &msg);
}

struct answer agent_deregister(int fd, uint32_t conn_id)
{
	struct mpib_wire_msg msg = { .type = MPIB_MSG_DEREGISTER, .conn_id = conn_id };

	return ask(fd, &msg);
}

struct answer agent_register_once(const struct agent *agent, uint32_t conn_id, uint32_t src,
				  uint32_t dst)
{
	int fd = agent_connect(agent);
	struct answer answer = { 0 };

	if (fd >= 0) {
		answer = agent_register(fd, conn_id, src, dst);
		(void)close(fd);
	}
	return answer;
}

struct answer agent_deregister_once(const struct agent *agent, uint32_t conn_id)
{
	int fd = agent_connect(agent);
	struct answer answer = { 0 };

	if (fd >= 0) {
		answer = agent_deregister(fd, conn_id);
		(void)close(fd);
	}
	return answer;
}

/* ---- the table ------------------------------------------------------------------------------ */

const struct mpib_hint_header *agent_map_hints(const struct agent *agent)
{
	char path[TEMPDIR_MAX + 32];
	struct stat st;
	void *map;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/hints", agent->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(close(fd), 0);
	return map;
}

const struct mpib_hint_entry *agent_entry(const struct mpib_hint_header *header, uint32_t slot)
{
	assert_true(slot < header->max_entries);
	return (const struct mpib_hint_entry *)(const void *)(header + 1) + slot;
}

uint32_t agent_count_flows(const struct mpib_hint_header *header)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < header->max_entries; slot++)
		count += mpib_hint_load(&agent_entry(header, slot)->src_ip) != 0;
	return count;
}

bool agent_await_flows(const struct mpib_hint_header *header, uint32_t want, unsigned int limit_ms)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + limit_ms;

	/* Shared memory has no event to wait for: look each millisecond. */
	while (agent_count_flows(header) != want) {
		if (harness_now_ms() >= end)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}
