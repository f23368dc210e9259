/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/agent/test.h"

struct mpib_counters_header *counters_make(size_t size, int seals, int *ret_fd)
{
	struct mpib_counters_header *header;
	int fd = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(header != MAP_FAILED);
	header->version = MPIB_COUNTERS_VERSION;
	header->entries = (uint32_t)((size - sizeof(*header)) / sizeof(struct mpib_counter_entry));
	header->entry_size = sizeof(struct mpib_counter_entry);
	header->magic = MPIB_COUNTERS_MAGIC;
	*ret_fd = fd;
	return header;
}

struct mpib_counter_entry *counters_entry(struct mpib_counters_header *header, uint32_t n)
{
	return (struct mpib_counter_entry *)(void *)(header + 1) + n;
}

uint8_t counters_hand_over(int socket, int fd, unsigned int n_fds, uint32_t size)
{
	struct mpib_msg_counters message = {
		{ MPIB_MSG_MAGIC, sizeof(message), MPIB_MSG_COUNTERS, 0 }, size
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = { { 0 } };
	struct iovec part = { &message, sizeof(message) };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };
	struct answer answer;

	if (n_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_LEN(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = msg.msg_controllen;
		for (unsigned int n = 0; n < n_fds; n++)
			memcpy(CMSG_DATA(&control.header) + n * sizeof(int), &fd, sizeof(int));
	}
	assert_int_equal(sendmsg(socket, &msg, MSG_NOSIGNAL), sizeof(message));
	answer = answer_read(socket, MPIB_MSG_COUNTERS);
	return answer.ok ? answer.status : 255;
}

void counters_await_flows(const struct agent *agent, const char *part)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	uint64_t end = harness_now_ms() + 5000;
	char *out;

	for (;;) {
		out = agent_ctl_words(agent, 0, "--json", "flows", NULL);
		if (strstr(out, part) || harness_now_ms() >= end)
			break;
		free(out);
		(void)nanosleep(&pause, NULL); /* samples come once a second */
	}
	harness_expect(out, part);
}
