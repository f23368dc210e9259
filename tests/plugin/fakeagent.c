/* SPDX-License-Identifier: Apache-2.0 */
/* An agent that misbehaves on purpose: fakeagent DIR KIND. Its hint table is right; what it answers
 * to a registration is told by KIND:
 *   silent   nothing, ever       close    half an answer, then the end
 *   magic    a wrong magic       bytes    the right answer, byte by byte
 *   other    an answer to another kind of request
 *   slot     a slot that the table doesn't have
 *   invalid  status "invalid request" */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/hint.h"
#include "common/wire.h"

#define SLOTS 16

static int make_table(const char *dir)
{
	struct mpib_hint_header header = { .magic = MPIB_HINT_MAGIC, .max_entries = SLOTS };
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, MPIB_HINTS_NAME);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)MPIB_HINTS_SIZE(SLOTS)) < 0 ||
	    write(fd, &header, sizeof(header)) != sizeof(header))
		return -1;
	return close(fd);
}

static int make_socket(const char *dir)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir, MPIB_SOCKET_NAME);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(fd, 8) < 0)
		return -1;
	return fd;
}

/* False where the connection is to be closed. */
static int answer(int fd, const char *kind, uint8_t type)
{
	uint8_t buf[64];
	uint8_t status = strcmp(kind, "invalid") == 0 ? MPIB_STATUS_INVALID : MPIB_STATUS_OK;
	uint32_t slot = strcmp(kind, "slot") == 0 ? SLOTS : 0;
	int len;

	if (strcmp(kind, "silent") == 0)
		return 1;
	if (strcmp(kind, "other") == 0)
		type = type == MPIB_MSG_REGISTER ? MPIB_MSG_DEREGISTER : MPIB_MSG_REGISTER;
	len = mpib_wire_encode_response(buf, sizeof(buf), type, status, status ? 0 : slot);
	if (len < 0)
		return 0;
	if (strcmp(kind, "magic") == 0)
		buf[0] ^= 0xff;
	if (strcmp(kind, "close") == 0) {
		(void)send(fd, buf, (size_t)len / 2, MSG_NOSIGNAL);
		return 0;
	}
	if (strcmp(kind, "bytes") != 0)
		return send(fd, buf, (size_t)len, MSG_NOSIGNAL) == len;
	for (int k = 0; k < len; k++) {
		if (send(fd, buf + k, 1, MSG_NOSIGNAL) != 1)
			return 0;
		(void)poll(NULL, 0, 20);
	}
	return 1;
}

static void serve(int fd, const char *kind)
{
	uint8_t buf[256];
	size_t have = 0, len;

	for (;;) {
		ssize_t n = recv(fd, buf + have, sizeof(buf) - have, 0);

		if (n <= 0)
			return;
		have += (size_t)n;
		while (mpib_wire_frame(buf, have, &len) == 1) {
			if (!answer(fd, kind, buf[6]))
				return;
			memmove(buf, buf + len, have - len);
			have -= len;
		}
	}
}

int main(int argc, char **argv)
{
	int listener;

	if (argc != 3) {
		(void)fprintf(stderr, "usage: fakeagent DIR KIND\n");
		return 2;
	}
	if (make_table(argv[1]) < 0) {
		perror(argv[1]);
		return 1;
	}
	listener = make_socket(argv[1]);
	if (listener < 0) {
		perror("socket");
		return 1;
	}
	(void)printf("ready\n");
	(void)fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			return 1;
		serve(fd, argv[2]);
		(void)close(fd);
	}
}
