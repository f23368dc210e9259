/* SPDX-License-Identifier: Apache-2.0 */
/* The connecting side. */
#include "plugin/setup/connect.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/comm_activate.h"
#include "plugin/setup/comm_life.h"
#include "plugin/wire/net.h"

#define RETRY_MS     100
#define AFAR_WAIT_MS 250 /* for TCP, and for the listener to have read */

enum connect_state {
	CONNECT_TCP,	     /* waits for TCP, or for the time to try it again */
	CONNECT_WAIT_ACCEPT, /* HELLO is out */
	CONNECT_WAIT_READY,  /* our QPs are up, CONNECT is out */
	CONNECT_WAIT_AGENT,  /* the peer is ready; the agent must answer */
};

struct connecting {
	void *handle; /* NCCL's buffer that this belongs to */
	uint64_t cookie;
	uint32_t index;
	struct mpib_env env;
	enum connect_state state;
	struct mpib_handle wire;
	char address[MPIB_ADDR_TEXT_MAX];
	struct mpib_comm *comm;
	bool greeted;
	uint64_t greeting_deadline_ms, deadline_ms;
	uint64_t retry_ms; /* when TCP may be tried again; 0: it is under way */
	int transient;	   /* why it was tried again, or 0 */
	bool peer_knows;   /* the peer gave up, or was told that this end does */
};

/* A lock of its own: whoever waits for a connection asks without end, and must not keep the helper
 * thread, which does the work, from the watch lock. */
static struct {
	pthread_mutex_t lock;
	struct connecting **slot;
	uint32_t count, used;
	uint32_t hint; /* where a free slot is likely: thousands of connects stay linear */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Second half of the handle: who works on it. */
struct handle_state {
	uint64_t cookie;
	uint32_t index;
};

_Static_assert(MPIB_HANDLE_SIZE + sizeof(struct handle_state) <= MPIB_NCCL_HANDLE_SIZE,
	       "the state fits behind the wire part");

static struct connecting *find(void *handle)
{
	struct connecting *found = NULL;
	struct handle_state state;

	memcpy(&state, (char *)handle + MPIB_HANDLE_SIZE, sizeof(state));
	(void)pthread_mutex_lock(&table.lock);
	if (state.index < table.count && table.slot[state.index] &&
	    table.slot[state.index]->handle == handle &&
	    table.slot[state.index]->cookie == state.cookie)
		found = table.slot[state.index];
	(void)pthread_mutex_unlock(&table.lock);
	return found;
}

static int insert(struct connecting *c)
{
	struct handle_state state;
	uint32_t index;

	if (getrandom(&c->cookie, sizeof(c->cookie), 0) != sizeof(c->cookie))
		c->cookie = mpib_now_ms() << 20 ^ (uint64_t)(uintptr_t)c;

	(void)pthread_mutex_lock(&table.lock);
	if (table.used == table.count) {
		uint32_t count = table.count ? 2 * table.count : 64;
		struct connecting **grown =
			realloc(table.slot, count * sizeof(struct connecting *));

		if (!grown) {
			(void)pthread_mutex_unlock(&table.lock);
			return -ENOMEM;
		}
		memset(grown + table.count, 0, (count - table.count) * sizeof(struct connecting *));
		table.slot = grown;
		index = table.count;
		table.count = count;
	} else {
		for (index = table.hint % table.count; table.slot[index];)
			index = (index + 1) % table.count;
	}
	table.slot[index] = c;
	table.hint = index + 1;
	table.used++;
	c->index = index;
	(void)pthread_mutex_unlock(&table.lock);

	memset(&state, 0, sizeof(state));
	state.cookie = c->cookie;
	state.index = index;
	memcpy((char *)c->handle + MPIB_HANDLE_SIZE, &state, sizeof(state));
	return 0;
}

static void connecting_free(struct connecting *c)
{
	(void)pthread_mutex_lock(&table.lock);
	if (c->index < table.count && table.slot[c->index] == c) {
		table.slot[c->index] = NULL;
		table.used--;
		table.hint = c->index;
	}
	(void)pthread_mutex_unlock(&table.lock);
	mpib_comm_free(c->comm);
	free(c);
}

void mpib_connect_free_all(void)
{
	mpib_listeners_free_all();
	for (uint32_t k = 0; k < table.count; k++)
		if (table.slot[k])
			connecting_free(table.slot[k]);
	free(table.slot);
	table.slot = NULL;
	table.count = table.used = 0;
}

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

/* Puts the nonce, which proves that the expected peer speaks, before a text. */
static size_t proven_text(uint64_t nonce, const char *text, uint8_t payload[8 + MPIB_TEXT_MAX])
{
	size_t len = strnlen(text, MPIB_TEXT_MAX);

	for (unsigned int k = 0; k < 8; k++)
		payload[k] = (uint8_t)(nonce >> (8 * k));
	memcpy(payload + 8, text, len);
	return 8 + len;
}

/* Before there is a connection, and perhaps no memory for one: says to the listener that this end
 * gives up. Best effort, bounded, and all on the stack. */
static void fail_from_afar(const struct mpib_handle *wire, const char *text)
{
	uint8_t payload[8 + MPIB_TEXT_MAX];
	struct pollfd p = { .events = POLLOUT };
	struct mpib_ctl ctl;
	int r, fd;

	if (mpib_net_connect(&wire->addr, &fd) < 0)
		return;
	p.fd = fd;
	(void)poll(&p, 1, AFAR_WAIT_MS);
	r = mpib_net_connected(fd);
	mpib_ctl_init(&ctl, fd);
	if (r > 0)
		mpib_ctl_send_last(&ctl, MPIB_FRAME_FAIL, payload,
				   proven_text(wire->nonce, text, payload));
	/* A greeting that nobody reads would make close() cut off what was sent. */
	(void)shutdown(fd, SHUT_WR);
	p.events = POLLIN;
	while (r > 0 && poll(&p, 1, AFAR_WAIT_MS) > 0 &&
	       recv(fd, payload, sizeof(payload), MSG_DONTWAIT) > 0)
		;
	mpib_ctl_close(&ctl);
}

/* Why this end gives up, as the peer gets it. */
static const char *failure_text(const char *address, int error, char text[MPIB_TEXT_MAX + 1])
{
	char subject[MPIB_ADDR_TEXT_MAX + 32];

	(void)snprintf(subject, sizeof(subject), "connect to %s", address);
	(void)snprintf(text, MPIB_TEXT_MAX + 1, "the connecting side failed: %.360s",
		       mpib_log_explain(subject, error));
	return text;
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
		r = insert(c);
	if (r < 0) {
		connecting_free(c);
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
		fail_from_afar(&wire, failure_text(address, r, text));
		return r;
	}
	r = start_tcp(*ret);
	if (r < 0)
		connecting_free(*ret);
	return r;
}

/* Tells the peer that this end gives up, and why. Before HELLO the nonce goes in front. */
static void tell_peer(struct connecting *c, uint16_t type, const char *text)
{
	uint8_t payload[8 + MPIB_TEXT_MAX];

	c->peer_knows = true;
	if (c->state != CONNECT_TCP)
		mpib_ctl_send_text(&c->comm->ctl, type, text);
	else if (c->comm->ctl.fd >= 0 && mpib_net_connected(c->comm->ctl.fd) > 0)
		mpib_ctl_send_last(&c->comm->ctl, type, payload,
				   proven_text(c->wire.nonce, text, payload));
}

/* What the handle tells already: both ends must be one version and one policy. */
static bool handle_differs(const struct connecting *c, char *ret_text, size_t size)
{
	const struct {
		const char *name, *cure;
		int theirs, ours;
	} rows[] = {
		{ "wire version", "install the same MPIB", c->wire.version, MPIB_WIRE_VERSION },
		{ "MPIB_MODE", "set the same", c->wire.mode, c->env.mode },
		{ "MPIB_ISLAND_PREFIX_LEN", "set the same", c->wire.prefix_len, c->env.prefix_len },
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		if (rows[k].theirs == rows[k].ours)
			continue;
		(void)snprintf(
			ret_text, size,
			"%s differs: %d on the accepting side, %d on the connecting side: %s "
			"on every node",
			rows[k].name, rows[k].theirs, rows[k].ours, rows[k].cure);
		return true;
	}
	return false;
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
	if (handle_differs(c, text, sizeof(text))) {
		MPIB_WARN("peer at %s: %s", c->address, text);
		tell_peer(c, MPIB_FRAME_REFUSE, text);
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
	if (r == 0 && !c->greeted && mpib_now_ms() > c->greeting_deadline_ms) {
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
	struct connecting *c = find(handle);
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
		tell_peer(c, MPIB_FRAME_FAIL, failure_text(c->address, r, text));
	if (r > 0) {
		*ret = c->comm;
		c->comm = NULL;
		r = 0;
	}
	connecting_free(c);
	return r;
}
