/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of plugin/verbs/verbs.c: four devices inside this process. Writes happen in the posting
 * call, completions wait in the queue, and the rules that the plugin must keep are held to: keys
 * and bounds, queue depths, a receive for each immediate. Every verb can be told to fail once, and
 * every object is counted.
 *
 * Devices: sout 10.0.1.1 and sup 10.9.1.1; sout2 10.0.2.1 and sup2 10.9.2.1, another island's.
 */
#ifndef MPIB_TESTS_UNIT_PLUGIN_FAKE_VERBS_H
#define MPIB_TESTS_UNIT_PLUGIN_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum fake_verb {
	FAKE_LIST,
	FAKE_OPEN,
	FAKE_QUERY_DEVICE,
	FAKE_QUERY_PORT,
	FAKE_QUERY_GID,
	FAKE_ALLOC_PD,
	FAKE_REG_MR,
	FAKE_CREATE_CQ,
	FAKE_CREATE_SRQ,
	FAKE_CREATE_QP,
	FAKE_MODIFY_QP,
	FAKE_POST_SEND,
	FAKE_POST_SRQ_RECV,
	FAKE_POLL_CQ,
	FAKE_DEREG_MR,
	FAKE_DESTROY_CQ,
	FAKE_DESTROY_SRQ,
	FAKE_DESTROY_QP,
	FAKE_VERB_MAX,
};

/* The call of @verb after the next @skip ones fails with @err (0: none does). Destructors do their
 * work all the same. */
void fake_fail(enum fake_verb verb, unsigned int skip, int err);
/* Whether the failure asked for has happened. */
int fake_failed(void);

/* Calls since the start, failed ones included. */
unsigned int fake_calls(enum fake_verb verb);
const char *fake_verb_name(enum fake_verb verb);

/* Objects that exist: contexts, domains, registrations, queues, queue pairs. */
unsigned int fake_live(void);
unsigned int fake_live_mrs(void);

/* Access flags of the latest registration. */
unsigned int fake_mr_access(void);

/* Largest message of every port from now on. */
void fake_set_max_msg(uint32_t max);

/* What ibv_query_port and ibv_query_gid say of a device from now on; `ip` in host order, 0: it has
 * link-local GIDs only. */
struct fake_port {
	uint8_t width;	/* codes of struct ibv_port_attr */
	uint16_t speed; /* beyond eight bits as active_speed_ex */
	enum ibv_mtu mtu;
	uint8_t link_layer;
	uint16_t lid;
	uint32_t ip;
	/* Of the GID table of four: the first entry with the address, and the first one after them.
	 * RoCE v2 ones are odd. */
	uint8_t gid_first, gid_end;
	uint16_t pkey[3]; /* the partition table of InfiniBand; 0: empty */
};
void fake_set_port(unsigned int device, const struct fake_port *port);
void fake_get_port(unsigned int device, struct fake_port *ret);
/* What ibv_query_device says of every device from now on. */
struct fake_limits {
	int max_srq, max_qp_wr, max_cqe;
};
void fake_set_limits(const struct fake_limits *limits);
/* All ports and limits as they were at the start, and no ECE. */
void fake_reset_ports(void);

/* Whether ibv_get_device_list shows nothing. */
void fake_hide_devices(int hide);

/* What the driver of @device offers by ibv_query_ece; vendor 0: it knows nothing of it. A peer's
 * set keeps the bits that both have. */
void fake_set_ece(unsigned int device, uint32_t vendor, uint32_t options);

/* What ibv_reg_dmabuf_mr fails with on @device; 0: it works. */
void fake_set_dmabuf(unsigned int device, int err);

/* How a QP stands: what it was made with, what modify_qp was told, its ECE, and the most requests
 * that its send queue ever held. -1 without such a QP. */
struct fake_qp_state {
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	uint32_t ece_vendor, ece_options;
	unsigned int sq_most;
};
int fake_qp(uint32_t qpn, struct fake_qp_state *ret);

/* The most completions that the queue ever held. */
unsigned int fake_cq_most(const struct ibv_cq *cq);

/* What the QP's requests do is done, but their completions wait until they are let go, as on a path
 * that loses answers. */
void fake_hold(uint32_t qpn);
void fake_let_go(uint32_t qpn);
/* The QP fails: all of its requests that wait complete, whether they asked for it or not. */
void fake_fail_qp(uint32_t qpn);

/* RDMA reads posted so far on @device. */
unsigned int fake_reads(unsigned int device);

/* The next @n signalled completions of sends on @device carry @status; the QP fails. */
void fake_bad_completion(unsigned int device, enum ibv_wc_status status);

/* As a device writes memory: threads of the program may look at the same time. */
void fake_copy(void *to, const void *from, size_t len);

/* What the QP is in: another thread may move it. */
enum ibv_qp_state fake_state(const struct ibv_qp *qp);

/* What its port says of itself from now on; no event. */
void fake_set_port_down(unsigned int device, int down);

/* An async event of a device, and of its port 1; with IBV_EVENT_QP_*, of one of its QPs,
 * with IBV_EVENT_CQ_ERR, of such a one's CQ. */
void fake_event(unsigned int device, enum ibv_event_type type);
/* The same of another port. */
void fake_port_event(unsigned int device, enum ibv_event_type type, int port);

/* Delivers an immediate to the QP that @qpn names, as a hostile peer would. 0, or -1 without such a
 * QP or a receive. */
int fake_immediate(uint32_t qpn, uint32_t imm, uint32_t byte_len);

#endif
