/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/mr.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/lock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"

struct mpib_mr_entry {
	struct mpib_mr_cache *cache;
	uintptr_t start, end; /* whole pages */
	unsigned int access;
	unsigned int references;
	/* References of those that registered the whole range. While there are any, all of it is
	 * what the MR pinned. Once the last one is gone, its pages may be unmapped but for what the
	 * others hold, so the entry answers no further registration. */
	unsigned int whole;
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

/* Handles that are out. Its lock is taken with no other one held. */
static struct {
	pthread_mutex_t lock;
	struct mpib_mr *first;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

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

		if (entry->shared && entry->whole && entry->end >= end && entry->access == access)
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

/* How drivers say that they don't know a flag. */
static bool is_refusal(int r)
{
	return r == -EINVAL || r == -EOPNOTSUPP;
}

static void warn_failed(struct mpib_hca *hca, size_t size, int r)
{
	char advice[MPIB_ADVICE_MAX];

	if (mpib_hca_failed(hca))
		return;
	MPIB_WARN("%s rail %s: %zu bytes can't be registered: %s%s", mpib_rail_name(hca->rail),
		  hca->name, size, strerror(-r),
		  hca->relaxed == MPIB_RELAXED_MUST && is_refusal(r)
			  ? "; it may have no relaxed ordering: set MPIB_IB_PCI_RELAXED_ORDERING "
			    "to 2"
			  : mpib_limit_advice(hca, MPIB_OBJECT_MR, r, advice));
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

static bool is_whole(const struct mpib_mr_entry *entry, const struct mpib_mr *mr)
{
	return mr->start == entry->start && mr->end == entry->end;
}

static int register_region(const struct mpib_mr_cache *cache, const struct region *region,
			   const struct mpib_mr_entry *entry, unsigned int access,
			   struct ibv_mr **ret)
{
	if (region->fd < 0)
		return mpib_verbs_reg_mr(cache->hca->pd, (void *)entry->start,
					 entry->end - entry->start, access, ret);
	return mpib_verbs_reg_dmabuf(cache->hca->pd, region->offset, region->size,
				     (uint64_t)(uintptr_t)region->addr, region->fd, access, ret);
}

/* With relaxed ordering where that is asked for and the device has it. One that refuses it is not
 * asked again. */
static int register_entry(struct mpib_mr_cache *cache, const struct region *region,
			  struct mpib_mr_entry *entry)
{
	const unsigned int strict = entry->access & ~(unsigned int)IBV_ACCESS_RELAXED_ORDERING;
	struct mpib_hca *hca = cache->hca;
	int r = register_region(cache, region, entry, entry->access, &entry->mr);

	if (!is_refusal(r) || entry->access == strict || hca->relaxed != MPIB_RELAXED_MAY ||
	    register_region(cache, region, entry, strict, &entry->mr) < 0)
		return r;
	hca->relaxed = MPIB_RELAXED_OFF;
	entry->access = strict;
	MPIB_INFO("%s rail %s: the device has no relaxed ordering (%s): without it",
		  mpib_rail_name(hca->rail), hca->name, strerror(-r));
	return 0;
}

static int entry_get(struct mpib_mr_cache *cache, const struct region *region,
		     const struct mpib_mr *mr, struct mpib_mr_entry **ret)
{
	unsigned int access = region->access;
	struct mpib_mr_entry *entry;
	int r;

	mpib_assert_locked(&cache->lock);
	if (cache->hca->relaxed == MPIB_RELAXED_OFF)
		access &= ~(unsigned int)IBV_ACCESS_RELAXED_ORDERING;
	if (region->fd < 0) {
		entry = find(cache, mr->start, mr->end, access);
		if (entry) {
			entry->references++;
			entry->whole += is_whole(entry, mr);
			*ret = entry;
			return 0;
		}
	}

	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	*entry = (struct mpib_mr_entry){ .cache = cache,
					 .start = mr->start,
					 .end = mr->end,
					 .access = access,
					 .references = 1,
					 .whole = 1,
					 .shared = region->fd < 0 };
	r = register_entry(cache, region, entry);
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

static int entry_put(struct mpib_mr_entry *entry, const struct mpib_mr *mr)
{
	struct mpib_mr_cache *cache = entry->cache;
	int r = 0;

	(void)pthread_mutex_lock(&cache->lock);
	entry->whole -= is_whole(entry, mr);
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

static void link_handle(struct mpib_mr *mr)
{
	(void)pthread_mutex_lock(&all.lock);
	mr->next = all.first;
	mr->link = &all.first;
	if (mr->next)
		mr->next->link = &mr->next;
	all.first = mr;
	(void)pthread_mutex_unlock(&all.lock);
}

static void unlink_handle(struct mpib_mr *mr)
{
	(void)pthread_mutex_lock(&all.lock);
	*mr->link = mr->next;
	if (mr->next)
		mr->next->link = mr->link;
	(void)pthread_mutex_unlock(&all.lock);
}

static int mr_new(struct mpib_device *dev, unsigned int rail_mask, const struct region *region,
		  struct mpib_mr **ret)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct mpib_mr *mr;
	unsigned int rail;
	int r;

	if (region->size == 0 || (uintptr_t)region->addr + region->size < (uintptr_t)region->addr)
		return -MPIB_EARGUMENT;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	link_handle(mr);
	mr->dev = dev;
	mr->start = (uintptr_t)region->addr & ~(page - 1);
	mr->end = ((uintptr_t)region->addr + region->size + page - 1) & ~(page - 1);

	for (rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &dev->hca[rail];

		if (!(rail_mask & mpib_rail_bit(rail)))
			continue;
		(void)pthread_mutex_lock(&hca->mrs->lock);
		r = entry_get(hca->mrs, region, mr, &mr->entry[rail]);
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
	return mpib_error_of_host(r);
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
	return mpib_mr_new_dmabuf_access(dev, rail_mask, addr, size, offset, fd, MPIB_MR_ACCESS,
					 quiet, ret);
}

int mpib_mr_new_dmabuf_access(struct mpib_device *dev, unsigned int rail_mask, void *addr,
			      size_t size, uint64_t offset, int fd, unsigned int access, bool quiet,
			      struct mpib_mr **ret)
{
	const struct region region = {
		.addr = addr,
		.size = size,
		.access = access,
		.offset = offset,
		.fd = fd,
		.quiet = quiet,
	};

	if (fd < 0)
		return -MPIB_EARGUMENT;
	return mr_new(dev, rail_mask, &region, ret);
}

int mpib_mr_free(struct mpib_mr *mr)
{
	int r = 0;

	if (!mr)
		return 0;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int k = mr->entry[rail] ? entry_put(mr->entry[rail], mr) : 0;

		if (k < 0 && r == 0)
			r = k;
	}
	unlink_handle(mr);
	free(mr);
	return r < 0 ? mpib_error_of_host(r) : 0;
}

void mpib_mr_free_all(void)
{
	while (all.first)
		(void)mpib_mr_free(all.first);
}
