/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent/agent_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "plugin/agent/agent_shares.h"
#include "plugin/agent/agent_socket.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/wire/net.h"

#define ANSWER_TIMEOUT_MS 2000 /* a connect waits no longer for the agent */
#define NO_SLOT_RETRY_MS  5000
#define CLOSE_TIMEOUT_MS  500
#define START_TIMEOUT_MS  5000 /* an initialisation no longer for one that its knock starts */
#define START_LOOK_MS	  10

/* Tables that were full are asked again. */
static void retry_full_tables(uint64_t now_ms)
{
	mpib_watch_assert_locked();
	if (now_ms < mpib_agent.retry_full_ms)
		return;
	mpib_agent.retry_full_ms = now_ms + NO_SLOT_RETRY_MS;
	for (struct mpib_agent_reg *reg = mpib_agent.regs; reg; reg = reg->next)
		if (mpib_agent_get_state(reg) == MPIB_REG_NO_SLOT)
			mpib_agent_set_state(reg, MPIB_REG_WANTED);
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	(void)tick;
	if (!mpib_agent.regs && !mpib_agent.leaving_len)
		return;
	retry_full_tables(now_ms);
	mpib_agent_pump();
	if (mpib_agent.sock.fd >= 0)
		mpib_agent_send_counters();
	mpib_agent_look_at_table(now_ms);
	if (mpib_agent.sock.fd < 0 && !mpib_agent.logged_gone && mpib_agent.table.header) {
		mpib_agent.logged_gone = true;
		MPIB_INFO("agent is gone: the last shares hold for %d s (MPIB_AGENT_STALE_SEC), "
			  "then the vanilla policy, until it returns",
			  mpib_agent.env.agent_stale_sec);
	}
}

void mpib_agent_hand_counters(void)
{
	mpib_watch_lock();
	if (mpib_agent.sock.fd >= 0)
		mpib_agent_send_counters();
	mpib_watch_unlock();
}

/* A socket without a table: the service manager listens, and a connection starts the agent, whose
 * table is whole before it serves. */
static int knock(void)
{
	uint64_t end = mpib_now_ms() + START_TIMEOUT_MS;
	int r = mpib_agent_connect_socket();

	if (r < 0)
		return r;
	while (mpib_agent_map_table() < 0) {
		if (mpib_now_ms() >= end) {
			mpib_agent_disconnect();
			return -ETIMEDOUT;
		}
		(void)poll(NULL, 0, START_LOOK_MS);
	}
	return 0;
}

/* Table and socket. Where hundreds of processes start at once, the agent's backlog may be full for
 * a moment, and descriptors or memory short: that goes by. */
static int reach_agent(void)
{
	uint64_t end = mpib_now_ms() + START_TIMEOUT_MS;
	int r;

	mpib_watch_assert_locked();
	for (;;) {
		r = mpib_agent_map_table();
		if (r == 0)
			r = mpib_agent_connect_socket();
		else if (r == -ENOENT)
			r = knock();
		if (r == 0 || !mpib_net_is_transient(-r) || mpib_now_ms() >= end)
			return r;
		(void)poll(NULL, 0, START_LOOK_MS);
	}
}

int mpib_agent_link_open(const struct mpib_env *env)
{
	int r;

	mpib_watch_lock();
	mpib_agent.env = *env;
	mpib_agent.tick.on_tick = on_tick;
	r = reach_agent();
	if (r < 0 && !env->agent_optional) {
		mpib_agent_unmap_tables();
		mpib_watch_unlock();
		MPIB_WARN("MPIB_MODE=1 needs mpib-agentd, and none serves %s (%s): systemctl start "
			  "mpib-agentd, or set MPIB_AGENT_OPTIONAL=1 or MPIB_MODE=0",
			  env->agent_dir, strerror(-r));
		return -ENOENT;
	}
	if (r < 0) {
		MPIB_WARN("no mpib-agentd serves %s (%s): vanilla policy until one appears",
			  env->agent_dir, strerror(-r));
		mpib_agent.logged_gone = true;
	}
	mpib_agent.stale = mpib_agent.proven = mpib_agent.logged_slow = false;
	if (getrandom(&mpib_agent.next_id, sizeof(mpib_agent.next_id), 0) !=
	    sizeof(mpib_agent.next_id))
		mpib_agent.next_id = (uint32_t)mpib_now_ms();
	mpib_agent.open = true;
	mpib_watch_tick_add(&mpib_agent.tick);
	mpib_watch_unlock();
	return 0;
}

void mpib_agent_link_close(void)
{
	uint64_t end = mpib_now_ms() + CLOSE_TIMEOUT_MS;

	mpib_watch_lock();
	if (mpib_agent.open) {
		mpib_watch_tick_del(&mpib_agent.tick);
		/* The agent learns of a process's end anyway, but this one may go on and load the
		 * plugin again. */
		while ((mpib_agent.queue_len || mpib_agent.leaving_len) && mpib_now_ms() < end) {
			struct pollfd p = { .fd = mpib_agent.sock.fd, .events = POLLIN };

			mpib_agent_pump();
			if (mpib_agent.sock.fd < 0)
				break;
			p.fd = mpib_agent.sock.fd;
			(void)poll(&p, 1, 10);
			if (mpib_agent.sock.fd >= 0)
				mpib_agent_read_answers();
		}
		mpib_agent_disconnect();
		mpib_agent_unmap_tables();
		free(mpib_agent.leaving);
		mpib_agent.leaving = NULL;
		mpib_agent.leaving_len = mpib_agent.leaving_capacity = 0;
		memset(mpib_agent.ids, 0, sizeof(mpib_agent.ids));
		mpib_agent.open = false;
	}
	mpib_watch_unlock();
}

void mpib_agent_link_fork_child(void)
{
	if (mpib_agent.sock.fd >= 0)
		(void)close(mpib_agent.sock.fd);
	mpib_agent.sock.fd = -1;
}

/* A counter that no live connection has; 65536 are enough for any process. */
static int alloc_id(uint32_t *ret_conn_id)
{
	mpib_watch_assert_locked();
	for (unsigned int k = 0; k < 65536; k++) {
		uint32_t id = mpib_agent.next_id++ & 0xffff;

		if (mpib_agent.ids[id / 8] & 1u << id % 8)
			continue;
		mpib_agent.ids[id / 8] |= (uint8_t)(1u << id % 8);
		*ret_conn_id = (uint32_t)getpid() << 16 | id;
		return 0;
	}
	return -EMFILE;
}

int mpib_agent_register(struct mpib_agent_reg *reg, uint32_t sout_src_be, uint32_t sout_dst_be,
			uint32_t sup_src_be, uint32_t sup_dst_be)
{
	int r;

	mpib_watch_lock();
	r = alloc_id(&reg->conn_id);
	if (r == 0) {
		reg->sout_src_be = sout_src_be;
		reg->sout_dst_be = sout_dst_be;
		reg->sup_src_be = sup_src_be;
		reg->sup_dst_be = sup_dst_be;
		reg->deadline_ms = mpib_now_ms() + ANSWER_TIMEOUT_MS;
		mpib_agent_set_state(reg, MPIB_REG_WANTED);
		reg->next = mpib_agent.regs;
		reg->link = &mpib_agent.regs;
		if (reg->next)
			reg->next->link = &reg->next;
		mpib_agent.regs = reg;
		mpib_agent_pump();
	}
	mpib_watch_unlock();
	return r;
}

/* Nothing came in time. An agent that served this process before is merely busy or stopped, and
 * must not stop a job; one that never answered is not the right one. */
static int timed_out(struct mpib_agent_reg *reg)
{
	mpib_watch_assert_locked();
	if (mpib_agent.proven) {
		if (!mpib_agent.logged_slow)
			MPIB_WARN(
				"agent at %s doesn't answer: new connections start on the vanilla "
				"policy until it does",
				mpib_agent.env.agent_dir);
		mpib_agent.logged_slow = true;
		return 1;
	}
	mpib_agent_protocol_error("it accepted a registration and didn't answer within 2 s");
	return mpib_agent_get_state(reg) == MPIB_REG_FAILED ? reg->error : -EIO;
}

int mpib_agent_register_poll(struct mpib_agent_reg *reg)
{
	int r = 0;

	mpib_watch_lock();
	switch (mpib_agent_get_state(reg)) {
	case MPIB_REG_NONE:
	case MPIB_REG_DONE:
	case MPIB_REG_NO_SLOT:
		r = 1;
		break;
	case MPIB_REG_FAILED:
		r = reg->error;
		break;
	case MPIB_REG_WANTED:
	case MPIB_REG_SENT:
		/* No agent now: it was there at init, or is optional. Go on without, the helper
		 * thread registers when it is back. */
		if (mpib_agent.sock.fd < 0 && mpib_agent.passing)
			mpib_agent_pump();
		if (mpib_agent.stale ||
		    (mpib_agent.sock.fd < 0 &&
		     (!mpib_agent.passing || mpib_now_ms() >= reg->deadline_ms)))
			r = 1;
		else if (mpib_now_ms() >= reg->deadline_ms)
			r = timed_out(reg);
		break;
	}
	if (r > 0)
		reg->handed_out = true;
	mpib_watch_unlock();
	return r;
}

/* The answer to its request concerns nobody any more. */
static void forget_request(const struct mpib_agent_reg *reg)
{
	mpib_watch_assert_locked();
	for (unsigned int k = 0; k < mpib_agent.queue_len; k++) {
		struct mpib_agent_pending *p =
			&mpib_agent.queue[(mpib_agent.queue_head + k) % MPIB_AGENT_QUEUE_MAX];

		if (p->reg == reg)
			p->reg = NULL;
	}
}

void mpib_agent_deregister(struct mpib_agent_reg *reg)
{
	mpib_watch_lock();
	if (mpib_agent_get_state(reg) != MPIB_REG_NONE) {
		*reg->link = reg->next;
		if (reg->next)
			reg->next->link = reg->link;
		if (mpib_agent_get_state(reg) == MPIB_REG_SENT)
			forget_request(reg);
		if (reg->asked) {
			mpib_agent_add_leaving(reg->conn_id);
			mpib_agent_pump();
		} else {
			mpib_agent_free_id(reg->conn_id);
		}
		reg->asked = false;
		mpib_agent_set_state(reg, MPIB_REG_NONE);
	}
	mpib_watch_unlock();
}
