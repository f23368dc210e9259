/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a job, as mpibctl doctor reads it: blocks of any bytes against a model, and
 * NCCL's files below them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor/job.h"
#include "tests/unit/agent/tempdir.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/random.h"

#define ENTRIES_MAX 64
#define ENTRY_MAX   40
#define ROUNDS	    5000

/* What the job has to have, in order. */
struct model {
	char entry[ENTRIES_MAX][ENTRY_MAX];
	size_t count;
};

static void model_add(struct model *model, const char *text, size_t len)
{
	assert_true(model->count < ENTRIES_MAX && len < ENTRY_MAX);
	memcpy(model->entry[model->count], text, len);
	model->entry[model->count++][len] = '\0';
}

/* The first entry wins, as getenv() has it. */
static const char *model_get(const struct model *model, const char *name)
{
	for (size_t k = 0; k < model->count; k++) {
		const char *equals = strchr(model->entry[k], '=');

		if (equals && (size_t)(equals - model->entry[k]) == strlen(name) &&
		    memcmp(model->entry[k], name, strlen(name)) == 0)
			return equals + 1;
	}
	return NULL;
}

static void expect_same(const struct mpib_job *job, const struct model *model)
{
	static const char *const names[] = { "", "A", "B", "AB", "BA", "ABA", "=" };
	size_t count = 0;

	for (const char *entry = NULL; (entry = mpib_job_next(job, entry)); count++)
		if (count >= model->count || strcmp(entry, model->entry[count]) != 0)
			fail_msg("entry %zu is '%s', not '%s'", count, entry,
				 count < model->count ? model->entry[count] : "none");
	assert_int_equal(count, model->count);
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		const char *got = mpib_job_get(job, names[k]), *want = model_get(model, names[k]);

		if (strchr(names[k], '='))
			continue;
		if (!got != !want || (got && strcmp(got, want) != 0))
			fail_msg("%s is '%s', not '%s'", names[k], got ? got : "unset",
				 want ? want : "unset");
	}
}

/* Few kinds of bytes, so that names, '=' and ends meet in every way. */
static void random_bytes(struct mpib_test_random *random, const char *kinds, size_t n_kinds,
			 char *buf, size_t len)
{
	for (size_t k = 0; k < len; k++)
		buf[k] = kinds[mpib_test_random_below(random, n_kinds)];
}

/* As the process left it: with or without the last NUL, empty entries, entries without '='. */
static void blocks_of_any_bytes_are_read_as_the_model_says(void **state)
{
	static const char kinds[] = { 'A', 'B', '=', '\0', '\xff', 'A', '=', '\0' };
	struct mpib_test_random random = mpib_test_random_init(1);

	(void)state;
	for (unsigned int round = 0; round < ROUNDS; round++) {
		struct mpib_job job = { 0 };
		struct model model = { .count = 0 };

		for (uint64_t blocks = mpib_test_random_below(&random, 4); blocks > 0; blocks--) {
			size_t size = mpib_test_random_below(&random, 16), at = 0;
			char *block = malloc(size + 1); /* exact: reading on is seen by ASan */

			assert_non_null(block);
			random_bytes(&random, kinds, sizeof(kinds), block, size);
			assert_int_equal(mpib_job_add(&job, block, size), 0);
			while (at < size) {
				size_t len = strnlen(block + at, size - at);

				model_add(&model, block + at, len);
				at += len + 1;
			}
			free(block);
		}
		expect_same(&job, &model);
		mpib_job_close(&job);
	}
}

/* The environment first, then the file that it names or the one in HOME, then the system's. */
static void files_of_nccl_come_behind_the_environment(void **state)
{
	static const char kinds[] = { 'A', 'B', '=', '\n', '#', '\r', '\0', '=', 'A', '\n' };
	struct mpib_test_random random = mpib_test_random_init(2);
	char **own = environ;
	char root[TEMPDIR_MAX], path[TEMPDIR_MAX + 32];

	(void)state;
	tempdir_make(root);
	(void)snprintf(path, sizeof(path), "%s/home", root);
	assert_int_equal(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/etc", root);
	assert_int_equal(mkdir(path, 0755), 0);
	for (unsigned int round = 0; round < ROUNDS / 10; round++) {
		char set[] = "A=own", named[] = "NCCL_CONF_FILE=/named.conf", home[] = "HOME=/home";
		const bool has_name = mpib_test_random_below(&random, 2);
		char *block[] = { set, home, has_name ? named : NULL, NULL };
		const char *const files[] = { has_name ? "/named.conf" : "/home/.nccl.conf",
					      "/etc/nccl.conf" };
		struct model model = { .count = 0 };
		struct mpib_cause cause = { 0 };
		struct mpib_job job;

		for (size_t k = 0; block[k]; k++)
			model_add(&model, block[k], strlen(block[k]));
		for (size_t f = 0; f < 2; f++) {
			size_t size = mpib_test_random_below(&random, 20);
			char text[20];
			FILE *file;

			random_bytes(&random, kinds, sizeof(kinds), text, size);
			(void)snprintf(path, sizeof(path), "%s%s", root, files[f]);
			file = fopen(path, "we");
			assert_non_null(file);
			assert_int_equal(fwrite(text, 1, size, file), size);
			assert_int_equal(fclose(file), 0);
			for (size_t at = 0, end; at < size; at = end + 1) {
				size_t len;

				for (end = at; end < size && text[end] != '\n'; end++)
					;
				len = end - at;
				len -= len > 0 && text[at + len - 1] == '\r';
				if (len && text[at] != '#' && memchr(text + at, '=', len) &&
				    !memchr(text + at, '\0', len))
					model_add(&model, text + at, len);
			}
		}
		environ = block;
		assert_int_equal(mpib_job_open(0, root, &job, &cause), 0);
		environ = own;
		assert_string_equal(mpib_job_get(&job, "A"), "own");
		expect_same(&job, &model);
		mpib_job_close(&job);
	}
	tempdir_remove(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_any_bytes_are_read_as_the_model_says),
		cmocka_unit_test(files_of_nccl_come_behind_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
