/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier agent left: opened, judged byte for byte, and visited. */
#include "agent/state/adopt_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "agent/base/crc32.h"
#include "agent/base/read.h"
#include "agent/state/dir.h"
#include "common/cleanup.h"

static const struct mpib_adopt_record zeros;

MPIB_DEFINE_CLEANUP(struct mpib_adopt *, mpib_adopt_free);

void mpib_adopt_make_header(struct mpib_adopt_header *header)
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

static bool record_is_free(const struct mpib_adopt_record *record)
{
	return memcmp(record, &zeros, sizeof(zeros)) == 0;
}

static bool record_is_good(const struct mpib_adopt_record *record)
{
	return record->used == 1 &&
	       record->checksum == mpib_crc32(record, offsetof(struct mpib_adopt_record, checksum));
}

static void judge_header(const struct mpib_adopt_header *header, ssize_t n,
			 struct mpib_adopt_result *result)
{
	struct mpib_adopt_header mine;

	mpib_adopt_make_header(&mine);
	if (n == 0)
		result->missing = true;
	else if (n != (ssize_t)sizeof(*header) || header->magic != MPIB_ADOPT_MAGIC ||
		 header->checksum !=
			 mpib_crc32(header, offsetof(struct mpib_adopt_header, checksum)))
		result->damaged = true;
	else if (header->version != mine.version || header->record_size != mine.record_size)
		result->unknown = true;
	else
		result->foreign = memcmp(header, &mine, sizeof(mine)) != 0;
}

/* Every place that isn't free is stale at first; a visit may keep it. */
static void judge_record(struct mpib_adopt *adopt, uint32_t index, struct mpib_adopt_result *result)
{
	struct mpib_adopt_record *record = &adopt->loaded[index];

	if (record_is_free(record))
		return;

	mpib_adopt_set_place(adopt, index, MPIB_PLACE_STALE);
	if (result->unknown || !record_is_good(record)) {
		result->n_damaged += !result->unknown;
		*record = zeros;
	} else if (record->slot == MPIB_ADOPT_MARKER) {
		result->incomplete = true;
		*record = zeros;
		if (adopt->marker == MPIB_ADOPT_PLACES) {
			adopt->marker = index;
			adopt->marked = true;
			mpib_adopt_set_place(adopt, index, MPIB_PLACE_FREE);
		}
	} else {
		result->n_records++;
	}
}

static int compare_age(const void *left, const void *right, void *loaded)
{
	const struct mpib_adopt_record *records = loaded;
	uint32_t a = *(const uint32_t *)left;
	uint32_t b = *(const uint32_t *)right;

	if (records[a].order != records[b].order)
		return records[a].order > records[b].order ? -1 : 1;
	return a < b ? -1 : a > b;
}

static int sort_visits(struct mpib_adopt *adopt)
{
	adopt->visit_order = calloc(adopt->n_loaded + 1u, sizeof(*adopt->visit_order));
	if (!adopt->visit_order)
		return -ENOMEM;

	for (uint32_t index = 0; index < adopt->n_loaded; index++) {
		if (!record_is_free(&adopt->loaded[index]))
			adopt->visit_order[adopt->n_visits++] = index;
	}
	qsort_r(adopt->visit_order, adopt->n_visits, sizeof(*adopt->visit_order), compare_age,
		adopt->loaded);
	if (adopt->n_visits)
		adopt->order = adopt->loaded[adopt->visit_order[0]].order;
	return 0;
}

static int load_file(struct mpib_adopt *adopt, struct mpib_adopt_result *result)
{
	struct mpib_adopt_header header = { 0 };
	struct stat st;
	size_t size;
	ssize_t n;

	if (fstat(adopt->fd, &st) < 0)
		return -errno;
	n = mpib_read_full(adopt->fd, &header, sizeof(header));
	if (n < 0)
		return (int)n;
	judge_header(&header, n, result);
	adopt->header_due = !mpib_adopt_names_processes(result);

	size = st.st_size > (off_t)sizeof(header) ? (size_t)st.st_size - sizeof(header) : 0;
	if (size > MPIB_ADOPT_PLACES * sizeof(zeros))
		size = MPIB_ADOPT_PLACES * sizeof(zeros);
	adopt->loaded = calloc(size / sizeof(zeros) + 1, sizeof(zeros));
	if (!adopt->loaded)
		return -ENOMEM;
	n = mpib_read_full(adopt->fd, adopt->loaded, size);
	if (n < 0)
		return (int)n;

	if ((size_t)n % sizeof(zeros) != 0) {
		result->n_damaged++;
		memset((char *)adopt->loaded + (size_t)n / sizeof(zeros) * sizeof(zeros), 0,
		       sizeof(zeros));
		mpib_adopt_set_place(adopt, (uint32_t)((size_t)n / sizeof(zeros)),
				     MPIB_PLACE_STALE);
	}
	adopt->n_loaded = (uint32_t)((size_t)n / sizeof(zeros));
	adopt->n_allocated = adopt->n_loaded;
	for (uint32_t index = 0; index < adopt->n_loaded; index++)
		judge_record(adopt, index, result);
	return sort_visits(adopt);
}

void mpib_adopt_each(struct mpib_adopt *adopt, bool last,
		     enum mpib_adopt_visit (*visit)(const struct mpib_adopt_record *record,
						    uint32_t index, void *user),
		     void *user)
{
	for (uint32_t n = 0; n < adopt->n_visits; n++) {
		uint32_t index = adopt->visit_order[n];
		struct mpib_adopt_record *record = &adopt->loaded[index];
		enum mpib_adopt_visit r;

		if (record_is_free(record))
			continue;
		r = visit(record, index, user);
		if (r == MPIB_ADOPT_LATER)
			continue;
		if (r == MPIB_ADOPT_STAYS)
			mpib_adopt_set_place(adopt, index, MPIB_PLACE_USED);
		*record = zeros;
	}
	if (!last)
		return;

	free(adopt->loaded);
	free(adopt->visit_order);
	adopt->loaded = NULL;
	adopt->visit_order = NULL;
	adopt->n_loaded = adopt->n_visits = 0;
}

void mpib_adopt_close_file(struct mpib_adopt *adopt)
{
	if (adopt->fd >= 0)
		(void)close(adopt->fd);
	adopt->fd = -1;
}

int mpib_adopt_open_file(struct mpib_adopt *adopt, int flags)
{
	struct mpib_cause unused;
	struct stat st;

	adopt->fd = openat(adopt->dir_fd, MPIB_ADOPT_NAME,
			   O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600);
	if (adopt->fd < 0)
		return -errno;
	if (fstat(adopt->fd, &st) < 0 ||
	    mpib_dir_check_file(&st, "", MPIB_ADOPT_NAME, &unused) < 0) {
		mpib_adopt_close_file(adopt);
		return -EPERM;
	}

	adopt->device = st.st_dev;
	adopt->inode = st.st_ino;
	return 0;
}

struct mpib_adopt *mpib_adopt_free(struct mpib_adopt *adopt)
{
	if (!adopt)
		return NULL;

	mpib_adopt_close_file(adopt);
	free(adopt->loaded);
	free(adopt->visit_order);
	free(adopt->places);
	free(adopt->dir);
	free(adopt);
	return NULL;
}

int mpib_adopt_open(int dir_fd, const char *dir, struct mpib_adopt **ret,
		    struct mpib_adopt_result *ret_result)
{
	mpib_cleanup(mpib_adopt_freep) struct mpib_adopt *adopt = calloc(1, sizeof(*adopt));

	*ret_result = (struct mpib_adopt_result){ 0 };
	if (!adopt)
		return -ENOMEM;
	adopt->fd = -1;
	adopt->dir_fd = dir_fd;
	adopt->marker = MPIB_ADOPT_PLACES;
	adopt->header_due = true;
	adopt->dir = strdup(dir);
	adopt->places = calloc(MPIB_ADOPT_PLACES, sizeof(*adopt->places));
	if (!adopt->dir || !adopt->places)
		return -ENOMEM;

	ret_result->error = mpib_adopt_open_file(adopt, 0);
	if (ret_result->error == -ENOENT)
		*ret_result = (struct mpib_adopt_result){ .missing = true };
	else if (ret_result->error == 0)
		ret_result->error = load_file(adopt, ret_result);
	if (ret_result->error == -ENOMEM)
		return -ENOMEM;
	/* What can't be read may hold anything: a file of its own takes its place. */
	if (ret_result->error < 0)
		mpib_adopt_close_file(adopt);

	*ret = mpib_steal_ptr(adopt);
	return 0;
}
