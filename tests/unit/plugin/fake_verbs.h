/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of plugin/verbs.c: four devices inside this process. Writes happen in the posting call,
 * completions wait in the queue, and the rules that the plugin must keep are held to: keys and
 * bounds, queue depths, a receive for each immediate. Every verb can be told to fail once, and
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

/* The next @n signalled completions of sends on @device carry @status; the QP fails. */
void fake_bad_completion(unsigned int device, enum ibv_wc_status status);

/* An async event of a device; with IBV_EVENT_QP_*, of one of its QPs. */
void fake_event(unsigned int device, enum ibv_event_type type);

/* Delivers an immediate to the QP that @qpn names, as a hostile peer would. 0, or -1 without such a
 * QP or a receive. */
int fake_immediate(uint32_t qpn, uint32_t imm, uint32_t byte_len);

#endif
