/* SPDX-License-Identifier: Apache-2.0 */
/* A museum of policy files: each bad one is refused with the message in its first line, each good
 * one prints as its .expect file says. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/policy/config_impl.h"
#include "tests/unit/agent/test.h"

static char *read_text(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t size = 0;

	if (!file)
		fail_msg("can't open %s: %s", path, strerror(errno));
	if (getdelim(&text, &size, EOF, file) < 0) {
		free(text);
		text = strdup("");
	}
	assert_non_null(text);
	(void)fclose(file);
	return text;
}

static bool has_end(const char *name, const char *end)
{
	size_t len = strlen(name);

	return len > strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

/* "; expect 3: text" becomes "PATH:3: text". */
static void expected_message(const char *path, char *buf, size_t size)
{
	char *text = read_text(path);
	char *newline = strchr(text, '\n');
	unsigned int line;
	int at = 0;

	if (newline)
		*newline = '\0';
	if (sscanf(text, "; expect %u: %n", &line, &at) != 1 || !at)
		fail_msg("%s doesn't start with \"; expect LINE: message\"", path);
	(void)snprintf(buf, size, "%s:%u: %s", path, line, text + at);
	free(text);
}

static void each_bad_file_is_refused_with_its_message(void **state)
{
	const char *folder = MPIB_TEST_INI_DIR "/bad";
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	unsigned int n_files = 0;
	unsigned int n_wrong = 0;

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		struct mpib_policy *policy = (struct mpib_policy *)(void *)&n_files;
		struct mpib_cause cause = { "" };
		char wanted[1024];
		char path[512];

		if (!has_end(entry->d_name, ".ini"))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		expected_message(path, wanted, sizeof(wanted));
		n_files++;
		if (mpib_config_load(path, &policy, &cause) == -EBADMSG &&
		    policy == (void *)&n_files && strcmp(cause.text, wanted) == 0)
			continue;
		print_error("wanted: %s\n   got: %s\n", wanted, cause.text);
		n_wrong++;
	}
	(void)closedir(dir);

	assert_int_equal(n_wrong, 0);
	assert_true(n_files >= 60);
}

/* Wherever a slice ends: a file means the same, and is refused for the same. */
static void a_line_a_slice_gives_the_same_message(void **state)
{
	static struct mpib_config_parse parse;
	const char *folder = MPIB_TEST_INI_DIR "/bad";
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	unsigned int n_files = 0;

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		struct mpib_policy *policy = NULL, *again = NULL;
		struct mpib_cause whole = { "" };
		struct mpib_cause sliced = { "" };
		char path[512];
		char *text;
		int r;

		if (!has_end(entry->d_name, ".ini"))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		text = read_text(path);
		r = mpib_config_parse(path, text, strlen(text), &policy, &whole);
		assert_int_equal(mpib_config_parse_begin(&parse, path, text, strlen(text), &sliced),
				 0);
		for (int s = 1; s > 0;) {
			s = mpib_config_parse_step(&parse, 1, &again, &sliced);
			assert_true(s == 1 || s == r);
		}
		mpib_config_parse_end(&parse);
		assert_string_equal(sliced.text, whole.text);
		(void)mpib_policy_free(again);
		(void)mpib_policy_free(policy);
		free(text);
		n_files++;
	}
	(void)closedir(dir);
	assert_true(n_files >= 60);
}

static char *effective_policy(const struct mpib_policy *policy)
{
	char *text = NULL;
	size_t len = 0;
	FILE *memory = open_memstream(&text, &len);

	assert_non_null(memory);
	mpib_config_print(policy, memory);
	assert_int_equal(fclose(memory), 0);
	return text;
}

static struct mpib_policy *load(const char *path)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause;

	if (mpib_config_load(path, &policy, &cause) < 0)
		fail_msg("%s", cause.text);
	return policy;
}

/* What is printed must also be readable, and print the same again. */
static void check_round_trip(const char *printed)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause;
	char *again;

	if (mpib_config_parse("printed", printed, strlen(printed), &policy, &cause) < 0)
		fail_msg("%s", cause.text);
	again = effective_policy(policy);
	assert_string_equal(again, printed);
	free(again);
	(void)mpib_policy_free(policy);
}

static void each_good_file_prints_what_it_means(void **state)
{
	const char *folder = MPIB_TEST_INI_DIR "/good";
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	unsigned int n_files = 0;

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		struct mpib_policy *policy;
		char path[512];
		char *wanted;
		char *got;

		if (!has_end(entry->d_name, ".ini"))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		policy = load(path);
		got = effective_policy(policy);
		memcpy(strrchr(path, '.'), ".expect", sizeof(".expect"));
		wanted = read_text(path);
		assert_string_equal(got, wanted);
		check_round_trip(got);
		free(got);
		free(wanted);
		(void)mpib_policy_free(policy);
		n_files++;
	}
	(void)closedir(dir);
	assert_true(n_files >= 5);
}

static void the_sample_file_means_the_defaults(void **state)
{
	struct mpib_policy *sample = load(MPIB_TEST_SAMPLE_INI);
	struct mpib_policy *empty = load(MPIB_TEST_INI_DIR "/good/empty.ini");
	char *a = effective_policy(sample);
	char *b = effective_policy(empty);

	(void)state;
	assert_string_equal(a, b);
	free(a);
	free(b);
	(void)mpib_policy_free(sample);
	(void)mpib_policy_free(empty);
}

/* Each plain key stands in the sample file, so that it can't be added without being taught. */
static void the_sample_file_names_every_key(void **state)
{
	char *sample = read_text(MPIB_TEST_SAMPLE_INI);
	size_t n;

	(void)state;
	for (n = 0; mpib_config_key_at(n); n++) {
		char line[64];

		(void)snprintf(line, sizeof(line), "\n;%s = ", mpib_config_key_at(n)->key);
		if (!strstr(sample, line))
			fail_msg("the sample file doesn't show %s", mpib_config_key_at(n)->key);
	}
	assert_int_equal(n, 6);
	free(sample);
}

static void a_missing_file_is_told_as_such(void **state)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause;

	(void)state;
	assert_int_equal(mpib_config_load("/nonexistent/agent.ini", &policy, &cause), -ENOENT);
	assert_string_equal(cause.text, "/nonexistent/agent.ini: No such file or directory");
}

static void what_is_no_file_is_refused_without_blocking(void **state)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause;
	char path[] = "/tmp/mpib-test-fifo-XXXXXX";

	(void)state;
	assert_int_equal(mpib_config_load("/", &policy, &cause), -EISDIR);
	assert_int_equal(mpib_config_load("/dev/zero", &policy, &cause), -EINVAL);
	assert_non_null(mkdtemp(path));
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(mpib_config_load(path, &policy, &cause), -EINVAL);
	assert_int_equal(unlink(path), 0);
	assert_null(policy);
}

/* Random bytes, and good files with bytes changed: an error or a policy, never a crash. */
static void damaged_files_never_crash_the_parser(void **state)
{
	char *good = read_text(MPIB_TEST_INI_DIR "/good/everything.ini");
	size_t len = strlen(good);
	unsigned int seed = 20250101;
	unsigned int n_good = 0;

	(void)state;
	for (unsigned int round = 0; round < 20000; round++) {
		struct mpib_policy *policy = NULL;
		struct mpib_cause cause;
		char *copy = test_dup(good, len);

		for (unsigned int n = 0; n < 1 + round % 4; n++)
			copy[(size_t)rand_r(&seed) % len] = (char)rand_r(&seed);
		if (mpib_config_parse("fuzz", copy, len, &policy, &cause) == 0) {
			(void)mpib_policy_free(policy);
			n_good++;
		} else {
			assert_null(policy);
			assert_memory_equal(cause.text, "fuzz:", 5);
		}
		free(copy);
	}
	free(good);
	print_message("seed 20250101: %u of 20000 damaged files were still good\n", n_good);
	assert_true(n_good > 0 && n_good < 20000);
}

/* Processor time of reading and printing a file of @count islands of one subnet each. */
static uint64_t usec_of_islands(unsigned int count)
{
	char path[] = "/tmp/mpib-test-islands-XXXXXX";
	struct timespec start;
	struct timespec end;
	struct mpib_policy *policy;
	int fd = mkstemp(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	FILE *null = fopen("/dev/null", "w");

	assert_non_null(file);
	assert_non_null(null);
	(void)fputs("[islands]\n", file);
	for (unsigned int n = 0; n < count; n++)
		(void)fprintf(file, "i%u = 10.%u.%u.%u/32\n", n, n >> 16, n >> 8 & 255, n & 255);
	assert_int_equal(fclose(file), 0);

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start), 0);
	policy = load(path);
	mpib_config_print(policy, null);
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end), 0);
	assert_int_equal(policy->n_subnets, count);
	assert_null(mpib_policy_free(policy));
	(void)fclose(null);
	(void)unlink(path);
	return (uint64_t)((end.tv_sec - start.tv_sec) * 1000000 +
			  (end.tv_nsec - start.tv_nsec) / 1000);
}

/* A11: ten times the islands cost about ten times the time, not a hundred times. */
static void forty_thousand_islands_are_read_and_printed_in_linear_time(void **state)
{
	uint64_t few = usec_of_islands(4000);
	uint64_t many = usec_of_islands(40000);

	(void)state;
	print_message("4000 islands: %llu us, 40000: %llu us\n", (unsigned long long)few,
		      (unsigned long long)many);
	assert_true(many < 30 * few);
}

/* Others wait for one slice at most: a long file has many. */
static void a_long_file_is_parsed_in_many_slices(void **state)
{
	struct mpib_config_loading *loading;
	struct mpib_policy *policy = NULL;
	char path[] = "/tmp/mpib-config-XXXXXX";
	unsigned int steps = 1;
	struct mpib_cause cause;
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");
	long size;

	(void)state;
	assert_non_null(file);
	(void)fputs("[islands]\n", file);
	for (unsigned int n = 0; n < 10000; n++)
		(void)fprintf(file, "island%u = 10.%u.%u.0/24\n", n, n / 250, n % 250);
	size = ftell(file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(mpib_config_open(path, &loading, &cause), 0);
	assert_int_equal(unlink(path), 0);
	while (mpib_config_step(loading, &policy, &cause) > 0)
		steps++;
	assert_null(mpib_config_loading_free(loading));
	assert_non_null(policy);
	assert_int_equal(policy->n_islands, 10000);
	assert_true(steps >= size / 8300);
	(void)mpib_policy_free(policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_bad_file_is_refused_with_its_message),
		cmocka_unit_test(a_line_a_slice_gives_the_same_message),
		cmocka_unit_test(each_good_file_prints_what_it_means),
		cmocka_unit_test(the_sample_file_means_the_defaults),
		cmocka_unit_test(the_sample_file_names_every_key),
		cmocka_unit_test(a_missing_file_is_told_as_such),
		cmocka_unit_test(what_is_no_file_is_refused_without_blocking),
		cmocka_unit_test(forty_thousand_islands_are_read_and_printed_in_linear_time),
		cmocka_unit_test(a_long_file_is_parsed_in_many_slices),
		cmocka_unit_test(damaged_files_never_crash_the_parser),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
