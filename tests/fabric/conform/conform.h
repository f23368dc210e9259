/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs conformance program: two ends walk through the same checks in step, and each prints one
 * line a check with what it saw. It knows nothing of the fabric, so it runs over any verbs device,
 * and the outputs of two grounds can be compared line by line. */
#ifndef MPIB_FABRIC_CONFORM_H
#define MPIB_FABRIC_CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define BUF_BYTES (4U << 20)
#define ARENA	  4096 /* offset in the buffer that the peer writes to and reads from */

/* One end of the run. */
struct side {
	bool client;
	int sock;	    /* to the other end; -1 in a run of one end alone */
	const char *absent; /* checks, commas between, for which nothing comes on this device */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	int gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu;
	unsigned int checks, failed;
};

/* What one end needs to know of the other's QP and memory. */
struct address {
	uint32_t qpn, psn, rkey, pad;
	uint64_t addr;
	uint8_t gid[16];
};

/* A connected QP with its queues and a buffer. Zero in an option means the usual value. */
struct pair_options {
	bool srq, channel, no_connect;
	unsigned int qp_access; /* 0: all remote rights */
	unsigned int mr_access; /* 0: all rights */
	uint32_t send_wr, recv_wr, cqe, inline_bytes;
	size_t bytes;		/* of the buffer; 0: BUF_BYTES */
	struct ibv_cq *send_cq; /* another pair's, to share; NULL: an own one */
	uint16_t pkey_index;
	uint8_t timeout, retry, rnr_retry; /* rnr_retry: 0 means 7, 8 means 0 */
	uint8_t reads_out, reads_in;	   /* READs and atomics at once; 0 means 1 */
};

struct pair {
	struct side *side;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	bool shares_cq;
	uint16_t pkey_index;
	uint8_t reads_in;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	struct address mine, peer;
};

/* peer.c. All of it ends the program with a message if something is broken that isn't under test.
 */
__attribute__((noreturn)) void die(const char *what);
void sync_ends(struct side *s); /* both ends have come this far */
void swap_bytes(struct side *s, const void *mine, void *ret_theirs, size_t len);
void pair_open(struct side *s, struct pair *p, const struct pair_options *options);
void pair_close(struct pair *p);
int to_init(struct pair *p, unsigned int access);
int to_rtr(struct pair *p);
int to_rts(struct pair *p, const struct pair_options *options);
enum ibv_qp_state state_of(struct pair *p);

/* One completion within a minute, which only a hang needs, or status -1. */
struct ibv_wc await(struct ibv_cq *cq);
/* The same for the check @name: a second only, where it is one of those that s->absent has. */
struct ibv_wc await_for(struct side *s, const char *name, struct ibv_cq *cq);
bool is_quiet(struct ibv_cq *cq); /* nothing comes within 50 ms */
/* Waits for @type (others are acknowledged and skipped), five seconds at most. */
bool await_event(struct side *s, enum ibv_event_type type);

/* Posting at a place in the pair's buffer. The result is the verb's. */
int post_recv(struct pair *p, uint64_t id, uint64_t offset, uint32_t len);
int post(struct pair *p, enum ibv_wr_opcode op, uint64_t id, uint64_t offset, uint32_t len,
	 unsigned int flags);
int post_wr(struct pair *p, struct ibv_send_wr *wr);
void fill_pattern(uint8_t *to, size_t len, unsigned int seed);
bool pattern_holds(const uint8_t *at, size_t len, unsigned int seed);

/* Reports: @seen is printed, and compared with @want. */
void expect_str(struct side *s, const char *name, const char *seen, const char *want);
void expect_int(struct side *s, const char *name, int64_t seen, int64_t want);
void expect_status(struct side *s, const char *name, struct ibv_wc wc, enum ibv_wc_status want);
void expect_errno(struct side *s, const char *name, int seen, int want);
void expect_state(struct side *s, const char *name, struct pair *p, enum ibv_qp_state want);

void check_states(struct side *s);
void check_data(struct side *s);
void check_order(struct side *s);
void check_errors(struct side *s);
void check_queues(struct side *s);
void check_final(struct side *s);

#endif
