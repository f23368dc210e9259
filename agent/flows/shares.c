/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/flows/shares.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/policy/config.h"
#include "common/ipv4.h"

struct mpib_shares {
	struct mpib_registry *registry; /* asked which slots have which flow */
	struct mpib_hints *hints;
	struct mpib_journal *journal;
	struct mpib_policy *policy;
	struct mpib_overrides *overrides; /* NULL: nothing can be set */
	uint32_t text_version;		  /* of what is in force, for people */
	uint32_t apply_next; /* the first slot that doesn't follow the latest policy yet */
	uint32_t n_changed;  /* by it so far */
	struct mpib_share_changes *changes;		     /* likewise, or NULL */
	struct mpib_tuning tuning;			     /* of those that find themselves */
	struct mpib_verdict verdicts[MPIB_HINT_ENTRIES_MAX]; /* of each slot; pages that nobody
							      * touches cost nothing */
};

int mpib_shares_new(struct mpib_registry *registry, struct mpib_hints *hints,
		    struct mpib_journal *journal, struct mpib_policy *policy,
		    struct mpib_shares **ret)
{
	struct mpib_shares *shares = calloc(1, sizeof(*shares));

	if (!shares) {
		(void)mpib_policy_free(policy);
		return -ENOMEM;
	}

	shares->tuning.registry = registry;
	shares->tuning.journal = journal;
	if (mpib_tuning_init(&shares->tuning) < 0) {
		free(shares);
		(void)mpib_policy_free(policy);
		return -ENOMEM;
	}
	shares->registry = registry;
	shares->hints = hints;
	shares->journal = journal;
	shares->policy = policy;
	*ret = shares;
	return 0;
}

struct mpib_shares *mpib_shares_free(struct mpib_shares *shares)
{
	if (!shares)
		return NULL;

	(void)mpib_policy_free(shares->policy);
	(void)mpib_overrides_free(shares->overrides);
	mpib_share_changes_put(shares->changes);
	mpib_tuning_done(&shares->tuning);
	free(shares);
	return NULL;
}

static const struct mpib_override *find_override(const struct mpib_shares *shares, uint32_t src_be,
						 uint32_t dst_be)
{
	return shares->overrides ? mpib_overrides_find(shares->overrides, src_be, dst_be) : NULL;
}

static void match(const struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be,
		  struct mpib_verdict *ret)
{
	const struct mpib_override *override = find_override(shares, src_be, dst_be);

	mpib_policy_match(shares->policy, src_be, dst_be, ret);
	if (!override)
		return;

	ret->rule = MPIB_RULE_OVERRIDE;
	mpib_policy_give(shares->policy, override->share, ret);
	ret->line = 0;
}

/* ---- one slot ------------------------------------------------------------------------------- */

/* The flow of slot @index was one before an earlier agent ended: the table still has what it had
 * found. */
static bool was_auto(const struct mpib_shares *shares, uint32_t index, const struct mpib_slot *slot)
{
	uint32_t src_be;
	uint32_t dst_be;

	return mpib_hints_is_auto(shares->hints, index) &&
	       mpib_hints_flow(shares->hints, index, &src_be, &dst_be) && src_be == slot->src_be &&
	       dst_be == slot->dst_be;
}

/* Has the flow of slot @index find its share, or stop that, as its verdict says. Returns what the
 * table is to hold. */
static uint32_t tune(struct mpib_shares *shares, uint32_t index, const struct mpib_slot *slot,
		     struct mpib_verdict *verdict)
{
	struct mpib_balance_limits limits;
	bool restored;

	if (!mpib_share_is_auto(verdict->given)) {
		mpib_tuning_end(&shares->tuning, index);
		return verdict->share;
	}
	limits = mpib_policy_limits(shares->policy, verdict->given);
	restored = was_auto(shares, index, slot);
	verdict->share = mpib_tuning_begin(
		&shares->tuning, index, &limits,
		restored ? mpib_hints_share(shares->hints, index) : verdict->share, restored);
	return verdict->share | MPIB_SHARE_AUTO;
}

uint32_t mpib_shares_apply(struct mpib_shares *shares, uint32_t index)
{
	const struct mpib_slot *slot = mpib_registry_slot(shares->registry, index);
	struct mpib_verdict *verdict = &shares->verdicts[index];
	uint32_t before = verdict->share;

	match(shares, slot->src_be, slot->dst_be, verdict);
	mpib_hints_set(shares->hints, index, tune(shares, index, slot, verdict), slot->src_be,
		       slot->dst_be);
	return before;
}

void mpib_shares_clear(struct mpib_shares *shares, uint32_t index)
{
	mpib_tuning_end(&shares->tuning, index);
	memset(&shares->verdicts[index], 0, sizeof(shares->verdicts[index]));
	mpib_hints_set(shares->hints, index, 0, 0, 0);
}

const struct mpib_verdict *mpib_shares_verdict(const struct mpib_shares *shares, uint32_t index)
{
	return &shares->verdicts[index];
}

/* ---- shares that find themselves ------------------------------------------------------------ */

/* An entry for the first change, and then one for all in so long. */
#define TELL_USEC MPIB_JOURNAL_WINDOW_USEC

static void tell_found(struct mpib_shares *shares, struct mpib_tuned *tuned, uint64_t now_usec)
{
	uint32_t index = tuned->slot;

	mpib_journal_found(shares->journal, index, mpib_registry_slot(shares->registry, index),
			   &shares->verdicts[index], &tuned->balance, tuned->told_share,
			   tuned->untold);
	tuned->told_usec = now_usec;
	tuned->told_share = tuned->balance.share;
	tuned->untold = 0;
}

static void on_found(void *user, struct mpib_tuned *tuned, uint32_t before,
		     enum mpib_balance_reason reason)
{
	struct mpib_shares *shares = user;
	const struct mpib_slot *slot = mpib_registry_slot(shares->registry, tuned->slot);

	(void)reason;
	shares->verdicts[tuned->slot].share = tuned->balance.share;
	mpib_hints_set(shares->hints, tuned->slot, tuned->balance.share | MPIB_SHARE_AUTO,
		       slot->src_be, slot->dst_be);
	if (!tuned->untold++ && !tuned->told_usec)
		tuned->told_share = before;
	if (!tuned->told_usec || tuned->looked_usec - tuned->told_usec >= TELL_USEC)
		tell_found(shares, tuned, tuned->looked_usec);
}

bool mpib_shares_is_due(const struct mpib_shares *shares)
{
	return mpib_tuning_is_due(&shares->tuning);
}

void mpib_shares_tick(struct mpib_shares *shares, struct mpib_traffic *traffic, uint64_t now_usec)
{
	mpib_tuning_tick(&shares->tuning, traffic, now_usec, on_found, shares);
}

void mpib_shares_beat(struct mpib_shares *shares, uint64_t now_usec)
{
	struct mpib_tuned *tuned;

	mpib_tuning_beat(&shares->tuning, now_usec);
	TAILQ_FOREACH(tuned, &shares->tuning.all, all)
	{
		if (tuned->untold && now_usec - tuned->told_usec >= TELL_USEC)
			tell_found(shares, tuned, now_usec);
	}
}

const struct mpib_tuned *mpib_shares_tuned(const struct mpib_shares *shares, uint32_t index)
{
	return mpib_tuning_of(&shares->tuning, index);
}

uint32_t mpib_shares_n_auto(const struct mpib_shares *shares)
{
	return shares->tuning.count;
}

uint64_t mpib_shares_n_found(const struct mpib_shares *shares)
{
	return shares->tuning.changes;
}

/* ---- the policy ----------------------------------------------------------------------------- */

/* A slice is over after so long, looked at each so many slots. */
#define SLICE_USEC  50u
#define SLICE_SLOTS 16u

struct mpib_share_changes *mpib_share_changes_new(uint32_t most)
{
	/* Pages of it that nothing is put into cost nothing. */
	struct mpib_share_changes *changes =
		calloc(1, sizeof(*changes) + most * sizeof(changes->list[0]));

	if (changes)
		changes->refs = 1;
	return changes;
}

void mpib_share_changes_put(struct mpib_share_changes *changes)
{
	if (changes && --changes->refs == 0)
		free(changes);
}

void mpib_shares_begin_policy(struct mpib_shares *shares, struct mpib_policy *policy)
{
	(void)mpib_policy_free(shares->policy);
	shares->policy = policy;
	shares->text_version++;
	shares->apply_next = 0;
	shares->n_changed = 0;
	shares->changes = mpib_share_changes_new(mpib_registry_entries(shares->registry));
}

static void apply_policy(struct mpib_shares *shares, uint32_t index)
{
	const struct mpib_slot *slot = mpib_registry_slot(shares->registry, index);
	const struct mpib_verdict *verdict = &shares->verdicts[index];
	uint32_t before;

	if (!mpib_slot_has_flow(slot))
		return;
	before = mpib_shares_apply(shares, index);
	if (before == verdict->share)
		return;

	mpib_journal_hint(shares->journal, index, slot, verdict, before);
	if (shares->changes)
		shares->changes->list[shares->changes->n++] = (struct mpib_share_change){
			.slot = index,
			.src_be = slot->src_be,
			.dst_be = slot->dst_be,
			.before = before,
			.after = verdict->share,
		};
	shares->n_changed++;
}

bool mpib_shares_step(struct mpib_shares *shares)
{
	uint32_t end = mpib_registry_n_touched(shares->registry);
	uint64_t start = mpib_clock_usec(CLOCK_MONOTONIC);

	while (shares->apply_next < end) {
		apply_policy(shares, shares->apply_next++);
		if (shares->apply_next % SLICE_SLOTS == 0 &&
		    mpib_clock_usec(CLOCK_MONOTONIC) - start >= SLICE_USEC)
			break;
	}
	return shares->apply_next < end;
}

uint32_t mpib_shares_end_policy(struct mpib_shares *shares, struct mpib_share_changes **ret_changes)
{
	*ret_changes = shares->changes;
	shares->changes = NULL;
	return shares->n_changed;
}

struct mpib_policy_source *mpib_shares_source(struct mpib_shares *shares)
{
	return &shares->policy->source;
}

void mpib_shares_judge(const struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be,
		       struct mpib_candidate ret_candidates[MPIB_RULE_MAX],
		       struct mpib_verdict *ret)
{
	mpib_policy_candidates(shares->policy, src_be, dst_be, ret_candidates);
	match(shares, src_be, dst_be, ret);
	if (ret->rule == MPIB_RULE_OVERRIDE)
		ret_candidates[MPIB_RULE_OVERRIDE] = (struct mpib_candidate){ true, ret->given, 0 };
}

/* Seconds of @usec, and the one that has begun. */
static uint64_t seconds_up(uint64_t usec)
{
	return (usec + MPIB_CLOCK_SECOND - 1) / MPIB_CLOCK_SECOND;
}

/* As a comment: a policy file can't hold it. */
static size_t print_override(const struct mpib_shares *shares, uint32_t n, char *buf, size_t size)
{
	const struct mpib_override *o = mpib_overrides_at(shares->overrides, n);
	uint64_t now = mpib_clock_usec(CLOCK_BOOTTIME);
	char flow[MPIB_FLOW_TEXT_MAX];
	char share[MPIB_SHARE_RULE_TEXT_MAX];
	char time[48] = "";
	int len;

	if (o->until_usec)
		(void)snprintf(time, sizeof(time), ", for another %" PRIu64 " s",
			       o->until_usec > now ? seconds_up(o->until_usec - now) : 0);
	len = snprintf(buf, size, "%s; set by uid %u: %s share = %s%s\n", n ? "" : "\n", o->uid,
		       mpib_flow_format(o->src_be, o->dst_be, flow),
		       mpib_share_rule_format(o->share, share), time);
	return len > 0 ? (size_t)len : 0;
}

size_t mpib_shares_print(const struct mpib_shares *shares, struct mpib_shares_place *place,
			 char *buf, size_t size)
{
	uint32_t count = shares->overrides ? mpib_overrides_count(shares->overrides) : 0;
	size_t used = mpib_config_print_some(shares->policy, &place->policy, buf, size);

	if (used)
		return used;
	while (place->override < count && size - used >= MPIB_CONFIG_PIECE_MIN)
		used += print_override(shares, place->override++, buf + used, size - used);
	return used;
}

uint32_t mpib_shares_text_version(const struct mpib_shares *shares)
{
	return shares->text_version;
}

/* ---- what a person set ---------------------------------------------------------------------- */

int mpib_shares_open_overrides(struct mpib_shares *shares, int dir_fd, const char *dir,
			       struct mpib_cause *cause)
{
	return mpib_overrides_open(dir_fd, dir, &shares->overrides, cause);
}

void mpib_shares_move_overrides(struct mpib_shares *shares, int dir_fd)
{
	if (shares->overrides)
		mpib_overrides_move(shares->overrides, dir_fd);
}

int mpib_shares_check_overrides(struct mpib_shares *shares, struct mpib_cause *cause)
{
	return shares->overrides ? mpib_overrides_check(shares->overrides, cause) : 0;
}

const struct mpib_overrides *mpib_shares_overrides(const struct mpib_shares *shares)
{
	return shares->overrides;
}

/* What a flow has at present; where nobody registered it, what it would have. */
static void in_force(const struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be,
		     struct mpib_verdict *ret)
{
	struct mpib_slot *slot = mpib_registry_find_flow(shares->registry, src_be, dst_be);

	match(shares, src_be, dst_be, ret);
	if (slot)
		ret->share =
			shares->verdicts[mpib_registry_slot_index(shares->registry, slot)].share;
}

/* The share of one flow anew, after its override came or went; @before: that in force so far. */
static int reapply(struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be, uint32_t before,
		   struct mpib_share_change *ret_change)
{
	struct mpib_slot *slot = mpib_registry_find_flow(shares->registry, src_be, dst_be);
	struct mpib_verdict verdict;

	shares->text_version++;
	match(shares, src_be, dst_be, &verdict);
	*ret_change = (struct mpib_share_change){
		.slot = slot ? mpib_registry_slot_index(shares->registry, slot) : UINT32_MAX,
		.src_be = src_be,
		.dst_be = dst_be,
		.before = before,
		.after = verdict.share,
	};

	if (slot) {
		(void)mpib_shares_apply(shares, ret_change->slot);
		verdict = shares->verdicts[ret_change->slot];
		ret_change->after = verdict.share;
		if (before != verdict.share)
			mpib_journal_hint(shares->journal, ret_change->slot, slot, &verdict,
					  before);
	}
	return before != verdict.share;
}

int mpib_shares_set(struct mpib_shares *shares, const struct mpib_override *override,
		    struct mpib_share_change *ret_change, struct mpib_cause *cause)
{
	uint64_t now = mpib_clock_usec(CLOCK_BOOTTIME);
	struct mpib_verdict before;
	int r;

	if (!shares->overrides)
		return mpib_cause_set(cause, -ENOMEM, "the agent is out of memory");

	in_force(shares, override->src_be, override->dst_be, &before);
	r = mpib_overrides_set(shares->overrides, override, cause);
	if (r < 0)
		return r;

	mpib_journal_override(shares->journal, override, "set",
			      override->until_usec > now ? override->until_usec - now : 0,
			      override->uid);
	return reapply(shares, override->src_be, override->dst_be, before.share, ret_change);
}

static int end_override(struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be,
			const char *how, uid_t uid, struct mpib_share_change *ret_change,
			struct mpib_cause *cause)
{
	const struct mpib_override *there = find_override(shares, src_be, dst_be);
	struct mpib_verdict before;
	struct mpib_override copy;
	int saved;
	int r;

	if (!there)
		return mpib_cause_set(cause, -ENOENT, "no share is set for this flow");

	copy = *there;
	in_force(shares, src_be, dst_be, &before);
	saved = mpib_overrides_unset(shares->overrides, src_be, dst_be, cause);
	if (saved < 0)
		mpib_journal_adopt(shares->journal, true, cause->text);
	mpib_journal_override(shares->journal, &copy, how, 0, uid);
	r = reapply(shares, src_be, dst_be, before.share, ret_change);
	return saved < 0 ? saved : r;
}

int mpib_shares_unset(struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be, uid_t uid,
		      struct mpib_share_change *ret_change, struct mpib_cause *cause)
{
	return end_override(shares, src_be, dst_be, "unset", uid, ret_change, cause);
}

void mpib_shares_expire(struct mpib_shares *shares)
{
	const struct mpib_override *over;
	struct mpib_share_change change;
	struct mpib_cause cause;

	while (shares->overrides &&
	       (over = mpib_overrides_expired(shares->overrides, mpib_clock_usec(CLOCK_BOOTTIME))))
		(void)end_override(shares, over->src_be, over->dst_be, "expired", over->uid,
				   &change, &cause);
}

uint32_t mpib_shares_seconds_left(const struct mpib_shares *shares,
				  const struct mpib_verdict *verdict, uint32_t src_be,
				  uint32_t dst_be)
{
	const struct mpib_override *override = NULL;
	uint64_t now = mpib_clock_usec(CLOCK_BOOTTIME);

	if (verdict->rule == MPIB_RULE_OVERRIDE)
		override = find_override(shares, src_be, dst_be);
	if (!override || !override->until_usec)
		return 0;
	if (override->until_usec <= now)
		return 1;
	return (uint32_t)seconds_up(override->until_usec - now);
}
