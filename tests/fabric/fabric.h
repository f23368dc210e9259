/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the stand-in library: its objects, and who may touch what.
 *
 * Locks, in the order in which they may be taken together:
 *   1. fab.lock, the engine's: QP states, links, rings, memory keys, timers. Whoever holds it may
 * move bytes. Pollers and posters only try it and leave a note (fab.pending) when it is taken.
 *   2. fab_rq.lock: a receive queue (of a QP or an SRQ); post calls take it alone.
 *      fab_qp.sq_lock: the posting end of a send queue; post calls take it alone.
 *   3. fab_cq.lock, fab_channel.lock, fab_context.event_lock: taken last, never together. */
#ifndef MPIB_FABRIC_FABRIC_H
#define MPIB_FABRIC_FABRIC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <infiniband/verbs.h>

#include "common/macros.h"
#include "tests/fabric/state.h"

#ifndef TAILQ_FOREACH_SAFE /* glibc's header lacks it */
#define TAILQ_FOREACH_SAFE(var, head, field, next)                                                 \
	for ((var) = TAILQ_FIRST(head); (var) && ((next) = TAILQ_NEXT(var, field), 1);             \
	     (var) = (next))
#endif

#define FAB_EXPORT __attribute__((visibility("default")))

#define FAB_NEVER      UINT64_MAX
#define FAB_QP_INDEXES (1U << FAB_QPN_BITS)

/* An asynchronous event on its way to ibv_get_async_event(). */
struct fab_event {
	TAILQ_ENTRY(fab_event) node;
	struct ibv_async_event event;
};
TAILQ_HEAD(fab_event_list, fab_event);

struct fab_device {
	struct ibv_device dev;
	uint32_t index; /* in fab_config.dev and fab_state.dev */
};

/* Of which a device has so many. */
enum fab_object { FAB_OBJECT_QP, FAB_OBJECT_CQ, FAB_OBJECT_SRQ, FAB_OBJECT_MR, FAB_OBJECTS };

struct fab_context {
	uint32_t dev; /* index in fab_config.dev */
	_Atomic uint32_t made[FAB_OBJECTS];
	LIST_ENTRY(fab_context) node; /* engine lock */
	pthread_mutex_t event_lock;
	pthread_cond_t event_cond;    /* an event was acknowledged */
	struct fab_event_list events; /* event_lock; not yet given out */
	struct fab_event_list taken;  /* event_lock; given out, not yet acknowledged */
	int event_fd;		      /* event_lock; a byte an event; -1: there are no more */
	struct verbs_context verbs;   /* ends with the ibv_context, so it comes last */
};
LIST_HEAD(fab_context_list, fab_context);

struct fab_pd {
	struct ibv_pd pd;
	_Atomic uint32_t objects; /* MRs, QPs and SRQs alive */
};

struct fab_mr {
	struct ibv_mr mr;
	uint64_t iova;	 /* what work requests call the first byte */
	uint8_t *base;	 /* where it is */
	uint64_t locked; /* bytes counted against the memory lock limit */
	unsigned int access;
	bool gpu;		     /* device memory: copies go through the driver */
	bool marked, lost, reported; /* pages.c, engine lock: its pages can be told from later
				      * ones; they were seen to be gone; that was said */
	void *map;		     /* mapping of a DMA-BUF that is ours, or NULL */
	size_t map_len;
};

struct fab_channel {
	struct ibv_comp_channel channel;
	pthread_mutex_t lock;
	TAILQ_HEAD(, fab_cq_event) events; /* lock */
};

struct fab_cq_event {
	TAILQ_ENTRY(fab_cq_event) node;
	struct ibv_cq *cq;
};

enum fab_cqe_kind {
	FAB_CQE_SEND, /* frees send queue slots up to sq_end when polled */
	FAB_CQE_RECV, /* frees one slot of `rq` when polled */
};

struct fab_cqe {
	struct ibv_wc wc;
	struct fab_qp *qp;
	struct fab_rq *rq;
	uint64_t sq_end;
	enum fab_cqe_kind kind;
	bool solicited;
};

struct fab_cq {
	struct ibv_cq cq;
	pthread_mutex_t lock;
	struct fab_cqe *ring; /* lock; cq.cqe entries */
	uint32_t head, count; /* lock */
	int armed;	      /* lock; 0, 1 any, 2 solicited only */
	bool overflown;	      /* lock; once true it stays */
	_Atomic uint32_t qps; /* uses by QPs */
	uint32_t events_out;  /* cq.mutex; channel events ever given out */
};

struct fab_rwqe {
	uint64_t wr_id;
	int sges;
	struct ibv_sge *sge;
};

/* A receive queue. Slots are taken by posting and freed by polling the completion. */
struct fab_rq {
	pthread_mutex_t lock;
	struct fab_rwqe *ring; /* lock; max entries */
	struct ibv_sge *sge;
	uint32_t max, max_sge;
	uint32_t head, ready;	 /* lock; posted and not taken yet */
	_Atomic uint32_t in_use; /* posted and not polled yet */
	uint32_t limit;		 /* lock; 0: no limit event wanted */
};

struct fab_srq {
	struct ibv_srq srq;
	struct fab_rq rq;
	_Atomic uint32_t qps;
	uint32_t number;
};

/* A posted send. Written by the poster below sq_head, then the engine's. */
struct fab_wqe {
	uint64_t wr_id, remote_addr, compare_add, swap;
	uint64_t length;    /* bytes of the message */
	uint64_t posted_ns; /* when the program asked for it */
	uint16_t epoch;	    /* of the QP when a READ or atomic went out */
	bool answered;	    /* all of its data has arrived */
	uint32_t rkey, imm;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	int sges;
	bool signaled, is_inline;
	struct ibv_sge *sge;
	uint8_t *inline_data;
};

enum fab_wait {
	FAB_WAIT_NONE,
	FAB_WAIT_RETRY, /* something was lost: the transport timer runs */
	FAB_WAIT_RNR,	/* the peer had no receive: its timer runs */
};

struct fab_link;
struct fab_pkt;

struct fab_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex; /* begins with the ibv_qp */
	};
	uint32_t dev;	/* index in fab_config.dev */
	uint32_t index; /* low bits of the QP number */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr; /* engine lock; what was set by modify */
	bool has_ex, sq_sig_all;
	_Atomic int state; /* enum ibv_qp_state; written under the engine lock */

	/* Send queue. Indexes only grow: free <= una <= tx <= head. */
	pthread_mutex_t sq_lock;
	struct fab_wqe *sq;
	struct ibv_sge *sq_sge;
	uint8_t *sq_inline;
	uint32_t sq_max;
	_Atomic uint64_t sq_head;  /* sq_lock: next to post */
	_Atomic uint64_t sq_free;  /* poller: slots below may be used again */
	uint64_t sq_una;	   /* engine: oldest without an answer */
	uint64_t sq_tx, sq_tx_off; /* engine: next to send, and how much of it has gone */
	uint64_t sq_error_at;	   /* engine: index that failed locally, or FAB_NEVER */
	uint64_t sq_drain;	   /* engine: in SQD, requests from here on stay */
	enum ibv_wc_status sq_error;
	uint32_t reads;	  /* engine: READs and atomics under way */
	bool draining;	  /* engine: SQD was asked for and isn't reached yet */
	bool stalled;	  /* READ data waits for a port that is down */
	uint64_t held_ns; /* engine: until then something held back what was posted before */
	uint16_t epoch;	  /* engine: raised by each step back, so that old answers show */
	enum fab_wait wait;
	uint64_t wait_due;
	uint32_t retries, rnr_retries;

	/* Responder, engine lock. */
	uint64_t exp_seq, exp_off;
	uint32_t exp_packets; /* of all messages before exp_seq */
	uint64_t told_seq;    /* what the requester knows of exp_seq */
	uint16_t told_epoch;  /* that of the latest request */
	struct fab_rwqe cur;  /* receive in use by a SEND under way */
	struct ibv_sge cur_sge[FAB_SGE_MAX];
	uint32_t pending_reads;
	uint32_t spread; /* parts that wait in spread.c */
	bool cur_valid;
	bool established; /* IBV_EVENT_COMM_EST was given */

	struct fab_rq rq;
	struct fab_rq *use_rq; /* own or the SRQ's */

	/* Completions held back by the delay fault, engine lock. */
	TAILQ_HEAD(fab_held_list, fab_held) held;
	uint64_t held_due;
	uint32_t random, random_order, drawn; /* by which delay command, how many */

	/* Engine's lists, engine lock; the inbox link belongs to whoever set `queued`. */
	_Atomic bool queued;
	bool active, waiting, holding;
	struct fab_qp *inbox_next;
	TAILQ_ENTRY(fab_qp) active_node, wait_node, held_node;
	struct fab_link *link; /* way to the peer, or NULL: look for it */

	/* Posting through ibv_wr_*, sq_lock held from wr_start on. */
	uint64_t wr_next;
	int wr_error;
};
TAILQ_HEAD(fab_qp_list, fab_qp);

struct fab_held {
	TAILQ_ENTRY(fab_held) node;
	struct fab_cqe cqe;
	struct fab_cq *cq;
	uint64_t due;
};

/* The process's part in the fabric. */
struct fab_engine {
	pthread_mutex_t lock;
	_Atomic bool pending;	   /* a pass was wanted while the lock was taken */
	_Atomic uint32_t waiters;  /* threads that block on the lock */
	_Atomic bool running;	   /* devices are open and the thread lives */
	_Atomic bool more;	   /* the last pass left work that can go on at once */
	_Atomic uint64_t next_due; /* earliest timer, CLOCK_MONOTONIC ns */
	_Atomic uint64_t seen;	   /* proc.activity that the last pass began with */
	_Atomic uint32_t polls;	   /* counts poll_cq calls that found nothing */
	_Atomic uint32_t sleep;	   /* enum fab_sleep of the thread */
	_Atomic(struct fab_qp *) inbox;

	struct fab_meeting meeting;
	const struct fab_config *conf;
	uint32_t node;
	struct fab_state_proc *self;
	int epoll_fd, wake_fd, listen_fd;
	pthread_t thread;
	uint32_t users; /* open contexts */

	/* engine lock */
	struct fab_qp **qps; /* FAB_QP_INDEXES entries */
	uint32_t qp_next, qp_count;
	struct fab_mr **mrs;
	uint32_t mr_max, mr_count, mr_next;
	uint64_t locked_bytes;
	uint64_t log_seen;
	struct fab_qp_list active, waiting, holding;
	struct fab_context_list contexts;
	TAILQ_HEAD(, fab_link) links;
};

extern struct fab_engine fab;

static inline struct fab_context *fab_context_of(struct ibv_context *context)
{
	return mpib_container_of(context, struct fab_context, verbs.context);
}

static inline const struct fab_dev_conf *fab_dev_conf(uint32_t dev)
{
	return &fab.conf->dev[dev];
}

static inline struct fab_state_dev *fab_dev_state(uint32_t dev)
{
	return &fab.meeting.state->dev[dev];
}

/* Key of the partition that the QP is in. */
/* A packet holds so many bytes, as a power of two. */
static inline unsigned int fab_mtu_shift(const struct fab_qp *qp)
{
	return 7 + (unsigned int)qp->attr.path_mtu;
}

static inline uint16_t fab_pkey(const struct fab_qp *qp)
{
	return fab_dev_conf(qp->dev)->pkey[qp->attr.pkey_index];
}

/* LIDs are those of one subnet manager: a number a port. */
#define FAB_LID_MULTICAST 0xc000
static inline uint16_t fab_lid(uint32_t dev)
{
	return (uint16_t)(dev + 1);
}

/* route.c: what ibv_device.ibdev_path says, with a link `device` where the INI has `pci`. */
void fab_ibdev_path(uint32_t dev, char *ret_path, size_t size);

/* process.c: negative errno. */
int fab_engine_prepare(void); /* reads the configuration, opens the meeting; once a process */
int fab_engine_get(void);     /* joins and starts the thread with the first user */
void fab_engine_put(void);

/* engine.c */
void *fab_engine_thread(void *arg);
void fab_engine_lock(void); /* waits for it, and makes long passes give way */
void fab_engine_unlock(void);
void fab_engine_try(void);		     /* runs one pass if nobody else does */
bool fab_engine_idle(void);		     /* true: a pass would find nothing; lock-free */
void fab_engine_wake(void);		     /* makes the thread look */
void fab_engine_due(uint64_t due);	     /* engine lock: a timer at @due */
void fab_engine_activate(struct fab_qp *qp); /* engine lock: it may have something to send */
void fab_engine_post(struct fab_qp *qp);     /* no lock: the same from a post call */
void fab_engine_forget(struct fab_qp *qp);   /* engine lock: off all lists */
void fab_engine_collect(void);		     /* engine lock: inbox to active list */

/* query.c: one object more, or the errno of a device that has no more of them; and one less. What a
 * context holds counts: that of a program which opens the device once is all of its own. */
int fab_object_take(struct ibv_context *context, enum fab_object what);
void fab_object_drop(struct ibv_context *context, enum fab_object what);

/* mr.c: @key is checked, engine lock. Returns the place of the first byte or NULL. */
struct fab_mr *fab_mr_find(uint32_t key, struct ibv_pd *pd, uint64_t addr, uint64_t length,
			   unsigned int access);
static inline uint8_t *fab_mr_at(const struct fab_mr *mr, uint64_t addr)
{
	return mr->base + (addr - mr->iova);
}

/* pages.c: engine lock. */
void fab_pages_mark(struct fab_mr *mr); /* before it has a key */
/* False, with a line on stderr, if other memory or none is there by now. */
bool fab_pages_kept(struct fab_mr *mr, uint64_t addr, uint64_t length);
void fab_pages_forget(void); /* after a fork, and at the end */

/* sge.c: engine lock. @from and @len are places in the message. */
bool fab_sge_fit(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		 unsigned int access);
void fab_sge_gather(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		    uint8_t *to);
bool fab_sge_scatter(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		     const uint8_t *data);

/* cq.c: engine lock, except in null mode. */
void fab_cq_push(struct fab_cq *cq, const struct fab_cqe *cqe);
void fab_cq_complete(struct fab_cq *cq, const struct fab_cqe *cqe); /* honours the delay fault */
void fab_cq_forget(struct fab_cq *cq, const struct fab_qp *qp, const struct fab_rq *rq);
void fab_held_release(uint64_t now);
void fab_held_drop(struct fab_qp *qp);
int fab_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
int fab_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* rq.c */
int fab_rq_init(struct fab_rq *rq, uint32_t max, uint32_t max_sge);
void fab_rq_fini(struct fab_rq *rq);
bool fab_rq_take(struct fab_qp *qp, struct fab_rwqe *ret_wqe, struct ibv_sge *ret_sge);
int fab_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fab_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* query.c */
int fab_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		   size_t len);
int fab_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *in,
			struct ibv_device_attr_ex *attr, size_t len);

/* qp.c, qp_state.c, post.c */
struct ibv_qp *fab_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void fab_qp_set_state(struct fab_qp *qp, enum ibv_qp_state state); /* engine lock */
void fab_qp_to_error(struct fab_qp *qp);			   /* engine lock */
void fab_qp_flush(struct fab_qp *qp);				   /* engine lock */
void fab_qp_reset(struct fab_qp *qp);				   /* engine lock */
int fab_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
void fab_wr_ops_set(struct fab_qp *qp);

/* event.c */
void fab_event_push(struct fab_context *ctx, const struct ibv_async_event *event);
void fab_event_qp(struct fab_qp *qp, enum ibv_event_type type);
void fab_event_cancel(struct fab_context *ctx, const void *object);
void fab_event_end(struct fab_context *ctx); /* poll() says so once all are read */

/* requester.c: engine lock. */
bool fab_requester_send(struct fab_qp *qp); /* true: something went out */
void fab_requester_answer(struct fab_qp *qp, const struct fab_pkt *pkt, const uint8_t *data);
void fab_requester_lost(struct fab_qp *qp, uint64_t seq, uint64_t offset);
void fab_requester_timer(struct fab_qp *qp, uint64_t now);
void fab_requester_finish(struct fab_qp *qp, uint64_t index, enum ibv_wc_status status);
void fab_requester_drain(struct fab_qp *qp); /* finishes what has begun, and no more */

/* fault.c */
int fab_fault(uint32_t dev, enum fab_verb verb); /* 0, or the positive errno to fail with */
void fab_fault_cut(uint32_t dev);		 /* engine lock: a request begins to leave */
void fab_fault_log(void);			 /* engine lock: acts on new log entries */

/* trace.c: lines of MPIB_FABRIC_TRACE. */
void fab_trace_qp(const struct fab_qp *qp); /* engine lock */
void fab_trace_mr(const struct fab_mr *mr, uint32_t dev);
void fab_trace_ece(uint32_t dev);

/* gpu.c */
bool fab_gpu_pointer(const void *ptr); /* device memory, and gpu = yes */
void fab_gpu_copy(bool in, uint64_t device, void *host, size_t len); /* engine lock */

/* judge.c: engine lock. Mistakes of programs: false, told and counted. */
bool fab_judge_atomic(const struct fab_qp *qp, const uint8_t *at);
bool fab_judge_reads(const struct fab_qp *qp, uint32_t outstanding);

/* unseen.c: engine lock. Acknowledged writes become visible: */
void fab_unseen_place_device(uint32_t dev);	 /* all that came through the device */
void fab_unseen_settle(const struct fab_mr *mr); /* all that went to this memory */

/* crew.c: engine lock, but for starting and ending. */
int fab_crew_start(unsigned int size); /* 0 or -errno, then without a crew */
void fab_crew_end(void);
void fab_crew_forget(void); /* in a child, which has none */
void fab_crew_copy(uint8_t *to, const uint8_t *from, size_t len);

/* access.c: engine lock. */
void fab_copy_bulk(uint8_t *to, const uint8_t *from, size_t len); /* no order; any thread */
void fab_copy_in(const struct fab_mr *mr, uint8_t *to, const void *from, size_t len);
void fab_copy_out(const struct fab_mr *mr, void *to, const uint8_t *from, size_t len);
/* Adds, or compares and swaps, the 8 bytes at @at; the old value. */
uint64_t fab_run_atomic(const struct fab_mr *mr, uint8_t *at, bool add, uint64_t compare_add,
			uint64_t swap);

#endif
