/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/badfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIFE_SEC 120
#define ROOT	 1
#define FILE_ID	 2

const char *badfs_missing(void)
{
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		return "/dev/fuse is not there";
	return NULL;
}

static void answer(int fuse, uint64_t unique, int error, const void *data, size_t len)
{
	char buf[512];
	const struct fuse_out_header header = {
		.len = (uint32_t)(sizeof(header) + len),
		.error = error,
		.unique = unique,
	};

	memcpy(buf, &header, sizeof(header));
	if (len)
		memcpy(buf + sizeof(header), data, len);
	if (write(fuse, buf, sizeof(header) + len) < 0 && errno == ENODEV)
		_exit(0);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node,
		.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0644,
		.nlink = 1,
		.uid = getuid(),
		.gid = getgid(),
	};
}

static void serve_one(int fuse, enum badfs_kind kind, const struct fuse_in_header *in)
{
	const struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = 31,
		.flags = kind == BADFS_DIRTY ? FUSE_WRITEBACK_CACHE : 0,
		.max_readahead = 4096,
		.max_write = 4096,
	};
	const struct fuse_entry_out entry = {
		.nodeid = FILE_ID,
		.entry_valid = 1000,
		.attr_valid = 1000,
		.attr = attributes(FILE_ID),
	};
	const struct fuse_attr_out attr = { .attr_valid = 1000, .attr = attributes(in->nodeid) };
	const struct fuse_open_out opened = { .fh = 1 };

	switch (in->opcode) {
	case FUSE_INIT:
		answer(fuse, in->unique, 0, &init, sizeof(init));
		return;
	case FUSE_LOOKUP:
		answer(fuse, in->unique, 0, &entry, sizeof(entry));
		return;
	case FUSE_GETATTR:
		answer(fuse, in->unique, 0, &attr, sizeof(attr));
		return;
	case FUSE_OPEN:
		answer(fuse, in->unique, 0, &opened, sizeof(opened));
		return;
	case FUSE_FLUSH:
		if (kind != BADFS_FLUSH)
			answer(fuse, in->unique, 0, NULL, 0);
		return;
	case FUSE_RELEASE:
		answer(fuse, in->unique, 0, NULL, 0);
		return;
	case FUSE_WRITE:
	case FUSE_SETATTR:
	case FUSE_FORGET:
	case FUSE_INTERRUPT:
		return; /* never, or not wanted */
	default:
		answer(fuse, in->unique, -ENOSYS, NULL, 0);
	}
}

static void serve(int fuse, enum badfs_kind kind, int lifeline)
{
	static _Alignas(8) char buf[1 << 17];
	struct pollfd fds[] = {
		{ .fd = fuse, .events = POLLIN },
		{ .fd = lifeline, .events = POLLIN },
	};

	(void)alarm(LIFE_SEC);
	for (;;) {
		ssize_t n;

		if (poll(fds, 2, -1) > 0 && fds[1].revents)
			_exit(0);
		n = read(fuse, buf, sizeof(buf));
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			_exit(0);
		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			serve_one(fuse, kind, (const struct fuse_in_header *)(void *)buf);
	}
}

static void write_map(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	(void)close(fd);
}

static int enter_namespace(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char map[64];

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0)
		return -errno;
	if (uid) {
		write_map("/proc/self/setgroups", "deny");
		(void)snprintf(map, sizeof(map), "0 %u 1", uid);
		write_map("/proc/self/uid_map", map);
		(void)snprintf(map, sizeof(map), "0 %u 1", gid);
		write_map("/proc/self/gid_map", map);
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

int badfs_open(enum badfs_kind kind, int lifeline, int ret_fds[2], pid_t *ret_server)
{
	char dir[] = "/tmp/mpib-badfs-XXXXXX";
	char options[128];
	char path[64];
	int fuse;
	int r = enter_namespace();

	if (r < 0)
		return r;
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0 || !mkdtemp(dir))
		return -errno;

	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u",
		       fuse, getuid(), getgid());
	if (mount("badfs", dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		r = -errno;
		(void)rmdir(dir);
		return r;
	}

	*ret_server = fork();
	if (*ret_server == 0)
		serve(fuse, kind, lifeline);
	(void)close(fuse); /* the server's alone: its end ends the file system */
	(void)snprintf(path, sizeof(path), "%s/f", dir);
	ret_fds[0] = open(path, O_RDWR | O_CLOEXEC);
	ret_fds[1] = open(path, O_RDWR | O_CLOEXEC);
	r = ret_fds[0] < 0 || ret_fds[1] < 0 ? -errno : 0;
	(void)umount2(dir, MNT_DETACH);
	(void)rmdir(dir);
	return r;
}
