/* SPDX-License-Identifier: Apache-2.0 */
/* Whether registered memory is still what was registered. A NIC keeps the pages that it pinned, the
 * fabric reaches them by their address: a program that maps other memory there would never notice
 * that its key is of no use any more. The kernel marks the mappings that are registered with
 * userfaultfd; a mapping that came later at the same address lacks the mark. No fault is ever asked
 * for, so programs run at full speed. Pages dropped inside a mapping (madvise) aren't noticed. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static int marks_fd = -1; /* engine lock */

/* The descriptor that marks belong to, or -1 where they aren't wanted or the kernel refuses. */
static int open_marks(void)
{
	static bool refused;
	struct uffdio_api api = { .api = UFFD_API };
	const char *wanted = getenv("MPIB_FABRIC_PAGES");

	if (marks_fd >= 0 || refused || !wanted || strcmp(wanted, "1") != 0)
		return marks_fd;
	marks_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (marks_fd >= 0 && ioctl(marks_fd, UFFDIO_API, &api) < 0)
		fab_pages_forget();
	if (marks_fd < 0) {
		refused = true;
		(void)fprintf(stderr, "mpib-fabric: MPIB_FABRIC_PAGES: no userfaultfd here (%s)\n",
			      strerror(errno));
	}
	return marks_fd;
}

void fab_pages_forget(void)
{
	if (marks_fd >= 0)
		(void)close(marks_fd);
	marks_fd = -1;
}

/* Whole pages of [@at, @at + @length). */
static struct uffdio_range pages_of(const uint8_t *at, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = (uintptr_t)at & ~(page - 1);
	uint64_t end = ((uintptr_t)at + length + page - 1) & ~(page - 1);

	return (struct uffdio_range){ .start = start, .len = end - start };
}

/* Taking a write protection away that isn't there changes nothing, and fails where a mapping has no
 * mark. It passes over holes, which msync finds. */
static bool marked(struct uffdio_range range)
{
	struct uffdio_writeprotect none = { .range = range };

	return ioctl(marks_fd, UFFDIO_WRITEPROTECT, &none) == 0 &&
	       msync((void *)(uintptr_t)range.start, range.len, MS_ASYNC) == 0;
}

static void report(struct fab_mr *mr)
{
	mr->reported = true;
	(void)fprintf(stderr,
		      "mpib-fabric: key 0x%x: its memory at %p, %zu bytes, was unmapped or mapped "
		      "anew since it was registered; a NIC would touch pages that are gone\n",
		      mr->mr.lkey, (void *)mr->base, mr->mr.length);
}

bool fab_pages_kept(struct fab_mr *mr, uint64_t addr, uint64_t length)
{
	if (!mr->marked || marks_fd < 0)
		return true;
	if (length && !mr->lost && !marked(pages_of(fab_mr_at(mr, addr), length)))
		mr->lost = true;
	if (mr->lost && !mr->reported)
		report(mr);
	return !mr->lost;
}

/* New marks would hide from older registrations of the same addresses that theirs are gone. */
static void settle_older(struct uffdio_range range)
{
	for (uint32_t k = 0; k < fab.mr_max; k++) {
		struct fab_mr *mr = fab.mrs[k];
		struct uffdio_range old;
		uint64_t start, end;

		if (!mr || !mr->marked || mr->lost)
			continue;
		old = pages_of(mr->base, mr->mr.length);
		start = old.start > range.start ? old.start : range.start;
		end = old.start + old.len < range.start + range.len ? old.start + old.len
								    : range.start + range.len;
		if (start < end && !marked((struct uffdio_range){ start, end - start }))
			mr->lost = true; /* reported when it is used */
	}
}

void fab_pages_mark(struct fab_mr *mr)
{
	struct uffdio_register mark = { .range = pages_of(mr->base, mr->mr.length),
					.mode = UFFDIO_REGISTER_MODE_WP };

	if (mr->gpu || open_marks() < 0)
		return;
	settle_older(mark.range);
	/* Files and device memory can't be marked. */
	mr->marked = ioctl(marks_fd, UFFDIO_REGISTER, &mark) == 0;
}
