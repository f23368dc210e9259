/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's side of a connection: what it asks, and the long answers, built frame by frame as the
 * reader takes them, so that one who never comes back costs no more than its buffers. A job's
 * frames are the client's (agent/clients/client.c). */
#ifndef MPIB_AGENT_SESSION_H
#define MPIB_AGENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/admin/admin.h"
#include "agent/admin/event_ring.h"
#include "agent/base/outbox.h"
#include "agent/flows/flows.h"

struct mpib_session;
LIST_HEAD(mpib_session_list, mpib_session);

/* What a session asks its owner; @user is its ops_user. */
struct mpib_session_ops {
	/* Fills one record of status. */
	void (*status)(void *user, struct mpib_admin_status *ret);
	/* Reloads the policy; mpib_sessions_reloaded() comes with the verdict, later. */
	void (*reload)(void *user, struct mpib_session *session);
	/* Lets @session watch, from then on: NULL, or why it may not. */
	const char *(*watch)(void *user, struct mpib_session *session);
};

/* The owner sets the first fields. All are borrowed. */
struct mpib_session {
	struct mpib_outbox *out; /* of the connection */
	int fd;			 /* likewise */
	pid_t pid;		 /* as the kernel gave them at connect */
	uid_t uid;
	struct mpib_user *user;
	struct mpib_flows *flows;
	const struct mpib_session_ops *ops;
	void *ops_user;
	void (*wake)(void *owner); /* events came: mpib_session_has_more() from now on */
	void *owner;

	uint8_t dump; /* request whose records are being sent, or 0 */
	uint32_t dump_cursor;
	uint32_t dump_total;
	pid_t dump_pid;			     /* FLOWS: of this process alone, 0: all */
	struct mpib_shares_place dump_place; /* in the text being sent... */
	uint32_t dump_version;		     /* ...which is of this version */
	struct mpib_share_changes *changes;  /* of a reload, one reference */

	LIST_ENTRY(mpib_session) waiting; /* while it waits for the end of a reload */
	bool waits;
	bool refused;			   /* that reload was */
	LIST_ENTRY(mpib_session) monitors; /* while it watches */
	struct mpib_event_ring *ring;	   /* of a monitor; NULL for any other session */
	uint64_t next_event;		   /* the first that it hasn't got */
};

/* Handles one whole frame of a type that is no registration. The output has room for
 * MPIB_ADMIN_FRAME_MAX bytes, as for mpib_session_step(). */
void mpib_session_frame(struct mpib_session *session, uint8_t type, const uint8_t *frame,
			size_t len);

/* True where an answer isn't all in the output yet, or events wait. */
bool mpib_session_has_more(const struct mpib_session *session);
/* Appends the next frame of it. */
void mpib_session_step(struct mpib_session *session);
/* Nobody reads the answer that is going on. */
void mpib_session_stop_dump(struct mpib_session *session);

/* True where nothing more of it may be answered, nor read, until a reload is through. */
bool mpib_session_waits(const struct mpib_session *session);
/* Has @session wait for the next mpib_sessions_reloaded() of @waiting. */
void mpib_session_wait(struct mpib_session *session, struct mpib_session_list *waiting);
/* The reload for which all of @waiting waited is through, or @refused. They are told @changes
 * (NULL: memory is out). */
void mpib_sessions_reloaded(struct mpib_session_list *waiting, struct mpib_share_changes *changes,
			    bool refused);

/* The rails of connections, for a record. */
struct mpib_admin_rails mpib_session_rails(const struct mpib_rail_state *state,
					   const struct mpib_rail_counts *counts);

bool mpib_session_watches(const struct mpib_session *session);

/* The connection is over. */
void mpib_session_done(struct mpib_session *session);

#endif
