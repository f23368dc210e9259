/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/clock.h"
#include "agent/clients/server_impl.h"

/* A connection that said nothing for so long makes room where others wait. */
#define IDLE_USEC (10u * MPIB_CLOCK_SECOND)

/* Connections looked at in one turn, and closed. */
#define LOOKS_A_TURN  64u
#define CLOSES_A_TURN 8u

static uint64_t now_usec(const struct mpib_server *server)
{
	uint64_t now = 0;

	(void)sd_event_now(server->loop, CLOCK_MONOTONIC, &now);
	return now;
}

void mpib_server_say_limit(struct mpib_server *server, const char *what)
{
	mpib_fd_budget_say(&server->budget, server->flows->journal, now_usec(server), what,
			   server->n_clients, mpib_peers_n_watched(server->peers));
}

void mpib_server_resume(struct mpib_server *server)
{
	if (!server->paused)
		return;

	server->paused = false;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_ON);
}

/* A client that needs its connection again opens another, and what a process registered outlives
 * it; but a peer without a name lives as long as its connection. */
static bool is_idle(const struct mpib_client *client, uint64_t now)
{
	bool needed = client->peer->pid == 0 && client->peer->n_regs > 0;

	return !needed && now - client->active_usec >= IDLE_USEC;
}

bool mpib_server_step(struct mpib_server *server)
{
	uint64_t now = now_usec(server);
	unsigned int closed = 0;
	bool more = mpib_monitors_step(&server->monitors);

	for (unsigned int n = 0; n < LOOKS_A_TURN && closed < CLOSES_A_TURN && server->idle_next;
	     n++) {
		struct mpib_client *client = server->idle_next;

		server->idle_next = LIST_NEXT(client, all);
		if (!is_idle(client, now))
			continue;
		mpib_server_drop(server, client);
		closed++;
	}

	if (closed)
		mpib_server_say_limit(server, "idle connections closed to make room");
	return server->idle_next || more;
}

void mpib_server_tick(struct mpib_server *server)
{
	if (!server->paused)
		return;

	server->idle_next = LIST_FIRST(&server->clients);
	if (server->idle_next && server->flows->wake)
		server->flows->wake(server->flows->wake_user);
	mpib_server_resume(server);
}
