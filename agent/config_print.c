/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy as an INI file that says the same. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/config.h"
#include "agent/ini_source.h"
#include "common/ipv4.h"

/* One line; without its blanks it is never longer than the one that was read. */
static void print_island(const struct mpib_policy *policy, size_t island, bool blanks, FILE *out)
{
	const char *separator = "";

	(void)fprintf(out, blanks ? "%s = " : "%s=", policy->islands[island].name);
	for (size_t n = 0; n < policy->n_subnets; n++) {
		char addr[MPIB_IPV4_TEXT_MAX];

		if (policy->subnets[n].island != island)
			continue;
		(void)fprintf(out, "%s%s/%u", separator,
			      mpib_ipv4_format(policy->subnets[n].addr_be, addr),
			      policy->subnets[n].len);
		separator = blanks ? ", " : ",";
	}
	(void)fputc('\n', out);
}

static void print_islands(const struct mpib_policy *policy, FILE *out)
{
	for (size_t island = 0; island < policy->n_islands; island++) {
		char *line = NULL;
		size_t len = 0;
		FILE *memory = open_memstream(&line, &len);

		if (memory) {
			print_island(policy, island, true, memory);
			(void)fclose(memory);
		}
		/* What is printed must be readable again; a line too long wouldn't be. */
		if (line && len <= MPIB_INI_LINE_MAX + 1)
			(void)fputs(line, out);
		else
			print_island(policy, island, false, out);
		free(line);
	}
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
