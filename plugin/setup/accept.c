/* SPDX-License-Identifier: Apache-2.0 */
/* accept(): goes on where the helper thread has found the expected peer; see listen.c. */
#include "plugin/setup/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/setup/comm_activate.h"
#include "plugin/setup/comm_life.h"
#include "plugin/setup/listen_impl.h"

/* Tells the peer, and whoever asks again. */
static int accept_fail(struct mpib_listener *listener, int error, uint16_t answer,
		       const char *cause)
{
	struct mpib_ctl *ctl = listener->comm ? &listener->comm->ctl : &listener->ctl;

	mpib_ctl_send_text(ctl, answer, cause);
	mpib_ctl_close(ctl);
	mpib_comm_free(listener->comm);
	listener->comm = NULL;
	mpib_listener_fail(listener, error, answer, cause);
	listener->told = true;
	return error;
}

/* Of this end's own: the peer is told what was logged here. */
static int accept_fail_local(struct mpib_listener *listener, int error)
{
	char text[MPIB_TEXT_MAX + 1], subject[MPIB_ADDR_TEXT_MAX + 32];

	(void)snprintf(subject, sizeof(subject), "listener %s: accept", listener->address);
	(void)snprintf(text, sizeof(text), "the accepting side failed: %.360s",
		       mpib_log_explain(subject, error));
	return accept_fail(listener, error, MPIB_FRAME_FAIL, text);
}

/* The peer gave up and said why, or went away. */
static int accept_fail_peer(struct mpib_listener *listener, int error, uint16_t type,
			    const char *reason)
{
	const char *peer = listener->comm->peer_text;
	char text[MPIB_TEXT_MAX + 1];

	if (type)
		(void)snprintf(text, sizeof(text), "peer %s%s: %.350s", peer,
			       type == MPIB_FRAME_FAIL ? "" : " refused", reason);
	else if (error == -ETIMEDOUT)
		(void)snprintf(text, sizeof(text),
			       "peer %s: no connection within %d s (MPIB_CONNECT_TIMEOUT_SEC)",
			       peer, listener->env.connect_timeout_sec);
	else
		(void)snprintf(text, sizeof(text),
			       "peer %s went away or broke the protocol during set-up: %s", peer,
			       strerror(-error));
	MPIB_WARN("%s", text);
	return accept_fail(listener, error, MPIB_FRAME_FAIL, text);
}

/* The socket broke; the peer may have said why before. */
static int accept_broken(struct mpib_listener *listener, int error)
{
	char reason[MPIB_TEXT_MAX + 1];
	uint16_t type = 0;

	if (mpib_ctl_reason(&listener->comm->ctl, &type, reason))
		error = -ECONNABORTED;
	return accept_fail_peer(listener, error, type, reason);
}

/* From NCCL's tables v10 on the traffic class comes with connect alone, and both directions of a
 * connection must have one: the connector's, unless this node's own settings say another. */
static void adopt(struct mpib_comm *comm, const struct mpib_env *env)
{
	if (env->tc < 0)
		comm->local.traffic_class = comm->remote.traffic_class;
	if (env->fifo_tc < 0)
		comm->local.cts_traffic_class = comm->remote.cts_traffic_class;
}

static int have_peer(struct mpib_listener *listener)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	char text[MPIB_TEXT_MAX + 1];
	struct mpib_peer_qps qps;
	struct mpib_comm *comm;
	size_t len;
	int r;

	r = mpib_comm_new(MPIB_COUNTER_RECV, listener->dev, &listener->env, -1, &comm);
	if (r < 0)
		return accept_fail_local(listener, r);
	listener->comm = comm;
	comm->ctl = listener->ctl;
	listener->ctl.fd = -1;
	comm->remote = listener->hello;

	r = mpib_comm_describe(comm, &listener->env, listener->nonce);
	if (r < 0)
		return accept_fail_local(listener, r);
	adopt(comm, &listener->env);
	r = mpib_peer_agree(&comm->local, &comm->remote, text, sizeof(text));
	if (r < 0) {
		MPIB_WARN("listener %s: refused the peer: %s", listener->address, text);
		return accept_fail(listener, r, MPIB_FRAME_REFUSE, text);
	}
	r = mpib_comm_build(comm, &listener->env);
	if (r < 0)
		return accept_fail_local(listener, r);

	len = mpib_peer_encode(payload, &comm->local);
	mpib_comm_qps(comm, &qps);
	len += mpib_peer_qps_encode(payload + len, &qps);
	r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_ACCEPT, payload, len);
	listener->deadline_ms = mpib_now_ms() + (uint64_t)listener->env.connect_timeout_sec * 1000;
	if (r < 0)
		return accept_broken(listener, r);
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
	if (r < 0)
		return accept_broken(listener, r);
	r = mpib_ctl_recv(&comm->ctl, &frame);
	if (r == 0 && mpib_now_ms() > listener->deadline_ms)
		r = -ETIMEDOUT;
	if (r == 0)
		return 0;
	if (r > 0 && (frame.type == MPIB_FRAME_REFUSE || frame.type == MPIB_FRAME_FAIL)) {
		mpib_text_decode(frame.payload, frame.payload_len, reason);
		return accept_fail_peer(listener, -ECONNABORTED, frame.type, reason);
	}
	if (r > 0 &&
	    (frame.type != MPIB_FRAME_CONNECT ||
	     mpib_peer_qps_decode(frame.payload, frame.payload_len, &comm->remote_qps, &used) < 0))
		r = -EBADMSG;
	if (r < 0)
		return accept_fail_peer(listener, r, 0, NULL);

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
	if (r < 0)
		return accept_fail_local(listener, r);
	mpib_comm_qps(comm, &qps);
	r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_READY, payload,
			  mpib_peer_qps_encode(payload, &qps));
	if (r < 0)
		return accept_broken(listener, r);
	mpib_listener_set_state(listener, ACCEPT_FLUSH);
	return 0;
}

/* READY goes out, and the connection becomes NCCL's. */
static int finish(struct mpib_listener *listener, struct mpib_comm **ret)
{
	int r = mpib_ctl_flush(&listener->comm->ctl);

	if (r < 0)
		return accept_broken(listener, r);
	if (r > 0) {
		r = mpib_comm_establish(listener->comm, &listener->env);
		if (r < 0 && mpib_net_is_transient(-r))
			r = 0;
		else if (r < 0)
			return accept_fail_local(listener, r);
		else
			r = 1;
	}
	if (r == 0)
		return mpib_now_ms() > listener->deadline_ms
			       ? accept_fail_peer(listener, -ETIMEDOUT, 0, NULL)
			       : 0;
	*ret = listener->comm;
	listener->comm = NULL;
	mpib_listener_next(listener);
	return 0;
}

int mpib_accept(struct mpib_listener *listener, struct mpib_comm **ret)
{
	int r = 0;

	*ret = NULL;
	if (mpib_listener_state(listener) == ACCEPT_WAIT_HELLO)
		return 0;
	/* Found by the helper thread, or by an earlier call. */
	while (mpib_listener_state(listener) == ACCEPT_FAILED) {
		if (mpib_listener_again(listener))
			continue;
		MPIB_WARN("listener %s: %s", listener->address, listener->cause);
		listener->told = true;
		return listener->error;
	}
	if (mpib_listener_state(listener) == ACCEPT_HAVE_PEER)
		r = have_peer(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_WAIT_CONNECT)
		r = wait_connect(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_WAIT_AGENT)
		r = wait_agent(listener);
	if (r == 0 && mpib_listener_state(listener) == ACCEPT_FLUSH)
		r = finish(listener, ret);
	return r;
}
