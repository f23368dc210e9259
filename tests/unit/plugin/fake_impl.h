/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the fake verbs: what a test asks for in fake_verbs.c, devices and their
 * events in fake_devices.c, memory, queues and queue pairs in fake_objects.c, what moves in
 * fake_data.c. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_FAKE_IMPL_H
#define MPIB_TESTS_UNIT_PLUGIN_FAKE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "tests/unit/plugin/fake_verbs.h"

#define FAKE_DEVICES	4
#define FAKE_EVENTS_MAX 16

/* A rule of verbs was broken: no test can go on. */
#define RULE(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "verbs misused: %s (%s:%d)\n", #cond, __FILE__,      \
				      __LINE__);                                                   \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct fake_context {
	struct ibv_context ctx; /* first */
	unsigned int device;
	unsigned int children;
	struct ibv_async_event event[FAKE_EVENTS_MAX];
	unsigned int events;
	LIST_ENTRY(fake_context) node;
};

struct fake_mr {
	struct ibv_mr mr; /* first */
	unsigned int access;
	LIST_ENTRY(fake_mr) node;
};

struct fake_cq {
	struct ibv_cq cq; /* first */
	unsigned int depth, head, tail, users, most;
	struct {
		struct ibv_wc wc;
		uint32_t sq_seq; /* of a send: entries that its completion frees */
	} * entry;
};

struct fake_srq {
	struct ibv_srq srq; /* first */
	unsigned int max, posted, users;
	uint64_t wr_id; /* of the receives, which are all alike */
};

struct fake_qp {
	struct ibv_qp qp; /* first */
	unsigned int device;
	uint32_t dest;
	uint32_t sq_posted, sq_freed;
	bool holds;
	unsigned int held;
	struct {
		struct ibv_wc wc;
		bool signalled;
		uint32_t sq_seq;
	} * hold; /* those that wait, room for max_send_wr */
	struct fake_qp_state state;
	LIST_ENTRY(fake_qp) node;
};

/* All that there is; under its lock. */
struct fake_state {
	pthread_mutex_t lock;
	struct ibv_device device[FAKE_DEVICES];
	unsigned int calls[FAKE_VERB_MAX];
	enum fake_verb fail_verb;
	unsigned int fail_skip;
	int fail_errno, failed;
	unsigned int live, live_mrs, mr_access;
	uint32_t next_key, next_qpn, max_msg;
	enum ibv_wc_status bad[FAKE_DEVICES];
	int port_down[FAKE_DEVICES];
	struct fake_port port[FAKE_DEVICES];
	struct fake_limits limits;
	struct ibv_ece ece[FAKE_DEVICES];
	int dmabuf[FAKE_DEVICES];
	unsigned int reads[FAKE_DEVICES];
	int hidden;
	LIST_HEAD(, fake_context) contexts;
	LIST_HEAD(, fake_mr) mrs;
	LIST_HEAD(, fake_qp) qps;
};

extern struct fake_state fake;

void fake_lock(void);
void fake_unlock(void);
/* Counts a call; what it should fail with, or 0. Under the lock, as all that follows. */
int fake_enter(enum fake_verb verb);

/* Zeroed; not by a function that a test of the plugin's allocations makes fail. */
void *fake_allocate(size_t size);
/* The same, and counted. */
void *fake_new_object(size_t size);
void fake_free_object(void *object);

struct fake_qp *fake_find_qp(uint32_t qpn);

/* Of struct ibv_context_ops. */
int fake_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc);

#endif
