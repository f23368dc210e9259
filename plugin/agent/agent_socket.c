/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent/agent_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipv4.h"
#include "common/wire.h"
#include "plugin/agent/agent_shares.h"
#include "plugin/base/clock.h"
#include "plugin/base/counters.h"
#include "plugin/base/log.h"
#include "plugin/wire/net.h"

#define RECONNECT_MS 1000
#define PASSING_MS   20 /* after an error that goes by */

void mpib_agent_free_id(uint32_t conn_id)
{
	mpib_watch_assert_locked();
	mpib_agent.ids[(conn_id & 0xffff) / 8] &= (uint8_t) ~(1u << (conn_id & 7));
}

/* Without memory the id stays taken for good, which costs one of 65536. */
void mpib_agent_add_leaving(uint32_t conn_id)
{
	mpib_watch_assert_locked();
	if (mpib_agent.leaving_len == mpib_agent.leaving_capacity) {
		size_t capacity =
			mpib_agent.leaving_capacity ? 2 * mpib_agent.leaving_capacity : 64;
		uint32_t *grown = realloc(mpib_agent.leaving, capacity * sizeof(*grown));

		if (!grown)
			return;
		mpib_agent.leaving = grown;
		mpib_agent.leaving_capacity = capacity;
	}
	mpib_agent.leaving[mpib_agent.leaving_len++] = conn_id;
}

/* Closes the socket. Connections that wait for an answer ask again on the next one; their deadline
 * stands. */
void mpib_agent_disconnect(void)
{
	mpib_watch_assert_locked();
	if (mpib_agent.sock.fd >= 0) {
		mpib_watch_del(&mpib_agent.sock);
		(void)close(mpib_agent.sock.fd);
		mpib_agent.sock.fd = -1;
	}
	for (unsigned int k = 0; k < mpib_agent.queue_len; k++) {
		const struct mpib_agent_pending *p =
			&mpib_agent.queue[(mpib_agent.queue_head + k) % MPIB_AGENT_QUEUE_MAX];

		if (p->type == MPIB_MSG_DEREGISTER)
			mpib_agent_add_leaving(p->conn_id);
	}
	mpib_agent.rx_len = mpib_agent.tx_len = 0;
	mpib_agent.served = mpib_agent.counted = false;
	mpib_agent.queue_head = mpib_agent.queue_len = 0;
	mpib_agent.retry_ms = mpib_now_ms() + RECONNECT_MS;
	mpib_agent.passing = false;
	for (struct mpib_agent_reg *reg = mpib_agent.regs; reg; reg = reg->next)
		if (mpib_agent_get_state(reg) != MPIB_REG_FAILED)
			mpib_agent_set_state(reg, MPIB_REG_WANTED);
}

/* The agent's answer was wrong: set-ups that wait for one get the error; connections in use ask
 * again on a fresh socket. */
void mpib_agent_protocol_error(const char *what)
{
	mpib_watch_assert_locked();
	MPIB_WARN("agent at %s: %s; restart mpib-agentd, or set MPIB_AGENT_DIR to the right one",
		  mpib_agent.env.agent_dir, what);
	mpib_agent.logged_gone = true;
	for (unsigned int k = 0; k < mpib_agent.queue_len; k++) {
		struct mpib_agent_pending *p =
			&mpib_agent.queue[(mpib_agent.queue_head + k) % MPIB_AGENT_QUEUE_MAX];

		if (p->reg && !p->reg->handed_out) {
			p->reg->error = -EIO;
			mpib_agent_set_state(p->reg, MPIB_REG_FAILED);
		}
	}
	mpib_agent_disconnect();
}

/* The agent refused one registration. A connection in use goes on with what it has. */
static void refused(struct mpib_agent_reg *reg)
{
	reg->error = -EIO;
	mpib_agent_set_state(reg, reg->handed_out ? MPIB_REG_NO_SLOT : MPIB_REG_FAILED);
}

static void registered(struct mpib_agent_reg *reg, const struct mpib_wire_msg *msg)
{
	char flow[MPIB_FLOW_TEXT_MAX];
	const struct mpib_hint_entry *entry;

	switch (msg->status) {
	case MPIB_STATUS_OK:
		entry = mpib_hint_table_slot(&mpib_agent.table, msg->hint_slot);
		if (!entry) {
			/* A larger table than the one mapped: look at the file again. */
			(void)mpib_agent_map_table();
			entry = mpib_hint_table_slot(&mpib_agent.table, msg->hint_slot);
		}
		if (!entry) {
			refused(reg);
			MPIB_WARN("agent gave slot %u of a table of %u: update mpib-agentd",
				  msg->hint_slot, mpib_agent.table.entries);
			return;
		}
		mpib_agent.proven = mpib_agent.served = true;
		mpib_agent.logged_slow = false;
		reg->slot = msg->hint_slot;
		reg->entry = entry;
		mpib_agent_publish(reg);
		mpib_agent_set_state(reg, MPIB_REG_DONE);
		return;
	case MPIB_STATUS_NO_SLOT:
		if (!reg->logged_unserved)
			MPIB_WARN(
				"agent has no free slot for flow %s: vanilla policy until it has; "
				"raise slots in its agent.ini and reload it",
				mpib_flow_format(reg->sout_src_be, reg->sout_dst_be, flow));
		reg->logged_unserved = true;
		mpib_agent_set_state(reg, MPIB_REG_NO_SLOT);
		return;
	default:
		refused(reg);
		if (!reg->logged_unserved)
			MPIB_WARN("agent refused flow %s as invalid: plugin and mpib-agentd don't "
				  "fit",
				  mpib_flow_format(reg->sout_src_be, reg->sout_dst_be, flow));
		reg->logged_unserved = true;
		return;
	}
}

/* Handles one whole frame at the start of rx. */
static int handle_answer(size_t len)
{
	struct mpib_wire_msg msg;
	struct mpib_agent_pending p;

	if (mpib_agent.queue_len == 0)
		return -EBADMSG;
	p = mpib_agent.queue[mpib_agent.queue_head];
	/* COUNTERS is answered like DEREGISTER, whatever the verdict: an older agent says no. */
	if (mpib_wire_decode_response(mpib_agent.rx, len,
				      p.type == MPIB_MSG_COUNTERS ? MPIB_MSG_DEREGISTER : p.type,
				      &msg) < 0)
		return -EBADMSG;

	mpib_agent.queue_head = (mpib_agent.queue_head + 1) % MPIB_AGENT_QUEUE_MAX;
	mpib_agent.queue_len--;
	if (p.type == MPIB_MSG_DEREGISTER)
		mpib_agent_free_id(p.conn_id);
	else if (p.reg)
		registered(p.reg, &msg);
	return 0;
}

void mpib_agent_read_answers(void)
{
	mpib_watch_assert_locked();
	for (;;) {
		size_t len;
		ssize_t n;
		int r = mpib_wire_frame(mpib_agent.rx, mpib_agent.rx_len, &len);

		if (r == 0 && len > sizeof(mpib_agent.rx))
			r = -EBADMSG;
		if (r > 0) {
			r = handle_answer(len);
			if (r == 0) {
				memmove(mpib_agent.rx, mpib_agent.rx + len,
					mpib_agent.rx_len - len);
				mpib_agent.rx_len -= len;
				continue;
			}
		}
		if (r < 0) {
			mpib_agent_protocol_error("its answer is not one to our request");
			return;
		}

		n = recv(mpib_agent.sock.fd, mpib_agent.rx + mpib_agent.rx_len,
			 sizeof(mpib_agent.rx) - mpib_agent.rx_len, MSG_DONTWAIT);
		if (n > 0) {
			mpib_agent.rx_len += (size_t)n;
			continue;
		}
		if (n < 0 && mpib_net_is_transient(errno))
			return; /* what is there is told again */
		if (mpib_agent.rx_len)
			mpib_agent_protocol_error("it closed in the middle of an answer");
		else
			mpib_agent_disconnect();
		return;
	}
}

static void on_socket(struct mpib_watch_item *item, uint32_t events)
{
	(void)item;
	(void)events;
	mpib_agent_read_answers();
}

static int try_connect(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int n, r;

	n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", mpib_agent.env.agent_dir,
		     MPIB_SOCKET_NAME);
	if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;

	mpib_agent.sock.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (mpib_agent.sock.fd < 0)
		return -errno;
	mpib_agent.sock.on_event = on_socket;
	if (connect(mpib_agent.sock.fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		r = -errno; /* EAGAIN: its backlog is full */
	else
		r = mpib_watch_add(&mpib_agent.sock, EPOLLIN);
	if (r < 0) {
		(void)close(mpib_agent.sock.fd);
		mpib_agent.sock.fd = -1;
		return r;
	}
	return 0;
}

int mpib_agent_connect_socket(void)
{
	int r = try_connect();

	mpib_watch_assert_locked();
	mpib_agent.passing = r < 0 && mpib_net_is_transient(-r);
	if (r < 0) {
		mpib_agent.retry_ms =
			mpib_now_ms() + (mpib_agent.passing ? PASSING_MS : RECONNECT_MS);
		return r;
	}
	mpib_agent.rx_len = mpib_agent.tx_len = 0;
	mpib_agent.logged_gone = false;
	return 0;
}

static bool queue_request(const struct mpib_wire_msg *msg, struct mpib_agent_reg *reg)
{
	int n;

	if (mpib_agent.queue_len == MPIB_AGENT_QUEUE_MAX)
		return false;
	n = mpib_wire_encode_request(mpib_agent.tx + mpib_agent.tx_len,
				     sizeof(mpib_agent.tx) - mpib_agent.tx_len, msg);
	if (n < 0)
		return false;

	mpib_agent.tx_len += (size_t)n;
	mpib_agent.queue[(mpib_agent.queue_head + mpib_agent.queue_len++) % MPIB_AGENT_QUEUE_MAX] =
		(struct mpib_agent_pending){ .type = msg->type,
					     .conn_id = msg->conn_id,
					     .reg = reg };
	return true;
}

static void flush_requests(void)
{
	ssize_t n;

	if (mpib_agent.sock.fd < 0 || mpib_agent.tx_len == 0)
		return;
	n = send(mpib_agent.sock.fd, mpib_agent.tx, mpib_agent.tx_len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		memmove(mpib_agent.tx, mpib_agent.tx + n, mpib_agent.tx_len - (size_t)n);
		mpib_agent.tx_len -= (size_t)n;
	} else if (n < 0 && !mpib_net_is_transient(errno)) {
		mpib_agent_disconnect();
	}
}

/* Hands the process's counter table over, once a connection to the agent, in a message of its own:
 * the descriptor rides on its first byte. */
void mpib_agent_send_counters(void)
{
	const struct mpib_msg_counters message = {
		.header = { .magic = MPIB_MSG_MAGIC,
			    .msg_len = sizeof(message),
			    .msg_type = MPIB_MSG_COUNTERS },
		.size = MPIB_COUNTERS_SIZE,
	};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)&message, .iov_len = sizeof(message) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int fd = mpib_counters_fd();
	ssize_t n;

	mpib_watch_assert_locked();
	if (mpib_agent.counted || !mpib_agent.served || fd < 0 || mpib_agent.tx_len ||
	    mpib_agent.queue_len == MPIB_AGENT_QUEUE_MAX)
		return;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	n = sendmsg(mpib_agent.sock.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return; /* the next tick tries again, or finds the socket closed */
	mpib_agent.counted = true;
	mpib_agent.queue[(mpib_agent.queue_head + mpib_agent.queue_len++) % MPIB_AGENT_QUEUE_MAX] =
		(struct mpib_agent_pending){ .type = MPIB_MSG_COUNTERS };
	if ((size_t)n < sizeof(message)) {
		memcpy(mpib_agent.tx, (const char *)&message + n, sizeof(message) - (size_t)n);
		mpib_agent.tx_len = sizeof(message) - (size_t)n;
	}
}

/* Connects if need be and sends what waits. */
void mpib_agent_pump(void)
{
	mpib_watch_assert_locked();
	if (mpib_agent.sock.fd < 0) {
		if ((!mpib_agent.regs && !mpib_agent.leaving_len) ||
		    mpib_now_ms() < mpib_agent.retry_ms)
			return;
		/* The directory may have been made anew: its socket and its table go together. */
		if (!mpib_hint_table_is_current(mpib_agent.env.agent_dir, &mpib_agent.table))
			(void)mpib_agent_map_table();
		if (mpib_agent_connect_socket() < 0)
			return;
	}
	if (!mpib_agent.table.header && mpib_agent_map_table() < 0) {
		mpib_agent_disconnect();
		return;
	}

	while (mpib_agent.leaving_len) {
		const struct mpib_wire_msg msg = {
			.type = MPIB_MSG_DEREGISTER,
			.conn_id = mpib_agent.leaving[mpib_agent.leaving_len - 1],
		};

		if (!queue_request(&msg, NULL))
			break;
		mpib_agent.leaving_len--;
	}
	/* Those that want something are usually one, and the first: thousands are not looked at. */
	for (struct mpib_agent_reg *reg = mpib_agent.regs; reg && mpib_agent.wanted;
	     reg = reg->next) {
		const struct mpib_wire_msg msg = {
			.type = MPIB_MSG_REGISTER,
			.conn_id = reg->conn_id,
			.sout_src_be = reg->sout_src_be,
			.sout_dst_be = reg->sout_dst_be,
			.sup_src_be = reg->sup_src_be,
			.sup_dst_be = reg->sup_dst_be,
		};

		if (mpib_agent_get_state(reg) != MPIB_REG_WANTED)
			continue;
		if (!queue_request(&msg, reg))
			break;
		reg->asked = true;
		mpib_agent_set_state(reg, MPIB_REG_SENT);
	}
	flush_requests();
}
