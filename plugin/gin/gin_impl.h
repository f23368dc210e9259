/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share, and nobody else. Owners of fields: "set-up" is the service
 * thread until connect returned the mesh, "progress" the thread that puts and tests, "helper" the
 * watch thread.
 */
#ifndef MPIB_PLUGIN_GIN_IMPL_H
#define MPIB_PLUGIN_GIN_IMPL_H

#include <stdatomic.h>

#include "common/counters.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "plugin/agent/registration.h"
#include "plugin/gin/frames.h"
#include "plugin/gin/gin.h"
#include "plugin/verbs/mr.h"
#include "plugin/wire/ctl.h"

/* Entries of a send queue: a write and an atomic for each request of a context. More contexts, and
 * messages over a port's limit, wait for room. */
#define MPIB_GIN_SQ_DEPTH (2 * MPIB_GIN_DEPTH)
/* Puts up to this go whole on SOUT, behind which a signal needs no look at SUP. Measured by
 * tests/bench/gin-bound, which has others. */
#ifndef MPIB_GIN_WHOLE_MAX
#define MPIB_GIN_WHOLE_MAX 8192u
#endif
/* What a READ that pushes SUP's writes adds to a put with its signal, in microseconds; and bytes up
 * to which a put that has both rails for itself may go whole on SOUT because of it. */
#define MPIB_GIN_PUSH_US 5u
#ifndef MPIB_GIN_ALONE_MAX
#define MPIB_GIN_ALONE_MAX 65536u
#endif
/* READs and atomics at once on one QP, where the devices have as many. */
#define MPIB_GIN_READS_MAX 16u
/* What a READ that pushes writes reads; no part on SUP is shorter. */
#define MPIB_GIN_PUSH_SIZE 8u
/* Of 8 bytes each: what atomics and reads bring and nobody looks at. */
#define MPIB_GIN_SCRATCH    64u
#define MPIB_GIN_POLL_BATCH 16

/* What a completion is of: low bits of its wr_id, whose other bits are a pointer's. */
enum mpib_gin_kind {
	MPIB_GIN_DATA = 0,	  /* a request's write */
	MPIB_GIN_SIGNAL = 1,	  /* a request's atomic */
	MPIB_GIN_DATA_SIGNAL = 2, /* the same, and the write before it */
	MPIB_GIN_READ = 3,	  /* a request's READ */
	MPIB_GIN_PUSH = 4,	  /* a peer's READ behind writes on SUP */
	MPIB_GIN_CHAINED = 5,	  /* the write before a DATA_SIGNAL: completes where it fails */
	MPIB_GIN_KINDS = 7,	  /* the mask */
};

enum mpib_gin_op { MPIB_GIN_PUT, MPIB_GIN_GET };

/* What is left of a request on one rail. */
struct mpib_gin_part {
	uint64_t local, remote;
	size_t left;
};

/* Whether a request's part on SUP is to be done again, from its beginning or where it stopped. */
enum mpib_gin_again { MPIB_GIN_AGAIN_NO, MPIB_GIN_AGAIN_ALL, MPIB_GIN_AGAIN_REST };

/* Progress only. The first line is all that a small put needs. */
struct mpib_gin_request {
	_Alignas(64) struct mpib_gin_peer *peer;
	struct mpib_gin_request *next; /* of the free ones, or of a peer's list */
	struct mpib_gin_context *context;
	uint32_t remaining; /* completions to come, and 1 each for parts and a signal not posted */
	uint8_t op;	    /* enum mpib_gin_op */
	bool signals;
	uint8_t again; /* enum mpib_gin_again */
	uint64_t need; /* pushes that have to be done before its atomic; 0: not known yet */
	uint64_t signal_addr, signal_value;
	const struct mpib_gin_far *signal_far;
	/* What is left to post; a rail's part that is to be done again is posted once more. */
	struct mpib_gin_part part[MPIB_RAIL_MAX];
	const struct mpib_gin_window *near, *far;
	uint64_t sout_bytes; /* of its part for SOUT: posted there */
};

struct mpib_gin_list {
	struct mpib_gin_request *first, **last;
};

enum mpib_gin_over {
	MPIB_GIN_LIVE = 0,
	MPIB_GIN_CLOSED = 1, /* in good order */
	MPIB_GIN_GONE = 2,
};

/* Set-up's state of one peer; mesh.c. */
enum mpib_gin_step {
	MPIB_GIN_IDLE,	/* its turn has not come, or it is to come to this end */
	MPIB_GIN_TCP,	/* waits for TCP, or for the time to try again */
	MPIB_GIN_TURN,	/* HELLO is out */
	MPIB_GIN_MEET,	/* JOIN is out */
	MPIB_GIN_READY, /* MEET is out */
	MPIB_GIN_UP,
};

struct mpib_gin_peer {
	_Alignas(64) struct ibv_qp
		*qp[MPIB_RAIL_MAX];    /* NULL: the peer isn't reached by that rail */
	atomic_int over;	       /* enum mpib_gin_over; helper */
	uint32_t share;		       /* progress: the last one */
	uint16_t room[MPIB_RAIL_MAX];  /* progress: send queue entries */
	uint16_t reads[MPIB_RAIL_MAX]; /* progress: READs and atomics that may still begin */
	/* Progress: SUP has brought data to this window, at this address, which no READ has pushed
	 * yet; NULL: it has not. */
	const struct mpib_gin_window *unpushed;
	uint64_t unpushed_at;
	uint64_t pushes, pushed; /* progress: READs posted and done; from 1 on */
	uint64_t now_max; /* progress: bytes of a put that may go out at once, uncounted by times.h
			   */
	struct mpib_gin_list queue;	     /* progress: requests with parts to post */
	struct mpib_gin_list signals;	     /* progress: requests whose atomic waits */
	struct mpib_counter_entry *counters; /* progress: of the process's table, or the mesh's */
	struct mpib_agent_reg agent;	     /* advanced mode: of it `hint` is read */

	uint32_t packets;  /* progress: of all requests on SOUT, as its QPs number them */
	uint8_t mtu_shift; /* set-up: a packet of SOUT holds so many bytes, a power of two */

	struct mpib_gin_peer *next_span; /* progress: in the mesh's list of those in a span */

	/* A loss of SUP; rail_loss.c. */
	struct ibv_qp *lost_qp; /* progress, under the watch lock: what qp[MPIB_SUP] was */
	atomic_int told_lost;	/* helper: the peer's QP is in ERR */
	bool failover;		/* both ends can go on without SUP */
	bool said_lost;		/* under the watch lock: this end's is, and the peer was told */
	bool left;		/* progress: all is on SOUT */
	uint32_t again;		/* progress: requests that are to be done again */
	uint32_t done_again;	/* progress, for people, as the next two */
	const char *lost_cause;
	uint64_t lost_ms, quiet_ms;

	/* A loss of SOUT; sout_loss.c. */
	struct ibv_qp *off_qp;	/* progress, under the watch lock: what qp[MPIB_SOUT] was */
	atomic_int told_closed; /* helper: the peer's QP is in ERR, and it has said: */
	bool told_counts;	/* its device counts packets */
	uint32_t told_packet;	/* the number of the next one that it would take */
	uint32_t next_packet;	/* under the watch lock: what this end's QP says of that */
	/* Progress: wr_ids of SOUT's requests that failed, in their order, and the entries of the
	 * send queue that they stand for; then those that go by SUP, and how many have. */
	uint64_t failed[MPIB_GIN_SQ_DEPTH];
	uint32_t failures, failed_room, redone;

	struct mpib_gin *gin;
	uint32_t rank;
	enum mpib_gin_step step;
	bool intra, connects, greeted; /* set-up */
	bool in_span;		       /* progress: in the list of next_span */
	bool timed;		       /* progress: busy times are kept */
	uint64_t retry_ms;	       /* set-up: when TCP may be tried again; 0: it is under way */
	struct mpib_handle handle;
	struct mpib_peer remote;
	struct mpib_gin_join join;
	struct mpib_ctl ctl; /* set-up, then under the watch lock */
	struct mpib_watch_item watch;
	struct mpib_gin_memory_frame
		memory[2]; /* under the watch lock: told and not used, by turn */
	bool has_memory[2];
	char text[MPIB_IPV4_TEXT_MAX + 33]; /* "rank 3 (10.0.1.2 pid 77)" */
	char over_text[MPIB_TEXT_MAX + 1];  /* helper writes before it sets GONE */
};

struct mpib_gin_far {
	uint64_t addr, size;
	uint32_t rkey[MPIB_RAIL_MAX];
};

struct mpib_gin_window {
	struct mpib_gin *gin;
	struct mpib_mr *mr;
	uint64_t addr, size;
	uint32_t lkey[MPIB_RAIL_MAX];
	struct mpib_gin_window *next, **link;
	struct mpib_gin_far far[]; /* by rank */
};

/* SOUT is lost to a whole mesh; sout_loss.c. */
struct mpib_gin_sout_loss {
	atomic_int closed;   /* under the watch lock: this end's QPs are in ERR */
	bool answered;	     /* under the watch lock, as all below: the peers were told */
	uint64_t quiet_ms;   /* since when no QP's count has moved */
	const char *why_not; /* why the mesh can't do without SOUT; NULL: it can */
	const char *cause;   /* of the loss */
	uint64_t begin_ms;   /* of it */
	bool leaving;	     /* progress: SUP takes over, or has */
	uint32_t done_again; /* progress */
};

struct mpib_gin {
	/* Progress, on every call. */
	uint32_t outstanding[MPIB_RAIL_MAX]; /* completions to come */
	atomic_int error;		     /* 0, or why nothing works any more */
	/* Helper: something is to be looked at before the next call: a peer is gone or has closed,
	 * a device is gone. Progress: `error` is set. */
	atomic_int news;
	uint32_t leaving; /* peers to which SUP is lost, and SOUT has not taken over yet */
	struct mpib_gin_peer
		*spans;	      /* progress: peers with a rail in a span of busy time; times.h */
	atomic_int port_down; /* helper: SUP's port is */
	uint32_t nranks, rank;
	struct ibv_cq *cq[MPIB_RAIL_MAX];
	struct mpib_gin_peer *peer;   /* nranks */
	struct mpib_gin_context *own; /* of calls that name the mesh alone */
	uint64_t max_msg[MPIB_RAIL_MAX];
	size_t split_min, alone_max;
	uint64_t scratch_addr;
	uint32_t scratch_lkey[MPIB_RAIL_MAX];

	/* Progress: the requests of a small put. What never changes of them is filled in. */
	struct ibv_send_wr put_wr[2];
	struct ibv_sge put_sge[2];

	struct mpib_gin_sout_loss sout;
	struct mpib_counter_entry uncounted; /* of peers that have no entry of the table */
	struct mpib_device *dev;
	struct mpib_env env;
	struct mpib_peer local;
	struct mpib_source source[MPIB_RAIL_MAX];
	struct mpib_mr *scratch_mr;
	void *scratch;
	struct mpib_gin_window *scratch_window; /* of which flushes read into */
	struct mpib_gin_context *contexts;	/* service thread, under the watch lock */
	struct mpib_gin_window *windows;	/* service thread */
	uint64_t registrations;			/* service thread: so many were begun */
	int news_fd; /* helper wakes whoever waits for memory or an end */
	struct mpib_watch_tick tick;
	uint32_t downs[MPIB_RAIL_MAX]; /* helper: times that a rail's port was found down */
	bool told_loss;		       /* progress */
	bool established;
	struct mpib_gin *next, **link; /* all of the process, under the watch lock */
};

struct mpib_gin_context {
	struct mpib_gin *gin;
	struct mpib_gin_request *free;	       /* progress */
	uint32_t out;			       /* progress: requests under way */
	size_t count;			       /* of requests */
	struct mpib_gin_context *next, **link; /* under the watch lock */
	struct mpib_gin_request requests[];
};

/* Builds that the tests must find out: each makes one of the mistakes that real devices let pass.
 */
#ifdef MPIB_GIN_WRONG_ATOMICS /* each second rank's atomics go through the other device */
#define MPIB_GIN_ATOMIC_RAILS MPIB_RAILS_ALL
#else
#define MPIB_GIN_ATOMIC_RAILS mpib_rail_bit(MPIB_SOUT)
#endif

/* Two devices' atomics on one word are not atomic with each other: all go through one. */
static inline bool mpib_gin_signals_by_sup(const struct mpib_gin_peer *peer)
{
	return MPIB_GIN_ATOMIC_RAILS == MPIB_RAILS_ALL && peer->qp[MPIB_SUP] && peer->gin->rank & 1;
}

static inline unsigned int mpib_gin_signal_rail(const struct mpib_gin_peer *peer)
{
	return !peer->qp[MPIB_SOUT] || mpib_gin_signals_by_sup(peer) ? MPIB_SUP : MPIB_SOUT;
}

/* Packets of a request on SOUT. */
static inline uint32_t mpib_gin_packets(const struct mpib_gin_peer *peer, uint64_t size)
{
	return size ? (uint32_t)((size - 1) >> peer->mtu_shift) + 1 : 1;
}

/* ---- mesh_qp.c: QPs of a mesh; one warning on failure ---------------------------------------- */

int mpib_gin_qps_create(struct mpib_gin_peer *peer);
/* With peer->remote and peer->join known. */
int mpib_gin_qps_connect(struct mpib_gin_peer *peer);
/* Of this end, for the peer. */
void mpib_gin_describe(const struct mpib_gin_peer *peer, struct mpib_gin_join *ret);
static inline int mpib_gin_cq_depth(uint32_t nranks)
{
	return (int)(nranks * MPIB_GIN_SQ_DEPTH);
}

/* ---- mesh.c ---------------------------------------------------------------------------------- */

/* All peers up, or an error that was told to them. */
int mpib_gin_mesh(struct mpib_gin *gin, struct mpib_listener *listener);

/* ---- news.c: what the helper thread hears ---------------------------------------------------- */

void mpib_gin_watch_devices(struct mpib_gin *gin);
/* Its control connection is the helper thread's from here on. One warning on failure. */
int mpib_gin_watch_peer(struct mpib_gin_peer *peer);
void mpib_gin_unwatch(struct mpib_gin *gin);
/* Waits for @ready, until a peer is gone, or for @ms. True: it was. */
bool mpib_gin_wait(struct mpib_gin *gin, bool (*ready)(struct mpib_gin *), uint64_t ms);

/* A peer is no more, or has closed: helper, under the watch lock. */
void mpib_gin_over(struct mpib_gin_peer *peer, enum mpib_gin_over how, const char *text);

/* ---- fail.c ---------------------------------------------------------------------------------- */

/* The mesh fails, with one line, unless it has; the peers are told. Returns gin->error. Progress or
 * service thread. */
int mpib_gin_fail(struct mpib_gin *gin, int error, const char *text);
/* The first peer or device that is gone fails the mesh. 0 where none is. */
int mpib_gin_look(struct mpib_gin *gin);
int mpib_gin_post_failed(struct mpib_gin_peer *peer, unsigned int rail, int r);
void mpib_gin_completion_failed(struct mpib_gin_peer *peer, unsigned int rail,
				const struct ibv_wc *wc);

/* ---- rail_loss.c ----------------------------------------------------------------------------- */

/* This end's QP on SUP goes to ERR, and the peer is told, once. Under the watch lock. */
void mpib_gin_say_lost(struct mpib_gin_peer *peer);
/* Progress. Whether a failed completion is only a rail's loss, which is on its way then. */
bool mpib_gin_rail_failed(struct mpib_gin_peer *peer, unsigned int rail, const struct ibv_wc *wc);
/* Progress. What the helper thread has heard of losses. */
void mpib_gin_hear_lost(struct mpib_gin *gin);
/* Progress. SUP's part of @request is to be done again. */
void mpib_gin_again(struct mpib_gin_request *request);
/* Progress. Losses go on, as far as they can. */
void mpib_gin_rails_step(struct mpib_gin *gin);

/* Whether a status is what comes of a way that is gone. */
bool mpib_gin_says_lost(enum ibv_wc_status status);

/* ---- sout_loss.c ----------------------------------------------------------------------------- */

/* Set-up. Whether the mesh, which is up, could do without SOUT. */
void mpib_gin_sout_judge(struct mpib_gin *gin);
/* Why it can't; NULL: it can. Under the watch lock. */
const char *mpib_gin_sout_why_not(const struct mpib_gin *gin);
/* This rank takes nothing more by SOUT. Under the watch lock. */
void mpib_gin_sout_close(struct mpib_gin *gin, const char *cause);
/* It tells its peers what it took, once that stands still. Under the watch lock. */
void mpib_gin_sout_answer(struct mpib_gin *gin);
/* Helper: a peer has told. */
void mpib_gin_sout_told(struct mpib_gin_peer *peer, const struct mpib_frame *frame);
/* Progress. Whether a failed completion is only SOUT's loss: it is kept then. */
bool mpib_gin_sout_failed(struct mpib_gin_peer *peer, const struct ibv_wc *wc);
/* Progress. What the helper thread has heard. */
void mpib_gin_sout_hear(struct mpib_gin *gin);
/* Progress. The loss goes on, as far as it can. */
void mpib_gin_sout_step(struct mpib_gin *gin);

static inline void mpib_gin_list_init(struct mpib_gin_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

static inline void mpib_gin_list_add(struct mpib_gin_list *list, struct mpib_gin_request *request)
{
	request->next = NULL;
	*list->last = request;
	list->last = &request->next;
}

static inline void mpib_gin_list_drop(struct mpib_gin_list *list)
{
	list->first = list->first->next;
	if (!list->first)
		list->last = &list->first;
}

#endif
