/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MPIB_PLUGIN_DEPTH_H
#define MPIB_PLUGIN_DEPTH_H

/*
 * How deep the queues are. Queue memory is most of what a connection's set-up costs, so each gets
 * what can ever be in it; one that is full, or a completion queue that overflows, ends the
 * connection.
 *
 * A sender's QP holds at most
 *   - a request of each message posted whole. A message has a struct mpib_request from before its
 *     post until after its completion was polled, and there are MPIB_REQUESTS_MAX. All can be on
 *     one QP: messages take QPs in turns, but completions of one may be late.
 *   - MPIB_SQ_CHAINED of groups and cut messages, which `chained` counts.
 * Its rail's CQ gets completions of sends alone: the messages posted whole once in all, whatever
 * their QP, and MPIB_SQ_CHAINED of each QP. Few of the latter ask for a completion, but a QP that
 * fails completes all that it has.
 *
 * A receiver posts clear-to-sends on one QP, cts_limit of them, and where a rail may be lost one
 * write that asks whether they get through (data/stall_look.c); its other QPs post nothing. Its
 * CQ gets one immediate at most for each row that is posted, and one completion for each flush,
 * and those have a request of one pool; on the rail with the clear-to-sends also theirs, all of
 * them where the QP fails. Where a rail may be lost (docs/failover.md) either may have the
 * clear-to-sends, and two immediates for each row: its own part's and that of the other rail; and
 * both ends have room for what they write into the other one's mailbox.
 *
 * A rail that carries nothing (SOUT of vanilla mode within an island, without failover) has QPs
 * because the wire says so. An empty queue isn't asked for: not every driver likes it.
 */

/* NCCL_NET_MAX_REQUESTS (32) times the largest group. */
#define MPIB_REQUESTS_MAX 256u
/* What one QP's send queue takes of groups and of messages cut to a port's limit: seven groups of
 * eight, or two posts of a cut message. */
#define MPIB_SQ_CHAINED 64
#define MPIB_SQ_DEPTH	(MPIB_REQUESTS_MAX + MPIB_SQ_CHAINED)

#define MPIB_CTS_SIGNAL_SLOTS 128 /* a CTS write in this many asks for a completion */
/* CTS writes that may be out without a completion: at least MPIB_CTS_SIGNAL_SLOTS, or the one that
 * makes room would never be posted. Twice that: nobody waits for it. Less one, which is for the one
 * that asks. */
#define MPIB_CTS_DEPTH 255
/* Writes into the peer's mailbox (connection/mailbox.h), on QP 0 of either rail. */
#define MPIB_MAIL_SLOTS 8u
/* A receiver's CQ where a rail may be lost. */
#define MPIB_CQ_FAILOVER (2 * MPIB_REQUESTS_MAX + MPIB_CTS_DEPTH + 1 + MPIB_MAIL_SLOTS)
/* Two elements; what is asked for, see mpib_qps_create. */
#define MPIB_INLINE_MAX 64

#endif
