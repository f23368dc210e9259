/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accepting side. The helper thread takes TCP connections, greets them and waits for a HELLO
 * with the listener's nonce; whoever has none in time is a stranger and dropped, without delay to
 * the peer that is expected. accept() goes on from there (accept.c). Peers that come meanwhile wait
 * for their turn, in the order of their HELLOs.
 */
#include "plugin/setup/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/comm_life.h"
#include "plugin/setup/listen_impl.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/port.h"
#include "plugin/wire/net.h"

#define ACCEPTS_AT_ONCE 16

static struct mpib_listener *all_listeners;

/* ---- helper thread -------------------------------------------------------------------------- */

/* The connection waits in the kernel; the next tick looks for it. */
static void pause_listener(struct mpib_listener *listener, int error)
{
	if (!listener->logged_paused)
		MPIB_INFO("listener %s: can't take a connection: %s; trying on", listener->address,
			  strerror(error));
	listener->logged_paused = listener->paused = true;
	mpib_watch_del(&listener->watch);
}

/* The memory is there before the connection is taken: one that can't be served stays in the queue.
 */
static void on_listener(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_listener *listener = mpib_container_of(item, struct mpib_listener, watch);

	(void)events;
	for (int k = 0; k < ACCEPTS_AT_ONCE; k++) {
		struct candidate *candidate = mpib_candidate_new();
		int fd = -1;

		if (candidate)
			fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			mpib_candidate_add(listener, candidate, fd);
			continue;
		}
		if (!candidate)
			pause_listener(listener, ENOMEM);
		else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
			pause_listener(listener, errno);
		free(candidate);
		return;
	}
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	struct mpib_listener *listener = mpib_container_of(tick, struct mpib_listener, tick);

	mpib_candidates_tick(listener, now_ms);
	if (listener->paused && mpib_watch_add(&listener->watch, EPOLLIN) == 0)
		listener->paused = false;
}

/* ---- listen --------------------------------------------------------------------------------- */

static int choose_address(const struct mpib_env *env, uint32_t sout_ip_be,
			  struct sockaddr_storage *ret)
{
	const struct mpib_net_wanted wanted = {
		.interfaces = env->oob_if,
		.variable = mpib_env_variable(env, env->oob_if),
		.family = !env->oob_family[0]			     ? AF_UNSPEC
			  : strcmp(env->oob_family, "AF_INET6") == 0 ? AF_INET6
								     : AF_INET,
		.sout_ip_be = sout_ip_be,
	};

	return mpib_net_address(&wanted, ret);
}

int mpib_listen(struct mpib_device *dev, const struct mpib_env *env, void *handle,
		struct mpib_listener **ret)
{
	struct mpib_handle wire = { .version = MPIB_WIRE_VERSION };
	struct mpib_listener *listener;
	struct mpib_peer peer;
	struct mpib_source source;
	int r;

	if (mpib_hca_failed(&dev->hca[MPIB_SUP]))
		return -EIO;
	r = mpib_hca_describe(&dev->hca[MPIB_SOUT], env, &peer, &source);
	if (r < 0)
		return r;
	r = choose_address(env, source.gid.ipv4_be, &wire.addr);
	if (r < 0)
		return r;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->dev = dev;
	listener->env = *env;
	listener->ctl.fd = -1;
	mpib_listener_set_state(listener, ACCEPT_WAIT_HELLO);

	r = mpib_net_listen(&wire.addr, &listener->watch.fd);
	(void)mpib_net_format(&wire.addr, listener->address);
	if (r < 0) {
		MPIB_WARN("can't listen on %s for control connections: %s", listener->address,
			  strerror(-r));
		free(listener);
		return r;
	}
	if (getrandom(&listener->nonce, sizeof(listener->nonce), 0) != sizeof(listener->nonce))
		listener->nonce = mpib_now_ms() ^ (uint64_t)(uintptr_t)listener;

	mpib_watch_lock();
	listener->next = all_listeners;
	listener->link = &all_listeners;
	if (all_listeners)
		all_listeners->link = &listener->next;
	all_listeners = listener;
	listener->watch.on_event = on_listener;
	listener->tick.on_tick = on_tick;
	if (mpib_watch_add(&listener->watch, EPOLLIN) < 0)
		listener->paused = true; /* the next tick tries again */
	mpib_watch_tick_add(&listener->tick);
	mpib_watch_unlock();

	wire.nonce = listener->nonce;
	wire.sout_ip_be = source.gid.ipv4_be;
	wire.mode = (uint8_t)env->mode;
	wire.prefix_len = (uint8_t)env->prefix_len;
	memset(handle, 0, MPIB_NCCL_HANDLE_SIZE);
	mpib_handle_encode(handle, &wire);
	*ret = listener;
	return 0;
}

void mpib_listener_free(struct mpib_listener *listener)
{
	if (!listener)
		return;
	mpib_watch_lock();
	*listener->link = listener->next;
	if (listener->next)
		listener->next->link = listener->link;
	mpib_candidates_free(listener);
	mpib_watch_tick_del(&listener->tick);
	mpib_watch_del(&listener->watch);
	mpib_watch_unlock();
	(void)close(listener->watch.fd);
	mpib_ctl_close(&listener->ctl);
	mpib_comm_free(listener->comm);
	free(listener);
}

void mpib_listeners_free_all(void)
{
	while (all_listeners)
		mpib_listener_free(all_listeners);
}

void mpib_listeners_fork_child(void)
{
	for (struct mpib_listener *listener = all_listeners; listener; listener = listener->next) {
		(void)close(listener->watch.fd);
		if (listener->ctl.fd >= 0)
			(void)close(listener->ctl.fd);
		mpib_candidates_fork_child(listener);
		listener->watch.fd = listener->ctl.fd = -1;
	}
}

bool mpib_listeners_any(void)
{
	return all_listeners != NULL;
}
