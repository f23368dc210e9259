/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/doctor/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/read.h"
#include "common/cleanup.h"

/* The kernel gives arguments and environment of a program 6 MiB, unless its stack is unlimited. */
#define BLOCK_STEP 65536u
#define BLOCK_MAX  ((size_t)16 << 20)
#define CONF_MAX   ((size_t)1 << 20)

int mpib_job_add(struct mpib_job *job, const char *block, size_t size)
{
	bool open_end = size > 0 && block[size - 1] != '\0';
	char *grown;

	if (size == 0)
		return 0;
	grown = realloc(job->block, job->size + size + open_end);
	if (!grown)
		return -ENOMEM;
	memcpy(grown + job->size, block, size);
	job->block = grown;
	job->size += size;
	if (open_end)
		job->block[job->size++] = '\0';
	return 0;
}

const char *mpib_job_next(const struct mpib_job *job, const char *entry)
{
	const char *next = entry ? entry + strlen(entry) + 1 : job->block;

	return job->size && next < job->block + job->size ? next : NULL;
}

const char *mpib_job_get(const void *job, const char *name)
{
	const size_t len = strlen(name);

	for (const char *entry = NULL; (entry = mpib_job_next(job, entry));)
		if (strncmp(entry, name, len) == 0 && entry[len] == '=')
			return entry + len + 1;
	return NULL;
}

/* A whole regular file, up to @max bytes. -EFBIG beyond, -EINVAL where it is none: the job names
 * files, and a pipe or a device must not stop the one who looks. */
static int read_file(const char *path, size_t max, char **ret, size_t *ret_size)
{
	mpib_cleanup(mpib_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	mpib_cleanup(mpib_freep) char *buf = NULL;
	size_t size = 0, capacity = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	do {
		if (size == capacity) {
			char *grown = realloc(buf, capacity += BLOCK_STEP);

			if (!grown)
				return -ENOMEM;
			buf = grown;
		}
		n = mpib_read_full(fd, buf + size, capacity - size);
		if (n < 0)
			return (int)n;
		size += (size_t)n;
		if (size > max)
			return -EFBIG;
	} while (n > 0);

	*ret = mpib_steal_ptr(buf);
	*ret_size = size;
	return 0;
}

/* A file of NCCL's: lines "NAME=value"; the environment wins over it, as do earlier files. */
static int add_conf(struct mpib_job *job, const char *root, const char *path)
{
	mpib_cleanup(mpib_freep) char *text = NULL;
	char whole[4096];
	size_t size = 0;
	int r;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	if (read_file(whole, CONF_MAX, &text, &size) < 0)
		return 0; /* NCCL doesn't mind either */

	for (size_t at = 0; at < size;) {
		const char *line = text + at;
		const char *end = memchr(line, '\n', size - at);
		size_t len = end ? (size_t)(end - line) : size - at;

		at += len + 1;
		if (len > 0 && line[len - 1] == '\r')
			len--;
		if (len == 0 || line[0] == '#' || !memchr(line, '=', len) ||
		    memchr(line, '\0', len))
			continue;
		r = mpib_job_add(job, line, len);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_confs(struct mpib_job *job, const char *root)
{
	const char *named = mpib_job_get(job, "NCCL_CONF_FILE");
	const char *home = mpib_job_get(job, "HOME");
	char path[2048];
	int r = 0;

	if (named && *named) {
		(void)snprintf(path, sizeof(path), "%s", named);
		r = add_conf(job, root, path);
	} else if (home && *home) {
		(void)snprintf(path, sizeof(path), "%s/.nccl.conf", home);
		r = add_conf(job, root, path);
	}
	return r < 0 ? r : add_conf(job, root, "/etc/nccl.conf");
}

static int read_process(struct mpib_job *job, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_freep) char *block = NULL;
	char path[64];
	size_t size = 0;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)job->pid);
	r = read_file(path, BLOCK_MAX, &block, &size);
	if (r == -ENOENT || r == -ESRCH)
		return mpib_cause_set(cause, -ESRCH, "there is no process %d", (int)job->pid);
	if (r == -EACCES || r == -EPERM)
		return mpib_cause_set(cause, -EACCES,
				      "the environment of process %d is its user's: ask as that "
				      "user, or as root",
				      (int)job->pid);
	if (r == -EFBIG)
		return mpib_cause_set(cause, -E2BIG,
				      "the environment of process %d is larger than %zu MiB",
				      (int)job->pid, BLOCK_MAX >> 20);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s can't be read: %s", path, strerror(-r));
	if (size == 0)
		return mpib_cause_set(cause, -ESRCH,
				      "process %d has no environment: it has ended, is a thread of "
				      "the kernel, or was started with none",
				      (int)job->pid);
	return mpib_job_add(job, block, size);
}

static int read_own(struct mpib_job *job)
{
	int r = 0;

	for (char *const *entry = environ; r == 0 && entry && *entry; entry++)
		r = mpib_job_add(job, *entry, strlen(*entry) + 1);
	return r;
}

int mpib_job_open(pid_t pid, const char *root, struct mpib_job *ret, struct mpib_cause *cause)
{
	struct mpib_job job = { .pid = pid };
	int r = pid ? read_process(&job, cause) : read_own(&job);

	if (r == 0)
		r = add_confs(&job, root);
	if (r < 0) {
		if (!cause->text[0])
			(void)mpib_cause_set(cause, r, "the environment can't be read: %s",
					     strerror(-r));
		mpib_job_close(&job);
		return r;
	}
	*ret = job;
	return 0;
}

void mpib_job_close(struct mpib_job *job)
{
	free(job->block);
	job->block = NULL;
	job->size = 0;
}
