/* SPDX-License-Identifier: Apache-2.0 */
/* hold [--stuck] SOURCE DESTINATION: a client of the agent that registers one flow and stays. With
 * --stuck it then passes a file whose close never comes back, which the agent has to put away. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

static int pass_stuck_file(int fd)
{
	struct mpib_msg_counters message = {
		{ MPIB_MSG_MAGIC, sizeof(message), MPIB_MSG_COUNTERS, 0 }, 4096
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
	pid_t server;
	int files[2];
	int r = badfs_open(BADFS_FLUSH, files, &server);

	if (r < 0) {
		(void)fprintf(stderr, "hold: no file system of its own: %s\n", strerror(-r));
		return -1;
	}
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = msg.msg_controllen;
	memcpy(CMSG_DATA(&control.header), &files[0], sizeof(files[0]));
	return sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(message) ? 0 : -1;
}

int main(int argc, char *argv[])
{
	int stuck = argc == 4 && strcmp(argv[1], "--stuck") == 0;
	int fd;

	if (argc != 3 + stuck) {
		(void)fprintf(stderr, "usage: hold [--stuck] SOURCE DESTINATION\n");
		return 2;
	}
	fd = agent_socket();
	if (fd < 0 || hold_flow(fd, argv[1 + stuck], argv[2 + stuck]) < 0)
		return 1;
	if (stuck && pass_stuck_file(fd) < 0)
		return 1;
	for (;;)
		(void)pause();
}
