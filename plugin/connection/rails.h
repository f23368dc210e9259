/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection knows of the loss of its rails: struct mpib_rails, there where failover is on.
 * The two ends agree on a loss over the control connection (docs/failover.md): each moves its queue
 * pairs of the rail to ERR and says RAIL_DOWN, and acts on the other's.
 *
 * Whoever notices a loss first, of the helper thread and the progress thread, starts the rail's
 * job, a thread of its own: on a device that is lost any verb may take long, and neither messages
 * nor other connections wait for it. The job moves the queue pairs to ERR. A sender's RAIL_DOWN is
 * said at once then. A receiver's tells which parts have arrived, so it is the progress thread's to
 * say, with one exception: where all rows are done it needs no request to know that, and the job or
 * the helper thread says it for an end that nobody may ever call again. All that the messages need,
 * their replay and the clear-to-sends, is the progress thread's (data/rail_loss.c), which learns of
 * it by MPIB_FLAG_RAIL. The job makes and connects new queue pairs, too, when the progress thread
 * asks for them. While it is at work, the rail's queue pairs and completion queue are the job's.
 */
#ifndef MPIB_PLUGIN_RAILS_H
#define MPIB_PLUGIN_RAILS_H

#include <stdbool.h>

#include "plugin/base/job.h"
#include "plugin/connection/mailbox.h"
#include "plugin/wire/failover.h"

/* How long a receiver looks for completions after its queue pairs went to ERR: what the device was
 * at work on by then. Devices that tell the end of it by IBV_EVENT_QP_LAST_WQE_REACHED need less,
 * but not all do (rxe before Linux 6.5). */
#define MPIB_RAIL_DRAIN_MS 2

/* Frames of a rail that an end may have to keep until its progress thread comes by: RAIL_DOWN, then
 * RAIL_UP, and RAIL_READY or RAIL_DOWN of its epoch. The next attempt waits for an answer. */
#define MPIB_RAIL_FRAMES 4

/* The least time between two attempts to bring a rail back, whatever ports and the peer say. */
#define MPIB_RAIL_RETRY_MS 50

/* How long the progress thread looks at each call for the first request of a rail that comes back;
 * later it does where the helper thread says so. */
#define MPIB_RAIL_PROBE_MS 20

struct mpib_rail_frame {
	uint16_t type; /* enum mpib_frame_type */
	uint32_t epoch;
	union {
		struct mpib_rail_down down;
		struct mpib_rail_up up;
	};
};

/* What the progress thread asks a rail's job for. */
enum mpib_rail_work {
	MPIB_WORK_NONE,
	MPIB_WORK_MAKE,	   /* a sender's queue pairs */
	MPIB_WORK_CONNECT, /* those, to `peer` */
	MPIB_WORK_ANSWER,  /* a receiver's: both */
};

struct mpib_rail_loss {
	struct mpib_job job;
	struct mpib_comm *comm;
	uint8_t rail;
	uint8_t work; /* enum mpib_rail_work */
	bool worked;  /* it is done, with `result` */
	int result;   /* 0, or a negative errno */
	struct mpib_peer_qps peer;

	struct mpib_rail_end end;
	bool stopped;	 /* no message takes it any more; its queue pairs are to be in ERR */
	bool in_err;	 /* and are */
	bool was_up;	 /* messages may have taken it since it was lost last */
	bool probing;	 /* sender: connected, and waits for a first request to come through */
	bool port_down;	 /* of this host, as its events tell */
	bool again;	 /* a port has come up while an attempt was under way */
	uint8_t cause;	 /* enum mpib_rail_cause */
	uint8_t lost_by; /* the same of the loss itself, as the end has it that noticed it */
	uint8_t waiting;
	/* It stopped, its queue pairs were in ERR, it was lost, it was back, and the next attempt
	 * at that. */
	uint64_t stopped_ms, err_ms, lost_ms, back_ms, try_ms;
	uint64_t tried_ms; /* the latest attempt began */
	uint64_t probe_ms; /* since it is probing */
	uint32_t pause_ms;
	struct mpib_rail_frame frame[MPIB_RAIL_FRAMES]; /* `waiting` of them, the oldest first */
};

/* New queue pairs, which set-up knows how to make (setup/rail_make.c). 0, or a negative errno. What
 * calls verbs is the job's, without the watch lock. */
struct mpib_rail_maker {
	/* The progress thread's, before `make`: what the old ones have left. */
	void (*leave)(struct mpib_comm *comm, unsigned int rail);
	/* In INIT, with a new completion queue; the old ones are given back. */
	int (*make)(struct mpib_comm *comm, unsigned int rail);
	/* The progress thread's: what RAIL_UP tells of them. */
	void (*describe)(const struct mpib_comm *comm, unsigned int rail,
			 struct mpib_peer_qps *ret);
	/* To RTS. */
	int (*connect)(struct mpib_comm *comm, unsigned int rail, const struct mpib_peer_qps *peer);
};

/* What is known of rails over which nothing comes back (stall.h). Receiver: of the rail with the
 * clear-to-sends alone. */
struct mpib_stall {
	uint64_t due_ms;	       /* the next look */
	uint64_t seen[MPIB_RAIL_MAX];  /* completions at the latest one */
	bool moved[MPIB_RAIL_MAX];     /* there were new ones then */
	uint32_t looks[MPIB_RAIL_MAX]; /* without any while the other rail had some */
	uint32_t seen_limit;	       /* receiver: cts_limit */
	bool asking;		       /* receiver: a write is out that asks ... */
	uint32_t asked_limit;	       /* ... and sets cts_limit to this, or beyond */
};

/* A row's part that is being posted again and needs several work requests. */
struct mpib_again {
	struct mpib_request *head; /* of the row; NULL: none */
	unsigned int part, rail;
	const struct mpib_send_qp *qp;
	struct mpib_request *next; /* message to go on with */
	size_t offset;		   /* in its part */
	struct mpib_wr wr[MPIB_GROUP_MAX + 1];
};

struct mpib_rails {
	/* Under the watch lock. */
	struct mpib_rail_loss rail[MPIB_RAIL_MAX];
	struct mpib_stall stall;
	bool live;	  /* from established to close */
	uint64_t none_ms; /* since when no rail is usable; 0: one is */
	struct mpib_mailbox box;
	const char *wrong; /* what the peer said that can't be; the progress thread fails by it */

	/* Progress. */
	uint8_t off;   /* rails that this end has stopped to use */
	uint8_t extra; /* receiver, rails whose loss its rows have receives for on the other one */
	bool hold;     /* receiver: no row is posted, for want of receives or of a rail for its
			* clear-to-send */
	bool cts_lost; /* receiver: clear-to-sends from row cts_from on wait for a rail */
	uint32_t cts_from;
	uint32_t made_head[MPIB_RAIL_MAX]; /* sender: send.head as new queue pairs were made */
	bool ever;	      /* receiver: parts may have gone again on the other rail */
	uint32_t old;	      /* receiver that has to trim: rows before this one may use them */
	uint32_t share_fixed; /* sender: where both rails are there */
	const struct mpib_rail_maker *maker;
	struct mpib_env *env; /* owned; for maker */
	struct mpib_again again;
};

/* Whether a rail that is lost is brought back; known with the features. */
static inline bool mpib_rails_return(const struct mpib_comm *comm)
{
	return comm->local.features & comm->remote.features & MPIB_FEATURE_FAILOVER;
}

/* Whether the rails of the connection can stand in for each other, too; known with the path. */
static inline bool mpib_rails_possible(const struct mpib_comm *comm)
{
	return comm->mem_mask == MPIB_RAILS_ALL && mpib_rails_return(comm);
}

/* These under the watch lock, or by the progress thread, which alone makes a lost rail usable and
 * settles a loss; other threads stop a rail and say so meanwhile. */
static inline unsigned int mpib_rail_state(const struct mpib_comm *comm, unsigned int rail)
{
	return __atomic_load_n(&comm->rails->rail[rail].end.state, __ATOMIC_RELAXED);
}

static inline bool mpib_rail_stopped(const struct mpib_comm *comm, unsigned int rail)
{
	return __atomic_load_n(&comm->rails->rail[rail].stopped, __ATOMIC_RELAXED);
}

static inline bool mpib_rail_usable(const struct mpib_comm *comm, unsigned int rail)
{
	return mpib_rail_state(comm, rail) == MPIB_RAIL_UP && !mpib_rail_stopped(comm, rail);
}

/* Under the watch lock. */
static inline bool mpib_rails_any(const struct mpib_comm *comm)
{
	return mpib_rail_usable(comm, MPIB_SOUT) || mpib_rail_usable(comm, MPIB_SUP);
}

/* Of a connection that is being made. */
void mpib_rails_init(struct mpib_comm *comm);

/* No frame about a rail is said or acted on from here on, and no job goes on to anything new. */
void mpib_rails_end(struct mpib_comm *comm);

/* After that: waits for what a job is at. Its queue pairs are the caller's then. Fine for a
 * connection without failover. Without the watch lock. */
void mpib_rails_free(struct mpib_comm *comm);

/* The rail is stopped: its job moves the queue pairs to ERR, and does what follows without the
 * progress thread. False where nothing changes: of a last rail a request has to have failed, and
 * messages have to be allowed to wait. Fine for a rail that is lost already. Under the watch lock.
 */
bool mpib_rails_lose(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause);

/* The same in any case. Not for a rail that is stopped. Under the watch lock. */
void mpib_rails_stop(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause);

/* Lets the rail's job do @todo; for MPIB_WORK_CONNECT and _ANSWER with @peer. -EINPROGRESS until it
 * is done, of which MPIB_FLAG_RAIL tells; then its result, once. Progress thread, under the watch
 * lock. */
int mpib_rails_let(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_work todo,
		   const struct mpib_peer_qps *peer);

/* Says RAIL_DOWN; from a receiver @down has what has arrived. Under the watch lock. */
void mpib_rails_say_down(struct mpib_comm *comm, unsigned int rail, struct mpib_rail_down *down);

/* Says RAIL_UP or RAIL_READY of the rail's epoch. Under the watch lock. */
void mpib_rails_say_up(struct mpib_comm *comm, unsigned int rail, const struct mpib_peer_qps *qps);
void mpib_rails_say_ready(struct mpib_comm *comm, unsigned int rail);

/* Until the next attempt to bring it back, longer each time, but where no rail is left. */
void mpib_rails_pause(struct mpib_rail_loss *loss);

/* What becomes of a rail's port. Up again: a sender tries to bring the rail back at once, a
 * receiver tells it to. Under the watch lock. */
void mpib_rails_port_down(struct mpib_comm *comm, unsigned int rail);
void mpib_rails_port_up(struct mpib_comm *comm, unsigned int rail);

/* The rail is back at this end. Where the port of the other one, which messages couldn't leave, is
 * down, that one is lost now. Under the watch lock. */
void mpib_rails_back(struct mpib_comm *comm, unsigned int rail);

/* A frame of the peer's about a rail. Under the watch lock. */
void mpib_rails_on_frame(struct mpib_comm *comm, const struct mpib_frame *frame);

/* The rail's queue pairs to ERR: nothing of it moves any more. */
void mpib_rail_stop(struct mpib_comm *comm, unsigned int rail);

#endif
