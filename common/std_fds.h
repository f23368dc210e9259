/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that print: a closed descriptor 0, 1 or 2 must not become that of a socket or file
 * opened later. */
#ifndef MPIB_COMMON_STD_FDS_H
#define MPIB_COMMON_STD_FDS_H

#include <fcntl.h>
#include <unistd.h>

/* Takes the numbers 0 to 2 where they are free, for reading: what is written there fails, as it
 * does on a closed one. First thing in main(). */
static inline void mpib_std_fds_take(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		(void)close(fd);
}

#endif
