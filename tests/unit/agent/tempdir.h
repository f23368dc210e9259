/* SPDX-License-Identifier: Apache-2.0 */
/* A private directory for one test, removed with all that is in it. */
#ifndef MPIB_TESTS_UNIT_AGENT_TEMPDIR_H
#define MPIB_TESTS_UNIT_AGENT_TEMPDIR_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/test.h"

#define TEMPDIR_MAX 64

static inline void tempdir_make(char path[TEMPDIR_MAX])
{
	(void)snprintf(path, TEMPDIR_MAX, "/tmp/mpib-test-XXXXXX");
	assert_non_null(mkdtemp(path));
	assert_int_equal(chmod(path, 0755), 0);
}

static inline int tempdir_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void tempdir_remove(const char *path)
{
	(void)nftw(path, tempdir_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
