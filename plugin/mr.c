/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/mr.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "plugin/log.h"

struct mpib_mr_entry {
	struct mpib_mr_cache *cache;
	uintptr_t start, end; /* whole pages */
	unsigned int access;
	unsigned int references;
	bool shared; /* found by later registrations; false for DMA-BUFs */
	struct ibv_mr *mr;
};

/* Entries sorted by start, then by end; NCCL keeps tens to hundreds a device. */
struct mpib_mr_cache {
	pthread_mutex_t lock;
	struct mpib_hca *hca;
	struct mpib_mr_entry **entry;
	size_t count, capacity;
};

int mpib_mr_cache_new(struct mpib_hca *hca, struct mpib_mr_cache **ret)
{
	struct mpib_mr_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	(void)pthread_mutex_init(&cache->lock, NULL);
	cache->hca = hca;
	*ret = cache;
	return 0;
}

void mpib_mr_cache_free(struct mpib_mr_cache *cache)
{
	if (!cache)
		return;
	for (size_t k = 0; k < cache->count; k++) {
		(void)mpib_verbs_dereg_mr(cache->entry[k]->mr);
		free(cache->entry[k]);
	}
	free(cache->entry);
	(void)pthread_mutex_destroy(&cache->lock);
	free(cache);
}

/* First position whose start is not below @start. */
static size_t lower_bound(const struct mpib_mr_cache *cache, uintptr_t start)
{
	size_t low = 0, high = cache->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (cache->entry[mid]->start < start)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Only an entry that starts at or before @start can cover it; the walk goes down from there. */
static struct mpib_mr_entry *find(const struct mpib_mr_cache *cache, uintptr_t start, uintptr_t end,
				  unsigned int access)
{
	for (size_t k = lower_bound(cache, start + 1); k-- > 0;) {
		struct mpib_mr_entry *entry = cache->entry[k];

		if (entry->shared && entry->end >= end && entry->access == access)
			return entry;
	}
	return NULL;
}

static int insert(struct mpib_mr_cache *cache, struct mpib_mr_entry *entry)
{
	size_t at;

	if (cache->count == cache->capacity) {
		size_t capacity = cache->capacity ? 2 * cache->capacity : 32;
		struct mpib_mr_entry **grown = realloc(cache->entry, capacity * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		cache->entry = grown;
		cache->capacity = capacity;
	}

	at = lower_bound(cache, entry->start);
	memmove(&cache->entry[at + 1], &cache->entry[at],
		(cache->count - at) * sizeof(cache->entry[0]));
	cache->entry[at] = entry;
	cache->count++;
	return 0;
}

const char *mpib_memlock_advice(int r, char buf[MPIB_ADVICE_MAX])
{
	struct rlimit limit;

	buf[0] = '\0';
	/* ENOMEM is what the kernel says when the memory-lock limit is too low. */
	if (r == -ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY)
		(void)snprintf(buf, MPIB_ADVICE_MAX,
			       "; this process may lock %llu KiB: raise it (ulimit -l unlimited, "
			       "or LimitMEMLOCK= of its unit)",
			       (unsigned long long)limit.rlim_cur / 1024);
	return buf;
}

static void warn_failed(const struct mpib_hca *hca, size_t size, int r)
{
	char advice[MPIB_ADVICE_MAX];

	MPIB_WARN("%s rail %s: %zu bytes can't be registered: %s%s", mpib_rail_name(hca->rail),
		  hca->name, size, strerror(-r), mpib_memlock_advice(r, advice));
}

/* What to register: DMA-BUF if @fd >= 0. */
struct region {
	void *addr;
	size_t size;
	unsigned int access;
	uint64_t offset;
	int fd;
	bool quiet;
};

/* Under the cache's lock. */
static int entry_get(struct mpib_mr_cache *cache, const struct region *region,
		     struct mpib_mr_entry **ret)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)region->addr & ~(page - 1);
	uintptr_t end = ((uintptr_t)region->addr + region->size + page - 1) & ~(page - 1);
	struct mpib_mr_entry *entry;
	int r;

	if (region->fd < 0) {
		entry = find(cache, start, end, region->access);
		if (entry) {
			entry->references++;
			*ret = entry;
			return 0;
		}
	}

	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	*entry = (struct mpib_mr_entry){ .cache = cache,
					 .start = start,
					 .end = end,
					 .access = region->access,
					 .references = 1,
					 .shared = region->fd < 0 };
	if (region->fd < 0)
		r = mpib_verbs_reg_mr(cache->hca->pd, (void *)start, end - start, region->access,
				      &entry->mr);
	else
		r = mpib_verbs_reg_dmabuf(cache->hca->pd, region->offset, region->size,
					  (uint64_t)(uintptr_t)region->addr, region->fd,
					  region->access, &entry->mr);
	if (r == 0) {
		r = insert(cache, entry);
		if (r < 0)
			(void)mpib_verbs_dereg_mr(entry->mr);
	}
	if (r < 0) {
		free(entry);
		return r;
	}

	*ret = entry;
	return 0;
}

static int entry_put(struct mpib_mr_entry *entry)
{
	struct mpib_mr_cache *cache = entry->cache;
	int r = 0;

	(void)pthread_mutex_lock(&cache->lock);
	if (--entry->references == 0) {
		size_t at = lower_bound(cache, entry->start);

		while (cache->entry[at] != entry)
			at++;
		cache->count--;
		memmove(&cache->entry[at], &cache->entry[at + 1],
			(cache->count - at) * sizeof(cache->entry[0]));
		r = mpib_verbs_dereg_mr(entry->mr);
		free(entry);
	}
	(void)pthread_mutex_unlock(&cache->lock);
	return r;
}

static int mr_new(struct mpib_device *dev, unsigned int rail_mask, const struct region *region,
		  struct mpib_mr **ret)
{
	struct mpib_mr *mr;
	unsigned int rail;
	int r;

	if (region->size == 0 || (uintptr_t)region->addr + region->size < (uintptr_t)region->addr)
		return -EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->dev = dev;

	for (rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &dev->hca[rail];

		if (!(rail_mask & mpib_rail_bit(rail)))
			continue;
		(void)pthread_mutex_lock(&hca->mrs->lock);
		r = entry_get(hca->mrs, region, &mr->entry[rail]);
		(void)pthread_mutex_unlock(&hca->mrs->lock);
		if (r < 0) {
			if (!region->quiet)
				warn_failed(hca, region->size, r);
			goto undo_rails;
		}
		mr->lkey[rail] = mr->entry[rail]->mr->lkey;
		mr->rkey[rail] = mr->entry[rail]->mr->rkey;
	}

	*ret = mr;
	return 0;

undo_rails:
	(void)mpib_mr_free(mr);
	return r;
}

int mpib_mr_new(struct mpib_device *dev, unsigned int rail_mask, void *addr, size_t size,
		unsigned int access, struct mpib_mr **ret)
{
	const struct region region = { .addr = addr, .size = size, .access = access, .fd = -1 };

	return mr_new(dev, rail_mask, &region, ret);
}

int mpib_mr_new_dmabuf(struct mpib_device *dev, unsigned int rail_mask, void *addr, size_t size,
		       uint64_t offset, int fd, bool quiet, struct mpib_mr **ret)
{
	const struct region region = {
		.addr = addr,
		.size = size,
		.access = MPIB_MR_ACCESS,
		.offset = offset,
		.fd = fd,
		.quiet = quiet,
	};

	if (fd < 0)
		return -EINVAL;
	return mr_new(dev, rail_mask, &region, ret);
}

int mpib_mr_free(struct mpib_mr *mr)
{
	int r = 0;

	if (!mr)
		return 0;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int k = mr->entry[rail] ? entry_put(mr->entry[rail]) : 0;

		if (k < 0 && r == 0)
			r = k;
	}
	free(mr);
	return r;
}
