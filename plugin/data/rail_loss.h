/* SPDX-License-Identifier: Apache-2.0 */
/* What the progress thread does where a rail is lost: it stops to use it, and acts on what the peer
 * has said. Where failover is off, none of this is called. */
#ifndef MPIB_PLUGIN_RAIL_LOSS_H
#define MPIB_PLUGIN_RAIL_LOSS_H

#include "plugin/connection/rails.h"

/* Whatever can be done now. 0, or an error, which has failed the connection. Never from within a
 * poll. */
int mpib_rails_step(struct mpib_comm *comm);

/* A request on the rail failed in a way that says: it is lost. True where the other one stands in,
 * and nothing else has to be done about the request. */
bool mpib_rail_failed(struct mpib_comm *comm, unsigned int rail, enum ibv_wc_status status);

/* Whether a rail of which nothing has completed lately is lost: what MPIB_FLAG_LOOK asks for
 * (stall_look.c). 0, or an error, which has failed the connection. Never from within a poll. */
int mpib_stall_look(struct mpib_comm *comm);

/* ---- the sender's part (send_again.c) -------------------------------------------------------- */

/* Messages take the other rail from here on, or wait where there is none. */
void mpib_send_leave_rail(struct mpib_comm *comm, unsigned int rail);

/* Acts on the receiver's RAIL_DOWN: parts that have arrived are credited, the others wait to be
 * posted again. Returns how many. */
unsigned int mpib_send_settle(struct mpib_comm *comm, unsigned int rail,
			      const struct mpib_rail_down *down);

/* Posts what waits, as far as the send queues have room. 1: nothing waits any more; 0; or an error,
 * which has failed the connection. */
int mpib_send_again(struct mpib_comm *comm);

/* Of the row at hand, on a rail that isn't used any more: its part there waits. */
void mpib_send_missed(struct mpib_comm *comm, unsigned int rail);

/* A completion of a part that was posted again. */
void mpib_send_again_completed(struct mpib_comm *comm, uint64_t id, unsigned int rail);

/* New queue pairs, connected: messages take the rail again. */
void mpib_send_take_rail(struct mpib_comm *comm, unsigned int rail);

/* Posts a request without data on the rail's new QPs. 0, or a negative errno. */
int mpib_send_probe(struct mpib_comm *comm, unsigned int rail);

/* The same on a rail in use that has nothing under way: its completion says that it is alive. 0, or
 * an error, which has failed the connection. */
int mpib_send_ask(struct mpib_comm *comm, unsigned int rail);

/* ---- the receiver's part (recv_again.c) -------------------------------------------------------
 */

/* Rows have the receives on the other rail that parts may need there which come again. False: the
 * shared queue is full, later. */
bool mpib_recv_reserve_extra(struct mpib_comm *comm, unsigned int rail);

/* Takes what the rail's completion queue has, and uses it no more; @ret says what has arrived. 1, 0
 * where it has to be called again, or an error, which has failed the connection. */
int mpib_recv_leave_rail(struct mpib_comm *comm, unsigned int rail, struct mpib_rail_down *ret);

/* What has arrived. */
void mpib_recv_arrived(const struct mpib_comm *comm, struct mpib_rail_down *ret);

/* Acts on the sender's RAIL_DOWN: writes clear-to-sends again. Returns how many, or an error, which
 * has failed the connection. */
int mpib_recv_settle(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_down *down);

/* The sender has the rail in use: clear-to-sends that wait for one go there. 0, or an error, which
 * has failed the connection. */
int mpib_recv_found_rail(struct mpib_comm *comm, unsigned int rail);

/* New queue pairs, connected: rows have their receives there. False: the shared queue is full. */
bool mpib_recv_take_rail(struct mpib_comm *comm, unsigned int rail);

/* Gives back receives that no row can need any more, and reserves what the next row needs beyond
 * irecv's own. False: the shared queue is full. */
bool mpib_recv_trim(struct mpib_comm *comm);

#endif
