/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent/agent_shares.h"

#include <errno.h>
#include <stdlib.h>

#include "common/hint.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"

static void unmap_old_tables(void)
{
	while (mpib_agent.old_tables) {
		struct mpib_agent_old_table *old = mpib_agent.old_tables;

		mpib_agent.old_tables = old->next;
		mpib_hint_table_unmap(&old->table);
		free(old);
	}
}

void mpib_agent_unmap_tables(void)
{
	mpib_watch_assert_locked();
	unmap_old_tables();
	mpib_hint_table_unmap(&mpib_agent.table);
}

/* The table of now stays mapped while there are connections, which may be reading it. */
static int keep_old_table(void)
{
	struct mpib_agent_old_table *old;

	if (!mpib_agent.regs) {
		mpib_agent_unmap_tables();
		return 0;
	}
	if (!mpib_agent.table.header)
		return 0;
	old = malloc(sizeof(*old));
	if (!old)
		return -ENOMEM;
	old->table = mpib_agent.table;
	old->next = mpib_agent.old_tables;
	mpib_agent.old_tables = old;
	return 0;
}

/* Maps the table, or maps it again. That costs a page or two for each file that took the place of
 * another, until the last connection is closed; a file that is mapped already costs nothing. */
int mpib_agent_map_table(void)
{
	struct mpib_hint_table table;
	int r;

	mpib_watch_assert_locked();
	if (mpib_agent.table.header &&
	    mpib_hint_table_is_current(mpib_agent.env.agent_dir, &mpib_agent.table))
		return 0;
	r = mpib_hint_table_map(mpib_agent.env.agent_dir, &table);
	if (r < 0)
		return r;
	r = keep_old_table();
	if (r < 0) {
		mpib_hint_table_unmap(&table);
		return r;
	}
	mpib_agent.table = table;
	mpib_agent.generation = mpib_hint_load(&table.header->generation);
	mpib_agent.heartbeat = mpib_hint_load(&table.header->heartbeat);
	mpib_agent.beat_ms = mpib_now_ms();
	return 0;
}

void mpib_agent_publish(struct mpib_agent_reg *reg)
{
	mpib_watch_assert_locked();
	atomic_store_explicit(&reg->hint, mpib_agent.stale || reg->unread ? NULL : reg->entry,
			      memory_order_release);
}

/* A slot that now belongs to another flow (an agent that lost its state): keep the last share until
 * the new slot is known. */
static void check_owner(struct mpib_agent_reg *reg)
{
	struct mpib_hint_entry now;

	if (!reg->entry || reg->entry == &reg->held)
		return;
	if (!mpib_hint_read_entry(reg->entry, &now))
		return; /* being written: nothing can be said */
	if (now.src_ip == reg->sout_src_be && now.dst_ip == reg->sout_dst_be) {
		reg->share_seen = now.sup_bw; /* remembered for that day */
		return;
	}

	mpib_hint_write(&reg->held, reg->share_seen, reg->sout_src_be, reg->sout_dst_be);
	reg->entry = &reg->held;
	mpib_agent_publish(reg);
}

static void set_stale(bool stale)
{
	if (mpib_agent.stale == stale)
		return;
	mpib_agent.stale = stale;
	if (stale)
		MPIB_WARN("agent silent for %d s (MPIB_AGENT_STALE_SEC): vanilla policy until its "
			  "heartbeat returns; check mpib-agentd",
			  mpib_agent.env.agent_stale_sec);
	else
		MPIB_WARN("agent is back: its shares are followed again");
	for (struct mpib_agent_reg *reg = mpib_agent.regs; reg; reg = reg->next)
		mpib_agent_publish(reg);
}

void mpib_agent_look_at_table(uint64_t now_ms)
{
	uint32_t beat, generation;

	mpib_watch_assert_locked();
	if (!mpib_agent.table.header)
		return;
	beat = mpib_hint_load(&mpib_agent.table.header->heartbeat);
	generation = mpib_hint_load(&mpib_agent.table.header->generation);
	if (beat != mpib_agent.heartbeat || generation != mpib_agent.generation) {
		mpib_agent.heartbeat = beat;
		mpib_agent.generation = generation;
		mpib_agent.beat_ms = now_ms;
		set_stale(false);
	} else if (now_ms - mpib_agent.beat_ms > (uint64_t)mpib_agent.env.agent_stale_sec * 1000) {
		set_stale(true);
	}
	for (struct mpib_agent_reg *reg = mpib_agent.regs; reg; reg = reg->next)
		check_owner(reg);
}
