/* SPDX-License-Identifier: Apache-2.0 */
/* A random life of agents and processes on one directory against a reference of who was told which
 * slot and share (world.h). Agents are killed at any call that changes something and between any
 * two stores into a slot, calls fail, disks are full or broken, files are deleted and damaged, and
 * other versions leave their header. MPIB_TEST_STEPS makes it long, MPIB_TEST_SEED repeats it,
 * MPIB_TEST_VERBOSE tells each step. */
#include "tests/unit/agent/world.h"

#include <errno.h>

#include "agent/base/crc32.h"
#include "tests/unit/agent/disk.h"
#include "tests/unit/common/random.h"

static struct mpib_test_random rng;

static uint32_t below(uint32_t n)
{
	return (uint32_t)mpib_test_random_below(&rng, n);
}

/* One that lives or doesn't, NULL where there is none. */
static struct world_proc *any_proc(bool alive)
{
	unsigned int first = below(WORLD_PROCS);

	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		struct world_proc *proc = &world.procs[(first + n) % WORLD_PROCS];

		if (proc->alive == alive)
			return proc;
	}
	return NULL;
}

/* One with a connection to the agent, made now if need be. */
static struct world_proc *any_client(void)
{
	struct world_proc *proc = any_proc(true);

	if (proc && !proc->peer)
		world_connect(proc);
	return proc && proc->peer && !disk.frozen ? proc : NULL;
}

/* ---- while an agent runs -------------------------------------------------------------------- */

static void do_register(void)
{
	struct world_proc *proc = any_client();
	unsigned int conn = below(WORLD_CONNS);
	unsigned int flow = below(WORLD_FLOWS);

	if (!proc)
		return;
	if (proc->regs[conn].hold != HOLD_NONE)
		flow = proc->regs[conn].flow;
	/* There are slots for all flows but after leaks. */
	world_register(proc, conn, flow, world.sure);
}

static void do_deregister(void)
{
	struct world_proc *proc = any_client();
	unsigned int conn = below(WORLD_CONNS);

	if (proc && proc->regs[conn].hold != HOLD_NONE)
		world_deregister(proc, conn);
}

static void do_disconnect(void)
{
	struct world_proc *proc = any_proc(true);

	if (proc && proc->peer)
		world_disconnect(proc);
}

static void change_ini(void)
{
	world.ini_share = below(WORLD_SHARES);
	if (!below(8) && world.ini_slots < 2 * WORLD_SLOTS)
		world.ini_slots += below(5);
}

static void do_reload(void)
{
	change_ini();
	world_reload();
}

static void do_override(void)
{
	bool set = below(2);

	world_override(below(WORLD_FLOWS), set, below(WORLD_SHARES));
}

/* Nothing else may be wrong while the table has to be made anew: the state file alone has it. */
static bool may_lose_table(void)
{
	world_note();
	return world.whole && !world.table_due && !disk.full && !disk.broken &&
	       !world.no_descriptors;
}

static void do_delete_table(void)
{
	if (may_lose_table() && world_remove("hints"))
		world.table_due = true;
}

static void do_delete_state(void)
{
	if (world.table_due)
		return;
	world.sure = world.whole = false;
	(void)world_remove("state");
}

/* ---- at any time ---------------------------------------------------------------------------- */

static void do_birth(void)
{
	static const uid_t uids[] = { 0, 1000, 1000, 1001 };
	struct world_proc *proc = any_proc(false);
	bool named = below(4);

	if (proc)
		world_birth(proc, named, uids[below(4)]);
}

static void do_death(void)
{
	struct world_proc *proc = any_proc(true);

	if (proc)
		world_death(proc);
}

static void do_full(void)
{
	disk.full = !disk.full && !world.table_due;
}

static void do_broken(void)
{
	disk.broken = !disk.broken && !world.table_due;
	world.sure &= !disk.broken;
}

static void do_no_descriptors(void)
{
	world.no_descriptors = !world.no_descriptors && !world.table_due;
	world.sure &= !world.no_descriptors;
}

/* ---- while no agent runs -------------------------------------------------------------------- */

static void do_start(void)
{
	(void)world_start();
}

static void change_state(off_t at, void *bytes, size_t len, void (*change)(void *bytes))
{
	bool broken = disk.broken;
	char path[TEMPDIR_MAX + 32];
	int fd;

	if (world.table_due)
		return;
	world.sure = false;
	/* This is no doing of an agent. */
	disk_disarm();
	disk.broken = disk.full = false;
	(void)snprintf(path, sizeof(path), "%s/state", world.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		disk.broken = broken;
		return;
	}
	if (pread(fd, bytes, len, at) == (ssize_t)len) {
		change(bytes);
		assert_int_equal(pwrite(fd, bytes, len, at), len);
	}
	assert_int_equal(close(fd), 0);
	disk.broken = broken;
}

static void flip(void *bytes)
{
	*(uint8_t *)bytes ^= (uint8_t)(1 + below(255));
}

static void do_damage(void)
{
	uint8_t byte;

	world.whole = false;
	change_state(below(64 * 24), &byte, 1, flip);
}

static void other_header(void *bytes)
{
	struct mpib_adopt_header *header = bytes;

	switch (below(4)) {
	case 0:
		header->version = 0;
		break;
	case 1: /* made up: of the future */
		header->version = 2;
		header->record_size = 96;
		break;
	case 2:
		header->boot_id[0] ^= 1;
		break;
	default:
		header->pid_ns ^= 1;
		break;
	}
	header->checksum = mpib_crc32(header, offsetof(struct mpib_adopt_header, checksum));
}

static void do_other_writer(void)
{
	struct mpib_adopt_header header;

	world.whole = false;
	change_state(0, &header, sizeof(header), other_header);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static const struct act {
	const char *name;
	void (*act)(void);
	unsigned int up; /* weights */
	unsigned int down;
} acts[] = {
	{ "register", do_register, 300, 0 },
	{ "deregister", do_deregister, 140, 0 },
	{ "disconnect", do_disconnect, 25, 0 },
	{ "reload", do_reload, 25, 0 },
	{ "override", do_override, 40, 0 },
	{ "tick", world_tick, 60, 0 },
	{ "stop", world_stop, 12, 0 },
	{ "birth", do_birth, 60, 30 },
	{ "death", do_death, 50, 30 },
	{ "delete the table", do_delete_table, 6, 8 },
	{ "delete the state", do_delete_state, 6, 8 },
	{ "full", do_full, 10, 10 },
	{ "broken", do_broken, 6, 6 },
	{ "no descriptors", do_no_descriptors, 4, 8 },
	{ "another policy", change_ini, 0, 15 },
	{ "damage", do_damage, 0, 8 },
	{ "another writer", do_other_writer, 0, 8 },
	{ "start", do_start, 0, 150 },
};
#define ACTS (sizeof(acts) / sizeof(acts[0]))

static const struct act *any_act(void)
{
	unsigned int sum = 0;
	unsigned int at;
	size_t n = 0;

	for (size_t k = 0; k < ACTS; k++)
		sum += world.up ? acts[k].up : acts[k].down;
	at = below(sum);
	while (at >= (world.up ? acts[n].up : acts[n].down))
		at -= world.up ? acts[n].up : acts[n].down, n++;
	return &acts[n];
}

/* One call in some steps fails or is the last. True where it would be the last. */
static bool arm(void)
{
	static const int errors[] = { EIO, ENOSPC, EINTR, EMFILE, EROFS };
	unsigned int roll = below(100);
	unsigned int skip = below(below(4) ? 4 : 30);
	unsigned int amount = below(64);
	int error = errors[below(5)];

	disk.hit = disk.torn = false;
	if (roll < 10)
		/* A kill cuts no write of a record short; where the table is gone a record is all.
		 */
		disk_arm(skip, DISK_KILLS + below(world.table_due ? 2 : 3), EIO, amount);
	else if (roll < 18 && !world.table_due)
		disk_arm(skip, DISK_FAILS + below(3), error, amount);
	return roll < 10;
}

static void step(unsigned long n)
{
	const struct act *act = any_act();
	bool kills;

	world_note();
	kills = arm();
	if (world.verbose)
		print_message("%lu %s%s\n", n, act->name,
			      kills	     ? ", may be killed"
			      : disk.failing ? ", may fail"
					     : "");
	act->act();
	disk_disarm();
	if (world.verbose && disk.hit)
		print_message("  %s at call %u\n", kills ? "killed" : "failed", disk.calls);
	if (disk.frozen)
		world_stop();
	/* A call that fails, and a record in part, may leave a holder that can't be told. */
	world.sure &= !disk.torn && (!disk.hit || kills);
	/* One that could neither be written nor marked may have been removed just before the end.
	 */
	if (disk.torn || (disk.hit && kills && (disk.broken || disk.full)))
		world.sure = world.whole = false;
	world_note();
	world_check();
}

/* With a sanitizer a step costs twelve times as much. */
#ifdef __SANITIZE_ADDRESS__
#define STEPS 8000
#else
#define STEPS 100000
#endif

static void nobody_loses_a_slot_and_no_share_goes_back(void **state)
{
	const char *text = getenv("MPIB_TEST_STEPS");
	unsigned long steps = text ? strtoul(text, NULL, 10) : STEPS;

	(void)state;
	world.verbose = getenv("MPIB_TEST_VERBOSE") != NULL;
	rng = mpib_test_random_init(1);
	world_open();
	for (unsigned long n = 0; n < steps; n++) {
		if (!below(300))
			world_reset();
		step(n);
	}
	world_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_loses_a_slot_and_no_share_goes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
