/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "agent/crc32.h"
#include "agent/dir.h"
#include "agent/read.h"
#include "agent/registry.h"
#include "common/cleanup.h"

#define NEW_NAME MPIB_ADOPT_NAME ".new"

struct mpib_adopt {
	int fd;
	int dir_fd; /* the caller's */
	char *dir;  /* for messages */
	uint32_t next;
	uint32_t *free_places;
	size_t n_free;
	size_t room;
};

MPIB_DEFINE_CLEANUP(struct mpib_adopt *, mpib_adopt_free);

static void header_make(struct mpib_adopt_header *header)
{
	sd_id128_t boot = SD_ID128_NULL;
	struct stat st = { 0 };

	*header = (struct mpib_adopt_header){
		.magic = MPIB_ADOPT_MAGIC,
		.version = MPIB_ADOPT_VERSION,
		.record_size = sizeof(struct mpib_adopt_record),
	};

	/* Without /proc both stay 0 and still match themselves; start times then tell alone. */
	(void)sd_id128_get_boot(&boot);
	memcpy(header->boot_id, boot.bytes, sizeof(header->boot_id));
	if (stat("/proc/self/ns/pid", &st) == 0)
		header->pid_ns = st.st_ino;
	header->checksum = mpib_crc32(header, offsetof(struct mpib_adopt_header, checksum));
}

/* ---- load ----------------------------------------------------------------------------------- */

static bool record_is_free(const struct mpib_adopt_record *record)
{
	static const struct mpib_adopt_record zeros;

	return memcmp(record, &zeros, sizeof(zeros)) == 0;
}

static void load_records(int fd, void (*take)(const struct mpib_adopt_record *record, void *user),
			 void *user, struct mpib_adopt_result *result)
{
	struct mpib_adopt_record record;
	ssize_t n;

	for (uint32_t index = 0; index < MPIB_REGISTRY_MAX; index++) {
		n = mpib_read_full(fd, &record, sizeof(record));
		if (n == 0)
			return;
		if (n != (ssize_t)sizeof(record)) {
			result->damaged = true;
			return;
		}
		if (record_is_free(&record))
			continue;
		if (record.used != 1 ||
		    record.checksum !=
			    mpib_crc32(&record, offsetof(struct mpib_adopt_record, checksum))) {
			result->n_damaged++;
			continue;
		}
		result->n_records++;
		take(&record, user);
	}
}

int mpib_adopt_load(int dir_fd, void (*take)(const struct mpib_adopt_record *record, void *user),
		    void *user, struct mpib_adopt_result *ret)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct mpib_adopt_header header;
	struct mpib_adopt_header mine;
	struct mpib_cause unused;
	struct stat st;
	ssize_t n;

	*ret = (struct mpib_adopt_result){ 0 };
	fd = openat(dir_fd, MPIB_ADOPT_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		ret->missing = true;
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (mpib_dir_check_file(&st, "", MPIB_ADOPT_NAME, &unused) < 0)
		return -EPERM;

	n = mpib_read_full(fd, &header, sizeof(header));
	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(header) || header.magic != MPIB_ADOPT_MAGIC ||
	    header.checksum != mpib_crc32(&header, offsetof(struct mpib_adopt_header, checksum))) {
		ret->damaged = true;
		return 0;
	}

	header_make(&mine);
	if (memcmp(&header, &mine, sizeof(mine)) != 0) {
		ret->foreign = true;
		return 0;
	}

	load_records(fd, take, user, ret);
	return 0;
}

/* ---- write ---------------------------------------------------------------------------------- */

static int write_full(int fd, const void *buf, size_t len, off_t at)
{
	ssize_t n;

	do {
		n = pwrite(fd, buf, len, at);
	} while (n < 0 && errno == EINTR);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -ENOSPC;
}

static off_t place(uint32_t index)
{
	return (off_t)(sizeof(struct mpib_adopt_header) +
		       (size_t)index * sizeof(struct mpib_adopt_record));
}

struct mpib_adopt *mpib_adopt_free(struct mpib_adopt *adopt)
{
	if (!adopt)
		return NULL;

	if (adopt->fd >= 0)
		(void)close(adopt->fd);
	free(adopt->free_places);
	free(adopt->dir);
	free(adopt);
	return NULL;
}

int mpib_adopt_new(int dir_fd, const char *dir, struct mpib_adopt **ret, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_adopt_freep) struct mpib_adopt *adopt = calloc(1, sizeof(*adopt));
	struct mpib_adopt_header header;
	int r;

	if (!adopt)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	adopt->fd = -1;
	adopt->dir_fd = dir_fd;
	adopt->dir = strdup(dir);
	if (!adopt->dir)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	/* One that an earlier agent died over; the lock says that nobody else is at it. */
	if (unlinkat(dir_fd, NEW_NAME, 0) < 0 && errno != ENOENT)
		return mpib_cause_set(cause, -errno, "can't remove %s/" NEW_NAME ": %s", dir,
				      strerror(errno));

	adopt->fd =
		openat(dir_fd, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (adopt->fd < 0)
		return mpib_cause_set(cause, -errno, "can't make %s/" NEW_NAME ": %s", dir,
				      strerror(errno));

	header_make(&header);
	r = write_full(adopt->fd, &header, sizeof(header), 0);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't write %s/" NEW_NAME ": %s", dir,
				      strerror(-r));

	*ret = mpib_steal_ptr(adopt);
	return 0;
}

int mpib_adopt_commit(struct mpib_adopt *adopt, struct mpib_cause *cause)
{
	if (renameat(adopt->dir_fd, NEW_NAME, adopt->dir_fd, MPIB_ADOPT_NAME) < 0)
		return mpib_cause_set(cause, -errno, "can't replace %s/" MPIB_ADOPT_NAME ": %s",
				      adopt->dir, strerror(errno));
	return 0;
}

int mpib_adopt_put(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t *ret_index)
{
	uint32_t index = adopt->n_free ? adopt->free_places[adopt->n_free - 1] : adopt->next;
	int r;

	record->used = 1;
	record->checksum = mpib_crc32(record, offsetof(struct mpib_adopt_record, checksum));
	r = write_full(adopt->fd, record, sizeof(*record), place(index));
	if (r < 0)
		return r;

	if (adopt->n_free)
		adopt->n_free--;
	else
		adopt->next++;
	*ret_index = index;
	return 0;
}

int mpib_adopt_clear(struct mpib_adopt *adopt, uint32_t index)
{
	static const struct mpib_adopt_record zeros;

	if (adopt->n_free == adopt->room) {
		size_t room = adopt->room ? adopt->room * 2 : 64;
		uint32_t *grown = reallocarray(adopt->free_places, room, sizeof(*grown));

		/* The place is lost until the next start, which packs the file. */
		if (!grown)
			return write_full(adopt->fd, &zeros, sizeof(zeros), place(index));
		adopt->free_places = grown;
		adopt->room = room;
	}

	adopt->free_places[adopt->n_free++] = index;
	return write_full(adopt->fd, &zeros, sizeof(zeros), place(index));
}
