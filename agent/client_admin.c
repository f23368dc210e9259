/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's requests. What is long is not built at once but frame by frame as the reader takes it,
 * so that a reader who never comes back costs no more than its buffers. */
#include "agent/client_admin.h"

#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "common/macros.h"

static struct mpib_msg_header admin_header(uint8_t type, size_t len)
{
	return (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)len,
		.msg_type = type,
	};
}

static void put_end(struct mpib_client *client, enum mpib_admin_verdict verdict, const char *text)
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

static void put_records(struct mpib_client *client, const void *records, size_t size, size_t count)
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

/* What is left of a flow's override, at least a second; 0 where it has no end or there is none. */
static uint32_t seconds_left(const struct mpib_flows *flows, const struct mpib_verdict *verdict,
			     uint32_t src_be, uint32_t dst_be)
{
	const struct mpib_override *override = NULL;
	uint64_t now = mpib_flows_boot_usec();

	if (verdict->rule == MPIB_RULE_OVERRIDE)
		override = mpib_overrides_find(flows->overrides, src_be, dst_be);
	if (!override || !override->until_usec)
		return 0;
	if (override->until_usec <= now)
		return 1;
	return (uint32_t)((override->until_usec - now + 999999u) / 1000000u);
}

static void fill_flow(const struct mpib_flows *flows, struct mpib_admin_flow *record,
		      uint32_t index, const struct mpib_slot *slot)
{
	const struct mpib_reg *reg = LIST_FIRST(&slot->regs);

	*record = (struct mpib_admin_flow){
		.slot = index,
		.src_be = slot->src_be,
		.dst_be = slot->dst_be,
		.share = slot->verdict.share,
		.rule = slot->verdict.rule,
		.line = slot->verdict.line,
		.registrations = slot->n_regs,
		.uid = slot->user ? slot->user->uid : 0,
		.pid = reg ? reg->peer->pid : 0,
		.seconds = seconds_left(flows, &slot->verdict, slot->src_be, slot->dst_be),
	};
	for (unsigned int rail = 0; rail < 2; rail++) {
		record->sent[rail] = slot->bytes.sent[rail];
		record->received[rail] = slot->bytes.received[rail];
		record->sent_rate[rail] = slot->rate.sent[rail];
		record->received_rate[rail] = slot->rate.received[rail];
	}
	record->moved_usec = slot->moved_usec;
	memcpy(record->src_island, slot->verdict.src_island, sizeof(record->src_island));
	memcpy(record->dst_island, slot->verdict.dst_island, sizeof(record->dst_island));
}

/* The next frame of slots with a flow; the end when there are none left. */
static void dump_flows(struct mpib_client *client)
{
	struct mpib_registry *registry = client->flows->registry;
	struct mpib_admin_flow records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
				       sizeof(struct mpib_admin_flow)];
	size_t count = 0;

	while (client->dump_cursor < mpib_registry_entries(registry) &&
	       count < MPIB_ARRAY_SIZE(records)) {
		uint32_t index = client->dump_cursor++;
		const struct mpib_slot *slot = mpib_registry_slot(registry, index);

		if (mpib_slot_has_flow(slot))
			fill_flow(client->flows, &records[count++], index, slot);
	}

	if (count)
		put_records(client, records, sizeof(records[0]), count);
	else
		put_end(client, MPIB_ADMIN_OK, "");
}

static void dump_changes(struct mpib_client *client)
{
	struct mpib_admin_change
		records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
			sizeof(struct mpib_admin_change)];
	size_t count = 0;

	while (client->dump_cursor < client->n_changes && count < MPIB_ARRAY_SIZE(records)) {
		const struct mpib_flow_change *change = &client->changes[client->dump_cursor++];

		records[count++] = (struct mpib_admin_change){
			.slot = change->slot,
			.src_be = change->src_be,
			.dst_be = change->dst_be,
			.before = change->before,
			.after = change->after,
		};
	}

	if (count)
		put_records(client, records, sizeof(records[0]), count);
	else
		put_end(client, MPIB_ADMIN_OK, "");
}

static void admin_status(struct mpib_client *client)
{
	struct mpib_admin_status status = { 0 };

	client->ops->status(client->ops_user, &status);
	put_records(client, &status, sizeof(status), 1);
	put_end(client, MPIB_ADMIN_OK, "");
}

/* Changes are for root and for the user that the agent runs as. */
static bool may_change(struct mpib_client *client)
{
	if (client->uid == 0 || client->uid == geteuid())
		return true;

	put_end(client, MPIB_ADMIN_FORBIDDEN, "changes are for root and the agent's own user");
	return false;
}

static void admin_reload(struct mpib_client *client)
{
	struct mpib_cause cause = { "" };

	if (!may_change(client))
		return;

	if (client->ops->reload(client->ops_user, &client->changes, &client->n_changes, &cause) <
	    0) {
		put_end(client, MPIB_ADMIN_FAILED, cause.text);
		return;
	}

	if (!client->changes)
		client->n_changes = 0;
	client->dump = MPIB_ADMIN_RELOAD;
	client->dump_cursor = 0;
}

static void fill_rule(struct mpib_admin_rule *record, unsigned int rule,
		      const struct mpib_candidate *candidate, const struct mpib_verdict *verdict,
		      const struct mpib_slot *slot, uint32_t index)
{
	*record = (struct mpib_admin_rule){
		.rule = rule,
		.state = rule == verdict->rule ? MPIB_ADMIN_RULE_IN_FORCE
			 : candidate->applies  ? MPIB_ADMIN_RULE_APPLIES
					       : MPIB_ADMIN_RULE_NO,
		.share = candidate->share,
		.line = candidate->line,
		.slot = index,
		.table_share = slot ? slot->verdict.share : 0,
		.registrations = slot ? slot->n_regs : 0,
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
	struct mpib_verdict verdict;

	mpib_flows_judge(flows, request->src_be, request->dst_be, candidates, &verdict);
	for (unsigned int n = 0; n < MPIB_RULE_MAX; n++) {
		/* The override, last of the rules by number, is the strongest. */
		unsigned int rule = n ? n - 1 : MPIB_RULE_OVERRIDE;

		fill_rule(&records[n], rule, &candidates[rule], &verdict, slot, index);
		records[n].seconds =
			seconds_left(flows, &verdict, request->src_be, request->dst_be);
	}

	put_records(client, records, sizeof(records[0]), MPIB_RULE_MAX);
	put_end(client, MPIB_ADMIN_OK, "");
}

static int change_flow(struct mpib_client *client, uint8_t type,
		       const struct mpib_admin_flow_request *request,
		       struct mpib_flow_change *ret_change, struct mpib_cause *cause)
{
	struct mpib_override override = {
		.src_be = request->src_be,
		.dst_be = request->dst_be,
		.share = request->share,
		.uid = client->uid,
	};

	if (type == MPIB_ADMIN_UNSET)
		return mpib_flows_unset(client->flows, request->src_be, request->dst_be,
					client->uid, ret_change, cause);

	if (request->seconds)
		override.until_usec =
			mpib_flows_boot_usec() + (uint64_t)request->seconds * 1000000u;
	return mpib_flows_set(client->flows, &override, ret_change, cause);
}

static void admin_change(struct mpib_client *client, uint8_t type,
			 const struct mpib_admin_flow_request *request)
{
	struct mpib_cause cause = { "" };
	struct mpib_flow_change change;
	struct mpib_admin_change record;

	if (!may_change(client))
		return;
	if (!request->src_be || !request->dst_be || request->share > MPIB_SHARE_MAX ||
	    request->seconds > MPIB_OVERRIDE_SECONDS_MAX) {
		put_end(client, MPIB_ADMIN_FAILED, "no such flow, share or time");
		return;
	}
	if (change_flow(client, type, request, &change, &cause) < 0) {
		put_end(client, MPIB_ADMIN_FAILED, cause.text);
		return;
	}

	record = (struct mpib_admin_change){
		.slot = change.slot,
		.src_be = change.src_be,
		.dst_be = change.dst_be,
		.before = change.before,
		.after = change.after,
	};
	put_records(client, &record, sizeof(record), 1);
	put_end(client, MPIB_ADMIN_OK, "");
}

static void admin_policy(struct mpib_client *client)
{
	if (!mpib_flows_text(client->flows, &client->dump_version)) {
		put_end(client, MPIB_ADMIN_FAILED, "the agent is out of memory");
		return;
	}

	client->dump = MPIB_ADMIN_POLICY;
	client->dump_cursor = 0;
}

/* The text is the agent's, not the client's: a reader on the way through an old one starts anew. */
static void dump_text(struct mpib_client *client)
{
	uint32_t version = 0;
	const char *text = mpib_flows_text(client->flows, &version);
	struct mpib_admin_text record = { 0 };

	if (!text || version != client->dump_version) {
		put_end(client, MPIB_ADMIN_FAILED, "the policy changed meanwhile; ask again");
		return;
	}

	text += client->dump_cursor;
	record.len = (uint32_t)strnlen(text, sizeof(record.text));
	if (!record.len) {
		put_end(client, MPIB_ADMIN_OK, "");
		return;
	}

	memcpy(record.text, text, record.len);
	client->dump_cursor += record.len;
	put_records(client, &record, sizeof(record), 1);
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
	put_records(client, records, sizeof(records[0]), count);
}

static void admin_monitor(struct mpib_client *client)
{
	struct mpib_admin_event event = { .priority = LOG_INFO, .name = "monitor" };
	struct timespec now = { 0 };

	if (client->events) {
		put_end(client, MPIB_ADMIN_FAILED, "this connection watches already");
		return;
	}
	if (!client->ops->may_monitor(client->ops_user)) {
		put_end(client, MPIB_ADMIN_FAILED, "too many watch already");
		return;
	}
	client->events = calloc(MPIB_CLIENT_EVENTS, sizeof(*client->events));
	if (!client->events) {
		put_end(client, MPIB_ADMIN_FAILED, "the agent is out of memory");
		return;
	}

	(void)clock_gettime(CLOCK_REALTIME, &now);
	event.usec = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	(void)snprintf(event.text, sizeof(event.text), "watching: %u flows in %u slots",
		       mpib_registry_n_flows(client->flows->registry),
		       mpib_registry_entries(client->flows->registry));
	mpib_client_push(client, &event);
}

void mpib_client_dump(struct mpib_client *client)
{
	switch (client->dump) {
	case MPIB_ADMIN_FLOWS:
		dump_flows(client);
		break;
	case MPIB_ADMIN_RELOAD:
		dump_changes(client);
		break;
	default:
		dump_text(client);
		break;
	}
}

/* A request about one flow; false where it is not one, which is answered. */
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

	if (type == MPIB_ADMIN_EXPLAIN || type == MPIB_ADMIN_SET || type == MPIB_ADMIN_UNSET) {
		if (!take_flow_request(client, type, frame, len, &request))
			return;
		if (type == MPIB_ADMIN_EXPLAIN)
			admin_explain(client, &request);
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
		client->dump = MPIB_ADMIN_FLOWS;
		client->dump_cursor = 0;
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
