/* SPDX-License-Identifier: Apache-2.0 */
/* A policy file as a whole: opened without blocking, of bounded size, and handed to the parser. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/config.h"
#include "agent/read.h"
#include "common/cleanup.h"

#define FILE_MAX_BYTES (16u << 20)

/* Reads a regular file of bounded size; never blocks on a pipe or a device. */
static int read_file(const char *path, char **ret_text, size_t *ret_len)
{
	mpib_cleanup(mpib_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	mpib_cleanup(mpib_freep) char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > FILE_MAX_BYTES)
		return -EFBIG;

	/* The file may grow while it is read: the size seen first is what counts. */
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;

	n = mpib_read_full(fd, text, (size_t)st.st_size);
	if (n < 0)
		return (int)n;

	*ret_text = mpib_steal_ptr(text);
	*ret_len = (size_t)n;
	return 0;
}

int mpib_config_load(const char *path, bool must_exist, struct mpib_policy **ret,
		     struct mpib_cause *cause)
{
	mpib_cleanup(mpib_freep) char *text = NULL;
	size_t len = 0;
	int r;

	r = read_file(path, &text, &len);
	if (r == -ENOENT && !must_exist)
		return mpib_config_parse(path, "", 0, ret, cause);
	if (r == -EINVAL)
		return mpib_cause_set(cause, r, "%s: not a regular file", path);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s: %s", path, strerror(-r));

	return mpib_config_parse(path, text, len, ret, cause);
}
