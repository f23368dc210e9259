/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/vigil.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "agent/base/proc.h"
#include "agent/state/holder.h"

#define LOOK_MS 100
/* A debugger that steps or a shell's job control stops a process for moments, too. */
#define HELD_LOOKS 3
/* The heartbeat moves once a second. Where the process can't be seen, an agent that reads a large
 * policy looks like one that hangs. */
#define HANG_MS	       3000
#define HANG_UNSEEN_MS 10000

static uint64_t now_ms(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void mpib_vigil_begin(struct mpib_vigil *vigil, const struct mpib_ctl *ctl, unsigned int limit_sec)
{
	*vigil = (struct mpib_vigil){ .ctl = ctl, .limit_ms = limit_sec * 1000, .state = '?' };
	if (mpib_ctl_map_hints(ctl, &vigil->hints, &vigil->hints_size) == 0)
		vigil->beat = mpib_hint_load(&vigil->hints->heartbeat);
	vigil->began_ms = now_ms();
	vigil->alive_ms = vigil->began_ms;
}

void mpib_vigil_end(struct mpib_vigil *vigil)
{
	if (vigil->hints)
		mpib_ctl_unmap_hints(vigil->hints, vigil->hints_size);
	vigil->hints = NULL;
}

void mpib_vigil_name(struct mpib_vigil *vigil, int fd)
{
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);
	struct mpib_proc proc;

	if (fd < 0)
		peer.pid = mpib_holder_pid(vigil->ctl->dir);
	else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return;

	/* The service manager listens for an agent that isn't there yet. */
	if (peer.pid && mpib_proc_look(peer.pid, &proc) == 0 &&
	    strcmp(proc.name, MPIB_AGENT_PROCESS) == 0)
		vigil->pid = peer.pid;
}

/* What the process and the heartbeat show now. */
static void observe(struct mpib_vigil *vigil)
{
	struct mpib_proc proc;

	vigil->state = '?';
	vigil->tracer = 0;
	if (vigil->pid && mpib_proc_look(vigil->pid, &proc) == 0) {
		vigil->state = proc.state;
		vigil->tracer = proc.tracer;
	}
	if (vigil->state == 'T' || vigil->state == 't')
		vigil->n_held++;
	else
		vigil->n_held = 0;

	if (vigil->hints && mpib_hint_load(&vigil->hints->heartbeat) != vigil->beat) {
		vigil->beat = mpib_hint_load(&vigil->hints->heartbeat);
		vigil->alive_ms = now_ms();
	}
	if (vigil->state == 'R')
		vigil->alive_ms = now_ms();
}

int mpib_vigil_look(struct mpib_vigil *vigil)
{
	uint64_t now;

	observe(vigil);
	now = now_ms();
	if (vigil->n_held >= HELD_LOOKS)
		vigil->why = vigil->state == 'T' ? MPIB_VIGIL_STOPPED : MPIB_VIGIL_TRACED;
	else if (vigil->n_held == 0 &&
		 now - vigil->alive_ms >= (vigil->state == '?' ? HANG_UNSEEN_MS : HANG_MS))
		vigil->why = MPIB_VIGIL_HANGS;
	else if (vigil->limit_ms && now - vigil->began_ms >= vigil->limit_ms)
		vigil->why = MPIB_VIGIL_LATE;
	else
		return 0;
	return -ETIMEDOUT;
}

bool mpib_vigil_held(struct mpib_vigil *vigil)
{
	const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };

	for (;;) {
		observe(vigil);
		if (vigil->n_held == 0)
			return false;
		if (mpib_vigil_look(vigil) < 0)
			return true;
		(void)nanosleep(&pause, NULL);
	}
}

int mpib_vigil_wait(struct mpib_vigil *vigil, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	bool endless = vigil->answered && !vigil->limit_ms;

	for (;;) {
		int r = poll(&p, 1, endless ? -1 : LOOK_MS);

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
		if (mpib_vigil_look(vigil) < 0 && !endless)
			return -ETIMEDOUT;
	}
}

void mpib_vigil_heard(struct mpib_vigil *vigil)
{
	vigil->answered = true;
	vigil->began_ms = now_ms();
	vigil->alive_ms = vigil->began_ms;
}

/* ---- what to say ---------------------------------------------------------------------------- */

/* "the agent at DIR (pid N)" */
static void name_agent(const struct mpib_vigil *vigil, char *buf, size_t size)
{
	if (vigil->pid)
		(void)snprintf(buf, size, "the agent at %s (pid %ld)", vigil->ctl->dir,
			       (long)vigil->pid);
	else
		(void)snprintf(buf, size, "the agent at %s", vigil->ctl->dir);
}

enum mpib_ctl_exit mpib_vigil_tell(const struct mpib_vigil *vigil, struct mpib_ctl *ctl,
				   bool change)
{
	const char *later = change ? "; what was asked may have been done: look with mpibctl "
				     "status and flows"
				   : "";
	char agent[256];

	name_agent(vigil, agent, sizeof(agent));
	switch (vigil->why) {
	case MPIB_VIGIL_STOPPED:
		(void)mpib_cause_set(&ctl->cause, -ETIMEDOUT,
				     "%s is stopped, so it answers nobody; kill -CONT %ld, or "
				     "systemctl restart mpib-agentd; jobs keep their shares",
				     agent, (long)vigil->pid);
		break;
	case MPIB_VIGIL_TRACED:
		(void)mpib_cause_set(&ctl->cause, -ETIMEDOUT,
				     "%s is held by a debugger (pid %ld), so it answers nobody; "
				     "end that, or systemctl restart mpib-agentd; jobs keep their "
				     "shares",
				     agent, vigil->tracer);
		break;
	case MPIB_VIGIL_HANGS:
		(void)mpib_cause_set(
			&ctl->cause, -ETIMEDOUT,
			"%s doesn't answer: its heartbeat has stood still for %u s%s; systemctl "
			"restart mpib-agentd%s",
			agent, (vigil->state == '?' ? HANG_UNSEEN_MS : HANG_MS) / 1000,
			vigil->state == 'D' ? " and it waits for a disk or a network file system"
					    : "",
			later);
		break;
	case MPIB_VIGIL_LATE:
		(void)mpib_cause_set(&ctl->cause, -ETIMEDOUT,
				     "%s is at work, but hasn't answered within %u s; try again, "
				     "or see journalctl -u mpib-agentd -p warning%s",
				     agent, vigil->limit_ms / 1000, later);
		break;
	}
	return MPIB_CTL_FAILURE;
}
