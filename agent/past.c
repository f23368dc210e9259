/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/past.h"

#include <errno.h>
#include <string.h>

#include "agent/adopt.h"

/* What the state file brought, while it is read. */
struct adoption {
	struct mpib_server *server;
	struct mpib_flows *flows;
	uint32_t gone;
	uint32_t unclaimed; /* records whose peer had no name: their slots are kept */
	uint32_t refused;
};

static void adopt_record(const struct mpib_adopt_record *record, void *user)
{
	struct adoption *adoption = user;
	struct mpib_flows *flows = adoption->flows;
	int r;

	if (record->slot >= mpib_hints_entries(flows->hints)) {
		adoption->refused++;
		return;
	}

	r = mpib_server_adopt(adoption->server, record);
	if (r == -ESRCH) {
		adoption->gone++;
	} else if (r == -ENOENT) {
		if (mpib_registry_keep(flows->registry, record->slot, record->sout_src_be,
				       record->sout_dst_be) == 0)
			adoption->unclaimed++;
	} else if (r < 0) {
		adoption->refused++;
	}
}

static void report_adoption(const struct adoption *adoption, const struct mpib_adopt_result *result,
			    int error, uint32_t kept)
{
	const struct mpib_flows *flows = adoption->flows;
	bool bad = error < 0 || result->damaged || result->n_damaged || adoption->refused;
	struct mpib_cause text;

	if (result->missing && !kept)
		return;

	(void)mpib_cause_set(
		&text, 0,
		"state of an earlier agent%s%s: %u registrations of %u processes re-adopted, %u of "
		"ended processes dropped, %u damaged or contradictory, %u slots kept for flows "
		"that may come back",
		error < 0	  ? " unreadable, "
		: result->missing ? " missing"
		: result->damaged ? " damaged"
		: result->foreign ? " of another boot, namespace or version"
				  : "",
		error < 0 ? strerror(-error) : "", mpib_registry_n_regs(flows->registry),
		mpib_registry_n_peers(flows->registry), adoption->gone,
		result->n_damaged + adoption->refused, kept + adoption->unclaimed);
	mpib_journal_adopt(flows->journal, bad, text.text);
}

void mpib_past_adopt(struct mpib_server *server, struct mpib_flows *flows, int dir_fd,
		     const char *dir)
{
	struct adoption adoption = { .server = server, .flows = flows };
	struct mpib_adopt_result result;
	struct mpib_cause cause;
	uint32_t kept;
	bool untrusted;
	int r;

	if (mpib_adopt_new(dir_fd, dir, &flows->adopt, &cause) < 0)
		mpib_journal_adopt(flows->journal, true, cause.text);
	if (mpib_overrides_open(dir_fd, dir, &flows->overrides, &cause) < 0)
		mpib_journal_adopt(flows->journal, true, cause.text);
	mpib_flows_tick(flows);

	r = mpib_adopt_load(dir_fd, adopt_record, &adoption, &result);
	untrusted =
		r < 0 || result.missing || result.damaged || result.n_damaged || adoption.refused;
	kept = mpib_flows_settle_slots(flows, untrusted);
	report_adoption(&adoption, &result, r, kept);

	if (flows->adopt && mpib_adopt_commit(flows->adopt, &cause) < 0) {
		mpib_journal_adopt(flows->journal, true, cause.text);
		flows->adopt = mpib_adopt_free(flows->adopt);
	}
}
