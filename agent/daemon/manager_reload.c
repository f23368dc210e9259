/* SPDX-License-Identifier: Apache-2.0 */
/* A reload: from the signal, or mpibctl, to the shares (flows/shares.c), which write them into the
 * table (state/hints.c). */
#include <errno.h>

#include "agent/base/clock.h"
#include "agent/daemon/manager_impl.h"
#include "agent/journal/notify.h"
#include "agent/policy/config.h"
#include "common/mpib_agent_iface.h"

void mpib_manager_settle_slots(struct mpib_manager *m, struct mpib_policy *policy)
{
	uint32_t entries = mpib_hints_entries(m->hints);
	struct mpib_cause text;

	if (policy->slots < entries) {
		(void)mpib_cause_set(
			&text, 0,
			"%s: slots = %u, but the table has %u and doesn't shrink under "
			"jobs: %u are in force; for fewer stop all jobs and the agent, "
			"and remove %s/" MPIB_HINTS_NAME,
			m->args.config, policy->slots, entries, entries, m->args.dir);
		mpib_journal_policy(m->journal, text.text);
	}
	policy->slots = entries;
}

static int load_policy(struct mpib_manager *m, struct mpib_share_change **ret_changes,
		       uint32_t *ret_n, struct mpib_cause *cause)
{
	struct mpib_policy *policy = NULL;
	int r;

	r = mpib_config_load(m->args.config, &policy, cause);
	if (r == -ENOENT)
		return mpib_cause_set(cause, r,
				      "%s: no such file; the policy in force stays; an empty file "
				      "means the defaults",
				      m->args.config);
	if (r < 0)
		return r;

	r = mpib_hints_grow(m->hints, policy->slots, cause);
	if (r < 0) {
		(void)mpib_policy_free(policy);
		return r;
	}

	mpib_registry_grow(m->registry, mpib_hints_entries(m->hints));
	mpib_manager_settle_slots(m, policy);
	m->policy_missing = false;
	*ret_n = mpib_shares_set_policy(m->flows.shares, policy, ret_changes);
	m->policy_usec = mpib_clock_usec(CLOCK_REALTIME);
	return 0;
}

int mpib_manager_reload(void *user, struct mpib_share_change **ret_changes, uint32_t *ret_n,
			struct mpib_cause *cause)
{
	struct mpib_manager *m = user;
	int r;

	*ret_n = 0;
	mpib_notify_reloading();
	r = load_policy(m, ret_changes, ret_n, cause);
	if (r < 0) {
		m->error = *cause;
		m->n_reloads_refused++;
		mpib_journal_reload_refused(m->journal, cause->text);
	} else {
		m->error.text[0] = '\0';
		m->n_reloads++;
		mpib_journal_reload(m->journal, m->args.config, mpib_registry_n_flows(m->registry),
				    *ret_n);
	}

	mpib_manager_tell_ready(m);
	return r;
}

int mpib_manager_on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
	struct mpib_cause cause;
	uint32_t n = 0;

	(void)source;
	(void)info;
	(void)mpib_manager_reload(user, NULL, &n, &cause);
	return 0;
}

void mpib_manager_tell_missing(const struct mpib_manager *m)
{
	struct mpib_cause text;

	(void)mpib_cause_set(&text, 0,
			     "there is no policy file %s: the built-in defaults are in force; "
			     "write it and reload",
			     m->args.config);
	mpib_journal_policy(m->journal, text.text);
}
