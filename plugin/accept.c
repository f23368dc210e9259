/* SPDX-License-Identifier: Apache-2.0 */
/* accept(): goes on where the helper thread has found the expected peer; see listen.c. */
#include "plugin/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/clock.h"
#include "plugin/listen_impl.h"
#include "plugin/log.h"
#include "plugin/result.h"

static int accept_fail(struct mpib_listener *listener, int error, const char *reason)
{
	mpib_ctl_send_text(&listener->comm->ctl, MPIB_FRAME_REFUSE, reason);
	mpib_comm_free(listener->comm);
	listener->comm = NULL;
	listener->error = error;
	mpib_listener_set_state(listener, ACCEPT_FAILED);
	return error;
}

/* The causes of local failures were logged here; the peer gets a pointer to that log. */
static int accept_fail_local(struct mpib_listener *listener, int error)
{
	char text[160];

	(void)snprintf(text, sizeof(text), "the accepting side failed: %s (its log says more)",
		       strerror(-error));
	return accept_fail(listener, error, text);
}

static int have_peer(struct mpib_listener *listener)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	char text[MPIB_TEXT_MAX + 1];
	struct mpib_peer_qps qps;
	struct mpib_comm *comm;
	size_t len;
	int r;

	r = mpib_comm_new(MPIB_COUNTER_RECV, listener->dev, &listener->env, listener->traffic_class,
			  &comm);
	if (r < 0) {
		listener->error = r;
		mpib_listener_set_state(listener, ACCEPT_FAILED);
		return r;
	}
	listener->comm = comm;
	comm->ctl = listener->ctl;
	listener->ctl.fd = -1;
	comm->remote = listener->hello;

	r = mpib_comm_describe(comm, &listener->env, listener->nonce);
	if (r < 0)
		return accept_fail_local(listener, r);
	r = mpib_peer_agree(&comm->local, &comm->remote, text, sizeof(text));
	if (r < 0) {
		MPIB_WARN("listener %s: refused the peer: %s", listener->address, text);
		return accept_fail(listener, r, text);
	}
	r = mpib_comm_build(comm, &listener->env);
	if (r < 0)
		return accept_fail_local(listener, r);

	len = mpib_peer_encode(payload, &comm->local);
	mpib_comm_qps(comm, &qps);
	len += mpib_peer_qps_encode(payload + len, &qps);
	r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_ACCEPT, payload, len);
	if (r < 0) {
		MPIB_WARN("control connection to %s broke during set-up: %s", comm->peer_text,
			  strerror(-r));
		return accept_fail(listener, r, "");
	}
	listener->deadline_ms = mpib_now_ms() + (uint64_t)listener->env.connect_timeout_sec * 1000;
	mpib_listener_set_state(listener, ACCEPT_WAIT_CONNECT);
	return 0;
}

static int wait_connect(struct mpib_listener *listener)
{
	struct mpib_comm *comm = listener->comm;
	char reason[MPIB_TEXT_MAX + 1];
	struct mpib_frame frame;
	size_t used;
	int r;

	r = mpib_ctl_flush(&comm->ctl);
	if (r >= 0)
		r = mpib_ctl_recv(&comm->ctl, &frame);
	if (r == 0 && mpib_now_ms() > listener->deadline_ms)
		r = -ETIMEDOUT;
	if (r == 0)
		return 0;
	if (r > 0 && frame.type == MPIB_FRAME_REFUSE) {
		mpib_text_decode(frame.payload, frame.payload_len, reason);
		MPIB_WARN("peer %s refused: %s", comm->peer_text, reason);
		return accept_fail(listener, -ECONNABORTED, "");
	}
	if (r > 0 &&
	    (frame.type != MPIB_FRAME_CONNECT ||
	     mpib_peer_qps_decode(frame.payload, frame.payload_len, &comm->remote_qps, &used) < 0))
		r = -EBADMSG;
	if (r < 0) {
		MPIB_WARN("peer %s went away or broke the protocol during set-up: %s",
			  comm->peer_text, strerror(-r));
		return accept_fail(listener, r, "");
	}

	r = mpib_comm_activate(comm, &listener->env);
	if (r == 0 && comm->mode == MPIB_MODE_ADVANCED)
		r = mpib_comm_register(comm);
	if (r < 0)
		return accept_fail_local(listener, r);
	mpib_listener_set_state(listener, ACCEPT_WAIT_AGENT);
	return 0;
}

static int wait_agent(struct mpib_listener *listener)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_comm *comm = listener->comm;
	struct mpib_peer_qps qps;
	int r;

	r = mpib_agent_register_poll(&comm->agent);
	if (r == 0)
		return 0; /* bounded by the agent link */
	if (r > 0) {
		mpib_comm_qps(comm, &qps);
		r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_READY, payload,
				  mpib_peer_qps_encode(payload, &qps));
	}
	if (r < 0)
		return accept_fail_local(listener, r);
	mpib_listener_set_state(listener, ACCEPT_FLUSH);
	return 0;
}

int mpib_accept(struct mpib_listener *listener, struct mpib_comm **ret)
{
	enum accept_state state = mpib_listener_state(listener);
	int r = 0;

	*ret = NULL;
	/* From here on the helper thread has nothing more to do with a listener that has a peer. */
	if (state == ACCEPT_WAIT_HELLO)
		return 0;
	if (state == ACCEPT_HAVE_PEER)
		r = have_peer(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_WAIT_CONNECT)
		r = wait_connect(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_WAIT_AGENT)
		r = wait_agent(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_FLUSH) {
		r = mpib_ctl_flush(&listener->comm->ctl);
		if (r == 0 && mpib_now_ms() > listener->deadline_ms)
			r = -ETIMEDOUT;
		if (r == 0)
			return 0;
		if (r > 0)
			r = mpib_comm_establish(listener->comm);
		if (r < 0)
			return accept_fail_local(listener, r);
		*ret = listener->comm;
		listener->comm = NULL;
		listener->error = -EINVAL; /* one listener, one accept */
		mpib_listener_set_state(listener, ACCEPT_FAILED);
		return 0;
	}
	return mpib_listener_state(listener) == ACCEPT_FAILED ? listener->error : r;
}
