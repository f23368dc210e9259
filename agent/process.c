/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

/* Reads a small file of /proc/PID into @buf as text. */
static int read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];
	mpib_cleanup(mpib_closep) int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;

	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

int mpib_process_parse_stat(const char *text, uint64_t *ret_start_time)
{
	const char *p = strrchr(text, ')');
	char *end;

	if (!p)
		return -EBADMSG;

	/* Behind the name: a blank and field 3. */
	for (unsigned int field = 3; field <= 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return -EBADMSG;
	}

	errno = 0;
	*ret_start_time = strtoull(p + 1, &end, 10);
	return errno || end == p + 1 || *end != ' ' ? -EBADMSG : 0;
}

static int read_start_time(pid_t pid, uint64_t *ret)
{
	char text[1024];
	int r = read_proc(pid, "stat", text, sizeof(text));

	return r < 0 ? r : mpib_process_parse_stat(text, ret);
}

/* True where @uid is one of the four user ids of the process. */
static bool has_uid(pid_t pid, uid_t uid)
{
	unsigned int ids[4];
	char text[2048];
	const char *line;

	if (read_proc(pid, "status", text, sizeof(text)) < 0)
		return false;

	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
		return false;

	return ids[0] == uid || ids[1] == uid || ids[2] == uid || ids[3] == uid;
}

bool mpib_process_alive(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

int mpib_process_open(pid_t pid, uid_t uid, int *ret_pidfd, uint64_t *ret_start_time)
{
	mpib_cleanup(mpib_closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	uint64_t start_time;
	uint64_t again;
	int r;

	if (pidfd < 0)
		return -errno;

	r = read_start_time(pid, &start_time);
	if (r < 0)
		return r;
	if (uid != MPIB_UID_ANY && !has_uid(pid, uid))
		return mpib_process_alive(pidfd) ? -EPERM : -ESRCH;

	r = read_start_time(pid, &again);
	if (r < 0)
		return r;

	/* Alive after the last look: all three were at the process of this pidfd. */
	if (again != start_time || !mpib_process_alive(pidfd))
		return -ESRCH;

	*ret_pidfd = mpib_steal_fd(&pidfd);
	*ret_start_time = start_time;
	return 0;
}
