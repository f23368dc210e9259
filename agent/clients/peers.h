/* SPDX-License-Identifier: Apache-2.0 */
/* The processes behind connections and registrations: told apart, watched, and their end turned
 * into freed slots. */
#ifndef MPIB_AGENT_PEERS_H
#define MPIB_AGENT_PEERS_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "agent/flows/flows.h"
#include "agent/clients/poller.h"

struct mpib_peers;

/* @on_room is called when a watched process' descriptor was given back. All but @user's owner
 * outlive it. */
int mpib_peers_new(struct mpib_poller *poller, struct mpib_flows *flows,
		   void (*on_room)(void *user), void *user, struct mpib_peers **ret);
/* Forgets every process without freeing what it registered. */
struct mpib_peers *mpib_peers_free(struct mpib_peers *peers);

/* Watched processes; each holds one descriptor. */
uint32_t mpib_peers_n_watched(const struct mpib_peers *peers);

/* Who connected with these credentials: a process that can be proven, or else a peer without a
 * name that lives as long as its connection. A reference is taken for the connection. -EMFILE and
 * the like, -ENOMEM. */
int mpib_peers_identify(struct mpib_peers *peers, const struct ucred *cred, struct mpib_peer **ret);
/* The connection is over: drops its reference, and what nobody needs any more. */
void mpib_peers_leave(struct mpib_peers *peers, struct mpib_peer *peer);

/* Adopts the record at @index of the state file, which names a process: 0; -ESRCH where that is
 * known to be gone; -EEXIST, -EINVAL, -ERANGE for a contradiction; else it can't be told. */
int mpib_peers_adopt(struct mpib_peers *peers, const struct mpib_adopt_record *record,
		     uint32_t index);

#endif
