/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/mpib_agent_iface.h"

#define BACKLOG 4096

/* Takes a dead agent's socket away; leaves everything else alone. */
static int clear_name(int dir_fd, const char *path, struct mpib_cause *cause)
{
	struct stat st;

	if (fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return mpib_cause_set(cause, -errno, "can't look at %s: %s", path, strerror(errno));
	}
	if (!S_ISSOCK(st.st_mode))
		return mpib_cause_set(cause, -EEXIST,
				      "%s is in the way and is not a socket; remove it and start "
				      "again",
				      path);
	if (unlinkat(dir_fd, MPIB_SOCKET_NAME, 0) < 0)
		return mpib_cause_set(cause, -errno, "can't remove the old socket %s: %s", path,
				      strerror(errno));
	return 0;
}

/* Makes the socket with the mode that any user's job needs, from its first moment on. */
static int make_socket(int dir_fd, const struct sockaddr_un *address, struct mpib_listen *ret,
		       struct mpib_cause *cause)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct stat st;
	mode_t mask;
	int r;

	r = clear_name(dir_fd, address->sun_path, cause);
	if (r < 0)
		return r;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return mpib_cause_set(cause, -errno, "can't make a socket: %s", strerror(errno));

	mask = umask(0111);
	r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't bind %s: %s", address->sun_path,
				      strerror(-r));

	/* bind() goes by path, everything else by the directory that was checked. */
	if (fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISSOCK(st.st_mode))
		return mpib_cause_set(cause, -EPERM, "%s was moved away while the agent started",
				      address->sun_path);

	if (listen(fd, BACKLOG) < 0)
		return mpib_cause_set(cause, -errno, "can't listen at %s: %s", address->sun_path,
				      strerror(errno));

	*ret = (struct mpib_listen){
		.fd = mpib_steal_fd(&fd),
		.dir_fd = dir_fd,
		.device = st.st_dev,
		.inode = st.st_ino,
	};
	return 0;
}

/* The service manager's socket. 1: taken; 0: none was passed. */
static int use_passed_socket(const char *path, struct mpib_listen *ret, struct mpib_cause *cause)
{
	int n = sd_listen_fds(1);

	if (n < 0)
		return mpib_cause_set(cause, n, "can't take the passed socket: %s", strerror(-n));
	if (n == 0)
		return 0;
	if (n > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, path, 0) <= 0)
		return mpib_cause_set(cause, -EINVAL,
				      "the service manager passed something else than one stream "
				      "socket at %s",
				      path);

	if (fcntl(SD_LISTEN_FDS_START, F_SETFL, O_NONBLOCK) < 0 ||
	    listen(SD_LISTEN_FDS_START, BACKLOG) < 0)
		return mpib_cause_set(cause, -errno, "can't set up the passed socket: %s",
				      strerror(errno));

	*ret = (struct mpib_listen){ .fd = SD_LISTEN_FDS_START, .dir_fd = -1 };
	return 1;
}

int mpib_listen_open(int dir_fd, const char *dir, struct mpib_listen *ret, struct mpib_cause *cause)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat st;
	int len;
	int r;

	len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" MPIB_SOCKET_NAME, dir);
	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return mpib_cause_set(cause, -ENAMETOOLONG,
				      "directory name %s is too long for a socket in it (%zu "
				      "bytes at most)",
				      dir, sizeof(address.sun_path) - sizeof(MPIB_SOCKET_NAME) - 1);

	r = use_passed_socket(address.sun_path, ret, cause);
	if (r == 0)
		return make_socket(dir_fd, &address, ret, cause);
	if (r < 0)
		return r;

	/* Nobody tells which name is its own: the one that is there now. */
	if (fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		ret->device = st.st_dev;
		ret->inode = st.st_ino;
	}
	return 0;
}

void mpib_listen_close(struct mpib_listen *listen)
{
	struct stat st;

	if (listen->dir_fd >= 0 &&
	    fstatat(listen->dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_dev == listen->device && st.st_ino == listen->inode)
		(void)unlinkat(listen->dir_fd, MPIB_SOCKET_NAME, 0);
	if (listen->fd >= 0)
		(void)close(listen->fd);
	listen->fd = -1;
	listen->dir_fd = -1;
}
