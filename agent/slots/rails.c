/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/slots/rails.h"

/* No count grows by more between two looks: a second apart, or as long as a round may take. */
#define GROWTH_MAX (1u << 24)

bool mpib_rails_changed(const struct mpib_rail_counts *added)
{
	return added->losses[0] || added->losses[1] || added->returns[0] || added->returns[1];
}

void mpib_rails_add(struct mpib_rail_counts *sum, const struct mpib_rail_counts *added)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		sum->losses[rail] += added->losses[rail];
		sum->returns[rail] += added->returns[rail];
		sum->parts_again[rail] += added->parts_again[rail];
	}
}

void mpib_rails_count(struct mpib_rail_state *state, const struct mpib_reg_rails *rails, bool in)
{
	uint32_t one = in ? 1 : UINT32_MAX;

	state->known += one;
	for (unsigned int rail = 0; rail < 2; rail++) {
		if (rails->up & 1u << rail)
			state->up[rail] += one;
		if (rails->lost & 1u << rail)
			state->lost[rail] += one;
	}
}

bool mpib_rails_same(const struct mpib_reg_rails *rails, const struct mpib_counter_rails *now,
		     uint32_t table)
{
	const struct mpib_rail_counts *seen = &rails->seen;
	uint64_t differ = (uint64_t)(rails->said ^ now->up) | (rails->table ^ table);

	for (unsigned int rail = 0; rail < 2; rail++)
		differ |= (seen->losses[rail] ^ now->losses[rail]) |
			  (seen->returns[rail] ^ now->returns[rail]) |
			  (seen->parts_again[rail] ^ now->parts_again[rail]);
	return rails->known && !differ;
}

/* ---- judging -------------------------------------------------------------------------------- */

/* Puts what @now has beyond @seen into *ret_added. NULL, or why it can't be. */
static const char *grow(uint64_t seen, uint64_t now, uint64_t *ret_added)
{
	if (now < seen)
		return "a count of rails went back";
	if (now - seen > GROWTH_MAX)
		return "a count of rails grew faster than can be";
	*ret_added = now - seen;
	return NULL;
}

static const char *grow_all(const struct mpib_rail_counts *seen,
			    const struct mpib_counter_rails *now,
			    struct mpib_rail_counts *ret_added)
{
	const char *why = NULL;

	for (unsigned int rail = 0; rail < 2 && !why; rail++) {
		if (now->returns[rail] > now->losses[rail])
			return "a rail came back more often than it was lost";
		why = grow(seen->losses[rail], now->losses[rail], &ret_added->losses[rail]);
		if (!why)
			why = grow(seen->returns[rail], now->returns[rail],
				   &ret_added->returns[rail]);
		if (!why)
			why = grow(seen->parts_again[rail], now->parts_again[rail],
				   &ret_added->parts_again[rail]);
	}
	return why;
}

/* All of @now is seen, but for the latest loss of the rails in @but. */
static void see(struct mpib_rail_counts *seen, const struct mpib_counter_rails *now,
		unsigned int but)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		seen->losses[rail] = now->losses[rail] - (but >> rail & 1u);
		seen->returns[rail] = now->returns[rail];
		seen->parts_again[rail] = now->parts_again[rail];
	}
}

/* A plugin leaves a rail at once, and counts the loss when the peer has answered, which may take
 * its time: that is news when the rail isn't up any more, and none when it is counted. */
static void find_leaving(struct mpib_reg_rails *rails, unsigned int up,
			 struct mpib_rail_counts *added)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint8_t bit = (uint8_t)(1u << rail);

		if (rails->leaving & bit && added->losses[rail]) {
			added->losses[rail]--;
			rails->leaving &= (uint8_t)~bit;
		} else if (rails->leaving & bit && up & bit) {
			added->returns[rail]++;
			rails->leaving &= (uint8_t)~bit;
		} else if (rails->up & ~up & bit && !added->losses[rail]) {
			added->losses[rail] = 1;
			rails->leaving |= bit;
		}
	}
}

/* Rails that the connection is without. An end that waits for the other one with a rail that
 * returns has it up before the return counts: a rail that was lost is so until then. */
static unsigned int find_lost(const struct mpib_reg_rails *rails,
			      const struct mpib_counter_rails *now,
			      const struct mpib_rail_counts *added)
{
	unsigned int lost = 0;

	for (unsigned int rail = 0; rail < 2; rail++) {
		unsigned int bit = 1u << rail;

		bool gone = !(now->up & bit) && (now->losses[rail] || rails->had & bit);
		bool awaited = now->losses[rail] > now->returns[rail] && !added->returns[rail] &&
			       (rails->lost & bit || added->losses[rail]);

		if (gone || awaited)
			lost |= bit;
	}
	return lost;
}

const char *mpib_rails_judge(struct mpib_reg_rails *rails, const struct mpib_counter_rails *now,
			     uint32_t table, bool restored, struct mpib_rail_counts *ret_added)
{
	static const struct mpib_rail_counts none = { 0 };
	struct mpib_rail_counts seen = rails->seen;
	unsigned int lost;
	const char *why;

	if (now->up & ~MPIB_RAILS_BOTH)
		return "it names rails that don't exist";
	if (rails->table == 0 && restored)
		see(&seen, now, find_lost(rails, now, &none));

	why = grow_all(&seen, now, ret_added);
	if (why && rails->table != table)
		why = grow_all(&none, now, ret_added);
	if (why)
		return why;

	lost = find_lost(rails, now, ret_added);
	find_leaving(rails, now->up, ret_added);
	see(&rails->seen, now, 0);
	rails->had |= (uint8_t)now->up;
	rails->table = table;
	rails->said = (uint8_t)now->up;
	rails->up = (uint8_t)(now->up & ~lost);
	rails->lost = (uint8_t)lost;
	return NULL;
}
