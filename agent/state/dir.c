/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/state/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "agent/state/holder.h"
#include "common/cleanup.h"

#define LOCK_NAME "lock"

/* What is wrong with a name, unless a living agent has it: then that one is in the way, and nothing
 * is to be removed. */
static int in_the_way(const char *dir, int error, struct mpib_cause *cause)
{
	pid_t pid;

	if (!mpib_holder_find(dir, &pid))
		return error;
	if (pid)
		return mpib_cause_set(cause, -EBUSY,
				      "another mpib-agentd (pid %ld) serves %s; stop it first, or "
				      "use --dir",
				      (long)pid, dir);
	return mpib_cause_set(cause, -EBUSY,
			      "another mpib-agentd serves %s; stop it first, or use --dir", dir);
}

static int check_dir(int fd, const char *path, struct mpib_cause *cause)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return mpib_cause_set(cause, -errno, "can't look at directory %s: %s", path,
				      strerror(errno));
	if (st.st_uid != geteuid())
		return mpib_cause_set(cause, -EPERM,
				      "directory %s belongs to uid %u, not to this agent's uid %u; "
				      "remove it (or use --dir) and start again",
				      path, st.st_uid, geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return mpib_cause_set(cause, -EPERM,
				      "directory %s has mode %04o: others may write it, so nothing "
				      "in it can be trusted; remove it and start again",
				      path, st.st_mode & 07777);
	return 0;
}

int mpib_dir_open(const char *path, int *ret_fd, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	int r;

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return mpib_cause_set(cause, -errno, "can't make directory %s: %s", path,
				      strerror(errno));

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		struct stat st;

		r = -errno;
		if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
			return in_the_way(
				path,
				mpib_cause_set(cause, -ELOOP,
					       "%s is a symbolic link, which anybody may have "
					       "planted; remove it and start again",
					       path),
				cause);
		return mpib_cause_set(cause, r, "can't open directory %s: %s", path, strerror(-r));
	}

	r = check_dir(fd, path, cause);
	if (r < 0)
		return in_the_way(path, r, cause);

	/* A umask, or a hand, may have taken what other users' jobs need: to look in. */
	if (fchmod(fd, 0755) < 0)
		return mpib_cause_set(cause, -errno, "can't set the mode of %s: %s", path,
				      strerror(errno));

	*ret_fd = mpib_steal_fd(&fd);
	return 0;
}

int mpib_dir_check_file(const struct stat *st, const char *dir, const char *name,
			struct mpib_cause *cause)
{
	if (!S_ISREG(st->st_mode) || st->st_nlink != 1)
		return mpib_cause_set(cause, -EPERM,
				      "%s/%s is not a plain file with one name; remove it and "
				      "start again",
				      dir, name);
	if (st->st_uid != geteuid() || st->st_mode & (S_IWGRP | S_IWOTH))
		return mpib_cause_set(cause, -EPERM,
				      "%s/%s (uid %u, mode %04o) may be written by others; remove "
				      "it and start again",
				      dir, name, st->st_uid, st->st_mode & 07777);
	return 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool mpib_dir_is(const char *path, int dir_fd)
{
	struct stat named;
	struct stat open;

	return lstat(path, &named) == 0 && fstat(dir_fd, &open) == 0 && same_file(&named, &open);
}

bool mpib_dir_has_lock(int dir_fd, int lock_fd)
{
	struct stat named;
	struct stat open;

	return fstatat(dir_fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(lock_fd, &open) == 0 && same_file(&named, &open);
}

/* The holder's pid, for the message alone: what counts is the lock. */
static long read_holder(int fd)
{
	char text[32] = { 0 };

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

int mpib_dir_lock(int dir_fd, const char *path, int *ret_fd, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	char text[32];
	struct stat st;
	int len;
	int r;

	fd = openat(dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
		    0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return mpib_cause_set(cause, -errno, "can't open %s/" LOCK_NAME ": %s", path,
				      strerror(errno));

	r = mpib_dir_check_file(&st, path, LOCK_NAME, cause);
	if (r < 0)
		return in_the_way(path, r, cause);

	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return mpib_cause_set(cause, -errno, "can't lock %s/" LOCK_NAME ": %s",
					      path, strerror(errno));
		return mpib_cause_set(cause, -EBUSY,
				      "another mpib-agentd (pid %ld) serves %s; stop it first",
				      read_holder(fd), path);
	}

	/* Best effort: on a full file system the lock holds all the same. */
	len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) < 0)
		(void)fchmod(fd, 0600);

	*ret_fd = mpib_steal_fd(&fd);
	return 0;
}
