/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/flows/flows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/policy/config.h"
#include "agent/flows/flows_impl.h"
#include "common/ipv4.h"

static void match(const struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be,
		  struct mpib_verdict *ret)
{
	const struct mpib_override *override =
		flows->overrides ? mpib_overrides_find(flows->overrides, src_be, dst_be) : NULL;

	mpib_policy_match(flows->policy, src_be, dst_be, ret);
	if (!override)
		return;

	ret->rule = MPIB_RULE_OVERRIDE;
	ret->share = override->share;
	ret->line = 0;
}

/* The share of a slot's flow under the policy in force, into slot and table. Returns the share
 * that was there before. */
uint32_t mpib_flows_apply(struct mpib_flows *flows, uint32_t index)
{
	struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
	uint32_t before = slot->verdict.share;

	match(flows, slot->src_be, slot->dst_be, &slot->verdict);
	mpib_hints_set(flows->hints, index, slot->verdict.share, slot->src_be, slot->dst_be);
	return before;
}

void mpib_flows_clear(struct mpib_flows *flows, uint32_t index)
{
	memset(&mpib_registry_slot(flows->registry, index)->verdict, 0,
	       sizeof(struct mpib_verdict));
	mpib_hints_set(flows->hints, index, 0, 0, 0);
}

/* ---- registrations -------------------------------------------------------------------------- */

void mpib_flows_refused(struct mpib_flows *flows, struct mpib_user *user, pid_t pid,
			enum mpib_good good, const char *why)
{
	flows->n_refused++;
	user->refused.of[good]++;
	if (!mpib_journal_quota(flows->journal, pid, user->uid, good, user->refused.of[good], why))
		return;
	user->refused.of[good] = 0;
}

/* What is shared among users. False: the error is about something else. */
static bool refuse_share(struct mpib_flows *flows, const struct mpib_peer *peer, int error)
{
	enum mpib_good good = MPIB_GOOD_SLOTS;
	const char *why;

	switch (error) {
	case -EDQUOT:
		why = "no free slot in this user's part of the table; an eighth is kept for "
		      "others; raise slots in [agent] and reload (jobs go on)";
		break;
	case -EACCES:
		why = "no free slot but those kept for root, a sixteenth of the table; raise slots "
		      "in [agent] and reload (jobs go on)";
		break;
	case -EUSERS:
		why = "as many registrations as one user may have";
		good = MPIB_GOOD_REGISTRATIONS;
		break;
	default:
		return false;
	}

	mpib_flows_refused(flows, peer->user, peer->pid, good, why);
	return true;
}

static uint8_t refuse(struct mpib_flows *flows, const struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, int error)
{
	const char *why = "out of memory";
	uint8_t status = MPIB_STATUS_NO_SLOT;

	if (refuse_share(flows, peer, error))
		return status;

	switch (error) {
	case -EINVAL:
		why = "a SOUT address is 0";
		status = MPIB_STATUS_INVALID;
		break;
	case -EEXIST:
		why = "this connection id of the process has another flow already";
		status = MPIB_STATUS_INVALID;
		break;
	case -ENOSPC:
		why = "no free slot; raise slots in [agent] and reload (jobs go on)";
		break;
	case -EIO:
		why = "the state file can't be written, marked or removed, so a restart could "
		      "give the slot away; mend the agent's directory";
		break;
	default:
		break;
	}

	flows->n_refused++;
	mpib_journal_refusal(flows->journal, peer, conn_id, addresses, why);
	return status;
}

uint8_t mpib_flows_register(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id,
			    const struct mpib_addresses *addresses, uint32_t *ret_slot)
{
	struct mpib_reg *reg;
	int r;

	r = mpib_registry_add(flows->registry, peer, conn_id, addresses, &reg);
	if (r == -EEXIST && reg->adopted) {
		/* Its end couldn't be saved before the agent restarted. */
		mpib_flows_drop(flows, reg, "its process has another flow by now");
		r = mpib_registry_add(flows->registry, peer, conn_id, addresses, &reg);
	}
	if (r < 0)
		return refuse(flows, peer, conn_id, addresses, r);

	*ret_slot = reg->slot;
	if (r == 0)
		return MPIB_STATUS_OK;

	/* State before table before answer: what was promised survives a kill at any moment. */
	if (mpib_flows_remember(flows, reg) < 0) {
		(void)mpib_registry_remove(flows->registry, reg);
		return refuse(flows, peer, conn_id, addresses, -EIO);
	}
	(void)mpib_flows_apply(flows, reg->slot);
	mpib_flows_claim(flows, reg);
	flows->n_registered++;
	mpib_journal_register(flows->journal, reg, mpib_registry_slot(flows->registry, reg->slot));
	return MPIB_STATUS_OK;
}

/* ---- the policy as a text ------------------------------------------------------------------- */

static void drop_text(struct mpib_flows *flows)
{
	free(flows->text);
	flows->text = NULL;
	flows->text_version++;
}

/* As comments: a policy file can't hold them. */
static void print_overrides(const struct mpib_flows *flows, FILE *out)
{
	uint64_t now = mpib_flows_boot_usec();
	uint32_t count = flows->overrides ? mpib_overrides_count(flows->overrides) : 0;

	for (uint32_t n = 0; n < count; n++) {
		const struct mpib_override *o = mpib_overrides_at(flows->overrides, n);
		char flow[MPIB_FLOW_TEXT_MAX];

		(void)fprintf(out, "%s; set by uid %u: %s share = %u", n ? "" : "\n", o->uid,
			      mpib_flow_format(o->src_be, o->dst_be, flow), o->share);
		if (o->until_usec)
			(void)fprintf(out, ", for another %" PRIu64 " s",
				      o->until_usec > now
					      ? (o->until_usec - now + 999999u) / 1000000u
					      : 0);
		(void)fputc('\n', out);
	}
}

const char *mpib_flows_text(struct mpib_flows *flows, uint32_t *ret_version)
{
	size_t len = 0;
	FILE *memory;

	if (!flows->text) {
		memory = open_memstream(&flows->text, &len);
		if (!memory)
			return NULL;
		mpib_config_print(flows->policy, memory);
		print_overrides(flows, memory);
		if (fclose(memory)) {
			drop_text(flows);
			return NULL;
		}
	}

	*ret_version = flows->text_version;
	return flows->text;
}

void mpib_flows_done(struct mpib_flows *flows)
{
	drop_text(flows);
	mpib_flows_forget_ending(flows);
	mpib_flows_forget_unclaimed(flows);
	flows->policy = mpib_policy_free(flows->policy);
	flows->overrides = mpib_overrides_free(flows->overrides);
}

void mpib_flows_judge(const struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be,
		      struct mpib_candidate ret_candidates[MPIB_RULE_MAX], struct mpib_verdict *ret)
{
	mpib_policy_candidates(flows->policy, src_be, dst_be, ret_candidates);
	match(flows, src_be, dst_be, ret);
	if (ret->rule == MPIB_RULE_OVERRIDE)
		ret_candidates[MPIB_RULE_OVERRIDE] = (struct mpib_candidate){ true, ret->share, 0 };
}

/* ---- policy --------------------------------------------------------------------------------- */

uint32_t mpib_flows_set_policy(struct mpib_flows *flows, struct mpib_policy *policy,
			       struct mpib_flow_change **ret_changes)
{
	uint32_t entries = mpib_registry_entries(flows->registry);
	struct mpib_flow_change *changes = NULL;
	uint32_t n_changed = 0;

	(void)mpib_policy_free(flows->policy);
	flows->policy = policy;
	drop_text(flows);
	if (ret_changes)
		changes = calloc(entries, sizeof(*changes));

	for (uint32_t index = 0; index < entries; index++) {
		const struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
		uint32_t before;

		if (!mpib_slot_has_flow(slot))
			continue;

		before = mpib_flows_apply(flows, index);
		if (before == slot->verdict.share)
			continue;

		mpib_journal_hint(flows->journal, index, slot, before);
		if (changes)
			changes[n_changed] = (struct mpib_flow_change){
				.slot = index,
				.src_be = slot->src_be,
				.dst_be = slot->dst_be,
				.before = before,
				.after = slot->verdict.share,
			};
		n_changed++;
	}

	if (ret_changes)
		*ret_changes = changes;
	return n_changed;
}

/* ---- overrides ------------------------------------------------------------------------------ */

uint64_t mpib_flows_boot_usec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* The share of one flow anew, after its override came or went; @before: that in force so far. */
static int reapply(struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be, uint32_t before,
		   struct mpib_flow_change *ret_change)
{
	struct mpib_slot *slot = mpib_registry_find_flow(flows->registry, src_be, dst_be);
	struct mpib_verdict verdict;

	drop_text(flows);
	match(flows, src_be, dst_be, &verdict);
	*ret_change = (struct mpib_flow_change){
		.slot = slot ? mpib_registry_slot_index(flows->registry, slot) : UINT32_MAX,
		.src_be = src_be,
		.dst_be = dst_be,
		.before = before,
		.after = verdict.share,
	};

	if (slot) {
		(void)mpib_flows_apply(flows, ret_change->slot);
		if (before != verdict.share)
			mpib_journal_hint(flows->journal, ret_change->slot, slot, before);
	}
	return before != verdict.share;
}

int mpib_flows_set(struct mpib_flows *flows, const struct mpib_override *override,
		   struct mpib_flow_change *ret_change, struct mpib_cause *cause)
{
	uint64_t now = mpib_flows_boot_usec();
	struct mpib_verdict before;
	int r;

	if (!flows->overrides)
		return mpib_cause_set(cause, -ENOMEM, "the agent is out of memory");

	match(flows, override->src_be, override->dst_be, &before);
	r = mpib_overrides_set(flows->overrides, override, cause);
	if (r < 0)
		return r;

	mpib_journal_override(flows->journal, override, "set",
			      override->until_usec > now ? override->until_usec - now : 0,
			      override->uid);
	return reapply(flows, override->src_be, override->dst_be, before.share, ret_change);
}

static int end_override(struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be, const char *how,
			uid_t uid, struct mpib_flow_change *ret_change, struct mpib_cause *cause)
{
	const struct mpib_override *there =
		flows->overrides ? mpib_overrides_find(flows->overrides, src_be, dst_be) : NULL;
	struct mpib_override copy;
	int saved;
	int r;

	if (!there)
		return mpib_cause_set(cause, -ENOENT, "no share is set for this flow");

	copy = *there;
	saved = mpib_overrides_unset(flows->overrides, src_be, dst_be, cause);
	if (saved < 0)
		mpib_journal_adopt(flows->journal, true, cause->text);
	mpib_journal_override(flows->journal, &copy, how, 0, uid);
	r = reapply(flows, src_be, dst_be, copy.share, ret_change);
	return saved < 0 ? saved : r;
}

int mpib_flows_unset(struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be, uid_t uid,
		     struct mpib_flow_change *ret_change, struct mpib_cause *cause)
{
	return end_override(flows, src_be, dst_be, "unset", uid, ret_change, cause);
}

void mpib_flows_expire(struct mpib_flows *flows)
{
	const struct mpib_override *over;
	struct mpib_flow_change change;
	struct mpib_cause cause;

	while (flows->overrides &&
	       (over = mpib_overrides_expired(flows->overrides, mpib_flows_boot_usec())))
		(void)end_override(flows, over->src_be, over->dst_be, "expired", over->uid, &change,
				   &cause);
}
