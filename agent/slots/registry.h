/* SPDX-License-Identifier: Apache-2.0 */
/* Who registered which flow, and which slot the flow has. (peer process, conn_id) names a
 * registration; registrations of one flow share a slot; the last one gives it back. No I/O, no
 * logging: owner of the memory alone. One thread. */
#ifndef MPIB_AGENT_REGISTRY_H
#define MPIB_AGENT_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "agent/policy/balance.h"
#include "agent/slots/counter_map.h"
#include "agent/slots/quota.h"
#include "agent/slots/rails.h"
#include "common/mpib_agent_iface.h"

/* Bounds the memory: about 41 MiB when all are used. */
#define MPIB_REGISTRY_MAX 131072u

/* No record in the state file. */
#define MPIB_RECORD_NONE UINT32_MAX

/* No known place in the process's counter table. */
#define MPIB_PLACE_NONE UINT32_MAX

LIST_HEAD(mpib_reg_list, mpib_reg);
LIST_HEAD(mpib_peer_list, mpib_peer);
LIST_HEAD(mpib_slot_list, mpib_slot);
LIST_HEAD(mpib_user_list, mpib_user);
LIST_HEAD(mpib_hold_list, mpib_hold);
TAILQ_HEAD(mpib_peer_queue, mpib_peer);
TAILQ_HEAD(mpib_slot_queue, mpib_slot);

/* What one user holds; exists while anything does. */
struct mpib_user {
	LIST_ENTRY(mpib_user) all;
	uid_t uid;
	unsigned int refs;
	struct mpib_holdings held;
	struct mpib_holdings *others; /* sums of all users but root; NULL for root */
	struct mpib_holdings refused; /* of each good, not told of yet */
	/* looked at in counter tables in this round (kept by traffic.c) */
	uint64_t round;
	uint32_t scanned;
	uint32_t searched;
};

/* A process, or one connection of a process that can't be named (pid 0). */
struct mpib_peer {
	LIST_ENTRY(mpib_peer) bucket; /* by pid; unnamed peers are in no bucket */
	uint64_t key;		      /* no other peer has it */
	pid_t pid;		      /* 0: unnamed, lives as long as its connection */
	uint64_t start_time;	      /* clock ticks since boot, with pid the name of a process */
	struct mpib_user *user;
	struct mpib_reg_list regs;
	uint32_t n_regs;
	unsigned int refs; /* connections and the watch; registrations don't count */
	struct mpib_counter_map *counters; /* that it handed over, or NULL */
	TAILQ_ENTRY(mpib_peer) counted;	   /* while there are counters */
	struct mpib_reg *look_next;	   /* the look at its counters (kept by traffic.c) */
	uint32_t scan_next;
	uint32_t scan_left;
	uint32_t place_next; /* behind the entry that was found last */
	uint32_t places_end; /* behind all that were found */
	uint8_t look;
	uint32_t n_tables;	       /* that it handed over so far (kept by traffic.c) */
	bool rails_lied;	       /* some of its counts of rails can't be; told */
	TAILQ_ENTRY(mpib_peer) ending; /* its end takes several turns (kept by flows) */
	const char *ending_why;
	bool dead;	/* its registrations are gone; nothing new is taken */
	bool unclaimed; /* stands for holders of before whose process can't be told */
	void *watch;	/* owned by the server */
};

/* What one user holds of one slot. */
struct mpib_hold {
	LIST_ENTRY(mpib_hold) bucket; /* by slot and user */
	LIST_ENTRY(mpib_hold) of_slot;
	struct mpib_user *user;
	uint32_t slot;
	uint32_t n_regs; /* never 0 */
};

/* What a flow's meshes (device-initiated communication) have put, by rail. */
struct mpib_puts {
	uint64_t count[2];
	uint64_t bytes[2]; /* part of what the flow has sent */
};

struct mpib_slot {
	LIST_ENTRY(mpib_slot) bucket; /* by flow, while it has one */
	uint32_t src_be;
	uint32_t dst_be; /* both 0: free */
	struct mpib_reg_list regs;
	struct mpib_hold_list holds;
	uint32_t n_regs;
	uint32_t n_unclaimed;		   /* of n_regs */
	struct mpib_user *user;		   /* whose part of the table it counts to */
	struct mpib_counter_bytes bytes;   /* moved by the flow's connections since the agent saw
					    * their counters first */
	struct mpib_counter_bytes rate;	   /* in the latest second, bytes a second */
	struct mpib_counter_bytes sampled; /* what bytes was then */
	uint64_t moved_usec;		   /* when bytes grew last, since the epoch; 0: never */
	struct mpib_puts puts;		   /* likewise */
	uint32_t n_gin;			   /* of n_regs, those known to be a mesh's */
	struct mpib_rail_counts rails;	   /* of the flow's connections, since the same moment */
	struct mpib_rail_state rail_state;
	TAILQ_ENTRY(mpib_slot) telling; /* while there is news (kept by traffic.c) */
	struct mpib_rail_news news;
	bool has_news;
};

struct mpib_reg {
	LIST_ENTRY(mpib_reg) bucket; /* by peer and conn_id */
	LIST_ENTRY(mpib_reg) of_peer;
	LIST_ENTRY(mpib_reg) of_slot;
	struct mpib_peer *peer;
	struct mpib_hold *hold;
	uint32_t conn_id;
	uint32_t slot;
	uint32_t sup_src_be;
	uint32_t sup_dst_be;
	struct mpib_counter_bytes seen; /* of its counters */
	uint64_t puts_seen[2];		/* likewise */
	struct mpib_reg_rails rails;	/* likewise */
	struct mpib_balance_seen times; /* likewise (kept by tuning.c) */
	uint32_t lost_posts;		/* parts posted, while it has lost a rail... */
	uint64_t lost_posts_usec; /* ...when a look first found so many; 0: none did (tuning.c) */
	uint32_t place;		  /* its entry in the peer's table, or MPIB_PLACE_NONE */
	uint32_t record;	  /* where the state file holds it, or MPIB_RECORD_NONE... */
	uint32_t file;		  /* ...in the file of this number (kept by flows_state.c) */
	bool adopted;  /* of an earlier agent, and its process hasn't registered it again */
	bool restored; /* of an earlier agent */
	bool gin;      /* a mesh's, by its counters (kept by traffic.c) */
};

struct mpib_registry;

/* Addresses of a connection, network order. */
struct mpib_addresses {
	uint32_t sout_src_be;
	uint32_t sout_dst_be;
	uint32_t sup_src_be;
	uint32_t sup_dst_be;
};

/* A table of @entries slots, 1..65536. -ENOMEM. */
int mpib_registry_new(uint32_t entries, struct mpib_registry **ret);
struct mpib_registry *mpib_registry_free(struct mpib_registry *registry);

uint32_t mpib_registry_entries(const struct mpib_registry *registry);
uint32_t mpib_registry_n_flows(const struct mpib_registry *registry);
uint32_t mpib_registry_n_regs(const struct mpib_registry *registry);
/* Registrations of before whose process can't be told. */
uint32_t mpib_registry_n_unclaimed(const struct mpib_registry *registry);
uint32_t mpib_registry_n_peers(const struct mpib_registry *registry);

/* More slots; fewer are ignored. */
void mpib_registry_grow(struct mpib_registry *registry, uint32_t entries);

/* No slot from here on ever had a flow. */
uint32_t mpib_registry_n_touched(const struct mpib_registry *registry);

/* The slot of an index below entries. */
struct mpib_slot *mpib_registry_slot(struct mpib_registry *registry, uint32_t index);
uint32_t mpib_registry_slot_index(const struct mpib_registry *registry,
				  const struct mpib_slot *slot);
/* The slot of a flow, or NULL. */
struct mpib_slot *mpib_registry_find_flow(struct mpib_registry *registry, uint32_t src_be,
					  uint32_t dst_be);
bool mpib_slot_has_flow(const struct mpib_slot *slot);

/* A user, made on first sight; each get wants a put. NULL where memory is out. */
struct mpib_user *mpib_registry_user_get(struct mpib_registry *registry, uid_t uid);
void mpib_registry_user_put(struct mpib_registry *registry, struct mpib_user *user);

/* Whether @user may have @count more of a good of which there are @total, @taken of them in use. */
enum mpib_quota mpib_user_may(const struct mpib_user *user, enum mpib_good good, uint32_t count,
			      uint32_t taken, uint32_t total);
/* It has them, or gave them back. */
void mpib_user_charge(struct mpib_user *user, enum mpib_good good, uint32_t count);
void mpib_user_release(struct mpib_user *user, enum mpib_good good, uint32_t count);

/* One more was refused to @user; how many since it was told of. */
uint32_t mpib_user_refuse(struct mpib_user *user, enum mpib_good good);
void mpib_user_refusals_told(struct mpib_user *user, enum mpib_good good);

/* The living process of @pid, or NULL. No reference is taken. */
struct mpib_peer *mpib_registry_peer_find(struct mpib_registry *registry, pid_t pid);
/* Makes one, with one reference. -ENOMEM. */
int mpib_registry_peer_new(struct mpib_registry *registry, pid_t pid, uint64_t start_time,
			   uid_t uid, struct mpib_peer **ret);
/* Takes a peer out of the lookup: its pid may be another's from now on. */
void mpib_registry_peer_bury(struct mpib_peer *peer);
/* One reference more. */
void mpib_registry_peer_get(struct mpib_peer *peer);
/* Drops a reference; the last one frees. A peer without references has no registrations. */
struct mpib_peer *mpib_registry_peer_put(struct mpib_registry *registry, struct mpib_peer *peer);

/* Gives a peer another counter table, which it owns from then on; NULL: none. */
void mpib_registry_peer_count(struct mpib_registry *registry, struct mpib_peer *peer,
			      struct mpib_counter_map *counters);
/* Those that have one, in an order that the caller may change. */
struct mpib_peer_queue *mpib_registry_counted(struct mpib_registry *registry);
uint32_t mpib_registry_n_tables(const struct mpib_registry *registry);
/* Of all tables together. */
uint32_t mpib_registry_n_entries(const struct mpib_registry *registry);

struct mpib_reg *mpib_registry_find(struct mpib_registry *registry, const struct mpib_peer *peer,
				    uint32_t conn_id);

/* Registers. 1: new; 0: the same registration was there; -EEXIST: this conn_id has another flow
 * (that is *ret); -EINVAL: an address of the flow is 0; -ENOSPC: no slot; -EDQUOT: no slot of
 * this user's part; -EACCES: the rest is root's; -EUSERS: as many registrations as the user may
 * have; -ENOMEM. A slot that had no flow before has n_regs 1 after. */
int mpib_registry_add(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, struct mpib_reg **ret);

/* The same with a given slot, for what an earlier incarnation handed out; limits don't apply.
 * -EEXIST where slot, flow or conn_id contradict what is there, -ERANGE for a slot outside. */
int mpib_registry_adopt(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
			const struct mpib_addresses *addresses, uint32_t index,
			struct mpib_reg **ret);

/* Frees a registration. True where it was the flow's last: the slot is free then. */
bool mpib_registry_remove(struct mpib_registry *registry, struct mpib_reg *reg);

#endif
