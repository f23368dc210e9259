/* SPDX-License-Identifier: Apache-2.0 */
/* A link carries everything that one device of one process asks of one device of another: a memory
 * file with two byte rings, and a socket that passes the file, rings the other side's bell and
 * tells of its death. The requester makes it. Requests go through the first ring; answers (acks,
 * refusals, READ data) come back through the second.
 *
 * Ring rules: `tail` is written by the producer alone (release, after the bytes), `head` by the
 * consumer alone (release, after it is done with the bytes). Both only grow. An entry never wraps:
 * a FAB_OP_PAD entry fills the rest of the ring instead. A producer that finds no room sets
 * `want_space`, looks again, and is rung when there is room. */
#ifndef MPIB_FABRIC_LINK_H
#define MPIB_FABRIC_LINK_H

#include "tests/fabric/fabric.h"

#define FAB_SEGMENT_MAX 65536 /* payload bytes of one entry */
#define FAB_RING_ALIGN	64

enum fab_op {
	FAB_OP_PAD,
	/* requests */
	FAB_OP_SEND,
	FAB_OP_WRITE,
	FAB_OP_READ,
	FAB_OP_CAS,
	FAB_OP_ADD,
	/* answers; `seq` says which message */
	FAB_OP_ACK,   /* all messages before `seq` are done */
	FAB_OP_LOST,  /* nobody took it: what a network shows as silence */
	FAB_OP_STALL, /* READ data can't go now: the port is down */
	FAB_OP_RNR,   /* no receive posted; `arg` is the timer code */
	FAB_OP_NAK,   /* refused; `arg` is the requester's ibv_wc_status */
	FAB_OP_DATA,  /* READ data or the old value of an atomic */
};

enum {
	FAB_PKT_LAST = 1,
	FAB_PKT_IMM = 2,
	FAB_PKT_SOLICITED = 4,
};

/* Head of a ring entry; payload follows it. */
struct fab_pkt {
	uint32_t size; /* whole entry, a multiple of FAB_RING_ALIGN */
	uint8_t op, flags;
	uint16_t epoch;
	uint32_t dst_qpn, src_qpn;
	uint64_t seq;	  /* message number since the QP was connected */
	uint64_t offset;  /* of this part in the message */
	uint64_t msg_len; /* bytes of the whole message */
	uint64_t raddr;	  /* of the whole message */
	uint64_t due_ns;  /* not before this time */
	uint64_t compare_add, swap;
	uint32_t rkey, imm;
	uint32_t len;  /* payload bytes here */
	uint32_t psn;  /* start number of the connection, so that a mismatch shows */
	uint32_t arg;  /* of a READ or atomic: how many are outstanding with it */
	uint32_t pkey; /* partition of the sender's QP */
};

struct fab_ring_shm {
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint32_t want_space;
};

struct fab_link_shm {
	struct fab_ring_shm req, resp;
};

/* One process's view of a ring. */
struct fab_ring {
	struct fab_ring_shm *shm;
	uint8_t *data;
	uint64_t size;
	uint64_t tail, head; /* own copies; the other side's is read when needed */
};

/* A READ (or the answer to one) that the responder works on. */
struct fab_read {
	TAILQ_ENTRY(fab_read) node;
	struct fab_pkt pkt;
	uint64_t done;
	uint64_t asked_ns; /* when it came, or could be answered again */
	bool stalled;
};

struct fab_link {
	TAILQ_ENTRY(fab_link) node;
	int fd, pid_fd;
	bool requester, responder; /* both on the link of a process to itself */
	bool dead;
	bool held; /* responder: the next request waits for the data of READs before it */
	uint32_t local_dev, peer_slot, peer_dev;
	struct fab_link_shm *shm;
	size_t shm_len;
	struct fab_ring req, resp;
	struct fab_qp *ack_qp; /* responder: owes an ack */
	TAILQ_HEAD(, fab_read) reads;
	TAILQ_HEAD(, fab_spread) spread; /* responder: parts of plain writes that come later */
	TAILQ_HEAD(, fab_late) late;	 /* responder: parts that a port's end held up */
	TAILQ_HEAD(, fab_unseen) unseen; /* responder: acknowledged, not in memory yet */
	uint64_t unseen_bytes;
};

struct fab_spread; /* spread.c */
struct fab_late;   /* late.c */
struct fab_unseen; /* unseen.c */

/* The hello that comes with the memory file. */
struct fab_hello {
	uint32_t magic, slot, src_dev, dst_dev, req_size, resp_size;
};

/* route.c: the device that @ah names and that @dev can reach, or fab.conf->devs. */
uint32_t fab_route(uint32_t dev, const struct ibv_ah_attr *ah);
bool fab_out_of_scope(uint32_t dev, const struct ibv_ah_attr *ah);

/* All below: engine lock. */

/* Way from @dev to the QP @qpn behind @ah; NULL if there is none now. */
struct fab_link *fab_link_get(uint32_t dev, uint32_t qpn, const struct ibv_ah_attr *ah);
void fab_link_accept(void);
void fab_link_socket(struct fab_link *link, uint32_t events); /* bell, or the peer is gone */
void fab_link_free(struct fab_link *link);
void fab_link_ring(struct fab_link *link); /* tells the peer that something was published */
bool fab_link_port_up(const struct fab_link *link);
/* Whether what @dev sends over the link is lost; a NIC reaches itself all the same. */
bool fab_link_silent(const struct fab_link *link, uint32_t dev);

/* Room for an entry with @len payload bytes, or NULL; then fill it and publish. */
struct fab_pkt *fab_ring_reserve(struct fab_ring *ring, size_t len);
void fab_ring_publish(struct fab_ring *ring, struct fab_pkt *pkt);
/* Oldest entry that is due, or NULL; *ret_due gets the time of one that isn't. */
struct fab_pkt *fab_ring_peek(struct fab_ring *ring, uint64_t now, uint64_t *ret_due);
/* Done with it; true if the producer waits for room. */
bool fab_ring_consume(struct fab_ring *ring, const struct fab_pkt *pkt);

/* responder.c */
bool fab_responder_poll(struct fab_link *link, uint64_t now);
void fab_responder_forget(const struct fab_qp *qp);
void fab_responder_ack(struct fab_link *link, struct fab_qp *qp); /* all that has come */
/* The QP that a request is for and that can take it, or NULL. */
struct fab_qp *fab_responder_qp(const struct fab_link *link, const struct fab_pkt *pkt);
void fab_responder_take(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt);
bool fab_requester_poll(struct fab_link *link, uint64_t now);

/* spread.c. Holds a part of a plain write back; false: no memory for it. */
bool fab_spread_hold(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		     const uint8_t *data);
void fab_spread_place(struct fab_link *link, const struct fab_qp *qp);	/* all of the QP's */
bool fab_spread_due(struct fab_link *link, uint64_t now);		/* those whose time it is */
void fab_spread_forget(struct fab_link *link, const struct fab_qp *qp); /* NULL: of all */

/* late.c. A request under way at a port's end: kept, where the device that sent it is set so. */
void fab_late_hold(struct fab_link *link, const struct fab_pkt *pkt);
bool fab_late_due(struct fab_link *link, uint64_t now); /* those whose time it is */
void fab_late_forget(struct fab_link *link);

/* unseen.c. A part of a plain write that is acknowledged and comes later; false: place it now. */
bool fab_unseen_hold(struct fab_link *link, const struct fab_qp *qp, const struct fab_pkt *pkt,
		     const uint8_t *data);
void fab_unseen_place(struct fab_link *link, const struct fab_qp *qp); /* all of the QP's */
void fab_unseen_place_all(struct fab_link *link);
bool fab_unseen_due(struct fab_link *link, uint64_t now); /* those whose time it is */

/* shape.c: when a part of @len bytes arrives that was asked for at @asked, which may be a while ago
 * for want of a processor. False: the wire is taken until *ret_due. */
bool fab_shape(uint32_t from, uint32_t to, size_t len, uint64_t asked, uint64_t *ret_due);
uint32_t fab_shape_segment(uint32_t from, uint32_t to);

#endif
