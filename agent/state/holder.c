/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/state/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "agent/base/proc.h"
#include "common/cleanup.h"
#include "common/mpib_agent_iface.h"

static int open_lock(const char *dir)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/lock", dir);
	return open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

static pid_t read_pid(int fd)
{
	char text[32] = { 0 };

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static bool is_agent(pid_t pid)
{
	struct mpib_proc proc;

	return mpib_proc_look(pid, &proc) == 0 && strcmp(proc.name, MPIB_AGENT_PROCESS) == 0;
}

pid_t mpib_holder_pid(const char *dir)
{
	mpib_cleanup(mpib_closep) int fd = open_lock(dir);
	pid_t pid = fd < 0 ? 0 : read_pid(fd);

	return pid > 0 && is_agent(pid) ? pid : 0;
}

/* The lock is for the agent's user and root to open; others go by the socket. */
static bool holds_lock(const char *dir, pid_t *ret_pid)
{
	mpib_cleanup(mpib_closep) int fd = open_lock(dir);

	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return false;

	*ret_pid = read_pid(fd);
	return *ret_pid != getpid();
}

static bool listens(const char *dir, pid_t *ret_pid)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" MPIB_SOCKET_NAME, dir);

	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN; /* alive, and its queue is full */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid == getpid())
		return false;

	/* The service manager keeps the socket of a daemon that is gone. */
	if (peer.pid && !is_agent(peer.pid))
		return false;
	*ret_pid = peer.pid;
	return true;
}

bool mpib_holder_find(const char *dir, pid_t *ret_pid)
{
	*ret_pid = 0;
	if (holds_lock(dir, ret_pid))
		return true;
	*ret_pid = 0;
	/* A socket that was passed to this process is nobody else's. */
	return sd_listen_fds(0) <= 0 && listens(dir, ret_pid);
}
