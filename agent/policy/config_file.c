/* SPDX-License-Identifier: Apache-2.0 */
/* A policy file as a whole: opened without blocking, of bounded size, and handed to the parser. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/crc32.h"
#include "agent/base/read.h"
#include "agent/policy/config_impl.h"
#include "common/cleanup.h"
#include "common/macros.h"

#define FILE_MAX_BYTES (16u << 20)

/* Of a text, parsed in one slice: some 50 us. */
#define SLICE_BYTES 8192u

static int64_t nsec(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static struct mpib_policy_stamp make_stamp(const struct stat *st)
{
	return (struct mpib_policy_stamp){
		.device = st->st_dev,
		.inode = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_nsec = nsec(&st->st_mtim),
		.ctime_nsec = nsec(&st->st_ctim),
	};
}

static bool same_stamp(const struct mpib_policy_stamp *a, const struct mpib_policy_stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       a->mtime_nsec == b->mtime_nsec && a->ctime_nsec == b->ctime_nsec;
}

/* Reads a regular file of bounded size; never blocks on a pipe or a device. */
static int read_file(const char *path, char **ret_text, size_t *ret_len,
		     struct mpib_policy_stamp *ret_stamp)
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
	*ret_stamp = make_stamp(&st);
	return 0;
}

struct mpib_config_loading {
	char *text;
	struct mpib_policy_source source;
	struct mpib_config_parse parse;
};

struct mpib_config_loading *mpib_config_loading_free(struct mpib_config_loading *loading)
{
	if (!loading)
		return NULL;

	mpib_config_parse_end(&loading->parse);
	free(loading->text);
	free(loading);
	return NULL;
}

int mpib_config_open(const char *path, struct mpib_config_loading **ret, struct mpib_cause *cause)
{
	struct mpib_config_loading *loading = calloc(1, sizeof(*loading));
	size_t len = 0;
	int r;

	if (!loading)
		return mpib_cause_set(cause, -ENOMEM, "%s: out of memory", path);

	r = read_file(path, &loading->text, &len, &loading->source.same);
	if (r == -EINVAL)
		(void)mpib_cause_set(cause, r, "%s: not a regular file", path);
	else if (r < 0)
		(void)mpib_cause_set(cause, r, "%s: %s", path, strerror(-r));
	if (r == 0)
		r = mpib_config_parse_begin(&loading->parse, path, loading->text, len, cause);
	if (r < 0) {
		(void)mpib_config_loading_free(loading);
		return r;
	}

	loading->source.size = len;
	loading->source.crc = mpib_crc32(loading->text, len);
	*ret = loading;
	return 0;
}

int mpib_config_step(struct mpib_config_loading *loading, struct mpib_policy **ret,
		     struct mpib_cause *cause)
{
	int r = mpib_config_parse_step(&loading->parse, SLICE_BYTES, ret, cause);

	if (r == 0)
		(*ret)->source = loading->source;
	return r;
}

int mpib_config_load(const char *path, struct mpib_policy **ret, struct mpib_cause *cause)
{
	struct mpib_config_loading *loading = NULL;
	int r = mpib_config_open(path, &loading, cause);

	if (r < 0 || !loading)
		return r;
	do
		r = mpib_config_step(loading, ret, cause);
	while (r > 0);
	(void)mpib_config_loading_free(loading);
	return r;
}

const char *mpib_config_file_name(enum mpib_config_file state)
{
	static const char *const names[] = {
		[MPIB_CONFIG_FILE_SAME] = "same",
		[MPIB_CONFIG_FILE_CHANGED] = "changed",
		[MPIB_CONFIG_FILE_GONE] = "gone",
		[MPIB_CONFIG_FILE_UNREADABLE] = "unreadable",
	};

	return (size_t)state < MPIB_ARRAY_SIZE(names) ? names[state] : "unknown";
}

enum mpib_config_file mpib_config_compare(const char *path, struct mpib_policy_source *source,
					  uint64_t *ret_usec)
{
	static const struct mpib_policy_stamp none = { 0 };
	mpib_cleanup(mpib_freep) char *text = NULL;
	bool had_file = !same_stamp(&source->same, &none);
	struct mpib_policy_stamp stamp;
	struct stat st;
	size_t len = 0;

	*ret_usec = 0;
	if (stat(path, &st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return MPIB_CONFIG_FILE_UNREADABLE;
		return had_file ? MPIB_CONFIG_FILE_GONE : MPIB_CONFIG_FILE_SAME;
	}

	stamp = make_stamp(&st);
	*ret_usec = stamp.mtime_nsec > 0 ? (uint64_t)stamp.mtime_nsec / 1000u : 0;
	if (same_stamp(&stamp, &source->same))
		return MPIB_CONFIG_FILE_SAME;
	if (same_stamp(&stamp, &source->other))
		return MPIB_CONFIG_FILE_CHANGED;
	if (read_file(path, &text, &len, &stamp) < 0)
		return MPIB_CONFIG_FILE_UNREADABLE;

	if (had_file && len == source->size && mpib_crc32(text, len) == source->crc) {
		source->same = stamp;
		return MPIB_CONFIG_FILE_SAME;
	}
	source->other = stamp;
	return MPIB_CONFIG_FILE_CHANGED;
}
