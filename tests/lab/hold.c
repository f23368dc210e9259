/* SPDX-License-Identifier: Apache-2.0 */
/* hold [--stuck | --rail] SOURCE DESTINATION: a client of the agent that registers one flow and
 * stays. With --stuck it then passes a file whose close never comes back, which the agent has to
 * put away; with --rail a counter table that says of SUP that it is lost, and after three seconds
 * that it is back. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/counters.h"
#include "common/mpib_agent_iface.h"
#include "tests/agent/harness/badfs.h"

static int agent_socket(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock",
		       MPIB_AGENT_DIR_DEFAULT);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;

	(void)fprintf(stderr, "hold: %s: %s\n", address.sun_path, strerror(errno));
	return -1;
}

static int hold_flow(int fd, const char *source, const char *destination)
{
	struct mpib_msg_register message = {
		.header = { MPIB_MSG_MAGIC, sizeof(message), MPIB_MSG_REGISTER, 0 },
		.conn_id = 1,
		.sout_src_ip = inet_addr(source),
		.sout_dst_ip = inet_addr(destination),
	};
	struct mpib_msg_register_response answer;

	if (send(fd, &message, sizeof(message), MSG_NOSIGNAL) != (ssize_t)sizeof(message) ||
	    recv(fd, &answer, sizeof(answer), MSG_WAITALL) != (ssize_t)sizeof(answer) ||
	    answer.status != MPIB_STATUS_OK) {
		(void)fprintf(stderr, "hold: the agent refused the flow\n");
		return -1;
	}
	return 0;
}

static int pass(int fd, int file, uint32_t size)
{
	struct mpib_msg_counters message = {
		{ MPIB_MSG_MAGIC, sizeof(message), MPIB_MSG_COUNTERS, 0 }, size
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { { 0 } };
	struct iovec part = { &message, sizeof(message) };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = CMSG_LEN(sizeof(int)) };

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = msg.msg_controllen;
	memcpy(CMSG_DATA(&control.header), &file, sizeof(file));
	return sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(message) ? 0 : -1;
}

static int pass_stuck_file(int fd)
{
	pid_t server;
	int files[2];
	int r = badfs_open(BADFS_FLUSH, -1, files, &server);

	if (r < 0) {
		(void)fprintf(stderr, "hold: no file system of its own: %s\n", strerror(-r));
		return -1;
	}
	return pass(fd, files[0], 4096);
}

static int lose_rail(int fd)
{
	const uint32_t size =
		sizeof(struct mpib_counters_header) + sizeof(struct mpib_counter_entry);
	int file = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct mpib_counters_header *header = MAP_FAILED;
	struct mpib_counter_entry *entry;

	if (file >= 0 && ftruncate(file, size) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (header == MAP_FAILED) {
		(void)fprintf(stderr, "hold: no counter table: %s\n", strerror(errno));
		return -1;
	}

	*header = (struct mpib_counters_header){ .magic = MPIB_COUNTERS_MAGIC,
						 .version = MPIB_COUNTERS_VERSION,
						 .entries = 1,
						 .entry_size = sizeof(*entry),
						 .features = MPIB_COUNTERS_HAVE_FAILOVER };
	entry = (void *)(header + 1);
	*entry = (struct mpib_counter_entry){ .state = MPIB_COUNTER_LIVE,
					      .kind = MPIB_COUNTER_SEND,
					      .conn_id = 1,
					      .rails_up = 1,
					      .losses = { 0, 1 } };
	if (pass(fd, file, size) < 0)
		return -1;
	(void)sleep(3);
	entry->returns[1] = 1;
	entry->rails_up = 3;
	return 0;
}

int main(int argc, char *argv[])
{
	int stuck = argc == 4 && strcmp(argv[1], "--stuck") == 0;
	int rail = argc == 4 && strcmp(argv[1], "--rail") == 0;
	int fd;

	if (argc != 3 + stuck + rail) {
		(void)fprintf(stderr, "usage: hold [--stuck | --rail] SOURCE DESTINATION\n");
		return 2;
	}
	fd = agent_socket();
	if (fd < 0 || hold_flow(fd, argv[argc - 2], argv[argc - 1]) < 0)
		return 1;
	if ((stuck && pass_stuck_file(fd) < 0) || (rail && lose_rail(fd) < 0))
		return 1;
	for (;;)
		(void)pause();
}
