/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seqlock, step by step in one thread: the slot lies across the border of two pages, so that
 * protecting them stops the real reader or writer in the middle, in the handler of SIGSEGV, where
 * the other side then runs. Every place where the code goes over the border is tried, with the
 * border at each of the three possible places.
 */
#include "common/hint.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/macros.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/hint_pairs.h"

#define STOPS_MAX 64

static struct {
	char *pages; /* two */
	size_t page_size;
	struct mpib_hint_entry *entry;
	int protection;		 /* of a closed page */
	unsigned int at;	 /* the stop, counted from 0, at which the other side runs */
	unsigned int now;	 /* stops so far */
	struct sigaction before; /* the test library's handler */
	void (*other_side)(void);
} stage;

static hint_writer the_writer;
static hint_reader the_reader;
static struct mpib_hint_entry seen;
static bool seen_valid;

static void protect(unsigned int page, int protection)
{
	if (mprotect(stage.pages + page * stage.page_size, stage.page_size, protection) < 0)
		abort();
}

static void on_fault(int signo, siginfo_t *info, void *context)
{
	uintptr_t offset = (uintptr_t)info->si_addr - (uintptr_t)stage.pages;
	unsigned int page = offset >= stage.page_size;

	if (offset >= 2 * stage.page_size) {
		(void)signal(signo, SIG_DFL); /* not ours: die of it */
		return;
	}

	protect(0, PROT_READ | PROT_WRITE);
	protect(1, PROT_READ | PROT_WRITE);
	if (stage.now == stage.at)
		stage.other_side();
	stage.now++;
	if (stage.now < STOPS_MAX)
		protect(!page, stage.protection);
}

static void reader_enters(void)
{
	seen_valid = the_reader(stage.entry, &seen);
}

static void writer_enters(void)
{
	the_writer(stage.entry, hint_pairs[1].share, hint_pairs[1].src, hint_pairs[1].dst);
}

/* Puts pair 0 into a fresh slot whose first @split bytes are on the first page. */
static void stage_set(size_t split, unsigned int at, int protection, void (*other_side)(void))
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	stage.entry = (struct mpib_hint_entry *)(void *)(stage.pages + stage.page_size - split);
	memset(stage.entry, 0, sizeof(*stage.entry));
	mpib_hint_write(stage.entry, hint_pairs[0].share, hint_pairs[0].src, hint_pairs[0].dst);
	seen_valid = false;
	stage.protection = protection;
	stage.at = at;
	stage.now = 0;
	stage.other_side = other_side;
	(void)sigaction(SIGSEGV, &action, &stage.before);
	protect(0, protection);
	protect(1, protection);
}

/* Takes the protection off; true where the other side had its turn. */
static bool stage_clear(void)
{
	protect(0, PROT_READ | PROT_WRITE);
	protect(1, PROT_READ | PROT_WRITE);
	(void)sigaction(SIGSEGV, &stage.before, NULL);
	return stage.now > stage.at;
}

static int stage_setup(void **state)
{
	stage.page_size = (size_t)sysconf(_SC_PAGESIZE);
	stage.pages = mmap(NULL, 2 * stage.page_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return stage.pages == MAP_FAILED ? -1 : 0;
}

static int stage_teardown(void **state)
{
	return munmap(stage.pages, 2 * stage.page_size);
}

struct tally {
	unsigned int stops; /* places where the other side had its turn */
	unsigned int pairs[2];
	unsigned int refused;
	unsigned int bad; /* mixed or never written */
};

static void tally_add(struct tally *tally)
{
	enum hint_verdict verdict = hint_judge(&seen);

	tally->stops++;
	if (!seen_valid)
		tally->refused++;
	else if (verdict == HINT_PAIR_0 || verdict == HINT_PAIR_1)
		tally->pairs[verdict]++;
	else
		tally->bad++;
}

/* @reader at every stop of one write by @writer, from pair 0 to pair 1. */
static struct tally read_within_a_write(hint_writer writer, hint_reader reader)
{
	struct tally tally = { 0 };

	the_writer = writer;
	the_reader = reader;
	for (size_t split = 4; split <= 12; split += 4) {
		for (unsigned int at = 0; at < STOPS_MAX; at++) {
			stage_set(split, at, PROT_READ, reader_enters);
			writer_enters();
			if (!stage_clear())
				break;
			tally_add(&tally);
		}
	}
	return tally;
}

/* One write by @writer at every stop of a read by @reader. */
static struct tally write_within_a_read(hint_writer writer, hint_reader reader)
{
	struct tally tally = { 0 };

	the_writer = writer;
	the_reader = reader;
	for (size_t split = 4; split <= 12; split += 4) {
		for (unsigned int at = 0; at < STOPS_MAX; at++) {
			stage_set(split, at, PROT_NONE, writer_enters);
			reader_enters();
			if (!stage_clear())
				break;
			tally_add(&tally);
		}
	}
	return tally;
}

/* The sanitizer's runtime does the atomic accesses itself and holds a lock meanwhile: stopping it
 * there would hang. */
static void skip_under_tsan(void)
{
	if (MPIB_TEST_TSAN) {
		print_message("skipped: ThreadSanitizer can't be stopped within an access\n");
		skip();
	}
}

static void reader_never_sees_half_a_write(void **state)
{
	struct tally tally;

	skip_under_tsan();
	tally = read_within_a_write(mpib_hint_write, mpib_hint_read_entry);
	print_message("%u stops: %u old, %u refused, %u new\n", tally.stops, tally.pairs[0],
		      tally.refused, tally.pairs[1]);
	assert_int_equal(tally.bad, 0);
	/* Before seq is odd the old pair is there, after that and until the end nothing is. */
	assert_true(tally.pairs[0] >= 3);
	assert_true(tally.refused >= 5);
	assert_int_equal(tally.pairs[1], 0);
}

static void reader_tries_again_when_overtaken(void **state)
{
	struct tally tally;

	skip_under_tsan();
	tally = write_within_a_read(mpib_hint_write, mpib_hint_read_entry);
	print_message("%u stops: %u old, %u refused, %u new\n", tally.stops, tally.pairs[0],
		      tally.refused, tally.pairs[1]);
	assert_int_equal(tally.bad, 0);
	assert_int_equal(tally.refused, 0);
	assert_int_equal(tally.pairs[0], 0); /* it looks again after all data, so never the old */
	assert_true(tally.pairs[1] >= 8);
}

static void writers_without_order_are_caught(void **state)
{
	static const struct {
		const char *name;
		hint_writer write;
	} wrong[] = {
		{ "data first", hint_write_data_first },
		{ "data last", hint_write_data_last },
		{ "never odd", hint_write_never_odd },
	};

	skip_under_tsan();
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(wrong); k++) {
		struct tally tally = read_within_a_write(wrong[k].write, mpib_hint_read_entry);

		print_message("%s: %u of %u reads mixed\n", wrong[k].name, tally.bad, tally.stops);
		if (tally.bad == 0)
			fail_msg("'%s' passes the check", wrong[k].name);
	}
}

static void readers_without_order_are_caught(void **state)
{
	static const struct {
		const char *name;
		hint_reader read;
	} wrong[] = {
		{ "one look", hint_read_one_look },
		{ "looks first", hint_read_looks_first },
		{ "looks last", hint_read_looks_last },
	};

	skip_under_tsan();
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(wrong); k++) {
		struct tally tally = write_within_a_read(mpib_hint_write, wrong[k].read);

		print_message("%s: %u of %u reads mixed\n", wrong[k].name, tally.bad, tally.stops);
		if (tally.bad == 0)
			fail_msg("'%s' passes the check", wrong[k].name);
	}
}

static void read_returns_what_was_written(void **state)
{
	static const uint32_t shares[] = { 0, 1, 512, 1023, 1024 };
	struct mpib_hint_entry entry = { 0 };
	struct mpib_hint_entry copy;
	uint32_t share = 4242;

	assert_true(mpib_hint_read(&entry, &share)); /* never written: all SOUT */
	assert_int_equal(share, 0);

	for (uint32_t k = 0; k < MPIB_ARRAY_SIZE(shares); k++) {
		mpib_hint_write(&entry, shares[k], 0x0101000a + k, 0x0201000a + k);
		assert_int_equal(entry.seq, 4 * (k + 1));
		assert_true(mpib_hint_read(&entry, &share));
		assert_int_equal(share, shares[k]);
		assert_true(mpib_hint_read_entry(&entry, &copy));
		assert_memory_equal(&copy, &entry, sizeof(copy));
		assert_int_equal(copy.src_ip, 0x0101000a + k);
		assert_int_equal(copy.dst_ip, 0x0201000a + k);
	}
}

/* Of a share that finds itself MPIB_HINT_TIMED is set; every write raises the count, and none of a
 * given share has it set. */
static void the_count_says_whose_share_finds_itself(void **state)
{
	static const uint32_t starts[] = { 0, 1, 2, 3, 0x7fffffff, UINT32_MAX - 1, UINT32_MAX };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(starts); k++) {
		struct mpib_hint_entry entry = { .seq = starts[k] };
		uint32_t share;

		for (unsigned int n = 0; n < 16; n++) {
			uint32_t timed = n & 1u << n % 4 ? MPIB_HINT_TIMED : 0;
			uint32_t before = entry.seq;

			mpib_hint_write_timed(&entry, n, 1, 2, timed);
			assert_int_equal(entry.seq % 4, timed);
			assert_in_range(entry.seq - before, 1, 4);
			assert_true(mpib_hint_read(&entry, &share));
			assert_int_equal(share, n);
		}
	}
}

static void read_takes_more_for_all(void **state)
{
	static const uint32_t over[] = { 1025, 65536, 0x80000000, UINT32_MAX };
	struct mpib_hint_entry entry = { 0 };
	struct mpib_hint_entry copy;
	uint32_t share;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(over); k++) {
		mpib_hint_write(&entry, over[k], 1, 2);
		assert_true(mpib_hint_read(&entry, &share));
		assert_int_equal(share, 1024);
		assert_true(mpib_hint_read_entry(&entry, &copy));
		assert_int_equal(copy.sup_bw, over[k]); /* tools see what is there */
	}
}

/* The reader gives up on each odd count, and the next write mends it, the last count included. */
static void odd_count_is_bounded_and_mended(void **state)
{
	static const uint32_t odd[] = { 1, 3, 0x7fffffff, 0x80000001, UINT32_MAX };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(odd); k++) {
		struct mpib_hint_entry entry = { .sup_bw = 7, .seq = odd[k], .src_ip = 8 };
		struct mpib_hint_entry copy = { .sup_bw = 41, .seq = 42, .src_ip = 43 };
		uint32_t last = 512;

		assert_false(mpib_hint_read(&entry, &last));
		assert_int_equal(last, 512);
		assert_false(mpib_hint_read_entry(&entry, &copy));
		assert_int_equal(copy.sup_bw, 41);
		assert_int_equal(copy.seq, 42);
		assert_int_equal(copy.src_ip, 43);

		mpib_hint_write(&entry, 256, 9, 10);
		assert_int_equal(entry.seq, odd[k] % 4 == 3 ? odd[k] + 1 : odd[k] + 3);
		assert_true(mpib_hint_read(&entry, &last));
		assert_int_equal(last, 256);
		assert_true(mpib_hint_read_entry(&entry, &copy));
		assert_memory_equal(&copy, &entry, sizeof(copy));
	}
}

/* A process that is killed within a write leaves seq odd in the shared page. */
static void killed_writer_hangs_nobody(void **state)
{
	struct mpib_hint_entry *entry;
	uint32_t last = 512;
	int status;
	pid_t pid;

	stage_set(8, UINT32_MAX, PROT_READ | PROT_WRITE, NULL);
	entry = stage.entry;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* The first steps of mpib_hint_write, and no more. */
		hint_put(&entry->seq, hint_get(&entry->seq) | 1);
		hint_put(&entry->sup_bw, hint_pairs[1].share);
		(void)raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

	assert_false(mpib_hint_read(entry, &last));
	assert_int_equal(last, 512);
	assert_false(mpib_hint_read_entry(entry, &seen));

	mpib_hint_write(entry, hint_pairs[0].share, hint_pairs[0].src, hint_pairs[0].dst);
	assert_true(mpib_hint_read_entry(entry, &seen));
	assert_int_equal(hint_judge(&seen), HINT_PAIR_0);
	assert_true(mpib_hint_read(entry, &last));
	assert_int_equal(last, hint_pairs[0].share);
	(void)stage_clear();
}

static void heartbeat_and_header_fields(void **state)
{
	struct mpib_hint_header header = { .heartbeat = UINT32_MAX };

	mpib_hint_beat(&header);
	assert_int_equal(mpib_hint_load(&header.heartbeat), 0);
	mpib_hint_beat(&header);
	assert_int_equal(header.heartbeat, 1);

	mpib_hint_store(&header.magic, MPIB_HINT_MAGIC);
	assert_int_equal(header.magic, 0x4d504948);
	assert_int_equal(mpib_hint_load(&header.magic), 0x4d504948);
	assert_int_equal(header.max_entries, 0);
	assert_int_equal(header.generation, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_returns_what_was_written),
		cmocka_unit_test(the_count_says_whose_share_finds_itself),
		cmocka_unit_test(read_takes_more_for_all),
		cmocka_unit_test(odd_count_is_bounded_and_mended),
		cmocka_unit_test(heartbeat_and_header_fields),
		cmocka_unit_test_setup_teardown(killed_writer_hangs_nobody, stage_setup,
						stage_teardown),
		cmocka_unit_test_setup_teardown(reader_never_sees_half_a_write, stage_setup,
						stage_teardown),
		cmocka_unit_test_setup_teardown(reader_tries_again_when_overtaken, stage_setup,
						stage_teardown),
		cmocka_unit_test_setup_teardown(writers_without_order_are_caught, stage_setup,
						stage_teardown),
		cmocka_unit_test_setup_teardown(readers_without_order_are_caught, stage_setup,
						stage_teardown),
	};

	return cmocka_run_group_tests_name("hint", tests, NULL, NULL);
}
