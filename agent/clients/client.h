/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to the socket: bounded buffers, frames in, answers out. Whatever it does, it
 * costs at most itself. */
#ifndef MPIB_AGENT_CLIENT_H
#define MPIB_AGENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "agent/admin/admin.h"
#include "agent/keeper/keeper.h"
#include "agent/clients/poller.h"
#include "agent/flows/flows.h"

struct mpib_client;
LIST_HEAD(mpib_client_list, mpib_client);

/* What a client asks its owner. */
struct mpib_client_ops {
	/* Fills one record of status. */
	void (*status)(void *user, struct mpib_admin_status *ret);
	/* Reloads the policy: 0, or a negative errno with @cause. *ret_changes is for the caller to
	 * free. */
	int (*reload)(void *user, struct mpib_share_change **ret_changes, uint32_t *ret_n,
		      struct mpib_cause *cause);
	/* True where @client may watch; it counts from then on. */
	bool (*may_monitor)(void *user, struct mpib_client *client);
	/* The connection is over: free the client. */
	void (*closed)(void *user, struct mpib_client *client);
};

/* Public to the server, which keeps the list and the peers. */
struct mpib_client {
	LIST_ENTRY(mpib_client) all;
	LIST_ENTRY(mpib_client) monitors; /* while it has events */
	struct mpib_peer *peer;		  /* one reference */
	pid_t pid;			  /* as the kernel gave them at connect */
	uid_t uid;
	struct mpib_user *user; /* one reference; counts this client */
	uint64_t active_usec;	/* when it last sent something */

	struct mpib_flows *flows;
	const struct mpib_client_ops *ops;
	void *ops_user;
	sd_event *loop; /* for its clock */
	struct mpib_poller *poller;
	struct mpib_poll_item io; /* not watched while the keeper reads */
	struct mpib_keeper *keeper;
	int fd;
	int table_fd; /* a sealed memfd that came along with what was read, or -1 */
	bool eof;     /* nothing more will be read */
	bool closing; /* close when the answers are out */
	bool more;    /* its turn was over before its frames and answers were */

	size_t n_in;
	size_t n_out;
	size_t skip;	   /* bytes left of a frame too long to hold */
	uint8_t skip_type; /* its type */

	uint8_t dump; /* request whose records are being sent, or 0 */
	uint32_t dump_cursor;
	uint32_t dump_total;
	pid_t dump_pid;			   /* FLOWS: of this process alone, 0: all */
	uint32_t dump_version;		   /* of the text being sent */
	struct mpib_share_change *changes; /* of a reload */
	uint32_t n_changes;

	struct mpib_admin_event *events; /* a monitor's queue, NULL for any other client */
	uint32_t first_event;		 /* a ring of MPIB_CLIENT_EVENTS */
	uint32_t n_events;
	uint32_t n_lost; /* not 0: too slow, on its way out */

	uint8_t in[4096];
	uint8_t out[16384];
};

/* Events that wait for a monitor. More than the journal writes in one burst. */
#define MPIB_CLIENT_EVENTS 1200u

/* Queues an event for a monitor; one whose queue is full is cut off. */
void mpib_client_push(struct mpib_client *client, const struct mpib_admin_event *event);

/* The keeper's answer to the client @user: goes on with what it read. */
void mpib_client_taken(void *user, const struct mpib_keeper_taken *taken);

/* Starts watching @fd, which the client owns from now on (also on failure) and the keeper holds. */
int mpib_client_start(struct mpib_client *client, sd_event *loop, struct mpib_poller *poller);

/* Ends the connection and frees the buffers; references are the server's matter. */
struct mpib_client *mpib_client_free(struct mpib_client *client);

#endif
