/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen, connect and accept as state machines that never block: each call does what can be done
 * now. docs/wire.md draws the exchange.
 *
 * connector                                acceptor
 *   TCP connect  -------------------------->  (helper thread) GREETING
 *   HELLO (nonce, settings, GIDs) --------->  checks both ends' settings, makes its QPs
 *             <---------------------- ACCEPT  settings, GIDs, QPs
 *   makes its QPs, RTR and RTS
 *   CONNECT (QPs) ------------------------->  RTR and RTS
 *             <----------------------- READY
 *
 * Either side answers REFUSE with a reason instead. Advanced mode registers with the agent before
 * the object is handed out.
 */
#ifndef MPIB_PLUGIN_CONNECT_H
#define MPIB_PLUGIN_CONNECT_H

#include "plugin/connection/comm.h"

struct mpib_listener;

/* NCCL's handle: MPIB_HANDLE_SIZE bytes for the wire, the rest for the connecting side. */
#define MPIB_NCCL_HANDLE_SIZE 128

/* Fills @handle. The connecting side decides the traffic class. */
int mpib_listen(struct mpib_device *dev, const struct mpib_env *env, void *handle,
		struct mpib_listener **ret);

/* 0 with *ret NULL: call again. */
int mpib_accept(struct mpib_listener *listener, struct mpib_comm **ret);

/* 0 with *ret NULL: call again with the same handle. The state is found by a cookie in the handle's
 * second half, never by a pointer that the network could have written. */
int mpib_connect(struct mpib_device *dev, const struct mpib_env *env, int traffic_class,
		 void *handle, struct mpib_comm **ret);

void mpib_listener_free(struct mpib_listener *listener);

/* Frees listeners and half-made connections that NCCL dropped. */
void mpib_connect_free_all(void);

/* How long a listener may take to greet. */
#define MPIB_GREETING_TIMEOUT_MS 4000

/* listen.c for connect.c. */
void mpib_listeners_free_all(void);

/* In a forked child: closes its copies of the descriptors. */
void mpib_listeners_fork_child(void);

/* True where a listener exists. */
bool mpib_listeners_any(void);

#endif
