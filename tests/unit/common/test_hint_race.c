/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Case C19: one writer toggles a slot between two pairs, readers in other threads and in another
 * process look on; a count proves that reads overlapped writes, and no read may return parts of
 * both pairs or anything else. MPIB_TEST_SECONDS (1) says how long a race lasts; on a busy machine
 * it goes on until it has seen what it needs.
 */
#include "common/hint.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/macros.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/hint_pairs.h"
#include "tests/unit/common/random.h"

#define READERS	      3
#define SECONDS_ENV   "MPIB_TEST_SECONDS"
#define KILL_ROUNDS   40
#define OVERLAPS      100 /* that a race needs */
#define LIMIT_SECONDS 120 /* for one that doesn't get them */

/* One race. The threads share the slot and the atomics; all else is set before they start. */
struct race {
	struct mpib_hint_entry *entry;
	hint_writer write;
	hint_reader read;
	atomic_bool stop;
	atomic_ulong reads; /* by all readers; a pausing writer waits for it to move */
	atomic_ulong overlaps;
	atomic_bool saw[2]; /* pair 0, pair 1 */
};

struct reader {
	pthread_t thread;
	struct race *race;
	unsigned long pairs[2]; /* reads that returned pair 0, pair 1 */
	unsigned long refused;
	unsigned long overlapped; /* seq moved, or was odd, while the read ran */
	unsigned long mixed;
	unsigned long other;
};

static double race_seconds(void)
{
	const char *text = getenv(SECONDS_ENV);

	return text ? strtod(text, NULL) : 1;
}

static double now_seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A look at the slot as a plugin has it, with what the test wants to know about it. */
static void read_once(struct reader *reader)
{
	const struct mpib_hint_entry *entry = reader->race->entry;
	uint32_t before = mpib_hint_load(&entry->seq);
	struct mpib_hint_entry seen;
	uint32_t share = 0;

	if (reader->race->read(entry, &seen)) {
		enum hint_verdict verdict = hint_judge(&seen);

		if (verdict == HINT_MIXED)
			reader->mixed++;
		else if (verdict == HINT_OTHER)
			reader->other++;
		else if (reader->pairs[verdict]++ == 0)
			atomic_store_explicit(&reader->race->saw[verdict], true,
					      memory_order_relaxed);
	} else {
		reader->refused++;
	}

	if (mpib_hint_read(entry, &share) && share != 0 && share != MPIB_SHARE_MAX)
		reader->other++;
	if (before & 1 || before != mpib_hint_load(&entry->seq)) {
		reader->overlapped++;
		(void)atomic_fetch_add_explicit(&reader->race->overlaps, 1, memory_order_relaxed);
	}
}

static void *reader_run(void *arg)
{
	struct reader *reader = arg;

	while (!atomic_load_explicit(&reader->race->stop, memory_order_relaxed)) {
		read_once(reader);
		(void)atomic_fetch_add_explicit(&reader->race->reads, 1, memory_order_relaxed);
	}
	return NULL;
}

static bool saw_enough(struct race *race)
{
	return atomic_load_explicit(&race->overlaps, memory_order_relaxed) > OVERLAPS &&
	       atomic_load_explicit(&race->saw[0], memory_order_relaxed) &&
	       atomic_load_explicit(&race->saw[1], memory_order_relaxed);
}

/* Toggles for @seconds, and on until the readers saw enough or @limit seconds are over; pauses of
 * random length leave the readers quiet times as well. */
static unsigned long toggle(struct race *race, double seconds, double limit)
{
	struct mpib_test_random random = mpib_test_random_init(1);
	double start = now_seconds();
	unsigned long writes = 0;
	double passed;

	do {
		for (unsigned int n = 0; n < 256; n++) {
			const struct hint_pair *pair = &hint_pairs[writes++ & 1];
			uint64_t pause = mpib_test_random_below(&random, 64);

			race->write(race->entry, pair->share, pair->src, pair->dst);
			while (pause-- > 0)
				(void)mpib_hint_load(&race->entry->dst_ip);
		}
		passed = now_seconds() - start;
	} while (passed < seconds || (passed < limit && !saw_enough(race)));

	return writes;
}

/* Runs a race and returns the sum over the readers. */
static struct reader race_run(hint_writer write, hint_reader read, double seconds)
{
	static struct mpib_hint_entry entry;
	struct race race = { .entry = &entry, .write = write, .read = read };
	struct reader readers[READERS] = { 0 };
	struct reader sum = { 0 };
	unsigned long writes;

	mpib_hint_write(&entry, hint_pairs[1].share, hint_pairs[1].src, hint_pairs[1].dst);
	for (unsigned int k = 0; k < READERS; k++) {
		readers[k].race = &race;
		assert_int_equal(pthread_create(&readers[k].thread, NULL, reader_run, &readers[k]),
				 0);
	}

	writes = toggle(&race, seconds, LIMIT_SECONDS);
	atomic_store(&race.stop, true);
	for (unsigned int k = 0; k < READERS; k++) {
		assert_int_equal(pthread_join(readers[k].thread, NULL), 0);
		sum.pairs[0] += readers[k].pairs[0];
		sum.pairs[1] += readers[k].pairs[1];
		sum.refused += readers[k].refused;
		sum.overlapped += readers[k].overlapped;
		sum.mixed += readers[k].mixed;
		sum.other += readers[k].other;
	}

	print_message("%lu writes; reads: %lu + %lu good, %lu refused, %lu overlapped a write, "
		      "%lu mixed, %lu other\n",
		      writes, sum.pairs[0], sum.pairs[1], sum.refused, sum.overlapped, sum.mixed,
		      sum.other);
	return sum;
}

static void c19_no_mixed_pair_between_threads(void **state)
{
	struct reader sum = race_run(mpib_hint_write, mpib_hint_read_entry, race_seconds());

	assert_true(sum.overlapped > OVERLAPS);
	assert_true(sum.pairs[0] > 0);
	assert_true(sum.pairs[1] > 0);
	assert_int_equal(sum.mixed, 0);
	assert_int_equal(sum.other, 0);
}

/* For the writers that pause half way: the race that is on. */
static struct race *paused_race;

/* Waits until some reader has begun *and* ended a read; bounded, for the race may be over. */
static void pause_for_a_read(void)
{
	double end = now_seconds() + LIMIT_SECONDS;
	unsigned long from = atomic_load(&paused_race->reads);

	while (atomic_load(&paused_race->reads) < from + READERS + 1 && now_seconds() < end)
		(void)sched_yield();
}

static void write_paused(struct mpib_hint_entry *entry, uint32_t share, uint32_t src, uint32_t dst,
			 bool announce)
{
	uint32_t odd = hint_get(&entry->seq) | 1;

	if (announce)
		hint_put(&entry->seq, odd);
	atomic_store_explicit(mpib_hint_atomic(&entry->sup_bw), share, memory_order_release);
	pause_for_a_read();
	atomic_store_explicit(mpib_hint_atomic(&entry->src_ip), src, memory_order_release);
	atomic_store_explicit(mpib_hint_atomic(&entry->dst_ip), dst, memory_order_release);
	if (!announce)
		hint_put(&entry->seq, odd);
	mpib_hint_store(&entry->seq, odd + 1);
}

static void write_paused_in_order(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
				  uint32_t dst)
{
	write_paused(entry, share, src, dst, true);
}

static void write_paused_data_first(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
				    uint32_t dst)
{
	write_paused(entry, share, src, dst, false);
}

/* Four writes by a writer that pauses half way, and readers that surely come by meanwhile. */
static struct reader race_with_pauses(hint_writer write)
{
	static struct mpib_hint_entry entry;
	struct race race = { .entry = &entry, .write = write, .read = mpib_hint_read_entry };
	struct reader reader = { .race = &race };

	mpib_hint_write(&entry, hint_pairs[1].share, hint_pairs[1].src, hint_pairs[1].dst);
	paused_race = &race;
	assert_int_equal(pthread_create(&reader.thread, NULL, reader_run, &reader), 0);
	for (unsigned int n = 0; n < 4; n++) {
		const struct hint_pair *pair = &hint_pairs[n & 1];

		race.write(&entry, pair->share, pair->src, pair->dst);
		pause_for_a_read();
	}
	atomic_store(&race.stop, true);
	assert_int_equal(pthread_join(reader.thread, NULL), 0);
	print_message("%lu + %lu good, %lu refused, %lu mixed\n", reader.pairs[0], reader.pairs[1],
		      reader.refused, reader.mixed);
	return reader;
}

/* The same check, run by the same threads, fails for a writer that changes data before it makes
 * seq odd, and holds for one that pauses at the same place and keeps the order. */
static void c19_without_order_it_fails(void **state)
{
	struct reader right = race_with_pauses(write_paused_in_order);
	struct reader wrong = race_with_pauses(write_paused_data_first);

	assert_int_equal(right.mixed + right.other, 0);
	assert_true(right.refused > 0);
	assert_true(right.pairs[0] > 0 && right.pairs[1] > 0);
	assert_true(wrong.mixed > 0);
}

/* A table in a file, as the agent has it, with one slot. */
static struct mpib_hint_entry *map_slot(int fd)
{
	char *table = mmap(NULL, MPIB_HINTS_SIZE(1), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (table == MAP_FAILED)
		return NULL;
	return (struct mpib_hint_entry *)(void *)(table + sizeof(struct mpib_hint_header));
}

static void unmap_slot(struct mpib_hint_entry *entry)
{
	(void)munmap((char *)entry - sizeof(struct mpib_hint_header), MPIB_HINTS_SIZE(1));
}

/* A process that toggles until it is killed. */
static pid_t start_writer(int fd)
{
	struct race race = { .write = mpib_hint_write };
	pid_t pid = fork();

	if (pid != 0)
		return pid;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	race.entry = map_slot(fd);
	if (race.entry)
		(void)toggle(&race, 2 * LIMIT_SECONDS, 0);
	_exit(1);
}

/* Writers that are killed at a random moment: what they leave is a good pair or is refused, and the
 * next writer's first write mends it. */
static void c19_no_mixed_pair_between_processes(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(2);
	mpib_cleanup(mpib_fclosep) FILE *file = tmpfile();
	struct race race = { .read = mpib_hint_read_entry };
	struct reader reader = { .race = &race };
	unsigned int left_odd = 0;
	double limit = now_seconds() + LIMIT_SECONDS;

	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), MPIB_HINTS_SIZE(1)), 0);
	race.entry = map_slot(fileno(file));
	assert_non_null(race.entry);

	for (unsigned int round = 0; round < KILL_ROUNDS; round++) {
		const struct hint_pair *pair = &hint_pairs[round & 1];
		struct mpib_hint_entry seen = { 0 };
		unsigned long overlapped = reader.overlapped;
		double end;
		pid_t pid;

		mpib_hint_write(race.entry, pair->share, pair->src, pair->dst);
		assert_true(mpib_hint_read_entry(race.entry, &seen));
		assert_int_equal(hint_judge(&seen), round & 1);

		pid = start_writer(fileno(file));
		assert_true(pid > 0);
		end = now_seconds() + race_seconds() / KILL_ROUNDS +
		      (double)mpib_test_random_below(&random, 1000) / 1e6;
		/* a writer that is killed before it has begun shows nothing */
		while (now_seconds() < end ||
		       (reader.overlapped == overlapped && now_seconds() < limit))
			read_once(&reader);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);

		left_odd += mpib_hint_load(&race.entry->seq) & 1;
		read_once(&reader);
	}

	print_message("%u writers killed, %u with seq odd; reads: %lu + %lu good, %lu refused, "
		      "%lu overlapped a write, %lu mixed, %lu other\n",
		      KILL_ROUNDS, left_odd, reader.pairs[0], reader.pairs[1], reader.refused,
		      reader.overlapped, reader.mixed, reader.other);
	unmap_slot(race.entry);
	assert_true(reader.overlapped > 0);
	assert_true(reader.pairs[0] > 0 && reader.pairs[1] > 0);
	assert_int_equal(reader.mixed, 0);
	assert_int_equal(reader.other, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(c19_no_mixed_pair_between_threads),
		cmocka_unit_test(c19_without_order_it_fails),
		cmocka_unit_test(c19_no_mixed_pair_between_processes),
	};

	return cmocka_run_group_tests_name("hint_race", tests, NULL, NULL);
}
