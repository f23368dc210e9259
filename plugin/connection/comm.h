/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections. A send connection and a receive connection share struct mpib_comm; each has its own
 * part of it, and rings. Owners of fields: "set-up" is the service thread until connect or accept
 * returned the object, "progress" the thread that calls isend, irecv and test, "helper" the watch
 * thread.
 */
#ifndef MPIB_PLUGIN_COMM_H
#define MPIB_PLUGIN_COMM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/counters.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "plugin/agent/registration.h"
#include "plugin/connection/request.h"
#include "plugin/verbs/depth.h"
#include "plugin/verbs/hca.h"
#include "plugin/verbs/mr.h"
#include "plugin/wire/ctl.h"
#include "plugin/wire/cts.h"

/* Class of a connection, fixed once, before any QP exists. */
enum mpib_path {
	MPIB_PATH_INTRA = 0, /* both ends in one island */
	MPIB_PATH_INTER = 1,
};

/* What the helper thread tells the data path; bits of mpib_comm.flags. */
enum mpib_flag {
	MPIB_FLAG_PEER_BYE = 1,	 /* the peer closed in good order */
	MPIB_FLAG_PEER_GONE = 2, /* its control connection broke: process or host is gone */
	MPIB_FLAG_PEER_FAIL = 4, /* it told of its own failure: fail_text */
	MPIB_FLAG_QP_FATAL = 8,
	MPIB_FLAG_DEVICE_FATAL = 16, /* the device of one of its rails is lost */
	MPIB_FLAG_PEER_ROWS = 32,    /* BYE told bye_rows */
	MPIB_FLAG_FLUSHED = 64, /* progress's: requests were flushed, of unknown cause so far */
	MPIB_FLAG_RAIL = 128,	/* no trouble: a rail is lost or back, see rails.h */
	MPIB_FLAG_LOOK = 256, /* no trouble: nothing of a rail has completed lately, see stall.h */
};

/* Whatever fails from then on may be of the connection's end. */
#define MPIB_FLAGS_END                                                                             \
	((unsigned int)(MPIB_FLAG_PEER_BYE | MPIB_FLAG_PEER_GONE | MPIB_FLAG_PEER_FAIL |           \
			MPIB_FLAG_DEVICE_FATAL | MPIB_FLAG_QP_FATAL))

/* Why a sender's fast path is closed; bits of mpib_comm.busy. */
enum mpib_busy {
	MPIB_BUSY_GROUP = 1,	 /* a group is being collected */
	MPIB_BUSY_POSTING = 2,	 /* a row waits for the send queues */
	MPIB_BUSY_FAILED = 4,	 /* there is an error */
	MPIB_BUSY_CLOSED = 8,	 /* the peer has closed, with all that was posted */
	MPIB_BUSY_TIMED = 16,	 /* busy times are kept */
	MPIB_BUSY_IDLE = 32,	 /* the same, and of one rail at least no span goes on */
	MPIB_BUSY_CLOCK = 64,	 /* the same, by a clock that takes a system call */
	MPIB_BUSY_WAITING = 128, /* no rail is left, for the time being */
};

#define MPIB_FLUSH_SCRATCH 64
#define MPIB_POLL_BATCH	   16

/* How long requests may still complete after the peer was seen to be gone: what it sent before is
 * on its way through another path than the news of its end. */
#define MPIB_PEER_GONE_GRACE_MS 300

/*
 * A process with many busy connections finds little of them in its caches: a message then costs as
 * much as the cache lines that it touches. So what each message needs is together, in whole lines:
 * the first line of a connection, and behind it what a sender or a receiver has of its own.
 */
#define MPIB_CACHE_LINE 64

/* A work request with its element: prepared once, or filled in for one post. */
struct mpib_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

/* A rail's QPs, in the order in which messages take them: a ring. */
struct mpib_send_qp {
	struct ibv_qp *qp;
	struct mpib_send_qp *next;
	unsigned int index;
};

/* A rail's work requests of a row, linked once: plain writes, filled from the end so that no link
 * ever changes, and the one with the immediate. */
struct mpib_chain {
	struct mpib_wr *at;		       /* the last one filled; or the final one */
	const struct mpib_send_qp *qp;	       /* takes all of the row */
	struct mpib_request *next;	       /* to be cut next */
	size_t offset;			       /* of its part on this rail, what is filled in */
	struct mpib_wr wr[MPIB_GROUP_MAX + 1]; /* data, and the final one */
};

/* The row that takes several messages, or one that has to be cut: being collected, at head, and
 * then on its way to the send queues. */
struct mpib_group {
	uint32_t left;	      /* bits of its messages that are not matched; 0: none collected */
	uint32_t size;	      /* messages, as the first look found it */
	struct mpib_cts *row; /* MPIB_GROUP_MAX elements, the peer's to write */
	uint64_t *record;     /* staging for its completion record */
	uint64_t sup_before;  /* bytes that SUP had carried before it */
	struct mpib_request *head; /* those matched, the last one first */
	bool cut;		   /* one of them is over a port's limit */
	uint8_t rails;		   /* that it takes */
	uint8_t unposted;	   /* of them, those that are not posted to the end */
	struct mpib_chain chain[MPIB_RAIL_MAX];
};

/* What a sender has of its own: set-up writes it until connect returned the connection, the
 * progress thread from then on. What each message needs comes first. */
struct mpib_sender {
	struct mpib_send_qp *at[MPIB_RAIL_MAX]; /* the next message's; NULL: none */
	struct mpib_cts_row *cts;

	/* A message up to this is one request, its size fits into size_q. */
	size_t max_whole;
	size_t split_min; /* shorter messages take one rail */
	/* The same of a timed sender that has nothing under way. */
	size_t split_min_idle;
	uint32_t head; /* rows matched so far */
	/* The vanilla policy, and whenever no hint may be used. */
	uint32_t share_fixed;
	uint32_t share_last; /* last good hint */

	size_t max_msg[MPIB_RAIL_MAX]; /* bytes that one request may carry */
	size_t max_uncut;	       /* a message up to this isn't cut on any rail */
	size_t ar_above; /* a longer one is a plain write and an immediate; SIZE_MAX: none is */
	struct mpib_send_qp qps[MPIB_RAIL_MAX][MPIB_QPS_MAX];

	struct mpib_group group;
	uint32_t chained[MPIB_RAIL_MAX][MPIB_QPS_MAX]; /* send queue entries of chains */
	uint64_t *records;    /* staging: MPIB_ROWS rows of MPIB_RECORD_NUMBERS */
	uint64_t record_addr; /* the receiver's */
};

/* The same of a receiver. */
struct mpib_receiver {
	/* Takes the clear-to-send of a request to the sender, inline; only its first line changes.
	 */
	struct ibv_send_wr cts_wr;
	struct ibv_sge cts_sge;
	uint64_t cts_addr;  /* the sender's ring */
	uint32_t tail;	    /* rows posted so far */
	uint32_t one_until; /* the next row that isn't posted by the fast path */

	struct ibv_qp *cts_qp;
	uint64_t *cts_count; /* the counter of cts_rail */
	struct mpib_hca *hca[MPIB_RAIL_MAX];
	uint32_t reserved[MPIB_RAIL_MAX]; /* receives held in the shared queues */
	unsigned int carried;		  /* rails that have brought data */
	uint32_t cts_limit;		  /* the row that the send queue may have no room for */
	uint32_t inline_room;		  /* bytes that cts_qp takes inline */
	bool trim; /* a rail was lost: it may hold more receives than its rows need */

	struct mpib_request *row[MPIB_ROWS];
	struct mpib_cts_row *cts_out; /* staging */
	uint64_t *records;	      /* written by the sender: rows as in its staging */
	unsigned int cts_rail;
	uint32_t
		inline_on[MPIB_RAIL_MAX]; /* bytes that QP 0 takes inline, where it may be cts_qp */

	/* GPU memory only: a QP a rail, connected to itself, and where its reads go. */
	struct ibv_qp *flush_qp[MPIB_RAIL_MAX];
	void *flush_scratch;
};

struct mpib_rails;

struct mpib_comm {
	/* The line that each call reads. */
	atomic_uint flags; /* helper writes, progress reads: enum mpib_flag */
	int error;	   /* progress: 0, or why nothing works any more */
	/* progress: a rail with 0 isn't polled. Sender: completions to come. Receiver: 1 where
	 * data may come. */
	uint32_t polled[MPIB_RAIL_MAX];
	struct ibv_cq *cq[MPIB_RAIL_MAX];
	struct mpib_counter_entry *counters;
	struct mpib_request_pool pool; /* progress */
	uint8_t busy;		       /* progress: enum mpib_busy */
	uint8_t kind;		       /* enum mpib_counter_kind */
	uint8_t rail_mask;	       /* set-up: rails that have QPs */
	uint8_t mem_mask; /* set-up: rails that may ever carry bytes: memory is registered there */
	/* Those of them that may carry some now. Vanilla connections of an island have SOUT in
	 * reserve until they lose SUP. Progress writes it, under the watch lock. */
	uint8_t data_mask;
	uint8_t use_mask; /* progress: those of them that do, all of them polled */

	struct mpib_agent_reg agent; /* advanced mode; of it a sender reads `hint` */
	struct ibv_send_wr *bad;     /* progress: where a post says which request it refused */

	union { /* by kind */
		_Alignas(MPIB_CACHE_LINE) struct mpib_sender send;
		_Alignas(MPIB_CACHE_LINE) struct mpib_receiver recv;
	};

	/* Set-up and errors. */
	struct mpib_device *dev;
	unsigned int nqps[MPIB_RAIL_MAX];
	struct ibv_qp *qp[MPIB_RAIL_MAX][MPIB_QPS_MAX];
	struct mpib_source source[MPIB_RAIL_MAX];
	enum mpib_mode mode;
	enum mpib_path path;
	struct ibv_ece ece[MPIB_RAIL_MAX]; /* what this end offers or answers; vendor 0: none */
	struct mpib_peer local, remote;
	struct mpib_peer_qps remote_qps;
	char peer_text[MPIB_IPV4_TEXT_MAX + 16]; /* "10.0.1.2 pid 77" */
	char established;  /* set-up: NCCL's from here on; the peer is told of its end */
	char own_counters; /* counters is a private struct, not an entry of the shared table */

	void *ring; /* this end's memory that the peer writes, and staging; page aligned */
	size_t ring_size;
	struct mpib_mr *ring_mr;

	struct mpib_ctl ctl;
	struct mpib_watch_item ctl_watch;  /* helper, from established to close */
	unsigned int events_ignored;	   /* helper: of QPs and CQs of rails without data */
	struct mpib_rails *rails;	   /* set-up; NULL: without failover */
	uint64_t news_ms;		   /* helper writes before the first flag: its time */
	uint64_t gone_since_ms;		   /* progress: when the peer's end was first noticed */
	uint32_t bye_rows;		   /* helper writes before it sets PEER_ROWS */
	char fail_text[MPIB_TEXT_MAX + 1]; /* helper writes before it sets PEER_FAIL */
	char fail_device;		   /* the same; 1: the peer has lost a device */
	char qp_text[128];		   /* helper writes before it sets QP_FATAL */
	char flush_text[256];		   /* progress: of the first flushed request */

	struct mpib_comm *next, **link; /* all of the process, under the watch lock */
};

_Static_assert(offsetof(struct mpib_comm, agent) == MPIB_CACHE_LINE, "all in the first line");
_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.rkey) < MPIB_CACHE_LINE, "in the first line");

/* Compared in memory each time: compilers load it once, which takes an instruction more. Progress.
 */
static mpib_always_inline unsigned int mpib_busy_now(const struct mpib_comm *comm)
{
	__asm__("" ::: "memory");
	return comm->busy;
}

/* ---- the connections of the process (comm.c) ------------------------------------------------- */

void mpib_comms_add(struct mpib_comm *comm);
void mpib_comms_del(struct mpib_comm *comm);

/* The newest one, or NULL. */
struct mpib_comm *mpib_comms_first(void);

/* In a forked child: closes its copies of the control sockets, and makes every call on a connection
 * fail. */
void mpib_comms_fork_child(void);

/* Sets bits of flags. Under the watch lock. */
void mpib_comm_flag(struct mpib_comm *comm, unsigned int flag);

#endif
