/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's requests. What is long is not built at once but frame by frame as the reader takes it,
 * so that a reader who never comes back costs no more than its buffers. */
#include "agent/admin/session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "agent/admin/session_impl.h"
#include "agent/base/clock.h"
#include "common/macros.h"
#include "common/share.h"

static struct mpib_msg_header admin_header(uint8_t type, size_t len)
{
	return (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)len,
		.msg_type = type,
	};
}

void mpib_session_put_end(struct mpib_session *session, enum mpib_admin_verdict verdict,
			  const char *text)
{
	size_t len = strnlen(text, MPIB_ADMIN_TEXT_MAX);
	struct mpib_admin_end end = {
		.header = admin_header(MPIB_ADMIN_END, sizeof(end) + len),
		.verdict = (uint8_t)verdict,
		.total = session->dump_total,
	};

	mpib_outbox_put(session->out, &end, sizeof(end));
	mpib_outbox_put(session->out, text, len);
	session->dump = 0;
	session->dump_total = 0;
	mpib_share_changes_put(session->changes);
	session->changes = NULL;
}

void mpib_session_put_records(struct mpib_session *session, const void *records, size_t size,
			      size_t count)
{
	struct mpib_admin_records head = {
		.header = admin_header(MPIB_ADMIN_RECORDS, sizeof(head) + size * count),
		.record_size = (uint16_t)size,
		.count = (uint16_t)count,
	};

	mpib_outbox_put(session->out, &head, sizeof(head));
	mpib_outbox_put(session->out, records, size * count);
	session->dump_total += (uint32_t)count;
}

static void end_reload(struct mpib_session *session)
{
	struct mpib_cause why = { "the agent is out of memory" };

	if (!session->refused) {
		mpib_session_put_end(session, MPIB_ADMIN_OK, "");
		return;
	}
	if (session->changes)
		why = session->changes->refused;
	mpib_session_put_end(session, MPIB_ADMIN_FAILED, why.text);
}

static void dump_changes(struct mpib_session *session)
{
	struct mpib_admin_change
		records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
			sizeof(struct mpib_admin_change)];
	size_t count = 0;

	while (session->changes && session->dump_cursor < session->changes->n &&
	       count < MPIB_ARRAY_SIZE(records)) {
		const struct mpib_share_change *change =
			&session->changes->list[session->dump_cursor++];

		records[count++] = (struct mpib_admin_change){
			.slot = change->slot,
			.src_be = change->src_be,
			.dst_be = change->dst_be,
			.before = change->before,
			.after = change->after,
		};
	}

	if (count)
		mpib_session_put_records(session, records, sizeof(records[0]), count);
	else
		end_reload(session);
}

static void answer_status(struct mpib_session *session)
{
	struct mpib_admin_status status = { 0 };

	session->ops->status(session->ops_user, &status);
	mpib_session_put_records(session, &status, sizeof(status), 1);
	mpib_session_put_end(session, MPIB_ADMIN_OK, "");
}

/* Changes are for root and for the user that the agent runs as. One who left before the request
 * was read has been told that it failed: so it has. */
static bool may_change(struct mpib_session *session)
{
	struct pollfd p = { .fd = session->fd };

	if (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR)) {
		mpib_session_put_end(session, MPIB_ADMIN_FAILED, "nobody waits for it any more");
		return false;
	}
	if (session->uid == 0 || session->uid == geteuid())
		return true;

	mpib_session_put_end(session, MPIB_ADMIN_FORBIDDEN,
			     "changes are for root and the agent's own user");
	return false;
}

static void answer_reload(struct mpib_session *session)
{
	if (may_change(session))
		session->ops->reload(session->ops_user, session);
}

bool mpib_session_waits(const struct mpib_session *session)
{
	return session->waits;
}

void mpib_session_wait(struct mpib_session *session, struct mpib_session_list *waiting)
{
	session->waits = true;
	LIST_INSERT_HEAD(waiting, session, waiting);
}

static void stop_waiting(struct mpib_session *session)
{
	if (!session->waits)
		return;
	session->waits = false;
	LIST_REMOVE(session, waiting);
}

void mpib_sessions_reloaded(struct mpib_session_list *waiting, struct mpib_share_changes *changes,
			    bool refused)
{
	while (!LIST_EMPTY(waiting)) {
		struct mpib_session *session = LIST_FIRST(waiting);

		stop_waiting(session);
		session->dump = MPIB_ADMIN_RELOAD;
		session->dump_cursor = 0;
		session->refused = refused;
		session->changes = changes;
		if (changes)
			changes->refs++;
		session->wake(session->owner);
	}
}

static int change_flow(struct mpib_session *session, uint8_t type,
		       const struct mpib_admin_flow_request *request,
		       struct mpib_share_change *ret_change, struct mpib_cause *cause)
{
	struct mpib_override override = {
		.src_be = request->src_be,
		.dst_be = request->dst_be,
		.share = request->share,
		.uid = session->uid,
	};

	if (type == MPIB_ADMIN_UNSET)
		return mpib_shares_unset(session->flows->shares, request->src_be, request->dst_be,
					 session->uid, ret_change, cause);

	if (request->seconds)
		override.until_usec = mpib_clock_usec(CLOCK_BOOTTIME) +
				      (uint64_t)request->seconds * MPIB_CLOCK_SECOND;
	return mpib_shares_set(session->flows->shares, &override, ret_change, cause);
}

static void answer_change(struct mpib_session *session, uint8_t type,
			  const struct mpib_admin_flow_request *request)
{
	struct mpib_cause cause = { "" };
	struct mpib_share_change change;
	struct mpib_admin_change record;

	if (!may_change(session))
		return;
	if (!request->src_be || !request->dst_be || !mpib_share_rule_is_valid(request->share) ||
	    request->seconds > MPIB_OVERRIDE_SECONDS_MAX) {
		mpib_session_put_end(session, MPIB_ADMIN_FAILED, "no such flow, share or time");
		return;
	}
	if (change_flow(session, type, request, &change, &cause) < 0) {
		mpib_session_put_end(session, MPIB_ADMIN_FAILED, cause.text);
		return;
	}

	record = (struct mpib_admin_change){
		.slot = change.slot,
		.src_be = change.src_be,
		.dst_be = change.dst_be,
		.before = change.before,
		.after = change.after,
	};
	mpib_session_put_records(session, &record, sizeof(record), 1);
	mpib_session_put_end(session, MPIB_ADMIN_OK, "");
}

static void answer_policy(struct mpib_session *session)
{
	session->dump = MPIB_ADMIN_POLICY;
	session->dump_place = (struct mpib_shares_place){ 0 };
	session->dump_version = mpib_shares_text_version(session->flows->shares);
}

static void dump_text(struct mpib_session *session)
{
	const struct mpib_shares *shares = session->flows->shares;
	struct mpib_admin_text record = { 0 };

	if (session->dump_version != mpib_shares_text_version(shares)) {
		mpib_session_put_end(session, MPIB_ADMIN_FAILED,
				     "the policy changed meanwhile; ask again");
		return;
	}

	record.len = (uint32_t)mpib_shares_print(shares, &session->dump_place, record.text,
						 sizeof(record.text));
	if (record.len)
		mpib_session_put_records(session, &record, sizeof(record), 1);
	else
		mpib_session_put_end(session, MPIB_ADMIN_OK, "");
}

static bool has_events(const struct mpib_session *session)
{
	return session->ring && session->next_event < session->ring->end;
}

static void put_events(struct mpib_session *session)
{
	struct mpib_admin_event records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
					sizeof(struct mpib_admin_event)];
	size_t count = mpib_event_ring_take(session->ring, &session->next_event, records,
					    MPIB_ARRAY_SIZE(records));

	mpib_session_put_records(session, records, sizeof(records[0]), count);
}

static void answer_monitor(struct mpib_session *session)
{
	struct mpib_admin_event event;
	const char *why = "this connection watches already";
	char text[64];

	if (!session->ring)
		why = session->ops->watch(session->ops_user, session);
	if (why) {
		mpib_session_put_end(session, MPIB_ADMIN_FAILED, why);
		return;
	}

	(void)snprintf(text, sizeof(text), "watching: %u flows in %u slots",
		       mpib_registry_n_flows(session->flows->registry),
		       mpib_registry_entries(session->flows->registry));
	mpib_event_fill(&event, LOG_INFO, "monitor", text);
	mpib_session_put_records(session, &event, sizeof(event), 1);
}

static void dump(struct mpib_session *session)
{
	switch (session->dump) {
	case MPIB_ADMIN_FLOWS:
		mpib_session_dump_flows(session);
		break;
	case MPIB_ADMIN_RELOAD:
		dump_changes(session);
		break;
	default:
		dump_text(session);
		break;
	}
}

bool mpib_session_has_more(const struct mpib_session *session)
{
	return has_events(session) || session->dump;
}

void mpib_session_step(struct mpib_session *session)
{
	if (has_events(session))
		put_events(session);
	else
		dump(session);
}

void mpib_session_stop_dump(struct mpib_session *session)
{
	session->dump = 0;
}

bool mpib_session_watches(const struct mpib_session *session)
{
	return session->ring != NULL;
}

void mpib_session_done(struct mpib_session *session)
{
	stop_waiting(session);
	mpib_share_changes_put(session->changes);
}

/* @pid 0: of all processes. */
static void answer_flows(struct mpib_session *session, pid_t pid)
{
	session->dump = MPIB_ADMIN_FLOWS;
	session->dump_pid = pid;
	session->dump_cursor = 0;
}

/* A request about one flow or process; false where it is not one, which is answered. */
static bool read_flow_request(struct mpib_session *session, uint8_t type, const uint8_t *frame,
			      size_t len, struct mpib_admin_flow_request *ret)
{
	if (len == sizeof(*ret)) {
		memcpy(ret, frame, sizeof(*ret));
		return true;
	}

	mpib_outbox_answer(session->out, type, MPIB_STATUS_INVALID, 0);
	return false;
}

void mpib_session_frame(struct mpib_session *session, uint8_t type, const uint8_t *frame,
			size_t len)
{
	struct mpib_admin_flow_request request;

	if (type == MPIB_ADMIN_EXPLAIN || type == MPIB_ADMIN_SET || type == MPIB_ADMIN_UNSET ||
	    type == MPIB_ADMIN_FLOWS_OF) {
		if (!read_flow_request(session, type, frame, len, &request))
			return;
		if (type == MPIB_ADMIN_EXPLAIN)
			mpib_session_explain(session, &request);
		else if (type == MPIB_ADMIN_FLOWS_OF)
			answer_flows(session, (pid_t)request.pid);
		else
			answer_change(session, type, &request);
		return;
	}

	if (len != sizeof(struct mpib_msg_header)) {
		mpib_outbox_answer(session->out, type, MPIB_STATUS_INVALID, 0);
		return;
	}

	switch (type) {
	case MPIB_ADMIN_STATUS:
		answer_status(session);
		break;
	case MPIB_ADMIN_FLOWS:
		answer_flows(session, 0);
		break;
	case MPIB_ADMIN_RELOAD:
		answer_reload(session);
		break;
	case MPIB_ADMIN_POLICY:
		answer_policy(session);
		break;
	case MPIB_ADMIN_MONITOR:
		answer_monitor(session);
		break;
	default:
		mpib_outbox_answer(session->out, type, MPIB_STATUS_INVALID, 0);
		break;
	}
}
