/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/table.h"

#include "common/hint.h"

struct mpib_hint_entry *table_snapshot(const struct mpib_hint_header *header)
{
	struct mpib_hint_entry *entries = calloc(header->max_entries, sizeof(*entries));

	assert_non_null(entries);
	for (uint32_t slot = 0; slot < header->max_entries; slot++)
		assert_true(mpib_hint_read_entry(agent_entry(header, slot), &entries[slot]));
	return entries;
}

void table_expect_same(const struct mpib_hint_header *header, const struct mpib_hint_entry *before)
{
	for (uint32_t slot = 0; slot < header->max_entries; slot++) {
		struct mpib_hint_entry now;

		assert_true(mpib_hint_read_entry(agent_entry(header, slot), &now));
		if (before[slot].src_ip &&
		    (now.src_ip != before[slot].src_ip || now.dst_ip != before[slot].dst_ip ||
		     now.sup_bw != before[slot].sup_bw))
			fail_msg("slot %u: flow %08x-%08x share %u became %08x-%08x share %u", slot,
				 before[slot].src_ip, before[slot].dst_ip, before[slot].sup_bw,
				 now.src_ip, now.dst_ip, now.sup_bw);
	}
}

void table_expect_none_given_twice(const struct agent *agent, const struct mpib_hint_header *header,
				   const struct mpib_hint_entry *before)
{
	uint32_t given = 0;

	for (uint32_t n = 0; n <= header->max_entries; n++) {
		struct answer answer = agent_register_once(agent, 0x20000 + n, 2, 1000 + n);

		if (answer.status != MPIB_STATUS_OK)
			break;
		given++;
		if (before[answer.slot].src_ip)
			fail_msg("slot %u has two holders", answer.slot);
	}
	assert_true(given < header->max_entries);
	table_expect_same(header, before);
}
