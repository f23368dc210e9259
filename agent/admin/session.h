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
#include "agent/base/outbox.h"
#include "agent/flows/flows.h"

struct mpib_session;
LIST_HEAD(mpib_session_list, mpib_session);

/* What a session asks its owner; @user is its ops_user. */
struct mpib_session_ops {
	/* Fills one record of status. */
	void (*status)(void *user, struct mpib_admin_status *ret);
	/* Reloads the policy: 0, or a negative errno with @cause. *ret_changes is for the caller to
	 * free. */
	int (*reload)(void *user, struct mpib_share_change **ret_changes, uint32_t *ret_n,
		      struct mpib_cause *cause);
	/* True where @session may watch; it counts from then on. */
	bool (*may_watch)(void *user, struct mpib_session *session);
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
	pid_t dump_pid;			   /* FLOWS: of this process alone, 0: all */
	uint32_t dump_version;		   /* of the text being sent */
	struct mpib_share_change *changes; /* of a reload */
	uint32_t n_changes;

	LIST_ENTRY(mpib_session) monitors; /* while it has events */
	struct mpib_admin_event *events;   /* a monitor's queue, NULL for any other session */
	uint32_t first_event;		   /* a ring of MPIB_SESSION_EVENTS */
	uint32_t n_events;
	uint32_t n_lost; /* not 0: too slow, on its way out */
};

/* Events that wait for a monitor. More than the journal writes in one burst. */
#define MPIB_SESSION_EVENTS 1200u

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

bool mpib_session_watches(const struct mpib_session *session);
/* Queues an event for a monitor; one whose queue is full is cut off. */
void mpib_session_push(struct mpib_session *session, const struct mpib_admin_event *event);

/* The connection is over. */
void mpib_session_done(struct mpib_session *session);

#endif
