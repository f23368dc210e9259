/* SPDX-License-Identifier: Apache-2.0 */
/* Lost rails as counters tell them: what is believed, what is news, and the entries of it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/journal/journal.h"
#include "agent/journal/journal_socket.h"
#include "agent/slots/traffic.h"
#include "common/counters.h"
#include "common/macros.h"
#include "tests/unit/agent/test.h"

#define SOUT 0
#define SUP  1

/* ---- what is believed ----------------------------------------------------------------------- */

struct look {
	uint32_t up;
	uint64_t losses;
	uint64_t returns;
	uint64_t parts;
};

/* A look at the counts of SUP. */
static const char *judge(struct mpib_reg_rails *rails, struct look look, uint32_t table,
			 bool restored, struct mpib_rail_counts *ret)
{
	struct mpib_counter_rails now = { .up = look.up };

	now.losses[SUP] = look.losses;
	now.returns[SUP] = look.returns;
	now.parts_again[SUP] = look.parts;
	memset(ret, 0, sizeof(*ret));
	return mpib_rails_judge(rails, &now, table, restored, ret);
}

static void counts_that_grow_are_news_and_others_are_not_believed(void **state)
{
	static const struct {
		struct look first;
		struct look second;
		const char *why; /* NULL: believed... */
		uint64_t losses; /* ...with so many more */
		uint64_t returns;
		uint32_t lost;
	} rows[] = {
		{ { 3, 0, 0, 0 }, { 3, 0, 0, 0 }, NULL, 0, 0, 0 },
		{ { 3, 0, 0, 0 }, { 1, 1, 0, 9 }, NULL, 1, 0, 2 },
		{ { 1, 1, 0, 9 }, { 1, 1, 0, 9 }, NULL, 0, 0, 2 },
		{ { 1, 1, 0, 9 }, { 3, 1, 1, 9 }, NULL, 0, 1, 0 },
		{ { 3, 1, 1, 9 }, { 3, 4, 4, 9 }, NULL, 3, 3, 0 }, /* between two looks */
		{ { 1, 1, 0, 9 }, { 1, 3, 2, 9 }, NULL, 2, 2, 2 },
		{ { 1, 0, 0, 0 }, { 1, 0, 0, 0 }, NULL, 0, 0, 0 }, /* never had it */
		{ { 3, 0, 0, 0 }, { 0, 1, 0, 0 }, NULL, 1, 0, 3 },
		{ { 3, 0, 0, 0 }, { 1, 0, 0, 0 }, NULL, 1, 0, 2 }, /* left, not counted yet */
		{ { 3, 2, 2, 0 }, { 1, 2, 2, 0 }, NULL, 1, 0, 2 },
		{ { 3, 2, 2, 9 }, { 3, 1, 1, 9 }, "a count of rails went back", 0, 0, 0 },
		{ { 3, 2, 2, 9 }, { 3, 2, 1, 9 }, "a count of rails went back", 0, 0, 0 },
		{ { 3, 2, 2, 9 }, { 3, 2, 2, 8 }, "a count of rails went back", 0, 0, 0 },
		{ { 3, 2, 2, 9 },
		  { 3, 2, 3, 9 },
		  "a rail came back more often than it was lost",
		  0,
		  0,
		  0 },
		{ { 3, 0, 0, 0 }, { 4, 0, 0, 0 }, "it names rails that don't exist", 0, 0, 0 },
		{ { 3, 0, 0, 0 },
		  { UINT32_MAX, 1, 0, 0 },
		  "it names rails that don't exist",
		  0,
		  0,
		  0 },
		{ { 3, 0, 0, 0 },
		  { 3, UINT64_MAX, 0, 0 },
		  "a count of rails grew faster than can be",
		  0,
		  0,
		  0 },
		{ { 3, 1, 1, 0 },
		  { 3, 2, 2, UINT64_MAX },
		  "a count of rails grew faster than can be",
		  0,
		  0,
		  0 },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		struct mpib_reg_rails rails = { 0 };
		struct mpib_rail_counts added;
		const char *why;

		assert_null(judge(&rails, rows[n].first, 1, false, &added));
		why = judge(&rails, rows[n].second, 1, false, &added);
		if ((why == NULL) != (rows[n].why == NULL) ||
		    (why && strcmp(why, rows[n].why) != 0))
			fail_msg("row %zu: %s", n, why ? why : "believed");
		if (why)
			continue;
		assert_int_equal(added.losses[SUP], rows[n].losses);
		assert_int_equal(added.returns[SUP], rows[n].returns);
		assert_int_equal(added.losses[SOUT], rows[n].lost & 1);
		assert_int_equal(added.returns[SOUT], 0);
		assert_int_equal(rails.lost, rows[n].lost);
		assert_int_equal(rails.up, rows[n].second.up & ~rails.lost);
	}
}

/* A plugin leaves a rail first, and counts its loss when the peer has answered. */
static void a_rail_that_is_left_is_told_once(void **state)
{
	static const struct {
		struct look look;
		uint64_t losses;
		uint64_t returns;
	} steps[] = {
		{ { 3, 0, 0, 0 }, 0, 0 }, { { 1, 0, 0, 0 }, 1, 0 }, { { 1, 0, 0, 0 }, 0, 0 },
		{ { 1, 1, 0, 5 }, 0, 0 }, { { 1, 1, 0, 5 }, 0, 0 }, { { 3, 1, 1, 5 }, 0, 1 },
		{ { 1, 1, 1, 5 }, 1, 0 }, { { 3, 3, 3, 5 }, 1, 2 }, /* counted, and once more */
		{ { 1, 3, 3, 5 }, 1, 0 }, { { 3, 3, 3, 5 }, 0, 1 }, /* never counted */
		{ { 1, 4, 3, 5 }, 1, 0 }, { { 3, 4, 4, 5 }, 0, 1 }, { { 1, 5, 4, 5 }, 1, 0 },
		{ { 3, 5, 4, 5 }, 0, 0 }, /* up, and not back yet */
		{ { 3, 5, 4, 5 }, 0, 0 }, { { 3, 5, 5, 5 }, 0, 1 }, { { 1, 6, 5, 5 }, 1, 0 },
		{ { 3, 6, 5, 5 }, 0, 0 },			    /* lost again meanwhile... */
		{ { 1, 7, 5, 5 }, 1, 0 }, { { 3, 7, 6, 5 }, 0, 1 }, /* ...and back once */
		{ { 3, 7, 6, 5 }, 0, 0 },
	};
	bool lost = false;
	struct mpib_reg_rails rails = { 0 };

	(void)state;
	for (size_t n = 0; n < sizeof(steps) / sizeof(steps[0]); n++) {
		struct mpib_rail_counts added;

		assert_null(judge(&rails, steps[n].look, 1, false, &added));
		if (added.losses[SUP] != steps[n].losses || added.returns[SUP] != steps[n].returns)
			fail_msg("step %zu: -%u +%u", n, (unsigned int)added.losses[SUP],
				 (unsigned int)added.returns[SUP]);
		lost = !(steps[n].look.up & 2) || (lost && !added.returns[SUP]);
		if (rails.lost != (lost ? 2 : 0) || rails.up != (lost ? 1 : 3))
			fail_msg("step %zu: lost %u up %u", n, rails.lost, rails.up);
	}
}

static void counts_may_begin_anew_in_another_table(void **state)
{
	struct mpib_reg_rails rails = { 0 };
	struct mpib_rail_counts added;

	(void)state;
	assert_null(judge(&rails, (struct look){ 3, 5, 5, 9 }, 1, false, &added));
	assert_null(judge(&rails, (struct look){ 1, 1, 0, 2 }, 2, false, &added));
	assert_int_equal(added.losses[SUP], 1);
	assert_int_equal(added.parts_again[SUP], 2);
	assert_non_null(judge(&rails, (struct look){ 3, 0, 0, 0 }, 2, false, &added));
	/* the same table, handed over once more, is no news */
	assert_null(judge(&rails, (struct look){ 1, 1, 0, 2 }, 3, false, &added));
	assert_false(mpib_rails_changed(&added));
}

static void after_a_restart_only_what_is_lost_now_is_news(void **state)
{
	struct mpib_reg_rails rails = { 0 };
	struct mpib_rail_counts added;

	(void)state;
	assert_null(judge(&rails, (struct look){ 3, 5, 5, 9 }, 1, true, &added));
	assert_false(mpib_rails_changed(&added));
	assert_null(judge(&rails, (struct look){ 3, 6, 6, 9 }, 1, true, &added));
	assert_int_equal(added.losses[SUP], 1);

	memset(&rails, 0, sizeof(rails));
	assert_null(judge(&rails, (struct look){ 1, UINT64_MAX, 4, 9 }, 1, true, &added));
	assert_int_equal(added.losses[SUP], 1);
	assert_int_equal(added.returns[SUP], 0);
	assert_int_equal(rails.lost, 2);
}

/* ---- a world: two processes, their tables, and what is told ---------------------------------- */

#define ENTRIES MPIB_COUNTERS_ENTRIES
#define FLOWS	64u

static struct {
	struct mpib_registry *registry;
	struct mpib_traffic traffic;
	struct mpib_peer *peers[2];
	struct mpib_counters_header *tables[2];
	char told[2048];
	unsigned int n_told;
} world;

static void on_rails(void *user, uint32_t slot, const struct mpib_rail_news *news)
{
	size_t used = strlen(world.told);

	(void)user;
	world.n_told++;
	(void)snprintf(world.told + used, sizeof(world.told) - used,
		       "slot %u pid %ld uid %u: SUP -%u on %u +%u on %u up %u\n", slot,
		       (long)news->pid, news->uid, (unsigned int)news->added.losses[SUP],
		       news->lost_by[SUP], (unsigned int)news->added.returns[SUP],
		       news->returned_to[SUP], news->up);
}

static void on_lie(void *user, const struct mpib_reg *reg, const char *why)
{
	size_t used = strlen(world.told);

	(void)user;
	world.n_told++;
	(void)snprintf(world.told + used, sizeof(world.told) - used, "pid %ld lies, %u: %s\n",
		       (long)reg->peer->pid, reg->conn_id, why);
}

static const struct mpib_traffic_ops ops = { .rails = on_rails, .lie = on_lie };

static void expect_told(const char *text)
{
	assert_string_equal(world.told, text);
	world.told[0] = '\0';
	world.n_told = 0;
}

static struct mpib_counter_entry *entry_at(unsigned int peer, uint32_t n)
{
	return (struct mpib_counter_entry *)(void *)(world.tables[peer] + 1) + n;
}

/* A new table for @peer, with these features. */
static void hand_over(unsigned int peer, uint32_t features)
{
	size_t size =
		sizeof(struct mpib_counters_header) + ENTRIES * sizeof(struct mpib_counter_entry);
	int fd = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct mpib_counters_header *header;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(header != MAP_FAILED);
	header->version = MPIB_COUNTERS_VERSION;
	header->entries = ENTRIES;
	header->entry_size = sizeof(struct mpib_counter_entry);
	header->features = features;
	header->magic = MPIB_COUNTERS_MAGIC;
	assert_int_equal(mpib_traffic_set_table(&world.traffic, world.peers[peer], fd, size), 0);
	(void)close(fd);
	if (world.tables[peer])
		(void)munmap(world.tables[peer], size);
	world.tables[peer] = header;
}

static struct mpib_reg *add(unsigned int peer, uint32_t conn_id, uint32_t flow)
{
	struct mpib_addresses addresses = { .sout_src_be = 1 + flow, .sout_dst_be = 9 };
	struct mpib_reg *reg = NULL;

	assert_int_equal(
		mpib_registry_add(world.registry, world.peers[peer], conn_id, &addresses, &reg), 1);
	return reg;
}

/* The entry of a connection's number. */
static void publish(unsigned int peer, uint32_t conn_id)
{
	*entry_at(peer, conn_id) = (struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND,
								.conn_id = conn_id,
								.rails_up = 3,
								.state = MPIB_COUNTER_LIVE };
}

/* A connection with both rails, in the entry of its number. */
static struct mpib_reg *connection(unsigned int peer, uint32_t conn_id, uint32_t flow)
{
	publish(peer, conn_id);
	return add(peer, conn_id, flow);
}

static void lose(unsigned int peer, uint32_t conn_id)
{
	entry_at(peer, conn_id)->losses[SUP]++;
	entry_at(peer, conn_id)->rails_up = 1;
}

static void regain(unsigned int peer, uint32_t conn_id)
{
	entry_at(peer, conn_id)->returns[SUP]++;
	entry_at(peer, conn_id)->rails_up = 3;
}

static void look(void)
{
	mpib_traffic_begin(&world.traffic);
	while (mpib_traffic_step(&world.traffic))
		;
}

static void end(struct mpib_reg *reg)
{
	mpib_traffic_last(&world.traffic, reg);
	(void)mpib_registry_remove(world.registry, reg);
}

static int set_up(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	assert_int_equal(mpib_registry_new(256, &world.registry), 0);
	mpib_traffic_init(&world.traffic, world.registry);
	world.traffic.ops = &ops;
	for (unsigned int n = 0; n < 2; n++) {
		assert_int_equal(mpib_registry_peer_new(world.registry, 100 + (pid_t)n, 5, 7 + n,
							&world.peers[n]),
				 0);
		hand_over(n, MPIB_COUNTERS_HAVE_FAILOVER);
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < 2; n++) {
		while (!LIST_EMPTY(&world.peers[n]->regs))
			end(LIST_FIRST(&world.peers[n]->regs));
		(void)mpib_registry_peer_put(world.registry, world.peers[n]);
		(void)munmap(world.tables[n], sizeof(struct mpib_counters_header) +
						      ENTRIES * sizeof(struct mpib_counter_entry));
	}
	assert_int_equal(world.traffic.rail_state.known, 0);
	assert_int_equal(world.traffic.rail_state.lost[SUP], 0);
	assert_null(mpib_registry_free(world.registry));
	return 0;
}

static void what_a_process_lost_of_a_flow_is_told_once(void **state)
{
	const struct mpib_slot *slot = mpib_registry_slot(world.registry, 0);

	(void)state;
	connection(0, 1, 0);
	connection(0, 2, 0);
	connection(0, 3, 1);
	connection(1, 4, 0);
	look();
	expect_told("");
	assert_int_equal(slot->rail_state.known, 3);
	assert_int_equal(slot->rail_state.up[SUP], 3);

	lose(0, 1);
	lose(0, 2);
	lose(0, 3);
	look();
	look();
	assert_non_null(strstr(world.told, "slot 0 pid 100 uid 7: SUP -2 on 2 +0 on 0 up 1\n"));
	assert_non_null(strstr(world.told, "slot 1 pid 100 uid 7: SUP -1 on 1 +0 on 0 up 1\n"));
	assert_int_equal(world.n_told, 2);
	assert_int_equal(slot->rail_state.lost[SUP], 2);
	assert_int_equal(slot->rail_state.up[SUP], 1);
	assert_int_equal(world.traffic.rail_state.lost[SUP], 3);
	world.told[0] = '\0';

	regain(0, 1);
	lose(1, 4);
	look();
	assert_non_null(strstr(world.told, "slot 0 pid 100 uid 7: SUP -0 on 0 +1 on 1 up 3\n"));
	assert_non_null(strstr(world.told, "slot 0 pid 101 uid 8: SUP -1 on 1 +0 on 0 up 1\n"));
	assert_int_equal(slot->rail_state.lost[SUP], 2);
	assert_int_equal(slot->rails.losses[SUP], 3);
	assert_int_equal(slot->rails.returns[SUP], 1);
	assert_int_equal(world.traffic.rails.losses[SUP], 4);
}

static void what_came_and_went_between_two_looks_is_told(void **state)
{
	(void)state;
	connection(0, 1, 0);
	look();
	for (unsigned int n = 0; n < 3; n++) {
		lose(0, 1);
		regain(0, 1);
	}
	entry_at(0, 1)->parts_again[SUP] = 20;
	look();
	expect_told("slot 0 pid 100 uid 7: SUP -3 on 1 +3 on 1 up 3\n");
	/* parts that go again are no news of their own */
	entry_at(0, 1)->parts_again[SUP] = 25;
	look();
	expect_told("");
	assert_int_equal(mpib_registry_slot(world.registry, 0)->rails.parts_again[SUP], 25);
}

static void a_lie_is_told_once_a_process_and_changes_nothing_else(void **state)
{
	const struct mpib_slot *slot = mpib_registry_slot(world.registry, 0);

	(void)state;
	connection(0, 1, 0);
	connection(0, 2, 0);
	connection(0, 3, 0);
	look();
	entry_at(0, 1)->rails_up = 8;
	entry_at(0, 1)->rail[SUP].bytes = 50;
	look();
	expect_told("pid 100 lies, 1: it names rails that don't exist\n");
	assert_int_equal(slot->rail_state.known, 2);
	assert_int_equal(slot->bytes.sent[SUP], 50);

	entry_at(0, 2)->returns[SUP] = 1;
	lose(0, 3);
	look();
	expect_told("slot 0 pid 100 uid 7: SUP -1 on 1 +0 on 0 up 1\n");
	assert_int_equal(slot->rail_state.known, 1);
	/* nothing that it says later is believed */
	entry_at(0, 1)->rails_up = 3;
	lose(0, 1);
	look();
	expect_told("");
}

static void an_older_plugin_shows_nothing_new(void **state)
{
	(void)state;
	hand_over(0, 0);
	connection(0, 1, 0);
	lose(0, 1); /* padding that isn't zero */
	entry_at(0, 1)->rail[SUP].bytes = 50;
	look();
	expect_told("");
	assert_int_equal(mpib_registry_slot(world.registry, 0)->rail_state.known, 0);
	assert_int_equal(mpib_registry_slot(world.registry, 0)->bytes.sent[SUP], 50);
	/* what the header says later is not believed */
	world.tables[0]->features = MPIB_COUNTERS_HAVE_FAILOVER;
	look();
	expect_told("");
}

static void what_is_lost_at_the_end_is_told_before_the_flow_goes(void **state)
{
	struct mpib_reg *first = connection(0, 1, 0);
	struct mpib_reg *last = connection(0, 2, 0);

	(void)state;
	look();
	lose(0, 1);
	end(first);
	expect_told(""); /* with the flow's next */
	assert_int_equal(world.traffic.rail_state.lost[SUP], 0);
	lose(0, 2);
	end(last);
	expect_told("slot 0 pid 100 uid 7: SUP -2 on 2 +0 on 0 up 1\n");
	/* the slot's next flow begins without it */
	connection(1, 3, 4);
	look();
	expect_told("");
	assert_int_equal(mpib_registry_slot(world.registry, 0)->rails.losses[SUP], 0);
}

static void an_entry_that_is_free_tells_no_state(void **state)
{
	(void)state;
	connection(0, 1, 0);
	lose(0, 1);
	look();
	assert_int_equal(world.traffic.rail_state.lost[SUP], 1);
	entry_at(0, 1)->state = MPIB_COUNTER_FREE;
	look();
	assert_int_equal(world.traffic.rail_state.lost[SUP], 0);
	assert_int_equal(world.traffic.rail_state.known, 0);
	/* and tells it again when it is there again */
	entry_at(0, 1)->state = MPIB_COUNTER_LIVE;
	look();
	assert_int_equal(world.traffic.rail_state.lost[SUP], 1);
	assert_int_equal(world.n_told, 1);
}

/* A process that has loaded the plugin anew counts from 0, and is no liar. */
static void another_table_of_a_process_begins_anew(void **state)
{
	(void)state;
	connection(0, 1, 0);
	for (unsigned int n = 0; n < 3; n++) {
		lose(0, 1);
		regain(0, 1);
	}
	look();
	expect_told("slot 0 pid 100 uid 7: SUP -3 on 1 +3 on 1 up 3\n");
	hand_over(0, MPIB_COUNTERS_HAVE_FAILOVER);
	*entry_at(0, 9) = (struct mpib_counter_entry){
		.kind = MPIB_COUNTER_SEND, .conn_id = 1, .rails_up = 3, .state = MPIB_COUNTER_LIVE
	};
	lose(0, 9);
	look();
	expect_told("slot 0 pid 100 uid 7: SUP -1 on 1 +0 on 0 up 1\n");
	assert_int_equal(mpib_registry_slot(world.registry, 0)->rails.losses[SUP], 4);
}

/* Each of many flows is told, in slices that are short. */
static void many_flows_are_told_in_slices(void **state)
{
	unsigned int slices = 1;

	(void)state;
	for (uint32_t n = 0; n < FLOWS; n++) {
		connection(0, n, n);
		lose(0, n);
	}
	mpib_traffic_begin(&world.traffic);
	for (unsigned int before = 0; mpib_traffic_step(&world.traffic);
	     before = world.n_told, slices++)
		assert_true(world.n_told - before <= 8);
	assert_int_equal(world.n_told, FLOWS);
	assert_true(slices >= FLOWS / 8);
}

/* A share that finds itself wants all connections at once, those of before their entry as well. */
static void new_connections_are_found_at_once(void **state)
{
	struct mpib_reg *early[16];

	(void)state;
	for (uint32_t n = 0; n < MPIB_ARRAY_SIZE(early); n++)
		early[n] = add(0, n, 0);
	for (uint32_t n = 0; n < 20 * MPIB_ARRAY_SIZE(early); n++)
		assert_false(mpib_traffic_find(&world.traffic, early[n % 16]));
	for (uint32_t n = 1; n < 512; n++)
		if (n < MPIB_ARRAY_SIZE(early))
			publish(0, n);
		else
			assert_true(mpib_traffic_find(&world.traffic, connection(0, n, 0)));
	for (uint32_t n = 1; n < MPIB_ARRAY_SIZE(early); n++)
		assert_true(mpib_traffic_find(&world.traffic, early[n]));
	publish(0, 0);
	assert_true(mpib_traffic_find(&world.traffic, early[0]));
}

/* What isn't there is searched for in vain, for so long in a round. */
static void searches_in_vain_have_an_end(void **state)
{
	struct mpib_reg *absent = add(0, ENTRIES + 1, 0);
	struct mpib_reg *there = connection(0, 7, 0);

	(void)state;
	for (unsigned int n = 0; n < 1000; n++)
		assert_false(mpib_traffic_find(&world.traffic, absent));
	assert_false(mpib_traffic_find(&world.traffic, there));
	look();
	assert_true(mpib_traffic_find(&world.traffic, there));
	assert_false(mpib_traffic_find(&world.traffic, absent));
}

/* ---- entries -------------------------------------------------------------------------------- */

static char entries[65536];

bool __wrap_mpib_journal_socket_put(struct mpib_journal_socket *js, const struct iovec *fields,
				    int n_fields, const char *message);

bool __wrap_mpib_journal_socket_put(struct mpib_journal_socket *js, const struct iovec *fields,
				    int n_fields, const char *message)
{
	size_t used = 0;

	(void)js;
	(void)message;
	for (int n = 0; n < n_fields; n++)
		used += (size_t)snprintf(entries + used, sizeof(entries) - used, "%s\n",
					 (const char *)fields[n].iov_base);
	return true;
}

static uint64_t now = 1000000;

static uint64_t test_clock(void)
{
	return now;
}

static void expect_fields(const char *const *fields)
{
	for (; *fields; fields++) {
		if (!strstr(entries, *fields))
			fail_msg("no %s in\n%s", *fields, entries);
	}
}

static void entries_have_the_fields_of_the_queries(void **state)
{
	static const char *const lost[] = {
		"MESSAGE=flow 10.0.1.1-10.0.2.5 lost SUP: 3 times on 2 connections of pid 42; ",
		"; SOUT takes all; share in the table 256 (25.0%); ",
		"; 2 of the flow's 4 connections lack SUP\n",
		"PRIORITY=4\n",
		"MPIB_EVENT=rail-lost\n",
		"MPIB_FLOW=10.0.1.1-10.0.2.5\n",
		"MPIB_SLOT=5\n",
		"MPIB_SHARE=256\n",
		"MPIB_ISLAND_DST=B\n",
		"MPIB_RAIL=sup\n",
		"MPIB_IN_FORCE=sout\n",
		"MPIB_PEER=10.0.2.5\n",
		"MPIB_TIMES=3\n",
		"MPIB_PARTS_AGAIN=17\n",
		"OBJECT_PID=42\n",
		"MPIB_UID=1000\n",
		NULL
	};
	static const char *const back[] = { "has SUP back: 1 time on 1 connection of pid 42; ",
					    "; both rails are in use; ",
					    "PRIORITY=5\n",
					    "MPIB_EVENT=rail-back\n",
					    "MPIB_IN_FORCE=both\n",
					    "MPIB_TIMES=1\n",
					    NULL };
	static const char *const none[] = { "no rail is left; ", "PRIORITY=3\n",
					    "MPIB_IN_FORCE=none\n", "MPIB_RAIL=sout\n", NULL };
	struct mpib_slot slot = { .src_be = test_ip("10.0.1.1"),
				  .dst_be = test_ip("10.0.2.5"),
				  .rail_state = { .known = 4, .lost = { 0, 2 } } };
	struct mpib_verdict verdict = { .share = 256, .src_island = "A", .dst_island = "B" };
	struct mpib_rail_news news = { .pid = 42, .uid = 1000, .up = 1, .lost_by = { 0, 2 } };
	struct mpib_journal *journal = NULL;

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	news.added.losses[SUP] = 3;
	news.added.parts_again[SUP] = 17;
	mpib_journal_rails(journal, 5, &slot, &verdict, &news);
	expect_fields(lost);

	news = (struct mpib_rail_news){ .pid = 42, .up = 3, .returned_to = { 0, 1 } };
	news.added.returns[SUP] = 1;
	mpib_journal_rails(journal, 5, &slot, &verdict, &news);
	expect_fields(back);

	news = (struct mpib_rail_news){ .pid = 42, .lost_by = { 1, 0 } };
	news.added.losses[SOUT] = 1;
	mpib_journal_rails(journal, 5, &slot, &verdict, &news);
	expect_fields(none);
	assert_null(mpib_journal_free(journal));
}

/* What was last is told last. */
static void a_flap_is_told_in_its_order(void **state)
{
	struct mpib_slot slot = { .src_be = 1, .dst_be = 2 };
	struct mpib_verdict verdict = { .share = 256 };
	struct mpib_rail_news news = { .pid = 42, .up = 3 };
	struct mpib_journal *journal = NULL;

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	news.added.losses[SUP] = news.added.returns[SUP] = 2;
	mpib_journal_rails(journal, 0, &slot, &verdict, &news);
	assert_non_null(strstr(entries, "MPIB_EVENT=rail-back\n"));
	news.up = 1;
	mpib_journal_rails(journal, 0, &slot, &verdict, &news);
	assert_non_null(strstr(entries, "MPIB_EVENT=rail-lost\n"));
	assert_int_equal(mpib_journal_written(journal), 4);
	assert_null(mpib_journal_free(journal));
}

static void rails_that_flap_leave_room_for_other_entries(void **state)
{
	struct mpib_slot slot = { .src_be = 1, .dst_be = 2 };
	struct mpib_verdict verdict = { .share = 256 };
	struct mpib_rail_news news = { .pid = 42, .up = 1 };
	struct mpib_journal *journal = NULL;

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	news.added.losses[SUP] = 1;
	for (unsigned int n = 0; n < 2000; n++)
		mpib_journal_rails(journal, 0, &slot, &verdict, &news);
	assert_int_equal(mpib_journal_written(journal), MPIB_JOURNAL_BURST_RAIL);
	mpib_journal_hint(journal, 0, &slot, &verdict, 0);
	assert_int_equal(mpib_journal_written(journal), MPIB_JOURNAL_BURST_RAIL + 1);
	now += MPIB_JOURNAL_WINDOW_USEC;
	mpib_journal_tick(journal);
	assert_non_null(strstr(entries, "1500 more entries within 10 s were not written: 1500 "
					"rail-lost\n"));
	assert_null(mpib_journal_free(journal));
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_that_grow_are_news_and_others_are_not_believed),
		cmocka_unit_test(a_rail_that_is_left_is_told_once),
		cmocka_unit_test(counts_may_begin_anew_in_another_table),
		cmocka_unit_test(after_a_restart_only_what_is_lost_now_is_news),
		WORLD_TEST(what_a_process_lost_of_a_flow_is_told_once),
		WORLD_TEST(what_came_and_went_between_two_looks_is_told),
		WORLD_TEST(a_lie_is_told_once_a_process_and_changes_nothing_else),
		WORLD_TEST(an_older_plugin_shows_nothing_new),
		WORLD_TEST(what_is_lost_at_the_end_is_told_before_the_flow_goes),
		WORLD_TEST(an_entry_that_is_free_tells_no_state),
		WORLD_TEST(another_table_of_a_process_begins_anew),
		WORLD_TEST(many_flows_are_told_in_slices),
		WORLD_TEST(new_connections_are_found_at_once),
		WORLD_TEST(searches_in_vain_have_an_end),
		cmocka_unit_test(entries_have_the_fields_of_the_queries),
		cmocka_unit_test(a_flap_is_told_in_its_order),
		cmocka_unit_test(rails_that_flap_leave_room_for_other_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
