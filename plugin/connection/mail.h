/* SPDX-License-Identifier: Apache-2.0 */
/* What comes into a connection's mailbox (mailbox.h), and how a connection goes on without a
 * control connection. All of it under the watch lock. */
#ifndef MPIB_PLUGIN_MAIL_H
#define MPIB_PLUGIN_MAIL_H

#include "plugin/connection/rails.h"

/* Acts on what is in the mailbox. Fine for a connection without one. */
void mpib_mail_look(struct mpib_comm *comm);

/* The helper thread looks from now on, while comm->rails->live. */
void mpib_mail_watch(const struct mpib_comm *comm);

/* The control connection has ended with @r. True where the connection goes on without it: the
 * network between the hosts is to blame and not the peer, and a rail is left. From then on each
 * second a request asks whether the peer is there (data/stall_look.c). */
bool mpib_mail_outlives_ctl(struct mpib_comm *comm, int r);

#endif
