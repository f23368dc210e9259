/* SPDX-License-Identifier: Apache-2.0 */
/* The connecting side. */
#include "plugin/setup/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/comm_activate.h"
#include "plugin/setup/comm_life.h"
#include "plugin/setup/connect_impl.h"
#include "plugin/wire/net.h"

#define RETRY_MS 100

static int start_tcp(struct connecting *c)
{
	int fd, r = mpib_net_connect(&c->wire.addr, &fd);

	if (r < 0 && mpib_net_is_transient(-r)) {
		if (!c->transient)
			MPIB_INFO("control connection to %s: %s; trying on", c->address,
				  strerror(-r));
		c->transient = r;
		c->retry_ms = mpib_now_ms() + RETRY_MS;
		return 0;
	}
	if (r < 0) {
		MPIB_WARN("control connection to %s: %s", c->address, strerror(-r));
		return r;
	}
	mpib_ctl_init(&c->comm->ctl, fd);
	c->retry_ms = 0;
	return 0;
}

static int make(struct mpib_device *dev, const struct mpib_env *env, int traffic_class,
		void *handle, const struct mpib_handle *wire, struct connecting **ret)
{
	struct connecting *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->handle = handle;
	c->env = *env;
	c->wire = *wire;
	c->index = UINT32_MAX;
	(void)mpib_net_format(&c->wire.addr, c->address);
	r = mpib_comm_new(MPIB_COUNTER_SEND, dev, env, traffic_class, &c->comm);
	if (r == 0)
		r = mpib_connecting_insert(c);
	if (r < 0) {
		mpib_connecting_free(c);
		return r;
	}
	c->deadline_ms = mpib_now_ms() + (uint64_t)env->connect_timeout_sec * 1000;
	*ret = c;
	return 0;
}

static int begin(struct mpib_device *dev, const struct mpib_env *env, int traffic_class,
		 void *handle, struct connecting **ret)
{
	char text[MPIB_TEXT_MAX + 1], address[MPIB_ADDR_TEXT_MAX];
	struct mpib_handle wire;
	int r;

	r = mpib_handle_decode(handle, MPIB_HANDLE_SIZE, &wire);
	if (r < 0) {
		MPIB_WARN("the handle of the peer's listener isn't MPIB's: every rank must load "
			  "this plugin");
		return r;
	}
	r = make(dev, env, traffic_class, handle, &wire, ret);
	if (r < 0) {
		(void)mpib_net_format(&wire.addr, address);
		mpib_connect_fail_from_afar(&wire, mpib_connect_failure_text(address, r, text));
		return r;
	}
	r = start_tcp(*ret);
	if (r < 0)
		mpib_connecting_free(*ret);
	return r;
}

static int tcp(struct connecting *c)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_comm *comm = c->comm;
	char text[MPIB_TEXT_MAX + 1];
	int r;

	if (c->retry_ms) {
		if (mpib_now_ms() < c->retry_ms)
			return 0;
		r = start_tcp(c);
		if (r < 0)
			return r;
	}
	r = mpib_net_connected(comm->ctl.fd);
	if (r == 0)
		return 0;
	if (r < 0) {
		MPIB_WARN("control connection to %s: %s", c->address, strerror(-r));
		return r;
	}
	mpib_net_tune(comm->ctl.fd);
	if (mpib_connect_handle_differs(c, text, sizeof(text))) {
		MPIB_WARN("peer at %s: %s", c->address, text);
		mpib_connect_tell_peer(c, MPIB_FRAME_REFUSE, text);
		return -MPIB_EUSAGE;
	}

	r = mpib_comm_describe(comm, &c->env, c->wire.nonce);
	if (r < 0)
		return r;
	r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_HELLO, payload,
			  mpib_peer_encode(payload, &comm->local));
	if (r < 0) {
		MPIB_WARN("control connection to %s: %s", c->address, strerror(-r));
		return r;
	}
	c->greeting_deadline_ms = mpib_now_ms() + MPIB_GREETING_TIMEOUT_MS;
	c->state = CONNECT_WAIT_ACCEPT;
	return 0;
}

static int peer_gave_up(struct connecting *c, uint16_t type, const char *reason)
{
	bool failed = type == MPIB_FRAME_FAIL;

	c->peer_knows = true;
	MPIB_WARN("peer at %s%s: %s", c->address, failed ? "" : " refused the connection", reason);
	return failed ? -ECONNABORTED : -MPIB_EUSAGE;
}

/* The control connection broke, or what came over it is wrong. */
static int gone(struct connecting *c, int error)
{
	struct mpib_comm *comm = c->comm;
	char reason[MPIB_TEXT_MAX + 1];
	uint16_t type;

	if (error != -EBADMSG && mpib_ctl_reason(&comm->ctl, &type, reason))
		return peer_gave_up(c, type, reason);
	/* A listener that greeted and closes before it answers had too many strangers, or lost
	 * patience: come again. */
	if (error != -EBADMSG && c->greeted && c->state == CONNECT_WAIT_ACCEPT) {
		mpib_ctl_close(&comm->ctl);
		c->greeted = false;
		c->state = CONNECT_TCP;
		c->retry_ms = mpib_now_ms() + RETRY_MS;
		return 0;
	}
	MPIB_WARN("peer at %s: %s", c->address,
		  error == -EBADMSG ? "it doesn't speak MPIB's protocol"
				    : "it closed the control connection during set-up");
	return error == -EBADMSG ? error : -ECONNRESET;
}

/* Waits for a frame of @type; handles GREETING and REFUSE. 1 with the frame, 0 later, error. */
static int wait_frame(struct connecting *c, uint16_t type, struct mpib_frame *ret)
{
	struct mpib_comm *comm = c->comm;
	char reason[MPIB_TEXT_MAX + 1];
	uint64_t now;
	int r;

	r = mpib_ctl_flush(&comm->ctl);
	if (r < 0)
		return gone(c, r);
	while ((r = mpib_ctl_recv(&comm->ctl, ret)) > 0) {
		if (ret->type == MPIB_FRAME_GREETING) {
			c->greeted = true;
			continue;
		}
		if (ret->type == MPIB_FRAME_REFUSE || ret->type == MPIB_FRAME_FAIL) {
			mpib_text_decode(ret->payload, ret->payload_len, reason);
			return peer_gave_up(c, ret->type, reason);
		}
		if (ret->type == type && ret->version == MPIB_WIRE_VERSION)
			return 1;
		r = -EBADMSG;
		break;
	}
	/* Where both are over, after a stall, the time-out that was asked for is what is told. */
	now = mpib_now_ms();
	if (r == 0 && !c->greeted && now > c->greeting_deadline_ms && now <= c->deadline_ms) {
		MPIB_WARN("%s took the connection but didn't greet within %d ms: it is no MPIB "
			  "listener, or its process is stopped",
			  c->address, MPIB_GREETING_TIMEOUT_MS);
		return -ETIMEDOUT;
	}
	return r < 0 ? gone(c, r) : 0;
}

static int got_accept(struct connecting *c, const struct mpib_frame *frame)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_comm *comm = c->comm;
	struct mpib_peer_qps qps;
	size_t used, more;
	int r;

	if (mpib_peer_decode(frame->payload, frame->payload_len, &comm->remote, &used) < 0 ||
	    mpib_peer_qps_decode(frame->payload + used, frame->payload_len - used,
				 &comm->remote_qps, &more) < 0 ||
	    comm->remote.nonce != c->wire.nonce) {
		MPIB_WARN("peer at %s: its settings can't be read", c->address);
		return -EBADMSG;
	}
	r = mpib_comm_build(comm, &c->env);
	if (r == 0)
		r = mpib_comm_activate(comm, &c->env);
	if (r < 0)
		return r;
	mpib_comm_qps(comm, &qps);
	c->state = CONNECT_WAIT_READY;
	r = mpib_ctl_send(&comm->ctl, MPIB_FRAME_CONNECT, payload,
			  mpib_peer_qps_encode(payload, &qps));
	return r < 0 ? gone(c, r) : 0;
}

static int got_ready(struct connecting *c, const struct mpib_frame *frame)
{
	struct mpib_comm *comm = c->comm;
	struct mpib_peer_qps qps;
	size_t used;
	int r;

	if (mpib_peer_qps_decode(frame->payload, frame->payload_len, &qps, &used) < 0) {
		MPIB_WARN("peer at %s: its READY can't be read", c->address);
		return -EBADMSG;
	}
	if (qps.rail_mask != comm->rail_mask) {
		if (!mpib_comm_may_drop_sup(comm) || qps.rail_mask != mpib_rail_bit(MPIB_SOUT)) {
			MPIB_WARN("peer at %s is ready on rails 0x%x, this end on 0x%x", c->address,
				  qps.rail_mask, comm->rail_mask);
			return -EPROTO;
		}
		mpib_comm_drop_sup(comm, "the peer");
	}
	if (comm->mode == MPIB_MODE_ADVANCED) {
		r = mpib_comm_register(comm);
		if (r < 0)
			return r;
	}
	c->state = CONNECT_WAIT_AGENT;
	return 0;
}

/* 1: the connection is up; 0: what is short now may be there at the next call. */
static int establish(struct connecting *c)
{
	int r = mpib_comm_establish(c->comm, &c->env);

	if (r < 0 && mpib_net_is_transient(-r)) {
		c->transient = r;
		return 0;
	}
	return r < 0 ? r : 1;
}

static int step(struct connecting *c)
{
	struct mpib_frame frame;
	int r = 0;

	if (c->state == CONNECT_TCP)
		r = tcp(c);
	if (r == 0 && c->state == CONNECT_WAIT_ACCEPT) {
		r = wait_frame(c, MPIB_FRAME_ACCEPT, &frame);
		if (r > 0)
			r = got_accept(c, &frame);
	}
	if (r == 0 && c->state == CONNECT_WAIT_READY) {
		r = wait_frame(c, MPIB_FRAME_READY, &frame);
		if (r > 0)
			r = got_ready(c, &frame);
	}
	if (r == 0 && c->state == CONNECT_WAIT_AGENT) {
		r = mpib_agent_register_poll(&c->comm->agent);
		if (r > 0)
			r = establish(c);
	}
	if (r == 0 && mpib_now_ms() > c->deadline_ms) {
		MPIB_WARN("peer at %s: no connection within %d s (MPIB_CONNECT_TIMEOUT_SEC)%s%s",
			  c->address, c->env.connect_timeout_sec, c->transient ? ": " : "",
			  c->transient ? strerror(-c->transient) : "");
		r = -ETIMEDOUT;
	}
	return r;
}

int mpib_connect(struct mpib_device *dev, const struct mpib_env *env, int traffic_class,
		 void *handle, struct mpib_comm **ret)
{
	struct connecting *c = mpib_connecting_find(handle);
	char text[MPIB_TEXT_MAX + 1];
	int r;

	*ret = NULL;
	if (!c) {
		r = begin(dev, env, traffic_class, handle, &c);
		if (r < 0)
			return r;
	}

	r = step(c);
	if (r == 0)
		return 0;
	if (r < 0 && !c->peer_knows)
		mpib_connect_tell_peer(c, MPIB_FRAME_FAIL,
				       mpib_connect_failure_text(c->address, r, text));
	if (r > 0) {
		*ret = c->comm;
		c->comm = NULL;
		r = 0;
	}
	mpib_connecting_free(c);
	return r;
}
