/* SPDX-License-Identifier: Apache-2.0 */
/* Whether news, a completion or a verb that failed end the connection. Progress thread. */
#ifndef MPIB_PLUGIN_COMM_CHECK_H
#define MPIB_PLUGIN_COMM_CHECK_H

#include "plugin/connection/comm.h"

/* Looks at what the helper thread and the devices reported; 0 while requests may still complete,
 * else the error, after mpib_comm_fail. Progress thread, never on the fast path. */
int mpib_comm_check(struct mpib_comm *comm);

/* Text and consequences of a completion with an error. 0 where the other rail stands in, or its
 * cause isn't known yet: it is the
 * consequence of something that will be told within MPIB_PEER_GONE_GRACE_MS, and test fails then.
 */
int mpib_comm_bad_completion(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc);

/* A verb failed: -EIO and @text, unless the device is lost, which is the cause then. */
int mpib_comm_verb_failed(struct mpib_comm *comm, const char *text);

/* The same of a post: @what is what couldn't be done, and @r what verbs returned. 0 where the other
 * rail stands in: the request is as one whose completion never comes. */
int mpib_comm_post_failed(struct mpib_comm *comm, unsigned int rail, const char *what, int r);

#endif
