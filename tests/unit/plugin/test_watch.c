/* SPDX-License-Identifier: Apache-2.0 */
/* The helper thread: callbacks that add and delete items, no callback after a deletion, and no
 * thread or descriptor after the last reference. */
#include "tests/unit/plugin/test.h"

#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/macros.h"
#include "plugin/base/watch.h"

static unsigned int count_entries(const char *path)
{
	unsigned int n = 0;
	DIR *dir = opendir(path);

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static unsigned int helpers(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char name[300], comm[64] = "";
		FILE *file;

		(void)snprintf(name, sizeof(name), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(name, "re");
		if (!file)
			continue;
		if (!fgets(comm, sizeof(comm), file))
			comm[0] = '\0';
		(void)fclose(file);
		n += strcmp(comm, "mpib-watch\n") == 0;
	}
	(void)closedir(dir);
	return n;
}

/* One that was joined may show for a moment. Other threads are a sanitizer's. */
static void expect_helpers(unsigned int want)
{
	for (unsigned int k = 0; k < 30000 && helpers() != want; k++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(helpers(), want);
}

static void wait_for(atomic_uint *value, unsigned int want)
{
	for (unsigned int k = 0; k < 30000 && atomic_load(value) < want; k++)
		(void)poll(NULL, 0, 1);
	assert_true(atomic_load(value) >= want);
}

struct thing {
	struct mpib_watch_item item;
	struct thing *other;
	atomic_uint calls;
	bool gone; /* under the watch lock */
};

static void fire(struct thing *t)
{
	uint64_t one = 1;

	assert_int_equal(write(t->item.fd, &one, sizeof(one)), sizeof(one));
}

static void open_thing(struct thing *t, void (*on_event)(struct mpib_watch_item *, uint32_t))
{
	memset(t, 0, sizeof(*t));
	t->item.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->item.on_event = on_event;
	assert_true(t->item.fd >= 0);
}

static void on_count(struct mpib_watch_item *item, uint32_t events)
{
	struct thing *t = mpib_container_of(item, struct thing, item);
	uint64_t value;

	(void)events;
	assert_false(t->gone);
	(void)!read(item->fd, &value, sizeof(value));
	atomic_fetch_add(&t->calls, 1);
}

/* Deletes itself and watches the other one. */
static void on_swap(struct mpib_watch_item *item, uint32_t events)
{
	struct thing *t = mpib_container_of(item, struct thing, item);
	uint64_t value;

	(void)events;
	(void)!read(item->fd, &value, sizeof(value));
	mpib_watch_del(item);
	atomic_fetch_add(&t->calls, 1);
	assert_int_equal(mpib_watch_add(&t->other->item, EPOLLIN), 0);
}

/* Deletes the other one, whose event may already have been fetched. */
static void on_kill(struct mpib_watch_item *item, uint32_t events)
{
	struct thing *t = mpib_container_of(item, struct thing, item);
	uint64_t value;

	(void)events;
	assert_false(t->gone);
	(void)!read(item->fd, &value, sizeof(value));
	atomic_fetch_add(&t->calls, 1);
	mpib_watch_del(&t->other->item);
	t->other->gone = true;
}

static void test_references(void **state)
{
	unsigned int files = count_entries("/proc/self/fd");

	(void)state;
	for (unsigned int round = 0; round < 50; round++) {
		assert_int_equal(mpib_watch_get(), 0);
		assert_int_equal(mpib_watch_get(), 0);
		mpib_watch_put();
		expect_helpers(1);
		mpib_watch_put();
		expect_helpers(0);
		assert_int_equal(count_entries("/proc/self/fd"), files);
	}
	mpib_watch_stop(); /* without a reference: nothing to do */
	assert_int_equal(mpib_watch_get(), 0);
	assert_int_equal(mpib_watch_get(), 0);
	mpib_watch_stop(); /* whatever references there are */
	expect_helpers(0);
	assert_int_equal(count_entries("/proc/self/fd"), files);
	assert_true(mpib_watch_is_owner());
}

static void test_add_and_del_in_callbacks(void **state)
{
	struct thing a, b;

	(void)state;
	assert_int_equal(mpib_watch_get(), 0);
	open_thing(&a, on_swap);
	open_thing(&b, on_count);
	a.other = &b;
	assert_int_equal(mpib_watch_add(&a.item, EPOLLIN), 0);
	fire(&a);
	wait_for(&a.calls, 1);
	fire(&b);
	wait_for(&b.calls, 1);
	fire(&a); /* not watched any more */
	(void)poll(NULL, 0, 50);
	assert_int_equal(atomic_load(&a.calls), 1);
	mpib_watch_del(&a.item); /* twice is fine */
	mpib_watch_del(&b.item);
	(void)close(a.item.fd);
	(void)close(b.item.fd);
	mpib_watch_put();
}

/* Two items that fire together and delete each other: exactly one of them is ever called. */
static void test_no_callback_after_del_by_another(void **state)
{
	(void)state;
	assert_int_equal(mpib_watch_get(), 0);
	for (unsigned int round = 0; round < 500; round++) {
		struct thing a, b;

		open_thing(&a, on_kill);
		open_thing(&b, on_kill);
		a.other = &b;
		b.other = &a;
		mpib_watch_lock(); /* so that one wait fetches both events */
		assert_int_equal(mpib_watch_add(&a.item, EPOLLIN), 0);
		assert_int_equal(mpib_watch_add(&b.item, EPOLLIN), 0);
		fire(&a);
		fire(&b);
		mpib_watch_unlock();
		for (unsigned int k = 0; k < 30000; k++) {
			if (atomic_load(&a.calls) + atomic_load(&b.calls))
				break;
			(void)poll(NULL, 0, 1);
		}
		mpib_watch_lock();
		assert_int_equal(atomic_load(&a.calls) + atomic_load(&b.calls), 1);
		mpib_watch_del(&a.item);
		mpib_watch_del(&b.item);
		mpib_watch_unlock();
		(void)close(a.item.fd);
		(void)close(b.item.fd);
	}
	mpib_watch_put();
}

/* When del returns to another thread, the owner may free the item. */
static void test_no_callback_after_del_returned(void **state)
{
	(void)state;
	assert_int_equal(mpib_watch_get(), 0);
	for (unsigned int round = 0; round < 2000; round++) {
		struct thing *t = malloc(sizeof(*t));
		int fd;

		assert_non_null(t);
		open_thing(t, on_count);
		fd = t->item.fd;
		assert_int_equal(mpib_watch_add(&t->item, EPOLLIN), 0);
		fire(t);
		mpib_watch_del(&t->item);
		memset(t, 0xff, sizeof(*t)); /* a late call would go to nowhere */
		free(t);
		(void)close(fd);
	}
	mpib_watch_put();
}

static void test_many_items(void **state)
{
	enum { COUNT = 300 };
	struct thing *things = calloc(COUNT, sizeof(*things));

	(void)state;
	assert_non_null(things);
	assert_int_equal(mpib_watch_get(), 0);
	for (unsigned int k = 0; k < COUNT; k++) {
		open_thing(&things[k], on_count);
		assert_int_equal(mpib_watch_add(&things[k].item, EPOLLIN), 0);
	}
	for (unsigned int k = 0; k < COUNT; k++)
		fire(&things[k]);
	for (unsigned int k = 0; k < COUNT; k++)
		wait_for(&things[k].calls, 1);
	for (unsigned int k = 0; k < COUNT; k++) {
		mpib_watch_del(&things[k].item);
		(void)close(things[k].item.fd);
	}
	mpib_watch_put();
	free(things);
}

struct counted_tick {
	struct mpib_watch_tick tick;
	atomic_uint calls;
	bool once;
};

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	struct counted_tick *t = mpib_container_of(tick, struct counted_tick, tick);

	assert_true(now_ms > 0);
	atomic_fetch_add(&t->calls, 1);
	if (t->once)
		mpib_watch_tick_del(tick);
}

static void test_ticks(void **state)
{
	struct counted_tick a, b;
	unsigned int calls;

	(void)state;
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.tick.on_tick = b.tick.on_tick = on_tick;
	b.once = true;
	assert_int_equal(mpib_watch_get(), 0);
	mpib_watch_tick_add(&a.tick);
	mpib_watch_tick_add(&b.tick);
	mpib_watch_tick_add(&a.tick); /* twice is once */
	wait_for(&a.calls, 4);
	assert_int_equal(atomic_load(&b.calls), 1);
	calls = atomic_load(&a.calls);
	mpib_watch_wake();
	wait_for(&a.calls, calls + 1);
	mpib_watch_tick_del(&a.tick);
	calls = atomic_load(&a.calls);
	(void)poll(NULL, 0, 3 * MPIB_WATCH_TICK_MS);
	assert_int_equal(atomic_load(&a.calls), calls);
	mpib_watch_tick_del(&a.tick);
	mpib_watch_put();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_add_and_del_in_callbacks),
		cmocka_unit_test(test_no_callback_after_del_by_another),
		cmocka_unit_test(test_no_callback_after_del_returned),
		cmocka_unit_test(test_many_items),
		cmocka_unit_test(test_ticks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
