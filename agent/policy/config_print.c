/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy as an INI file that says the same. */
#include <stdio.h>
#include <stdlib.h>

#include "agent/policy/config.h"
#include "common/ipv4.h"

#define LINE_COLUMNS 100

/* As many lines as it takes: an island that is given again gets more subnets. */
static void print_island(const char *name, const struct mpib_subnet *const *subnets,
			 size_t n_subnets, FILE *out)
{
	int column = fprintf(out, "%s = ", name);
	const char *separator = "";

	for (size_t n = 0; n < n_subnets; n++) {
		char text[MPIB_IPV4_TEXT_MAX + sizeof("/32")];
		char addr[MPIB_IPV4_TEXT_MAX];
		int len = snprintf(text, sizeof(text), "%s/%u",
				   mpib_ipv4_format(subnets[n]->addr_be, addr), subnets[n]->len);

		if (*separator && column + len + 2 > LINE_COLUMNS) {
			column = fprintf(out, "\n%s = ", name) - 1;
			separator = "";
		}
		column += fprintf(out, "%s%s", separator, text);
		separator = ", ";
	}
	(void)fputc('\n', out);
}

/* By island, within one as they are sealed. */
static int by_island(const void *left, const void *right)
{
	const struct mpib_subnet *a = *(const struct mpib_subnet *const *)left;
	const struct mpib_subnet *b = *(const struct mpib_subnet *const *)right;

	if (a->island != b->island)
		return a->island < b->island ? -1 : 1;
	return a < b ? -1 : a > b;
}

static void print_islands(const struct mpib_policy *policy, FILE *out)
{
	const struct mpib_subnet **subnets = calloc(policy->n_subnets + 1, sizeof(const void *));
	size_t at = 0;

	for (size_t n = 0; subnets && n < policy->n_subnets; n++)
		subnets[n] = &policy->subnets[n];
	if (subnets)
		qsort(subnets, policy->n_subnets, sizeof(const void *), by_island);

	for (size_t island = 0; subnets && island < policy->n_islands; island++) {
		size_t first = at;

		while (at < policy->n_subnets && subnets[at]->island == island)
			at++;
		print_island(policy->islands[island].name, subnets + first, at - first, out);
	}
	free(subnets);
}

void mpib_config_print(const struct mpib_policy *policy, FILE *out)
{
	(void)fprintf(out, "[agent]\nslots = %u\n\n[islands]\nprefix_len = %u\n", policy->slots,
		      policy->prefix_len);
	print_islands(policy, out);
	(void)fprintf(out, "\n[policy]\nintra = %u\ninter = %u\n", policy->intra, policy->inter);

	for (size_t n = 0; n < policy->n_pairs; n++)
		(void)fprintf(out, "\n[pair %s %s]\nshare = %u\n",
			      policy->islands[policy->pairs[n].src_island].name,
			      policy->islands[policy->pairs[n].dst_island].name,
			      policy->pairs[n].share);

	for (size_t n = 0; n < policy->n_flows; n++) {
		char src[MPIB_IPV4_TEXT_MAX];
		char dst[MPIB_IPV4_TEXT_MAX];

		(void)fprintf(out, "\n[flow %s %s]\nshare = %u\n",
			      mpib_ipv4_format(policy->flows[n].src_be, src),
			      mpib_ipv4_format(policy->flows[n].dst_be, dst),
			      policy->flows[n].share);
	}
}
