/* SPDX-License-Identifier: Apache-2.0 */
/* One peer of a mesh that comes up: mesh.c draws the exchange. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/gin/mesh_impl.h"
#include "plugin/setup/take.h"
#include "plugin/wire/net.h"

void mpib_gin_name_peer(struct mpib_gin_peer *peer)
{
	char text[MPIB_IPV4_TEXT_MAX];

	(void)snprintf(peer->text, sizeof(peer->text), "rank %u (%s pid %u)", peer->rank,
		       mpib_ipv4_format(peer->remote.rail[MPIB_SOUT].ipv4_be, text),
		       peer->remote.pid);
}

int mpib_gin_is_up(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	peer->step = MPIB_GIN_UP;
	peer->failover = peer->gin->local.features & peer->remote.features & MPIB_FEATURE_FAILOVER;
	mesh->up++;
	mesh->under_way -= peer->connects;
	mesh->moved = true;
	return peer->ctl.fd < 0 ? 0 : mpib_gin_watch_peer(peer);
}

/* What the peer said instead of what was awaited. */
static int peer_gave_up(const struct mpib_gin_peer *peer, uint16_t type, const char *reason)
{
	MPIB_WARN("%s%s: %s", peer->text, type == MPIB_FRAME_FAIL ? "" : " refused", reason);
	return type == MPIB_FRAME_FAIL ? -ECONNABORTED : -MPIB_EUSAGE;
}

static int broken(struct mpib_gin_peer *peer, int error)
{
	char reason[MPIB_TEXT_MAX + 1];
	uint16_t type;

	if (error == -ECONNABORTED || error == -MPIB_EUSAGE) /* it gave up, which was told */
		return error;
	if (error != -EBADMSG && mpib_ctl_reason(&peer->ctl, &type, reason))
		return peer_gave_up(peer, type, reason);
	MPIB_WARN("%s: %s", peer->text,
		  error == -EBADMSG ? "it doesn't speak MPIB's protocol"
				    : "it closed the control connection during set-up");
	return error == -EBADMSG ? error : -ECONNRESET;
}

/* A frame of @type: 1; 0: none yet; or an error. */
static int next_frame(struct mpib_gin_peer *peer, uint16_t type, struct mpib_frame *ret)
{
	char reason[MPIB_TEXT_MAX + 1];
	int r = mpib_ctl_flush(&peer->ctl);

	while (r >= 0 && (r = mpib_ctl_recv(&peer->ctl, ret)) > 0) {
		if (ret->type == MPIB_FRAME_GREETING) {
			peer->greeted = true;
			continue;
		}
		if (ret->type == MPIB_FRAME_REFUSE || ret->type == MPIB_FRAME_FAIL) {
			mpib_text_decode(ret->payload, ret->payload_len, reason);
			return peer_gave_up(peer, ret->type, reason);
		}
		if (ret->type == type && ret->version == MPIB_WIRE_VERSION)
			return 1;
		r = -EBADMSG;
	}
	return r;
}

/* ---- what both ends must agree in ------------------------------------------------------------ */

/* Whether both ends speak of the same thing; else @text says what differs. */
static bool agree(const struct mpib_gin *gin, const struct mpib_gin_join *join, char *text,
		  size_t size)
{
	if (join->version != MPIB_GIN_VERSION)
		(void)snprintf(text, size,
			       "version of device-initiated communication differs: %u here and %u "
			       "there: install the same MPIB on every node",
			       MPIB_GIN_VERSION, join->version);
	else if (join->nranks != gin->nranks)
		(void)snprintf(text, size, "%u ranks here and %u there", gin->nranks, join->nranks);
	else
		return true;
	return false;
}

static int check_join(struct mpib_gin_peer *peer, const struct mpib_frame *frame, size_t skip)
{
	const struct mpib_gin *gin = peer->gin;
	char text[MPIB_TEXT_MAX + 1];

	if (mpib_gin_join_decode(frame->payload + skip, frame->payload_len - skip, &peer->join) < 0)
		return broken(peer, -EBADMSG);
	if (agree(gin, &peer->join, text, sizeof(text))) {
		if (peer->join.rank != peer->rank)
			(void)snprintf(text, sizeof(text), "it says that it is rank %u",
				       peer->join.rank);
		else if (mpib_peer_agree(&gin->local, &peer->remote, text, sizeof(text)) == 0)
			return 0;
	}
	MPIB_WARN("%s: %s", peer->text, text);
	return -MPIB_EUSAGE;
}

/* ---- the connector --------------------------------------------------------------------------- */

int mpib_gin_begin(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	int fd = -1, r = mpib_net_connect(&peer->handle.addr, &fd);
	char address[MPIB_ADDR_TEXT_MAX];

	if (r < 0 && !mpib_net_is_transient(-r)) {
		MPIB_WARN("control connection to rank %u at %s: %s", peer->rank,
			  mpib_net_format(&peer->handle.addr, address), strerror(-r));
		return r;
	}
	if (r == 0)
		mpib_ctl_init(&peer->ctl, fd);
	peer->retry_ms = r < 0 ? mpib_now_ms() + MPIB_GIN_RETRY_MS : 0;
	peer->greeted = false;
	if (peer->step == MPIB_GIN_IDLE)
		mesh->under_way++;
	peer->step = MPIB_GIN_TCP;
	return 0;
}

static int say_hello(struct mpib_gin_peer *peer)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_peer local = peer->gin->local;
	int r;

	local.nonce = peer->handle.nonce;
	r = mpib_ctl_send(&peer->ctl, MPIB_FRAME_HELLO, payload, mpib_peer_encode(payload, &local));
	peer->step = MPIB_GIN_TURN;
	return r < 0 ? broken(peer, r) : 0;
}

static int tcp(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	char address[MPIB_ADDR_TEXT_MAX];
	int r;

	if (peer->retry_ms)
		return mpib_now_ms() < peer->retry_ms ? 0 : mpib_gin_begin(mesh, peer);
	r = mpib_net_connected(peer->ctl.fd);
	if (r == 0)
		return 0;
	if (r < 0) {
		MPIB_WARN("control connection to rank %u at %s: %s", peer->rank,
			  mpib_net_format(&peer->handle.addr, address), strerror(-r));
		return r;
	}
	mpib_net_tune(peer->ctl.fd);
	mesh->moved = true;
	return say_hello(peer);
}

static int join(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_gin_join mine;
	struct mpib_frame frame;
	int r = next_frame(peer, MPIB_GIN_FRAME_TURN, &frame);

	/* A listener with too many that wait drops the oldest: it may come again. */
	if ((r == -ECONNRESET || r == -EPIPE) && peer->greeted) {
		mpib_ctl_close(&peer->ctl);
		peer->step = MPIB_GIN_TCP;
		peer->retry_ms = mpib_now_ms() + MPIB_GIN_RETRY_MS;
		return 0;
	}
	if (r <= 0)
		return r < 0 ? broken(peer, r) : 0;
	mpib_gin_describe(peer, &mine);
	r = mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_JOIN, payload,
			  mpib_gin_join_encode(payload, &mine));
	peer->step = MPIB_GIN_MEET;
	mesh->moved = true;
	return r < 0 ? broken(peer, r) : 0;
}

static int meet(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	struct mpib_frame frame;
	size_t used;
	int r = next_frame(peer, MPIB_GIN_FRAME_MEET, &frame);

	if (r <= 0)
		return r < 0 ? broken(peer, r) : 0;
	if (mpib_peer_decode(frame.payload, frame.payload_len, &peer->remote, &used) < 0)
		return broken(peer, -EBADMSG);
	mpib_gin_name_peer(peer);
	r = check_join(peer, &frame, used);
	if (r == 0)
		r = mpib_gin_qps_connect(peer);
	if (r < 0)
		return r;
	r = mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_READY, NULL, 0);
	return r < 0 ? broken(peer, r) : mpib_gin_is_up(mesh, peer);
}

/* ---- the acceptor ---------------------------------------------------------------------------- */

static int answer(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer,
		  const struct mpib_frame *join)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_peer local = peer->gin->local;
	struct mpib_gin_join mine;
	size_t len;
	int r;

	mpib_gin_name_peer(peer);
	peer->step = MPIB_GIN_READY; /* whatever is wrong, it is told */
	r = check_join(peer, join, 0);
	if (r == 0)
		r = mpib_gin_qps_connect(peer);
	if (r < 0)
		return r;
	local.nonce = mpib_listener_nonce(mesh->listener);
	len = mpib_peer_encode(payload, &local);
	mpib_gin_describe(peer, &mine);
	len += mpib_gin_join_encode(payload + len, &mine);
	r = mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_MEET, payload, len);
	mesh->moved = true;
	return r < 0 ? broken(peer, r) : 0;
}

/* It can't be one of these ranks, and is told why. */
static int refuse_guest(struct mpib_gin_guest *guest, const char *text)
{
	char address[MPIB_IPV4_TEXT_MAX];

	MPIB_WARN("a peer, %s pid %u: %s",
		  mpib_ipv4_format(guest->hello.rail[MPIB_SOUT].ipv4_be, address), guest->hello.pid,
		  text);
	mpib_ctl_send_text(&guest->ctl, MPIB_FRAME_REFUSE, text);
	mpib_ctl_close(&guest->ctl);
	return -MPIB_EUSAGE;
}

static int place_guest(const struct mpib_gin *gin, struct mpib_gin_guest *guest,
		       const struct mpib_gin_join *join)
{
	const struct mpib_gin_peer *peer;
	char text[MPIB_TEXT_MAX + 1];

	if (!agree(gin, join, text, sizeof(text)))
		return refuse_guest(guest, text);
	peer = &gin->peer[join->rank < gin->nranks ? join->rank : gin->rank];
	if (join->rank == peer->rank && peer->rank != gin->rank && !peer->connects &&
	    peer->step == MPIB_GIN_IDLE)
		return 0;
	(void)snprintf(text, sizeof(text),
		       "it says that it is rank %u of %u, which can't be, or is here", join->rank,
		       gin->nranks);
	return refuse_guest(guest, text);
}

/* Its JOIN says which rank it is. One that is gone before comes again, or its rank's other
 * connections tell. */
static int hear_guest(struct mpib_gin_mesh *mesh, struct mpib_gin_guest *guest)
{
	struct mpib_gin *gin = mesh->gin;
	struct mpib_gin_peer *peer;
	struct mpib_gin_join join;
	struct mpib_frame frame;
	int r = mpib_ctl_recv(&guest->ctl, &frame);

	if (r == 0)
		return 0;
	guest->used = false;
	if (r < 0 || frame.type != MPIB_GIN_FRAME_JOIN ||
	    mpib_gin_join_decode(frame.payload, frame.payload_len, &join) < 0) {
		mpib_ctl_close(&guest->ctl);
		return 0;
	}
	r = place_guest(gin, guest, &join);
	if (r < 0)
		return r;
	peer = &gin->peer[join.rank];
	peer->ctl = guest->ctl;
	peer->remote = guest->hello;
	/* The bytes that the frame is in have moved with the connection. */
	frame.payload = peer->ctl.rx + (frame.payload - guest->ctl.rx);
	return answer(mesh, peer, &frame);
}

int mpib_gin_hear_guests(struct mpib_gin_mesh *mesh)
{
	int r;

	for (unsigned int k = 0; k < MPIB_GIN_GUESTS; k++) {
		struct mpib_gin_guest *guest = &mesh->guest[k];

		if (!guest->used) {
			r = mpib_listener_take(mesh->listener, &guest->ctl, &guest->hello);
			if (r < 0)
				return r;
			guest->used = r > 0;
			if (r > 0)
				(void)mpib_ctl_send(&guest->ctl, MPIB_GIN_FRAME_TURN, NULL, 0);
		}
		if (!guest->used)
			continue;
		r = hear_guest(mesh, guest);
		if (r < 0)
			return r;
	}
	return 0;
}

static int await_ready(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	struct mpib_frame frame;
	int r = next_frame(peer, MPIB_GIN_FRAME_READY, &frame);

	if (r < 0)
		return broken(peer, r);
	return r == 1 ? mpib_gin_is_up(mesh, peer) : 0;
}

int mpib_gin_step(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer)
{
	switch (peer->step) {
	case MPIB_GIN_TCP:
		return tcp(mesh, peer);
	case MPIB_GIN_TURN:
		return join(mesh, peer);
	case MPIB_GIN_MEET:
		return meet(mesh, peer);
	case MPIB_GIN_READY:
		return await_ready(mesh, peer);
	case MPIB_GIN_IDLE:
	case MPIB_GIN_UP:
		break;
	}
	return 0;
}
