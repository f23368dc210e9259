/* SPDX-License-Identifier: Apache-2.0 */
/* Names of variables: which are nobody's, and what was probably meant. */
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/macros.h"
#include "common/printable.h"

#define PREFIX	     "MPIB_"
#define NCCL	     "NCCL_"
#define NAME_CMP_MAX 64 /* longer names are compared as far as this */
#define NAME_SHOWN   72

/* Variables of the tools in tests/, which run beside the plugin. A name that ends in '*' is a
 * prefix. */
static const char *const of_tests[] = {
	"MPIB_TEST_*",	  "MPIB_FABRIC",     "MPIB_FABRIC_*", "MPIB_LAB_*",
	"MPIB_SAMPLER_*", "MPIB_GPU_STAGE",  "MPIB_BUILD",    "MPIB_GPU_COPIERS",
	"MPIB_AGENTD",	  "MPIB_FUZZ_BUILD", "MPIB_CTL",      "MPIB_OPENMETRICS",
};

/* Whether @known, which may end in '*', is the name of @len bytes. */
static bool is_name(const char *known, const char *name, size_t len)
{
	size_t known_len = strlen(known);

	if (known[known_len - 1] == '*')
		return len >= known_len - 1 && memcmp(name, known, known_len - 1) == 0;
	return len == known_len && memcmp(name, known, len) == 0;
}

static bool is_of_tests(const char *name, size_t len)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(of_tests); k++)
		if (is_name(of_tests[k], name, len))
			return true;
	return false;
}

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* Bytes to add, drop, alter or exchange with their neighbour until @a is @b. */
static unsigned int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned int rows[3][NAME_CMP_MAX + 1];
	unsigned int *before = rows[0], *above = rows[1], *row = rows[2];

	a_len = a_len < NAME_CMP_MAX ? a_len : NAME_CMP_MAX;
	b_len = b_len < NAME_CMP_MAX ? b_len : NAME_CMP_MAX;
	for (size_t j = 0; j <= b_len; j++)
		before[j] = above[j] = (unsigned int)j;

	for (size_t i = 1; i <= a_len; i++) {
		unsigned int *oldest = before;

		row[0] = (unsigned int)i;
		for (size_t j = 1; j <= b_len; j++) {
			bool differ = a[i - 1] != b[j - 1];

			row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + differ);
			if (i > 1 && j > 1 && differ && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = oldest;
	}
	return above[b_len];
}

/* What NCCL calls so, with its own prefix, or NULL. */
static const char *by_nccl_name(const char *rest, size_t len)
{
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const char *nccl = mpib_env_rows[k].nccl;

		if (nccl && strlen(nccl) == strlen(NCCL) + len &&
		    memcmp(nccl + strlen(NCCL), rest, len) == 0)
			return mpib_env_rows[k].name;
	}
	for (size_t k = 0; k < mpib_env_unused_count; k++) {
		const struct mpib_env_unused *row = &mpib_env_unused_rows[k];

		if (row->instead && strlen(row->name) == strlen(NCCL) + len &&
		    memcmp(row->name + strlen(NCCL), rest, len) == 0)
			return row->instead;
	}
	return NULL;
}

static const char *nearest(const char *name, size_t len)
{
	const char *found = by_nccl_name(name + strlen(PREFIX), len - strlen(PREFIX));
	unsigned int best = ~0u;

	if (found)
		return found;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const char *known = mpib_env_rows[k].name;
		unsigned int d = distance(name, len, known, strlen(known));

		if (d < best) {
			best = d;
			found = known;
		}
	}
	return found;
}

bool mpib_env_is_unknown(const char *entry, char *ret_why)
{
	size_t len = strcspn(entry, "=");
	char name[NAME_CMP_MAX * 2], shown[NAME_SHOWN];

	if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || is_of_tests(entry, len))
		return false;
	for (size_t k = 0; k < mpib_env_row_count; k++)
		if (strlen(mpib_env_rows[k].name) == len &&
		    memcmp(mpib_env_rows[k].name, entry, len) == 0)
			return false;

	(void)snprintf(name, sizeof(name), "%.*s", (int)len, entry);
	(void)snprintf(ret_why, MPIB_ENV_WHY_MAX,
		       "%s is no setting of MPIB and has no effect; did you mean %s? See mpib(7)",
		       mpib_printable(name, shown, sizeof(shown)), nearest(entry, len));
	return true;
}

/* Whether some row takes NCCL's variable where its own is unset. */
static bool is_used(const char *name, size_t len)
{
	for (size_t k = 0; k < mpib_env_row_count; k++)
		if (mpib_env_rows[k].nccl && is_name(mpib_env_rows[k].nccl, name, len))
			return true;
	return false;
}

const struct mpib_env_unused *mpib_env_find_unused(const char *entry)
{
	size_t len = strcspn(entry, "=");
	const char *value = entry + len + (entry[len] == '=');

	if (!*value || is_used(entry, len))
		return NULL;
	for (size_t k = 0; k < mpib_env_unused_count; k++) {
		const struct mpib_env_unused *row = &mpib_env_unused_rows[k];

		if (is_name(row->name, entry, len))
			return row->harmless && strcmp(row->harmless, value) == 0 ? NULL : row;
	}
	return NULL;
}
