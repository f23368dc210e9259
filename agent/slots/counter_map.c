/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/slots/counter_map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/counters.h"

struct mpib_counter_map {
	const uint8_t *base;
	size_t size;
	/* As they were when the table came; what the process writes there later is its own affair.
	 */
	uint32_t entries;
	uint32_t entry_size;
	bool has_rails;
	bool has_times;
};

struct mpib_counter_map *mpib_counter_map_free(struct mpib_counter_map *map)
{
	if (!map)
		return NULL;

	if (map->base)
		(void)munmap((void *)(uintptr_t)map->base, map->size);
	free(map);
	return NULL;
}

static uint32_t load32(const void *at)
{
	return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
}

static uint64_t load64(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static int check_header(struct mpib_counter_map *map)
{
	const struct mpib_counters_header *header = (const void *)map->base;

	if (load32(&header->magic) != MPIB_COUNTERS_MAGIC ||
	    load32(&header->version) != MPIB_COUNTERS_VERSION)
		return -EBADMSG;

	map->entries = load32(&header->entries);
	map->entry_size = load32(&header->entry_size);
	map->has_rails = load32(&header->features) & MPIB_COUNTERS_HAVE_FAILOVER;
	map->has_times = load32(&header->features) & MPIB_COUNTERS_HAVE_BUSY;
	if (map->entry_size < sizeof(struct mpib_counter_entry) || map->entry_size % 8 != 0 ||
	    map->entries > (map->size - sizeof(*header)) / map->entry_size)
		return -EBADMSG;
	return 0;
}

int mpib_counter_map_new(int fd, size_t size, struct mpib_counter_map **ret)
{
	struct mpib_counter_map *map;
	struct statfs fs;
	struct stat st;
	void *base;
	int seals = fcntl(fd, F_GET_SEALS);
	int r;

	/* What can shrink would kill its reader with SIGBUS; so would huge pages that run out. */
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (fs.f_type != TMPFS_MAGIC)
		return -EPERM;
	if (size < sizeof(struct mpib_counters_header) || size > MPIB_COUNTER_MAP_MAX ||
	    (uint64_t)st.st_size < size)
		return -EBADMSG;

	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;

	base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		r = -errno;
		free(map);
		return r;
	}

	map->base = base;
	map->size = size;
	r = check_header(map);
	if (r < 0) {
		(void)mpib_counter_map_free(map);
		return r;
	}

	*ret = map;
	return 0;
}

uint32_t mpib_counter_map_entries(const struct mpib_counter_map *map)
{
	return map->entries;
}

/* The entry at @index, or NULL where it is free or there is none. */
static const struct mpib_counter_entry *live_entry(const struct mpib_counter_map *map,
						   uint32_t index)
{
	const struct mpib_counter_entry *entry;

	if (index >= map->entries)
		return NULL;
	entry = (const void *)(map->base + sizeof(struct mpib_counters_header) +
			       (size_t)index * map->entry_size);
	return load32(&entry->state) == MPIB_COUNTER_LIVE ? entry : NULL;
}

bool mpib_counter_map_at(const struct mpib_counter_map *map, uint32_t index, uint32_t *ret_conn_id,
			 struct mpib_counter_bytes *ret)
{
	const struct mpib_counter_entry *entry = live_entry(map, index);
	uint32_t kind;

	if (!entry)
		return false;

	*ret = (struct mpib_counter_bytes){ 0 };
	*ret_conn_id = load32(&entry->conn_id);
	kind = load32(&entry->kind);
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t value = load64(&entry->rail[rail].bytes);

		if (kind == MPIB_COUNTER_SEND || kind == MPIB_COUNTER_GIN)
			ret->sent[rail] = value;
		if (kind == MPIB_COUNTER_GIN)
			ret->received[rail] = load64(&entry->rail[rail].cts);
		else if (kind == MPIB_COUNTER_RECV)
			ret->received[rail] = value;
	}
	return true;
}

bool mpib_counter_map_gin(const struct mpib_counter_map *map, uint32_t index, uint64_t ret_puts[2])
{
	const struct mpib_counter_entry *entry = live_entry(map, index);

	if (!entry || load32(&entry->kind) != MPIB_COUNTER_GIN)
		return false;
	for (unsigned int rail = 0; rail < 2; rail++)
		ret_puts[rail] = load64(&entry->rail[rail].requests);
	return true;
}

bool mpib_counter_map_rails(const struct mpib_counter_map *map, uint32_t index,
			    struct mpib_counter_rails *ret)
{
	const struct mpib_counter_entry *entry = map->has_rails ? live_entry(map, index) : NULL;

	if (!entry)
		return false;

	*ret = (struct mpib_counter_rails){ 0 };
	for (unsigned int rail = 0; rail < 2; rail++) {
		/* In this order a rail that flaps meanwhile isn't back more often than it was
		 * lost. */
		ret->returns[rail] = load64(&entry->returns[rail]);
		ret->losses[rail] = load64(&entry->losses[rail]);
		/* None was sent again without a loss, and they are in the next cache line. */
		if (ret->losses[rail])
			ret->parts_again[rail] = load64(&entry->parts_again[rail]);
	}
	ret->up = load32(&entry->rails_up);
	return true;
}

/* ---- times ---------------------------------------------------------------------------------- */

/* Looks until numbers that belong together do, while each message changes them. */
#define LOOKS_MAX 8u

static unsigned int lost_rails(const struct mpib_counter_map *map,
			       const struct mpib_counter_entry *entry)
{
	unsigned int up = map->has_rails ? load32(&entry->rails_up) : 3;

	return ~up & 3u;
}

/* Completions are counted, then their time is told. */
static uint64_t read_busy(const struct mpib_counter_entry *entry, unsigned int rail,
			  uint32_t *ret_done, bool *ret_under_way)
{
	uint64_t busy = 0, latest = 0;

	for (unsigned int n = 0; n < LOOKS_MAX; n++) {
		uint64_t done = load64(&entry->rail[rail].completions);

		busy = load64(&entry->busy[rail]);
		latest = load64(&entry->latest[rail]);
		*ret_done = (uint32_t)done;
		if (done == load64(&entry->rail[rail].completions) &&
		    busy == load64(&entry->busy[rail]))
			break;
	}
	*ret_under_way = busy & 1;
	return mpib_counter_busy(busy, latest);
}

/* Bytes and posts of the same moment. */
static void read_posts(const struct mpib_counter_entry *entry, unsigned int rail,
		       struct mpib_counter_times *times)
{
	for (unsigned int n = 0; n < LOOKS_MAX; n++) {
		uint64_t requests = load64(&entry->rail[rail].requests);

		times->bytes[rail] = load64(&entry->rail[rail].bytes);
		times->apart[rail] = load64(&entry->apart[rail]);
		times->posts[rail] = (uint32_t)requests - load32(&entry->chained[rail]);
		if (requests == load64(&entry->rail[rail].requests) &&
		    times->bytes[rail] == load64(&entry->rail[rail].bytes))
			return;
	}
}

static uint64_t to_nsec(uint64_t ticks, uint32_t ticks_per_ms)
{
	double nsec = ticks_per_ms ? (double)ticks * 1e6 / ticks_per_ms : 0;

	return nsec < 0x1p64 ? (uint64_t)nsec : UINT64_MAX;
}

enum mpib_counter_time mpib_counter_map_times(const struct mpib_counter_map *map, uint32_t index,
					      uint32_t conn_id, struct mpib_counter_times *ret)
{
	const struct mpib_counters_header *header = (const void *)map->base;
	const struct mpib_counter_entry *entry = live_entry(map, index);

	if (!entry ||
	    (load32(&entry->kind) != MPIB_COUNTER_SEND &&
	     load32(&entry->kind) != MPIB_COUNTER_GIN) ||
	    load32(&entry->conn_id) != conn_id || !load32(&entry->qps[0]) ||
	    !load32(&entry->qps[1]))
		return MPIB_COUNTER_NO_SENDER;
	if (!map->has_times)
		return MPIB_COUNTER_NO_FEATURE;

	*ret = (struct mpib_counter_times){
		.timed = load32(&entry->timed),
		.lost = lost_rails(map, entry),
	};
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t busy = read_busy(entry, rail, &ret->done[rail], &ret->under_way[rail]);

		ret->busy_nsec[rail] = to_nsec(busy, load32(&header->ticks_per_ms));
		read_posts(entry, rail, ret);
		ret->speed[rail] = load32(&entry->speed[rail]);
	}
	if (ret->timed != load32(&entry->timed))
		ret->timed = 0;
	return MPIB_COUNTER_TIMES;
}
