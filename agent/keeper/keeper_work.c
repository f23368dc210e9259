/* SPDX-License-Identifier: Apache-2.0 */
/* A child of the keeper: the only process that has clients' descriptors. It may sleep for ever. */
#include "agent/keeper/keeper_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A sleep that a signal can end is ended so often. */
#define WAKE_USEC 100000

/* ---- descriptors ---------------------------------------------------------------------------- */

/* A memfd whose size is fixed and not large. Only a memfd can have the seal; to ask for it doesn't
 * sleep, whatever else the descriptor is. A client that left its table free to grow loses that. */
static bool is_table(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return false;
	if (!(seals & F_SEAL_GROW) && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) < 0)
		return false;
	/* Huge pages that run out would kill who reads them. */
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return false;
	return st.st_size <= MPIB_KEEPER_TABLE_MAX;
}

static void dispose(int fd)
{
	const struct linger off = { 0 };

	/* A socket shall not wait for its peer; other files don't know this. */
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
	(void)close(fd);
}

/* ---- work ----------------------------------------------------------------------------------- */

struct catch
{
	uint8_t bytes[MPIB_KEEPER_ROOM];
	int fds[MPIB_KEEPER_FDS];
	uint32_t n_fds;
};

/* Reads with all descriptors that come: bytes, or a negative errno. */
static ssize_t read_all(int fd, size_t room, struct catch *ret)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(MPIB_KEEPER_FDS * sizeof(int))];
	} control;
	struct iovec part = { .iov_base = ret->bytes, .iov_len = room };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	const struct cmsghdr *header;
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	ret->n_fds = 0;
	if (n < 0)
		return -errno;

	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
		ret->n_fds = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(ret->fds, CMSG_DATA(header), ret->n_fds * sizeof(int));
	}
	return n;
}

static void fetch(int channel, const struct mpib_keeper_job *job, struct catch *catch)
{
	struct mpib_keeper_message answer = {
		.type = MPIB_KEEPER_FETCHED,
		.id = job->id,
		.serial = job->serial,
	};
	struct iovec parts[2] = {
		{ .iov_base = &answer, .iov_len = sizeof(answer) },
		{ .iov_base = catch->bytes },
	};
	int table = -1;

	answer.n = (int32_t)read_all(job->fd, job->room, catch);
	answer.n_fds = catch->n_fds;
	for (uint32_t n = 0; n < catch->n_fds && table < 0; n++) {
		if (is_table(catch->fds[n]))
			table = catch->fds[n];
	}

	/* The answer first: it may be the last thing that this process does. */
	parts[1].iov_len = answer.n > 0 ? (size_t)answer.n : 0;
	(void)mpib_keeper_send(channel, parts, 2, &table, table >= 0, 0);
	for (uint32_t n = 0; n < catch->n_fds; n++)
		dispose(catch->fds[n]);
}

/* Empties a socket that was shut down; whoever closes it afterwards closes nothing else. */
static void empty(int fd, struct catch *catch)
{
	while (read_all(fd, sizeof(catch->bytes), catch) > 0) {
		for (uint32_t n = 0; n < catch->n_fds; n++)
			dispose(catch->fds[n]);
	}
}

static void drop(int fd, struct catch *catch)
{
	int listening = 0;
	socklen_t len = sizeof(listening);
	int queued;

	(void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
	while (listening && (queued = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		(void)shutdown(queued, SHUT_RDWR);
		(void)setsockopt(queued, SOL_SOCKET, SO_OOBINLINE, &listening, len);
		empty(queued, catch);
		(void)close(queued);
	}
	empty(fd, catch);
	(void)close(fd);
}

static void on_alarm(int number)
{
	(void)number;
}

void mpib_keeper_work(int channel, const struct mpib_keeper_jobs *jobs)
{
	const struct sigaction wake = { .sa_handler = on_alarm };
	const struct itimerval often = { { 0, WAKE_USEC }, { 0, WAKE_USEC } };
	const struct mpib_keeper_job *job;
	struct catch catch;

	(void)sigaction(SIGALRM, &wake, NULL);
	(void)setitimer(ITIMER_REAL, &often, NULL);
	STAILQ_FOREACH(job, jobs, next)
	{
		if (job->type == MPIB_KEEPER_FETCH)
			fetch(channel, job, &catch);
		else
			drop(job->fd, &catch);
	}
}
