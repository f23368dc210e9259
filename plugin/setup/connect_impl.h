/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the connecting side share, and nobody else. */
#ifndef MPIB_PLUGIN_CONNECT_IMPL_H
#define MPIB_PLUGIN_CONNECT_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/setup/connect.h"
#include "plugin/wire/net.h"

enum connect_state {
	CONNECT_TCP,	     /* waits for TCP, or for the time to try it again */
	CONNECT_WAIT_ACCEPT, /* HELLO is out */
	CONNECT_WAIT_READY,  /* our QPs are up, CONNECT is out */
	CONNECT_WAIT_AGENT,  /* the peer is ready; the agent must answer */
};

struct connecting {
	void *handle; /* NCCL's buffer that this belongs to */
	uint64_t cookie;
	uint32_t index;
	struct mpib_env env;
	enum connect_state state;
	struct mpib_handle wire;
	char address[MPIB_ADDR_TEXT_MAX];
	struct mpib_comm *comm;
	bool greeted;
	uint64_t greeting_deadline_ms, deadline_ms;
	uint64_t retry_ms; /* when TCP may be tried again; 0: it is under way */
	int transient;	   /* why it was tried again, or 0 */
	bool peer_knows;   /* the peer gave up, or was told that this end does */
};

/* ---- connect_table.c: who works on which handle ---------------------------------------------- */

/* NULL: nobody. */
struct connecting *mpib_connecting_find(void *handle);
/* Writes the second half of c->handle. 0 or -ENOMEM. */
int mpib_connecting_insert(struct connecting *c);
/* With what it has; also one that was never inserted (its index is UINT32_MAX). */
void mpib_connecting_free(struct connecting *c);

/* ---- connect_tell.c: what the other end is told ---------------------------------------------- */

/* Why this end gives up, as the peer gets it; MPIB_TEXT_MAX + 1 bytes. Returns @text. */
const char *mpib_connect_failure_text(const char *address, int error, char *text);
/* Before there is a connection, and perhaps no memory for one: says to the listener that this end
 * gives up. Best effort, bounded, and all on the stack. */
void mpib_connect_fail_from_afar(const struct mpib_handle *wire, const char *text);
/* Tells the peer that this end gives up, and why. Before HELLO the nonce goes in front. */
void mpib_connect_tell_peer(struct connecting *c, uint16_t type, const char *text);
/* What the handle tells already: both ends must be one version and one policy. */
bool mpib_connect_handle_differs(const struct connecting *c, char *ret_text, size_t size);

#endif
