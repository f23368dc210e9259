/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/disk.h"

#include <errno.h>
#include <sys/mount.h>

static void path_of_filler(const struct agent *agent, char path[TEMPDIR_MAX + 64])
{
	(void)snprintf(path, TEMPDIR_MAX + 64, "%s/filler", agent->dir);
}

bool disk_try_mount(const struct agent *agent, const char *options)
{
	assert_int_equal(mkdir(agent->dir, 0755), 0);
	if (mount("tmpfs", agent->dir, "tmpfs", 0, options) == 0)
		return true;

	print_message("can't mount a tmpfs here: %s\n", strerror(errno));
	return false;
}

void disk_mount(const struct agent *agent, const char *options)
{
	if (!disk_try_mount(agent, options))
		skip();
}

void disk_fill(const struct agent *agent, unsigned int left)
{
	char path[TEMPDIR_MAX + 64];
	char block[4096] = { 1 };
	off_t size = 0;
	int fd;

	path_of_filler(agent, path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) == sizeof(block))
		size += (off_t)sizeof(block);
	size -= (off_t)left * (off_t)sizeof(block);
	assert_int_equal(ftruncate(fd, size > 0 ? size : 0), 0);
	assert_int_equal(close(fd), 0);
}

void disk_empty(const struct agent *agent)
{
	char path[TEMPDIR_MAX + 64];

	path_of_filler(agent, path);
	assert_int_equal(unlink(path), 0);
}
