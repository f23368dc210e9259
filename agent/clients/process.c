/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

/* A file of /proc/PID. The caller closes it. */
static int open_proc(pid_t pid, const char *name)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	return fd;
}

/* Reads a small file as text. */
static int read_text(int fd, char *buf, size_t size)
{
	ssize_t n = read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

/* Fields of /proc/PID/stat, see proc_pid_stat(5). */
#define STAT_STATE	3u
#define STAT_START_TIME 22u

int mpib_process_parse_stat(const char *text, uint64_t *ret_start_time)
{
	const char *p = strrchr(text, ')');
	char *end;

	if (!p)
		return -EBADMSG;

	/* Behind the name: a blank and the state. */
	for (unsigned int field = STAT_STATE; field <= STAT_START_TIME; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return -EBADMSG;
	}

	errno = 0;
	*ret_start_time = strtoull(p + 1, &end, 10);
	return errno || end == p + 1 || *end != ' ' ? -EBADMSG : 0;
}

/* 1 where @uid is one of the four user ids of the process, 0 where it is none of them, a negative
 * errno where that can't be looked up. @stat_fd is its /proc/PID/stat. */
static int has_uid(pid_t pid, int stat_fd, uid_t uid)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	unsigned int ids[4];
	char text[2048];
	const char *line;
	struct stat st;
	int r;

	/* The file is owned by the effective user id, unless the process hides from its user. */
	if (fstat(stat_fd, &st) == 0 && st.st_uid == uid && uid != 0)
		return 1;

	fd = open_proc(pid, "status");
	if (fd < 0)
		return fd;
	r = read_text(fd, text, sizeof(text));
	if (r < 0)
		return r;

	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
		return -EBADMSG;

	return ids[0] == uid || ids[1] == uid || ids[2] == uid || ids[3] == uid;
}

bool mpib_process_alive(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

bool mpib_process_exists(pid_t pid)
{
	mpib_cleanup(mpib_closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	return pidfd >= 0 ? mpib_process_alive(pidfd) : errno != ESRCH;
}

int mpib_process_open(pid_t pid, uid_t uid, int *ret_pidfd, uint64_t *ret_start_time)
{
	mpib_cleanup(mpib_closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	mpib_cleanup(mpib_closep) int stat_fd = -1;
	uint64_t start_time;
	char text[1024];
	int same_user;
	int r;

	if (pidfd < 0)
		return -errno;

	stat_fd = open_proc(pid, "stat");
	if (stat_fd < 0)
		return stat_fd;
	r = read_text(stat_fd, text, sizeof(text));
	if (r >= 0)
		r = mpib_process_parse_stat(text, &start_time);
	if (r < 0)
		return r;
	same_user = uid == MPIB_UID_ANY || has_uid(pid, stat_fd, uid);

	/* Alive after the last look: the pid was this pidfd's process all the while. */
	if (!mpib_process_alive(pidfd))
		return -ESRCH;
	if (same_user < 0)
		return same_user;
	if (!same_user)
		return -EPERM;

	*ret_pidfd = mpib_steal_fd(&pidfd);
	*ret_start_time = start_time;
	return 0;
}
