/* SPDX-License-Identifier: Apache-2.0 */
/* What a mesh needs of a listener; see plugin/gin. Service thread. */
#ifndef MPIB_PLUGIN_TAKE_H
#define MPIB_PLUGIN_TAKE_H

#include <stdint.h>

#include "plugin/setup/connect.h"

struct mpib_device *mpib_listener_device(const struct mpib_listener *listener);
const struct mpib_env *mpib_listener_env(const struct mpib_listener *listener);
uint64_t mpib_listener_nonce(const struct mpib_listener *listener);

/* 1: a peer that has proven with the nonce that it was sent here; its control connection, with what
 * may have come behind HELLO, is the caller's. 0: none now. Negative errno, with one warning, for
 * one that came and can't be served; the next call goes on. */
int mpib_listener_take(struct mpib_listener *listener, struct mpib_ctl *ret_ctl,
		       struct mpib_peer *ret_hello);

#endif
