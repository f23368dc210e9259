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

/* Reads the file: parsed it is slice by slice. */
static int begin_loading(struct mpib_manager *m, struct mpib_cause *cause)
{
	int r = mpib_config_open(m->args.config, &m->loading, cause);

	if (r == -ENOENT)
		return mpib_cause_set(cause, r,
				      "%s: no such file; the policy in force stays; an empty file "
				      "means the defaults",
				      m->args.config);
	return r;
}

/* Takes @policy, its callee's also on failure, into force: the shares follow, slice by slice. */
static int begin_policy(struct mpib_manager *m, struct mpib_policy *policy,
			struct mpib_cause *cause)
{
	int r = mpib_hints_grow(m->hints, policy->slots, cause);

	if (r < 0) {
		(void)mpib_policy_free(policy);
		return r;
	}

	mpib_registry_grow(m->registry, mpib_hints_entries(m->hints));
	mpib_manager_settle_slots(m, policy);
	m->policy_missing = false;
	mpib_shares_begin_policy(m->flows.shares, policy);
	m->reloading = true;
	return 0;
}

/* A slice of the file, or at its end what follows. */
static int go_on_loading(struct mpib_manager *m, struct mpib_cause *cause)
{
	struct mpib_policy *policy = NULL;
	int r = mpib_config_step(m->loading, &policy, cause);

	if (r > 0)
		return 0;
	m->loading = mpib_config_loading_free(m->loading);
	return r < 0 ? r : begin_policy(m, policy, cause);
}

static void end_reload(struct mpib_manager *m, struct mpib_share_changes *changes, bool refused)
{
	m->reloading = false;
	mpib_manager_tell_ready(m);
	mpib_server_reloaded(m->server, changes, refused);
	mpib_share_changes_put(changes);
}

static void refuse(struct mpib_manager *m, const struct mpib_cause *cause)
{
	struct mpib_share_changes *changes = mpib_share_changes_new(0);

	if (changes)
		changes->refused = *cause;
	m->error = *cause;
	m->n_reloads_refused++;
	mpib_journal_reload_refused(m->journal, cause->text);
	end_reload(m, changes, true);
}

static void take_over(struct mpib_manager *m)
{
	struct mpib_share_changes *changes;
	uint32_t n = mpib_shares_end_policy(m->flows.shares, &changes);

	m->error.text[0] = '\0';
	m->n_reloads++;
	m->policy_usec = mpib_clock_usec(CLOCK_REALTIME);
	mpib_journal_reload(m->journal, m->args.config, mpib_registry_n_flows(m->registry), n);
	end_reload(m, changes, false);
}

/* Who asks while one is under way gets another: the file may have changed since it was read. */
bool mpib_manager_reload_step(struct mpib_manager *m)
{
	struct mpib_cause cause;
	int r = 0;

	if (m->loading) {
		r = go_on_loading(m, &cause);
	} else if (m->reloading) {
		if (!mpib_shares_step(m->flows.shares))
			take_over(m);
	} else if (m->reload_due) {
		m->reload_due = false;
		mpib_server_reload_begins(m->server);
		mpib_notify_reloading();
		r = begin_loading(m, &cause);
	}
	if (r < 0)
		refuse(m, &cause);
	return m->loading || m->reloading || m->reload_due;
}

void mpib_manager_reload(void *user)
{
	struct mpib_manager *m = user;

	m->reload_due = true;
	mpib_manager_work(m);
}

int mpib_manager_on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
	(void)source;
	(void)info;
	mpib_manager_reload(user);
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
