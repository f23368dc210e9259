/* SPDX-License-Identifier: Apache-2.0 */
/* A listener of a mesh: the peers that its helper thread has found, one after another, without the
 * set-up of net connections. */
#include "plugin/setup/take.h"

#include "plugin/base/log.h"
#include "plugin/setup/listen_impl.h"

struct mpib_device *mpib_listener_device(const struct mpib_listener *listener)
{
	return listener->dev;
}

const struct mpib_env *mpib_listener_env(const struct mpib_listener *listener)
{
	return &listener->env;
}

uint64_t mpib_listener_nonce(const struct mpib_listener *listener)
{
	return listener->nonce;
}

int mpib_listener_take(struct mpib_listener *listener, struct mpib_ctl *ret_ctl,
		       struct mpib_peer *ret_hello)
{
	int error;

	switch (mpib_listener_state(listener)) {
	case ACCEPT_HAVE_PEER:
		*ret_ctl = listener->ctl;
		*ret_hello = listener->hello;
		listener->ctl.fd = -1;
		mpib_listener_next(listener);
		return 1;
	case ACCEPT_FAILED:
		error = listener->error;
		MPIB_WARN("listener %s: %s", listener->address, listener->cause);
		mpib_listener_next(listener);
		return error;
	default:
		return 0;
	}
}
