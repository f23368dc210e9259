/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/standard_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int mpib_standard_fds_open(void)
{
	int fd;

	/* open() takes the lowest free number. They are for what is executed later, too. */
	do {
		fd = open("/dev/null", O_RDWR); /* NOLINT(android-cloexec-open) */
		if (fd < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);

	(void)close(fd);
	return 0;
}
