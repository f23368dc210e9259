/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to the socket: bounded buffers, frames in, answers out. Whatever it does, it
 * costs at most itself. */
#ifndef MPIB_AGENT_CLIENT_H
#define MPIB_AGENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "agent/admin/session.h"
#include "agent/base/outbox.h"
#include "agent/keeper/keeper.h"
#include "agent/clients/poller.h"
#include "agent/flows/flows.h"

struct mpib_client;
LIST_HEAD(mpib_client_list, mpib_client);

/* What a client tells its owner. */
struct mpib_client_ops {
	/* The connection is over: free the client. */
	void (*closed)(void *user, struct mpib_client *client);
};

/* Bytes read ahead. A frame that is longer is none of ours. */
#define MPIB_CLIENT_IN 4096u

/* Public to the server, which keeps the list and the peers. */
struct mpib_client {
	LIST_ENTRY(mpib_client) all;
	struct mpib_peer *peer; /* one reference */
	pid_t pid;		/* as the kernel gave them at connect */
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
	int table_fd;  /* a sealed memfd that came along with what was read, or -1 */
	bool readable; /* there may be something to read */
	bool ending;   /* the other end sends no more; there may be something to read */
	bool eof;      /* nothing more will be read */
	bool closing;  /* close when the answers are out */
	bool more;     /* its turn was over before its frames and answers were */

	size_t n_in;
	size_t n_peeked;   /* the last of them, which the kernel still has */
	size_t skip;	   /* bytes left of a frame too long to hold */
	uint8_t skip_type; /* its type */

	struct mpib_session session; /* what mpibctl asks, and gets */

	uint8_t in[MPIB_CLIENT_IN];
	struct mpib_outbox out;
};

/* The keeper's answer to the client @user: goes on with what it read. */
void mpib_client_fetched(void *user, const struct mpib_keeper_fetched *fetched);

/* Starts watching @fd, which the client owns from now on (also on failure) and the keeper holds. */
int mpib_client_start(struct mpib_client *client, sd_event *loop, struct mpib_poller *poller);

/* Ends the connection and frees the buffers; references are the server's matter. */
struct mpib_client *mpib_client_free(struct mpib_client *client);

#endif
