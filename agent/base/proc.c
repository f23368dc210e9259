/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/read.h"
#include "common/cleanup.h"

int mpib_proc_look(pid_t pid, struct mpib_proc *ret)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct mpib_proc proc = { .state = '?' };
	char path[64];
	char text[1024];
	const char *line;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = mpib_read_full(fd, text, sizeof(text) - 1);
	if (n < 0)
		return (int)n;
	text[n] = '\0';

	/* The name comes first, and the kernel escapes a newline in it. */
	if (sscanf(text, "Name:\t%15[^\n]", proc.name) != 1)
		return -EBADMSG;
	line = strstr(text, "\nState:\t");
	if (!line || sscanf(line, "\nState:\t%c", &proc.state) != 1)
		return -EBADMSG;
	line = strstr(text, "\nTracerPid:\t");
	if (line)
		(void)sscanf(line, "\nTracerPid:\t%ld", &proc.tracer);

	*ret = proc;
	return 0;
}
