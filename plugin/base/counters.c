/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/counters.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/base/log.h"
#include "plugin/base/ticks.h"
#include "plugin/base/watch.h"

/* Under the watch lock. The descriptor stays open: readers find the table through it. */
static struct {
	int fd;
	struct mpib_counters_header *header;
	uint8_t used[MPIB_COUNTERS_ENTRIES];
	uint32_t hint;
	int failed;
} table = { .fd = -1 };

static struct mpib_counter_entry *entries(void)
{
	return (struct mpib_counter_entry *)(void *)(table.header + 1);
}

static int open_table(void)
{
	void *map;
	int fd = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	mpib_watch_assert_locked();
	if (fd < 0)
		return -1;
	/* Sealed against shrinking: no reader of the table can be killed by SIGBUS. */
	if (ftruncate(fd, (off_t)MPIB_COUNTERS_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		goto fail;
	map = mmap(NULL, MPIB_COUNTERS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		goto fail;

	table.fd = fd;
	table.header = map;
	table.header->version = MPIB_COUNTERS_VERSION;
	table.header->entries = MPIB_COUNTERS_ENTRIES;
	table.header->entry_size = sizeof(struct mpib_counter_entry);
	table.header->pid = (uint32_t)getpid();
	table.header->features = MPIB_COUNTERS_HAVE_FAILOVER | MPIB_COUNTERS_HAVE_BUSY;
	mpib_ticks_init();
	atomic_store_explicit((_Atomic uint32_t *)&table.header->magic, MPIB_COUNTERS_MAGIC,
			      memory_order_release);
	return 0;

fail:
	(void)close(fd);
	return -1;
}

struct mpib_counter_entry *mpib_counters_get(void)
{
	struct mpib_counter_entry *entry = NULL;

	mpib_watch_lock();
	if (!table.header && !table.failed && open_table() < 0) {
		table.failed = 1;
		MPIB_INFO("no counters: a memfd can't be made");
	}
	for (uint32_t k = 0; table.header && k < MPIB_COUNTERS_ENTRIES; k++) {
		uint32_t index = (table.hint + k) % MPIB_COUNTERS_ENTRIES;

		if (table.used[index])
			continue;
		table.used[index] = 1;
		table.hint = index + 1;
		entry = &entries()[index];
		memset(entry, 0, sizeof(*entry));
		break;
	}
	mpib_watch_unlock();
	return entry;
}

void mpib_counters_publish(struct mpib_counter_entry *entry)
{
	atomic_store_explicit((_Atomic uint32_t *)&entry->state, MPIB_COUNTER_LIVE,
			      memory_order_release);
}

void mpib_counters_put(struct mpib_counter_entry *entry)
{
	mpib_watch_lock();
	atomic_store_explicit((_Atomic uint32_t *)&entry->state, MPIB_COUNTER_FREE,
			      memory_order_release);
	table.used[entry - entries()] = 0;
	table.hint = (uint32_t)(entry - entries());
	mpib_watch_unlock();
}

bool mpib_counters_time(void)
{
	uint32_t speed = 0;

	mpib_watch_lock();
	if (table.header) {
		speed = mpib_ticks_per_ms();
		__atomic_store_n(&table.header->ticks_per_ms, speed, __ATOMIC_RELAXED);
	}
	mpib_watch_unlock();
	return speed != 0;
}

int mpib_counters_fd(void)
{
	int fd;

	mpib_watch_lock();
	fd = table.fd;
	mpib_watch_unlock();
	return fd;
}

void mpib_counters_close(void)
{
	mpib_watch_lock();
	if (table.header) {
		(void)munmap(table.header, MPIB_COUNTERS_SIZE);
		(void)close(table.fd);
		table.header = NULL;
		table.fd = -1;
	}
	table.failed = 0;
	mpib_watch_unlock();
}
