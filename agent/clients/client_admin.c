/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's requests. What is long is not built at once but frame by frame as the reader takes it,
 * so that a reader who never comes back costs no more than its buffers. */
#include "agent/clients/client_impl.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "common/macros.h"

static struct mpib_msg_header admin_header(uint8_t type, size_t len)
{
	return (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)len,
		.msg_type = type,
	};
}

void mpib_client_put_end(struct mpib_client *client, enum mpib_admin_verdict verdict,
			 const char *text)
{
	size_t len = strnlen(text, MPIB_ADMIN_TEXT_MAX);
	struct mpib_admin_end end = {
		.header = admin_header(MPIB_ADMIN_END, sizeof(end) + len),
		.verdict = (uint8_t)verdict,
		.total = client->dump_total,
	};

	mpib_client_put(client, &end, sizeof(end));
	mpib_client_put(client, text, len);
	client->dump = 0;
	client->dump_total = 0;
	free(client->changes);
	client->changes = NULL;
}

void mpib_client_put_records(struct mpib_client *client, const void *records, size_t size,
			     size_t count)
{
	struct mpib_admin_records head = {
		.header = admin_header(MPIB_ADMIN_RECORDS, sizeof(head) + size * count),
		.record_size = (uint16_t)size,
		.count = (uint16_t)count,
	};

	mpib_client_put(client, &head, sizeof(head));
	mpib_client_put(client, records, size * count);
	client->dump_total += (uint32_t)count;
}

static void dump_changes(struct mpib_client *client)
{
	struct mpib_admin_change
		records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
			sizeof(struct mpib_admin_change)];
	size_t count = 0;

	while (client->dump_cursor < client->n_changes && count < MPIB_ARRAY_SIZE(records)) {
		const struct mpib_share_change *change = &client->changes[client->dump_cursor++];

		records[count++] = (struct mpib_admin_change){
			.slot = change->slot,
			.src_be = change->src_be,
			.dst_be = change->dst_be,
			.before = change->before,
			.after = change->after,
		};
	}

	if (count)
		mpib_client_put_records(client, records, sizeof(records[0]), count);
	else
		mpib_client_put_end(client, MPIB_ADMIN_OK, "");
}

static void admin_status(struct mpib_client *client)
{
	struct mpib_admin_status status = { 0 };

	client->ops->status(client->ops_user, &status);
	mpib_client_put_records(client, &status, sizeof(status), 1);
	mpib_client_put_end(client, MPIB_ADMIN_OK, "");
}

/* Changes are for root and for the user that the agent runs as. One who left before the request
 * was read has been told that it failed: so it has. */
static bool may_change(struct mpib_client *client)
{
	struct pollfd p = { .fd = client->fd };

	if (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR)) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "nobody waits for it any more");
		return false;
	}
	if (client->uid == 0 || client->uid == geteuid())
		return true;

	mpib_client_put_end(client, MPIB_ADMIN_FORBIDDEN,
			    "changes are for root and the agent's own user");
	return false;
}

static void admin_reload(struct mpib_client *client)
{
	struct mpib_cause cause = { "" };

	if (!may_change(client))
		return;

	if (client->ops->reload(client->ops_user, &client->changes, &client->n_changes, &cause) <
	    0) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, cause.text);
		return;
	}

	if (!client->changes)
		client->n_changes = 0;
	client->dump = MPIB_ADMIN_RELOAD;
	client->dump_cursor = 0;
}

static void fill_rule(struct mpib_admin_rule *record, unsigned int rule,
		      const struct mpib_candidate *candidate, const struct mpib_verdict *verdict,
		      const struct mpib_slot *slot, uint32_t index, uint32_t table_share)
{
	*record = (struct mpib_admin_rule){
		.rule = rule,
		.state = rule == verdict->rule ? MPIB_ADMIN_RULE_IN_FORCE
			 : candidate->applies  ? MPIB_ADMIN_RULE_APPLIES
					       : MPIB_ADMIN_RULE_NO,
		.share = candidate->share,
		.line = candidate->line,
		.slot = index,
		.table_share = table_share,
		.registrations = slot ? slot->n_regs - slot->n_unclaimed : 0,
	};
	memcpy(record->src_island, verdict->src_island, sizeof(record->src_island));
	memcpy(record->dst_island, verdict->dst_island, sizeof(record->dst_island));
}

static void admin_explain(struct mpib_client *client, const struct mpib_admin_flow_request *request)
{
	struct mpib_flows *flows = client->flows;
	const struct mpib_slot *slot =
		mpib_registry_find_flow(flows->registry, request->src_be, request->dst_be);
	uint32_t index =
		slot ? mpib_registry_slot_index(flows->registry, slot) : MPIB_ADMIN_NO_SLOT;
	struct mpib_candidate candidates[MPIB_RULE_MAX];
	struct mpib_admin_rule records[MPIB_RULE_MAX];
	uint32_t table_share = slot ? mpib_shares_verdict(flows->shares, index)->share : 0;
	struct mpib_verdict verdict;

	mpib_shares_judge(flows->shares, request->src_be, request->dst_be, candidates, &verdict);
	for (unsigned int n = 0; n < MPIB_RULE_MAX; n++) {
		/* The override, last of the rules by number, is the strongest. */
		unsigned int rule = n ? n - 1 : MPIB_RULE_OVERRIDE;

		fill_rule(&records[n], rule, &candidates[rule], &verdict, slot, index, table_share);
		records[n].seconds = mpib_shares_seconds_left(flows->shares, &verdict,
							      request->src_be, request->dst_be);
	}

	mpib_client_put_records(client, records, sizeof(records[0]), MPIB_RULE_MAX);
	mpib_client_put_end(client, MPIB_ADMIN_OK, "");
}

static int change_flow(struct mpib_client *client, uint8_t type,
		       const struct mpib_admin_flow_request *request,
		       struct mpib_share_change *ret_change, struct mpib_cause *cause)
{
	struct mpib_override override = {
		.src_be = request->src_be,
		.dst_be = request->dst_be,
		.share = request->share,
		.uid = client->uid,
	};

	if (type == MPIB_ADMIN_UNSET)
		return mpib_shares_unset(client->flows->shares, request->src_be, request->dst_be,
					 client->uid, ret_change, cause);

	if (request->seconds)
		override.until_usec = mpib_clock_usec(CLOCK_BOOTTIME) +
				      (uint64_t)request->seconds * MPIB_CLOCK_SECOND;
	return mpib_shares_set(client->flows->shares, &override, ret_change, cause);
}

static void admin_change(struct mpib_client *client, uint8_t type,
			 const struct mpib_admin_flow_request *request)
{
	struct mpib_cause cause = { "" };
	struct mpib_share_change change;
	struct mpib_admin_change record;

	if (!may_change(client))
		return;
	if (!request->src_be || !request->dst_be || request->share > MPIB_SHARE_MAX ||
	    request->seconds > MPIB_OVERRIDE_SECONDS_MAX) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "no such flow, share or time");
		return;
	}
	if (change_flow(client, type, request, &change, &cause) < 0) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, cause.text);
		return;
	}

	record = (struct mpib_admin_change){
		.slot = change.slot,
		.src_be = change.src_be,
		.dst_be = change.dst_be,
		.before = change.before,
		.after = change.after,
	};
	mpib_client_put_records(client, &record, sizeof(record), 1);
	mpib_client_put_end(client, MPIB_ADMIN_OK, "");
}

static void admin_policy(struct mpib_client *client)
{
	if (!mpib_shares_text(client->flows->shares, &client->dump_version)) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "the agent is out of memory");
		return;
	}

	client->dump = MPIB_ADMIN_POLICY;
	client->dump_cursor = 0;
}

/* The text is the agent's, not the client's: a reader on the way through an old one starts anew. */
static void dump_text(struct mpib_client *client)
{
	uint32_t version = 0;
	const char *text = mpib_shares_text(client->flows->shares, &version);
	struct mpib_admin_text record = { 0 };

	if (!text || version != client->dump_version) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED,
				    "the policy changed meanwhile; ask again");
		return;
	}

	text += client->dump_cursor;
	record.len = (uint32_t)strnlen(text, sizeof(record.text));
	if (!record.len) {
		mpib_client_put_end(client, MPIB_ADMIN_OK, "");
		return;
	}

	memcpy(record.text, text, record.len);
	client->dump_cursor += record.len;
	mpib_client_put_records(client, &record, sizeof(record), 1);
}

void mpib_client_put_events(struct mpib_client *client)
{
	struct mpib_admin_event records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
					sizeof(struct mpib_admin_event)];
	size_t count = 0;

	while (client->n_events && count < MPIB_ARRAY_SIZE(records)) {
		records[count++] = client->events[client->first_event];
		client->first_event = (client->first_event + 1) % MPIB_CLIENT_EVENTS;
		client->n_events--;
	}
	mpib_client_put_records(client, records, sizeof(records[0]), count);
}

static void admin_monitor(struct mpib_client *client)
{
	struct mpib_admin_event event = { .priority = LOG_INFO, .name = "monitor" };

	if (client->events) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "this connection watches already");
		return;
	}
	client->events = calloc(MPIB_CLIENT_EVENTS, sizeof(*client->events));
	if (!client->events) {
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "the agent is out of memory");
		return;
	}
	if (!client->ops->may_monitor(client->ops_user, client)) {
		free(client->events);
		client->events = NULL;
		mpib_client_put_end(client, MPIB_ADMIN_FAILED, "too many watch already");
		return;
	}

	event.usec = mpib_clock_usec(CLOCK_REALTIME);
	(void)snprintf(event.text, sizeof(event.text), "watching: %u flows in %u slots",
		       mpib_registry_n_flows(client->flows->registry),
		       mpib_registry_entries(client->flows->registry));
	mpib_client_push(client, &event);
}

void mpib_client_dump(struct mpib_client *client)
{
	switch (client->dump) {
	case MPIB_ADMIN_FLOWS:
		mpib_client_dump_flows(client);
		break;
	case MPIB_ADMIN_RELOAD:
		dump_changes(client);
		break;
	default:
		dump_text(client);
		break;
	}
}

/* @pid 0: of all processes. */
static void admin_flows(struct mpib_client *client, pid_t pid)
{
	client->dump = MPIB_ADMIN_FLOWS;
	client->dump_pid = pid;
	client->dump_cursor = 0;
}

/* A request about one flow or process; false where it is not one, which is answered. */
static bool take_flow_request(struct mpib_client *client, uint8_t type, const uint8_t *frame,
			      size_t len, struct mpib_admin_flow_request *ret)
{
	if (len == sizeof(*ret)) {
		memcpy(ret, frame, sizeof(*ret));
		return true;
	}

	mpib_client_answer(client, type, MPIB_STATUS_INVALID, 0);
	return false;
}

void mpib_client_admin(struct mpib_client *client, uint8_t type, const uint8_t *frame, size_t len)
{
	struct mpib_admin_flow_request request;

	if (type == MPIB_ADMIN_EXPLAIN || type == MPIB_ADMIN_SET || type == MPIB_ADMIN_UNSET ||
	    type == MPIB_ADMIN_FLOWS_OF) {
		if (!take_flow_request(client, type, frame, len, &request))
			return;
		if (type == MPIB_ADMIN_EXPLAIN)
			admin_explain(client, &request);
		else if (type == MPIB_ADMIN_FLOWS_OF)
			admin_flows(client, (pid_t)request.pid);
		else
			admin_change(client, type, &request);
		return;
	}

	if (len != sizeof(struct mpib_msg_header)) {
		mpib_client_answer(client, type, MPIB_STATUS_INVALID, 0);
		return;
	}

	switch (type) {
	case MPIB_ADMIN_STATUS:
		admin_status(client);
		break;
	case MPIB_ADMIN_FLOWS:
		admin_flows(client, 0);
		break;
	case MPIB_ADMIN_RELOAD:
		admin_reload(client);
		break;
	case MPIB_ADMIN_POLICY:
		admin_policy(client);
		break;
	case MPIB_ADMIN_MONITOR:
		admin_monitor(client);
		break;
	default:
		mpib_client_answer(client, type, MPIB_STATUS_INVALID, 0);
		break;
	}
}
