/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/world.h"

#include <errno.h>
#include <systemd/sd-event.h>

#include "agent/clients/peers.h"
#include "agent/daemon/restore.h"
#include "tests/unit/agent/disk.h"

struct world world;

/* What lies between clients and the state layer. */
struct mpib_server {
	sd_event *loop;
	struct mpib_poller *poller;
	struct mpib_peers *peers;
};

static struct mpib_server server;
static struct mpib_journal *journal;

uint32_t world_src(unsigned int flow)
{
	return 0x0A000001u + flow % 4;
}

uint32_t world_dst(unsigned int flow)
{
	return 0x0A010001u + flow;
}

uint32_t world_share(unsigned int n)
{
	return 1 + 100 * n;
}

/* ---- the server's part ---------------------------------------------------------------------- */

int mpib_server_adopt(struct mpib_server *s, const struct mpib_adopt_record *record, uint32_t index)
{
	return mpib_peers_adopt(s->peers, record, index);
}

uint32_t mpib_server_n_processes(const struct mpib_server *s)
{
	(void)s;
	return mpib_registry_n_peers(world.flows.registry);
}

struct mpib_peers *world_peers(void)
{
	return server.peers;
}

static void on_room(void *user)
{
	(void)user;
}

/* One window for all entries, so that few are made; MPIB_TEST_VERBOSE wants all. */
static uint64_t journal_time(void)
{
	static uint64_t now;

	return now += world.verbose ? MPIB_JOURNAL_WINDOW_USEC : 0;
}

static int open_server(void)
{
	int r = sd_event_new(&server.loop);

	if (r >= 0)
		r = mpib_poller_new(server.loop, &server.poller);
	if (r >= 0)
		r = mpib_peers_new(server.poller, &world.flows, on_room, NULL, &server.peers);
	return r;
}

static void close_server(void)
{
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		struct world_proc *proc = &world.procs[n];

		if (!proc->peer)
			continue;
		mpib_flows_forget_peer(&world.flows, proc->peer);
		mpib_peers_leave(server.peers, proc->peer);
		proc->peer = NULL;
	}
	server.peers = mpib_peers_free(server.peers);
	server.poller = mpib_poller_free(server.poller);
	server.loop = sd_event_unref(server.loop);
}

void world_serve(void)
{
	while (world.up && mpib_poller_turn(server.poller, false) > 0)
		;
	/* a slice of what ended processes held, and of a save that goes on */
	if (world.up)
		(void)mpib_flows_step(&world.flows);
}

/* ---- the reference -------------------------------------------------------------------------- */

share_set world_possible(unsigned int flow, unsigned int share)
{
	share_set set = world.override[flow] & (share_set)~SHARE_NONE;

	return world.override[flow] & SHARE_NONE ? set | (share_set)(1u << share) : set;
}

/* Changed by what begins now; what jobs read becomes this or stays. */
static void begin_shares(unsigned int share)
{
	for (unsigned int flow = 0; flow < WORLD_FLOWS; flow++)
		world.shown[flow] |= world_possible(flow, share);
}

static void end_shares(void)
{
	for (unsigned int flow = 0; flow < WORLD_FLOWS; flow++)
		world.shown[flow] = world_possible(flow, world.policy_share);
}

/* What the agent has set for a flow; it must be possible. */
static share_set override_in_force(unsigned int flow)
{
	const struct mpib_override *o = mpib_overrides_find(
		mpib_shares_overrides(world.flows.shares), world_src(flow), world_dst(flow));
	share_set set = o ? 0 : SHARE_NONE;

	for (unsigned int n = 0; o && n < WORLD_SHARES; n++) {
		if (world_share(n) == o->share)
			set = (share_set)(1u << n);
	}
	if (!(world.override[flow] & set))
		fail_msg("flow %u: override %x is in force, possible were %x", flow, set,
			 world.override[flow]);
	return set;
}

/* @only: and the file says the same. */
static void learn_overrides(bool only)
{
	for (unsigned int flow = 0; flow < WORLD_FLOWS; flow++) {
		share_set set = override_in_force(flow);

		if (only)
			world.override[flow] = set;
	}
}

static struct mpib_policy *make_policy(void)
{
	struct mpib_policy_conflict conflict;
	struct mpib_policy *policy = NULL;

	assert_int_equal(mpib_policy_new(&policy), 0);
	policy->inter = world_share(world.ini_share);
	policy->intra = world_share(world.ini_share);
	policy->slots = world.ini_slots;
	assert_int_equal(mpib_policy_seal(policy, &conflict), 0);
	return policy;
}

/* ---- agents --------------------------------------------------------------------------------- */

static void drop_agent(void)
{
	if (server.loop)
		close_server();
	world.flows.adopt = mpib_adopt_free(world.flows.adopt);
	mpib_flows_done(&world.flows);
	world.flows.registry = mpib_registry_free(world.flows.registry);
	world.hints = mpib_hints_free(world.hints);
	world.up = false;
}

void world_note(void)
{
	if (disk.frozen || !world.up)
		return;
	if (world.flows.n_unsaved || world.flows.unsaved.text[0])
		world.whole = world.sure = false;
}

void world_stop(void)
{
	world_note();
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		const struct world_proc *proc = &world.procs[n];

		/* What is kept for it goes when it registers that again, which it may never do. */
		for (unsigned int conn = 0; !proc->named && conn < WORLD_CONNS; conn++)
			world.sure &= !proc->alive || proc->regs[conn].hold != HOLD_MAYBE;
	}
	/* SIGTERM leaves everything as it is; so nothing here may have an effect either. */
	drop_agent();
	if (disk.frozen)
		disk_thaw();
}

static int open_agent(void)
{
	struct mpib_cause cause;
	int r;

	/* From one slot or registration a slice to all in one. */
	world.flows = (struct mpib_flows){
		.journal = journal,
		.save_slice = (uint32_t)(1 + world.n_started * 37 % 211),
	};
	r = mpib_hints_open(disk.dir_fd, world.dir, world.ini_slots, &world.hints, &cause);
	if (r == 0)
		r = mpib_registry_new(mpib_hints_entries(world.hints), &world.flows.registry);
	world.flows.hints = world.hints;
	if (r == 0)
		r = mpib_shares_new(world.flows.registry, world.hints, journal, make_policy(),
				    &world.flows.shares);
	mpib_flows_init(&world.flows);
	if (r == 0)
		r = open_server();
	if (r < 0)
		return r;
	mpib_restore(&server, &world.flows, disk.dir_fd, world.dir);
	return 0;
}

bool world_start(void)
{
	assert_false(world.up);
	/* Overrides that can't be read are left out, which is told. */
	for (unsigned int flow = 0; disk.failing && flow < WORLD_FLOWS; flow++)
		world.override[flow] |= SHARE_NONE;
	begin_shares(world.ini_share);
	if (open_agent() < 0 || disk.frozen) {
		drop_agent();
		if (disk.frozen)
			disk_thaw();
		return false;
	}

	world.up = true;
	world.table_due = false;
	world.policy_share = world.ini_share;
	learn_overrides(!disk.hit);
	end_shares();
	world.whole = true;
	world_note();
	return true;
}

void world_tick(void)
{
	struct mpib_cause cause;

	world_serve();
	mpib_hints_beat(world.hints);
	if (!mpib_hints_is_current(world.hints, disk.dir_fd) &&
	    mpib_hints_remake(world.hints, disk.dir_fd, &cause) == 0 && !disk.frozen) {
		world.table_due = false;
		/* Clients that connect again map the table again. */
		for (unsigned int n = 0; n < WORLD_PROCS; n++) {
			if (world.procs[n].peer)
				world_disconnect(&world.procs[n]);
		}
	}
	(void)mpib_shares_check_overrides(world.flows.shares, &cause);
	mpib_flows_save(&world.flows);
	if (disk.frozen || disk.hit || disk.full || disk.broken)
		return;
	/* Other things happen before the next slice. */
	if (world.flows.save_more)
		return;
	if (world.flows.unsaved.text[0])
		fail_msg("can't save on a good disk: %s", world.flows.unsaved.text);
	world.whole = true;
	learn_overrides(true);
}

/* ---- the directory -------------------------------------------------------------------------- */

bool world_remove(const char *name)
{
	char path[TEMPDIR_MAX + 32];

	(void)snprintf(path, sizeof(path), "%s/%s", world.dir, name);
	return unlink(path) == 0;
}

void world_reset(void)
{
	static const char *const names[] = { "hints",	  "state",	   "overrides",
					     "hints.new", "overrides.new", "overrides.auto" };

	disk.full = disk.broken = world.no_descriptors = false;
	disk_disarm();
	if (world.up)
		world_stop();
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		if (world.procs[n].alive)
			world_death(&world.procs[n]);
	}
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		(void)world_remove(names[n]);
	for (unsigned int flow = 0; flow < WORLD_FLOWS; flow++)
		world.override[flow] = SHARE_NONE;
	memset(world.shown, 0, sizeof(world.shown));
	world.ini_slots = WORLD_SLOTS;
	world.table_due = false;
	world.sure = world.whole = true;
}

void world_open(void)
{
	(void)snprintf(world.dir, sizeof(world.dir), "/dev/shm/mpib-test-XXXXXX");
	if (!mkdtemp(world.dir))
		tempdir_make(world.dir);
	disk.dir_fd = open(world.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(disk.dir_fd >= 0);
	assert_int_equal(mpib_journal_new(journal_time, &journal), 0);
	world_reset();
}

void world_close(void)
{
	world_reset();
	journal = mpib_journal_free(journal);
	assert_int_equal(close(disk.dir_fd), 0);
	tempdir_remove(world.dir);
}

void world_reload(void)
{
	struct mpib_share_changes *changes;
	struct mpib_policy *policy = make_policy();
	struct mpib_cause cause;

	begin_shares(world.ini_share);
	if (mpib_hints_grow(world.hints, policy->slots, &cause) < 0) {
		(void)mpib_policy_free(policy);
		if (!disk.frozen)
			end_shares();
		return;
	}
	mpib_registry_grow(world.flows.registry, mpib_hints_entries(world.hints));
	mpib_shares_begin_policy(world.flows.shares, policy);
	while (mpib_shares_step(world.flows.shares))
		;
	(void)mpib_shares_end_policy(world.flows.shares, &changes);
	mpib_share_changes_put(changes);
	if (disk.frozen)
		return;
	world.policy_share = world.ini_share;
	end_shares();
}

void world_override(unsigned int flow, bool set, unsigned int share)
{
	struct mpib_override override = {
		.src_be = world_src(flow),
		.dst_be = world_dst(flow),
		.share = world_share(share),
	};
	share_set wanted = set ? (share_set)(1u << share) : SHARE_NONE;
	struct mpib_share_change change;
	share_set before;
	struct mpib_cause cause;
	int r;

	world.override[flow] |= wanted;
	world.shown[flow] |= world_possible(flow, world.policy_share);
	if (set)
		r = mpib_shares_set(world.flows.shares, &override, &change, &cause);
	else
		r = mpib_shares_unset(world.flows.shares, override.src_be, override.dst_be, 0,
				      &change, &cause);
	if (disk.frozen)
		return;
	/* One that couldn't be set isn't in force, though the file may have it for a while; one
	 * that couldn't be unset is gone until a restart. Both are told. */
	if (r >= 0)
		world.override[flow] = wanted;
	before = override_in_force(flow);
	world.shown[flow] = before & SHARE_NONE ? (share_set)(1u << world.policy_share) : before;
}
