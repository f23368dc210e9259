/* SPDX-License-Identifier: Apache-2.0 */
/* What listen.c, candidates.c and accept.c share, and nobody else. */
#ifndef MPIB_PLUGIN_LISTEN_IMPL_H
#define MPIB_PLUGIN_LISTEN_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugin/setup/connect.h"
#include "plugin/wire/net.h"

enum accept_state {
	ACCEPT_WAIT_HELLO,   /* the helper thread looks for the peer */
	ACCEPT_HAVE_PEER,    /* ctl and hello are the peer's */
	ACCEPT_WAIT_CONNECT, /* our ACCEPT is out */
	ACCEPT_WAIT_AGENT,   /* QPs are up; the agent must answer before READY goes out */
	ACCEPT_FLUSH,	     /* READY is on its way */
	ACCEPT_FAILED,	     /* error; another peer may come */
};

struct mpib_listener {
	struct mpib_device *dev;
	struct mpib_env env;
	uint64_t nonce;
	char address[MPIB_ADDR_TEXT_MAX];

	/* Helper thread and accept(), under the watch lock. */
	struct mpib_watch_item watch;
	struct mpib_watch_tick tick;
	bool paused; /* out of descriptors or memory: not watched until the next tick */
	bool logged_paused, logged_stranger;
	struct candidate *candidates; /* newest first */
	uint64_t turns;		      /* peers that came */
	int error;		      /* with ACCEPT_FAILED, as the next four */
	bool told;		      /* accept() has returned it */
	uint64_t failed_ms;
	uint16_t answer;	       /* frame type for a peer that comes again: REFUSE or FAIL */
	char cause[MPIB_TEXT_MAX + 1]; /* its text, and what accept() says when asked again */
	struct mpib_ctl ctl;
	struct mpib_peer hello;
	/* enum accept_state. The helper thread's until it says ACCEPT_HAVE_PEER or ACCEPT_FAILED,
	 * accept()'s from then on. */
	_Atomic int state;

	/* accept() alone. */
	struct mpib_comm *comm;
	uint64_t deadline_ms;

	struct mpib_listener *next, **link; /* all of the process, under the watch lock */
};

/* No connection comes of this peer: accept() gives @error until another one has come, and one that
 * comes while nobody calls accept() is answered @cause in a frame of type @type. */
void mpib_listener_fail(struct mpib_listener *listener, int error, uint16_t type,
			const char *cause);

/* accept() is done with a peer, one way or the other: the next one has its turn. */
void mpib_listener_next(struct mpib_listener *listener);

/* The same with ACCEPT_FAILED, where accept() has told of it and another peer has come; else
 * false. */
bool mpib_listener_again(struct mpib_listener *listener);

/* candidates.c for listen.c; under the watch lock. A new candidate is free()d where no connection
 * comes with it. */
struct candidate *mpib_candidate_new(void);
void mpib_candidate_add(struct mpib_listener *listener, struct candidate *candidate, int fd);
void mpib_candidates_tick(struct mpib_listener *listener, uint64_t now_ms);
void mpib_candidates_free(struct mpib_listener *listener);
void mpib_candidates_fork_child(struct mpib_listener *listener);

static inline enum accept_state mpib_listener_state(struct mpib_listener *listener)
{
	return (enum accept_state)atomic_load_explicit(&listener->state, memory_order_acquire);
}

static inline void mpib_listener_set_state(struct mpib_listener *listener, enum accept_state state)
{
	atomic_store_explicit(&listener->state, (int)state, memory_order_release);
}

#endif
