/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/read.h"

#include <errno.h>
#include <unistd.h>

ssize_t mpib_read_full(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}

	return (ssize_t)done;
}
