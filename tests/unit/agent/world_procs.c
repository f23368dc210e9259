/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of the model: made up for the agent, and what they ask of it. */
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "agent/clients/peers.h"
#include "agent/clients/process.h"
#include "tests/unit/agent/disk.h"
#include "tests/unit/agent/world.h"

/* ---- processes, in the place of agent/clients/process.c ------------------------------------- */

static struct world_proc *find_proc(pid_t pid)
{
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		if (world.procs[n].alive && world.procs[n].named && world.procs[n].pid == pid)
			return &world.procs[n];
	}
	return NULL;
}

int mpib_process_open(pid_t pid, uid_t uid, int *ret_pidfd, uint64_t *ret_start_time)
{
	const struct world_proc *proc = find_proc(pid);

	if (world.no_descriptors)
		return -EMFILE;
	if (!proc)
		return -ESRCH;
	if (uid != MPIB_UID_ANY && uid != proc->uid)
		return -EPERM;
	*ret_pidfd = dup(proc->exit_fd);
	*ret_start_time = proc->start_time;
	return *ret_pidfd < 0 ? -errno : 0;
}

bool mpib_process_alive(int pidfd)
{
	eventfd_t count = 0;

	if (eventfd_read(pidfd, &count) < 0)
		return true;
	assert_int_equal(eventfd_write(pidfd, count), 0);
	return false;
}

bool mpib_process_exists(pid_t pid)
{
	return find_proc(pid) != NULL;
}

/* ---- processes ------------------------------------------------------------------------------ */

void world_birth(struct world_proc *proc, bool named, uid_t uid)
{
	/* pids come again, start times don't. */
	pid_t pid = (pid_t)(100 + (proc - world.procs) / 2);

	assert_false(proc->alive);
	*proc = (struct world_proc){
		.alive = true,
		.named = named,
		.pid = find_proc(pid) ? pid + 50 : pid,
		.start_time = ++world.n_started,
		.uid = uid,
		.exit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	assert_true(proc->exit_fd >= 0);
}

void world_connect(struct world_proc *proc)
{
	struct ucred cred = { .pid = proc->named ? proc->pid : 0, .uid = proc->uid };
	int r = mpib_peers_identify(world_peers(), &cred, &proc->peer);

	if (r < 0) {
		assert_true(world.no_descriptors);
		proc->peer = NULL;
		return;
	}
	for (unsigned int conn = 0; conn < WORLD_CONNS && !disk.frozen; conn++) {
		if (proc->regs[conn].hold == HOLD_TOLD)
			world_register(proc, conn, proc->regs[conn].flow, true);
	}
}

void world_disconnect(struct world_proc *proc)
{
	/* What a process without a name registered ends with its connection. */
	for (unsigned int conn = 0; conn < WORLD_CONNS; conn++) {
		if (!proc->named && proc->regs[conn].hold == HOLD_TOLD)
			proc->regs[conn].hold = HOLD_MAYBE;
	}
	mpib_peers_leave(world_peers(), proc->peer);
	proc->peer = NULL;
	for (unsigned int conn = 0; conn < WORLD_CONNS && !disk.frozen; conn++) {
		if (!proc->named)
			proc->regs[conn].hold = HOLD_NONE;
	}
}

void world_death(struct world_proc *proc)
{
	bool learned = proc->named || proc->peer;
	bool holds = false;

	for (unsigned int conn = 0; conn < WORLD_CONNS; conn++)
		holds |= proc->regs[conn].hold != HOLD_NONE;
	if (world.verbose)
		print_message("  process %d ends\n", proc->pid);
	proc->alive = false;
	assert_int_equal(eventfd_write(proc->exit_fd, 1), 0);
	if (proc->peer)
		world_disconnect(proc);
	world_serve();
	/* Without a connection nobody learns of the end of a process that has no name. */
	if (holds && !(learned && (proc->named || !disk.frozen)))
		world.sure = false;
	assert_int_equal(close(proc->exit_fd), 0);
}

void world_register(struct world_proc *proc, unsigned int conn, unsigned int flow, bool certain)
{
	struct mpib_addresses addresses = { world_src(flow), world_dst(flow), 1, 2 };
	uint32_t conn_id = (uint32_t)((proc - world.procs) * 16 + (int)conn);
	struct world_reg *reg = &proc->regs[conn];
	uint32_t slot = UINT32_MAX;
	bool again = reg->hold == HOLD_TOLD;
	uint8_t status;

	reg->flow = flow;
	if (!again)
		reg->hold = HOLD_MAYBE;
	if (world.verbose)
		print_message("  process %d conn %u flow %u%s\n", proc->pid, conn, flow,
			      again ? " again" : "");
	status = mpib_flows_register(&world.flows, proc->peer, conn_id, &addresses, &slot);
	if (disk.frozen)
		return;
	if (status == MPIB_STATUS_OK) {
		if (again && slot != reg->slot)
			fail_msg("process %d conn %u: slot %u became %u", proc->pid, conn,
				 reg->slot, slot);
		*reg = (struct world_reg){ .hold = HOLD_TOLD, .flow = flow, .slot = slot };
		world.shown[flow] = world_possible(flow, world.policy_share);
	} else if (certain && !disk.hit && !disk.full && !disk.broken) {
		fail_msg("process %d conn %u flow %u: refused (%u)", proc->pid, conn, flow, status);
	} else if (again) {
		reg->refused = true;
	} else {
		reg->hold = HOLD_NONE;
	}
}

void world_deregister(struct world_proc *proc, unsigned int conn)
{
	uint32_t conn_id = (uint32_t)((proc - world.procs) * 16 + (int)conn);
	struct world_reg *reg = &proc->regs[conn];
	bool told = reg->hold == HOLD_TOLD && !reg->refused;
	uint8_t status;

	world.sure &= !reg->refused;
	reg->hold = HOLD_MAYBE;
	if (world.verbose)
		print_message("  process %d conn %u flow %u ends\n", proc->pid, conn, reg->flow);
	status = mpib_flows_deregister(&world.flows, proc->peer, conn_id);
	if (disk.frozen)
		return;
	reg->hold = HOLD_NONE;
	if (told && status != MPIB_STATUS_OK)
		fail_msg("process %d conn %u: can't end (%u)", proc->pid, conn, status);
}
