/* SPDX-License-Identifier: Apache-2.0 */
/* Which flow has which slot, before something happens and after it. */
#ifndef MPIB_TESTS_AGENT_TABLE_H
#define MPIB_TESTS_AGENT_TABLE_H

#include "tests/agent/harness/harness.h"

/* Slot by slot, as they are now; for the caller to free. */
struct mpib_hint_entry *table_snapshot(const struct mpib_hint_header *header);
/* Fails the test where a slot that was taken in @before has another flow or share by now. */
void table_expect_same(const struct mpib_hint_header *header, const struct mpib_hint_entry *before);
/* New flows until no slot is left: none of those that are taken in @before is given away. */
void table_expect_none_given_twice(const struct agent *agent, const struct mpib_hint_header *header,
				   const struct mpib_hint_entry *before);

#endif
