/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent_link.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/hint.h"
#include "common/ipv4.h"
#include "common/wire.h"
#include "plugin/clock.h"
#include "plugin/counters.h"
#include "plugin/hint_table.h"
#include "plugin/log.h"
#include "plugin/watch.h"

#define ANSWER_TIMEOUT_MS 2000 /* a connect waits no longer for the agent */
#define START_TIMEOUT_MS  5000 /* an initialisation no longer for one that its knock starts */
#define START_LOOK_MS	  10
#define RECONNECT_MS	  1000
#define NO_SLOT_RETRY_MS  5000
#define CLOSE_TIMEOUT_MS  500
#define QUEUE_MAX	  4096 /* requests sent and not answered */

/* A request on its way; the agent answers in order. */
struct pending {
	uint8_t type;
	uint32_t conn_id;
	struct mpib_agent_reg *reg; /* NULL for DEREGISTER, and once the connection closed */
};

/* All under the watch lock. */
static struct {
	bool open;
	struct mpib_env env;
	struct mpib_watch_tick tick;

	struct mpib_hint_table table;
	uint32_t generation, heartbeat;
	uint64_t beat_ms; /* when the heartbeat was last seen to move */
	bool stale;

	/* The socket. `served` and `counted`: on this connection a registration was answered, and
	 * the counter table was handed over. */
	bool served, counted;
	struct mpib_watch_item sock; /* fd -1: not connected */
	uint64_t retry_ms, retry_full_ms;
	bool told_gone;
	bool told_slow;
	bool proven; /* it has answered a registration of this process */
	uint8_t rx[64];
	size_t rx_len;
	uint8_t tx[8192];
	size_t tx_len;
	struct pending queue[QUEUE_MAX]; /* ring */
	unsigned int queue_head, queue_len;

	struct mpib_agent_reg *regs;
	uint8_t ids[65536 / 8]; /* counters in use, until their deregistration is answered */
	uint32_t next_id;
	uint32_t *leaving; /* connection ids that the agent must still be told of */
	size_t leaving_len, leaving_capacity;
} agent = { .sock = { .fd = -1 } };

static void disconnect(void);

/* ---- shares of the connections ----------------------------------------------------------------
 */

/* Maps the table, or maps it again. The old mapping stays where connections may still read it; that
 * is a page or two for each time that somebody replaced the file by hand. */
static int map_table(void)
{
	struct mpib_hint_table table;
	int r = mpib_hint_table_map(agent.env.agent_dir, &table);

	if (r < 0)
		return r;
	if (!agent.regs)
		mpib_hint_table_unmap(&agent.table);
	agent.table = table;
	agent.generation = mpib_hint_load(&table.header->generation);
	agent.heartbeat = mpib_hint_load(&table.header->heartbeat);
	agent.beat_ms = mpib_now_ms();
	return 0;
}

static void publish(struct mpib_agent_reg *reg)
{
	atomic_store_explicit(&reg->hint, agent.stale ? NULL : reg->entry, memory_order_release);
}

/* A slot that now belongs to another flow (an agent that lost its state): keep the last share until
 * the new slot is known. */
static void check_owner(struct mpib_agent_reg *reg)
{
	struct mpib_hint_entry now;

	if (!reg->entry || reg->entry == &reg->held)
		return;
	if (!mpib_hint_read_entry(reg->entry, &now))
		return; /* being written: nothing can be said */
	if (now.src_ip == reg->sout_src_be && now.dst_ip == reg->sout_dst_be) {
		reg->share_seen = now.sup_bw; /* remembered for that day */
		return;
	}

	mpib_hint_write(&reg->held, reg->share_seen, reg->sout_src_be, reg->sout_dst_be);
	reg->entry = &reg->held;
	publish(reg);
}

static void set_stale(bool stale)
{
	if (agent.stale == stale)
		return;
	agent.stale = stale;
	if (stale)
		MPIB_WARN("agent silent for %d s (MPIB_AGENT_STALE_SEC): vanilla policy until its "
			  "heartbeat returns; check mpib-agentd",
			  agent.env.agent_stale_sec);
	else
		MPIB_WARN("agent is back: its shares are followed again");
	for (struct mpib_agent_reg *reg = agent.regs; reg; reg = reg->next)
		publish(reg);
}

static void look_at_table(uint64_t now_ms)
{
	uint32_t beat, generation;

	if (!agent.table.header)
		return;
	beat = mpib_hint_load(&agent.table.header->heartbeat);
	generation = mpib_hint_load(&agent.table.header->generation);
	if (beat != agent.heartbeat || generation != agent.generation) {
		agent.heartbeat = beat;
		agent.generation = generation;
		agent.beat_ms = now_ms;
		set_stale(false);
	} else if (now_ms - agent.beat_ms > (uint64_t)agent.env.agent_stale_sec * 1000) {
		set_stale(true);
	}
	for (struct mpib_agent_reg *reg = agent.regs; reg; reg = reg->next)
		check_owner(reg);
}

/* ---- the socket ---------------------------------------------------------------------------- */

static void set_state(struct mpib_agent_reg *reg, enum mpib_reg_state state)
{
	atomic_store_explicit(&reg->state, (int)state, memory_order_release);
}

static enum mpib_reg_state get_state(struct mpib_agent_reg *reg)
{
	return (enum mpib_reg_state)atomic_load_explicit(&reg->state, memory_order_acquire);
}

static void free_id(uint32_t conn_id)
{
	agent.ids[(conn_id & 0xffff) / 8] &= (uint8_t) ~(1u << (conn_id & 7));
}

/* Without memory the id stays taken for good, which costs one of 65536. */
static void add_leaving(uint32_t conn_id)
{
	if (agent.leaving_len == agent.leaving_capacity) {
		size_t capacity = agent.leaving_capacity ? 2 * agent.leaving_capacity : 64;
		uint32_t *grown = realloc(agent.leaving, capacity * sizeof(*grown));

		if (!grown)
			return;
		agent.leaving = grown;
		agent.leaving_capacity = capacity;
	}
	agent.leaving[agent.leaving_len++] = conn_id;
}

/* Closes the socket. Connections that wait for an answer ask again on the next one; their deadline
 * stands. */
static void disconnect(void)
{
	if (agent.sock.fd >= 0) {
		mpib_watch_del(&agent.sock);
		(void)close(agent.sock.fd);
		agent.sock.fd = -1;
	}
	for (unsigned int k = 0; k < agent.queue_len; k++) {
		const struct pending *p = &agent.queue[(agent.queue_head + k) % QUEUE_MAX];

		if (p->type == MPIB_MSG_DEREGISTER)
			add_leaving(p->conn_id);
	}
	agent.rx_len = agent.tx_len = 0;
	agent.served = agent.counted = false;
	agent.queue_head = agent.queue_len = 0;
	agent.retry_ms = mpib_now_ms() + RECONNECT_MS;
	for (struct mpib_agent_reg *reg = agent.regs; reg; reg = reg->next)
		if (get_state(reg) != MPIB_REG_FAILED)
			set_state(reg, MPIB_REG_WANTED);
}

/* The agent's answer was wrong: set-ups that wait for one get the error; connections in use ask
 * again on a fresh socket. */
static void protocol_error(const char *what)
{
	MPIB_WARN("agent at %s: %s; restart mpib-agentd, or set MPIB_AGENT_DIR to the right one",
		  agent.env.agent_dir, what);
	agent.told_gone = true;
	for (unsigned int k = 0; k < agent.queue_len; k++) {
		struct pending *p = &agent.queue[(agent.queue_head + k) % QUEUE_MAX];

		if (p->reg && !p->reg->handed_out) {
			p->reg->error = -EIO;
			set_state(p->reg, MPIB_REG_FAILED);
		}
	}
	disconnect();
}

/* The agent refused one registration. A connection in use goes on with what it has. */
static void refused(struct mpib_agent_reg *reg)
{
	reg->error = -EIO;
	set_state(reg, reg->handed_out ? MPIB_REG_NO_SLOT : MPIB_REG_FAILED);
}

static void registered(struct mpib_agent_reg *reg, const struct mpib_wire_msg *msg)
{
	char flow[MPIB_FLOW_TEXT_MAX];
	const struct mpib_hint_entry *entry;

	switch (msg->status) {
	case MPIB_STATUS_OK:
		entry = mpib_hint_table_slot(&agent.table, msg->hint_slot);
		if (!entry) {
			/* A larger table than the one mapped: look at the file again. */
			(void)map_table();
			entry = mpib_hint_table_slot(&agent.table, msg->hint_slot);
		}
		if (!entry) {
			refused(reg);
			MPIB_WARN("agent gave slot %u of a table of %u: update mpib-agentd",
				  msg->hint_slot, agent.table.entries);
			return;
		}
		agent.proven = agent.served = true;
		agent.told_slow = false;
		reg->slot = msg->hint_slot;
		reg->entry = entry;
		publish(reg);
		set_state(reg, MPIB_REG_DONE);
		return;
	case MPIB_STATUS_NO_SLOT:
		if (!reg->told_unserved)
			MPIB_WARN(
				"agent has no free slot for flow %s: vanilla policy until it has; "
				"raise slots= in its INI",
				mpib_flow_format(reg->sout_src_be, reg->sout_dst_be, flow));
		reg->told_unserved = true;
		set_state(reg, MPIB_REG_NO_SLOT);
		return;
	default:
		refused(reg);
		if (!reg->told_unserved)
			MPIB_WARN("agent refused flow %s as invalid: plugin and mpib-agentd don't "
				  "fit",
				  mpib_flow_format(reg->sout_src_be, reg->sout_dst_be, flow));
		reg->told_unserved = true;
		return;
	}
}

/* Handles one whole frame at the start of rx. */
static int handle_answer(size_t len)
{
	struct mpib_wire_msg msg;
	struct pending p;

	if (agent.queue_len == 0)
		return -EBADMSG;
	p = agent.queue[agent.queue_head];
	/* COUNTERS is answered like DEREGISTER, whatever the verdict: an older agent says no. */
	if (mpib_wire_decode_response(agent.rx, len,
				      p.type == MPIB_MSG_COUNTERS ? MPIB_MSG_DEREGISTER : p.type,
				      &msg) < 0)
		return -EBADMSG;

	agent.queue_head = (agent.queue_head + 1) % QUEUE_MAX;
	agent.queue_len--;
	if (p.type == MPIB_MSG_DEREGISTER)
		free_id(p.conn_id);
	else if (p.reg)
		registered(p.reg, &msg);
	return 0;
}

static void read_answers(void)
{
	for (;;) {
		size_t len;
		ssize_t n;
		int r = mpib_wire_frame(agent.rx, agent.rx_len, &len);

		if (r == 0 && len > sizeof(agent.rx))
			r = -EBADMSG;
		if (r > 0) {
			r = handle_answer(len);
			if (r == 0) {
				memmove(agent.rx, agent.rx + len, agent.rx_len - len);
				agent.rx_len -= len;
				continue;
			}
		}
		if (r < 0) {
			protocol_error("its answer is not one to our request");
			return;
		}

		n = recv(agent.sock.fd, agent.rx + agent.rx_len, sizeof(agent.rx) - agent.rx_len,
			 MSG_DONTWAIT);
		if (n > 0) {
			agent.rx_len += (size_t)n;
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return;
		if (agent.rx_len)
			protocol_error("it closed in the middle of an answer");
		else
			disconnect();
		return;
	}
}

static void on_socket(struct mpib_watch_item *item, uint32_t events)
{
	(void)item;
	(void)events;
	read_answers();
}

static int connect_socket(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int n, r;

	n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", agent.env.agent_dir,
		     MPIB_SOCKET_NAME);
	if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;

	agent.sock.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (agent.sock.fd < 0)
		return -errno;
	agent.sock.on_event = on_socket;
	if (connect(agent.sock.fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		r = -errno; /* EAGAIN: its backlog is full */
	else
		r = mpib_watch_add(&agent.sock, EPOLLIN);
	if (r < 0) {
		(void)close(agent.sock.fd);
		agent.sock.fd = -1;
		agent.retry_ms = mpib_now_ms() + RECONNECT_MS;
		return r;
	}

	agent.rx_len = agent.tx_len = 0;
	agent.told_gone = false;
	return 0;
}

/* ---- requests ------------------------------------------------------------------------------ */

static bool queue_request(const struct mpib_wire_msg *msg, struct mpib_agent_reg *reg)
{
	int n;

	if (agent.queue_len == QUEUE_MAX)
		return false;
	n = mpib_wire_encode_request(agent.tx + agent.tx_len, sizeof(agent.tx) - agent.tx_len, msg);
	if (n < 0)
		return false;

	agent.tx_len += (size_t)n;
	agent.queue[(agent.queue_head + agent.queue_len++) % QUEUE_MAX] =
		(struct pending){ .type = msg->type, .conn_id = msg->conn_id, .reg = reg };
	return true;
}

static void flush_requests(void)
{
	ssize_t n;

	if (agent.sock.fd < 0 || agent.tx_len == 0)
		return;
	n = send(agent.sock.fd, agent.tx, agent.tx_len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		memmove(agent.tx, agent.tx + n, agent.tx_len - (size_t)n);
		agent.tx_len -= (size_t)n;
	} else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
		disconnect();
	}
}

/* Hands the process's counter table over, once a connection to the agent, in a message of its own:
 * the descriptor rides on its first byte. */
static void send_counters(void)
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

	if (agent.counted || !agent.served || fd < 0 || agent.tx_len ||
	    agent.queue_len == QUEUE_MAX)
		return;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	n = sendmsg(agent.sock.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return; /* the next tick tries again, or finds the socket closed */
	agent.counted = true;
	agent.queue[(agent.queue_head + agent.queue_len++) % QUEUE_MAX] =
		(struct pending){ .type = MPIB_MSG_COUNTERS };
	if ((size_t)n < sizeof(message)) {
		memcpy(agent.tx, (const char *)&message + n, sizeof(message) - (size_t)n);
		agent.tx_len = sizeof(message) - (size_t)n;
	}
}

/* Connects if need be and sends what waits. */
static void pump(void)
{
	if (agent.sock.fd < 0) {
		if ((!agent.regs && !agent.leaving_len) || mpib_now_ms() < agent.retry_ms)
			return;
		/* The directory may have been made anew: its socket and its table go together. */
		if (!mpib_hint_table_is_current(agent.env.agent_dir, &agent.table))
			(void)map_table();
		if (connect_socket() < 0)
			return;
	}
	if (!agent.table.header && map_table() < 0) {
		disconnect();
		return;
	}

	while (agent.leaving_len) {
		const struct mpib_wire_msg msg = {
			.type = MPIB_MSG_DEREGISTER,
			.conn_id = agent.leaving[agent.leaving_len - 1],
		};

		if (!queue_request(&msg, NULL))
			break;
		agent.leaving_len--;
	}
	for (struct mpib_agent_reg *reg = agent.regs; reg; reg = reg->next) {
		const struct mpib_wire_msg msg = {
			.type = MPIB_MSG_REGISTER,
			.conn_id = reg->conn_id,
			.sout_src_be = reg->sout_src_be,
			.sout_dst_be = reg->sout_dst_be,
			.sup_src_be = reg->sup_src_be,
			.sup_dst_be = reg->sup_dst_be,
		};

		if (get_state(reg) != MPIB_REG_WANTED)
			continue;
		if (!queue_request(&msg, reg))
			break;
		reg->asked = true;
		set_state(reg, MPIB_REG_SENT);
	}
	flush_requests();
}

/* Tables that were full are asked again. */
static void retry_full_tables(uint64_t now_ms)
{
	if (now_ms < agent.retry_full_ms)
		return;
	agent.retry_full_ms = now_ms + NO_SLOT_RETRY_MS;
	for (struct mpib_agent_reg *reg = agent.regs; reg; reg = reg->next)
		if (get_state(reg) == MPIB_REG_NO_SLOT)
			set_state(reg, MPIB_REG_WANTED);
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	(void)tick;
	if (!agent.regs && !agent.leaving_len)
		return;
	retry_full_tables(now_ms);
	pump();
	if (agent.sock.fd >= 0)
		send_counters();
	look_at_table(now_ms);
	if (agent.sock.fd < 0 && !agent.told_gone && agent.table.header) {
		agent.told_gone = true;
		MPIB_INFO("agent is gone: the last shares hold for %d s (MPIB_AGENT_STALE_SEC), "
			  "then the vanilla policy, until it returns",
			  agent.env.agent_stale_sec);
	}
}

/* ---- for the rest of the plugin ------------------------------------------------------------ */

/* A socket without a table: the service manager listens, and a connection starts the agent, whose
 * table is whole before it serves. */
static int knock(void)
{
	uint64_t end = mpib_now_ms() + START_TIMEOUT_MS;
	int r = connect_socket();

	if (r < 0)
		return r;
	while (map_table() < 0) {
		if (mpib_now_ms() >= end) {
			disconnect();
			return -ETIMEDOUT;
		}
		(void)poll(NULL, 0, START_LOOK_MS);
	}
	return 0;
}

int mpib_agent_link_open(const struct mpib_env *env)
{
	int r;

	mpib_watch_lock();
	agent.env = *env;
	agent.tick.on_tick = on_tick;
	r = map_table();
	if (r == 0)
		r = connect_socket();
	else if (r == -ENOENT)
		r = knock();
	if (r < 0 && !env->agent_optional) {
		mpib_hint_table_unmap(&agent.table);
		mpib_watch_unlock();
		MPIB_WARN("MPIB_MODE=1 needs mpib-agentd, and none serves %s (%s): systemctl start "
			  "mpib-agentd, or set MPIB_AGENT_OPTIONAL=1 or MPIB_MODE=0",
			  env->agent_dir, strerror(-r));
		return -ENOENT;
	}
	if (r < 0) {
		MPIB_WARN("no mpib-agentd serves %s (%s): vanilla policy until one appears",
			  env->agent_dir, strerror(-r));
		agent.told_gone = true;
	}
	agent.stale = agent.proven = agent.told_slow = false;
	if (getrandom(&agent.next_id, sizeof(agent.next_id), 0) != sizeof(agent.next_id))
		agent.next_id = (uint32_t)mpib_now_ms();
	agent.open = true;
	mpib_watch_tick_add(&agent.tick);
	mpib_watch_unlock();
	return 0;
}

void mpib_agent_link_close(void)
{
	uint64_t end = mpib_now_ms() + CLOSE_TIMEOUT_MS;

	mpib_watch_lock();
	if (agent.open) {
		mpib_watch_tick_del(&agent.tick);
		/* The agent learns of a process's end anyway, but this one may go on and load the
		 * plugin again. */
		while ((agent.queue_len || agent.leaving_len) && mpib_now_ms() < end) {
			struct pollfd p = { .fd = agent.sock.fd, .events = POLLIN };

			pump();
			if (agent.sock.fd < 0)
				break;
			p.fd = agent.sock.fd;
			(void)poll(&p, 1, 10);
			if (agent.sock.fd >= 0)
				read_answers();
		}
		disconnect();
		mpib_hint_table_unmap(&agent.table);
		free(agent.leaving);
		agent.leaving = NULL;
		agent.leaving_len = agent.leaving_capacity = 0;
		memset(agent.ids, 0, sizeof(agent.ids));
		agent.open = false;
	}
	mpib_watch_unlock();
}

void mpib_agent_link_fork_child(void)
{
	if (agent.sock.fd >= 0)
		(void)close(agent.sock.fd);
	agent.sock.fd = -1;
}

/* A counter that no live connection has; 65536 are enough for any process. */
static int take_id(uint32_t *ret_conn_id)
{
	for (unsigned int k = 0; k < 65536; k++) {
		uint32_t id = agent.next_id++ & 0xffff;

		if (agent.ids[id / 8] & 1u << id % 8)
			continue;
		agent.ids[id / 8] |= (uint8_t)(1u << id % 8);
		*ret_conn_id = (uint32_t)getpid() << 16 | id;
		return 0;
	}
	return -EMFILE;
}

int mpib_agent_register(struct mpib_agent_reg *reg, uint32_t sout_src_be, uint32_t sout_dst_be,
			uint32_t sup_src_be, uint32_t sup_dst_be)
{
	int r;

	mpib_watch_lock();
	r = take_id(&reg->conn_id);
	if (r == 0) {
		reg->sout_src_be = sout_src_be;
		reg->sout_dst_be = sout_dst_be;
		reg->sup_src_be = sup_src_be;
		reg->sup_dst_be = sup_dst_be;
		reg->deadline_ms = mpib_now_ms() + ANSWER_TIMEOUT_MS;
		set_state(reg, MPIB_REG_WANTED);
		reg->next = agent.regs;
		agent.regs = reg;
		pump();
	}
	mpib_watch_unlock();
	return r;
}

/* Nothing came in time. An agent that served this process before is merely busy or stopped, and
 * must not stop a job; one that never answered is not the right one. */
static int timed_out(struct mpib_agent_reg *reg)
{
	if (agent.proven) {
		if (!agent.told_slow)
			MPIB_WARN(
				"agent at %s doesn't answer: new connections start on the vanilla "
				"policy until it does",
				agent.env.agent_dir);
		agent.told_slow = true;
		return 1;
	}
	protocol_error("it accepted a registration and didn't answer within 2 s");
	return get_state(reg) == MPIB_REG_FAILED ? reg->error : -EIO;
}

int mpib_agent_register_poll(struct mpib_agent_reg *reg)
{
	int r = 0;

	mpib_watch_lock();
	switch (get_state(reg)) {
	case MPIB_REG_NONE:
	case MPIB_REG_DONE:
	case MPIB_REG_NO_SLOT:
		r = 1;
		break;
	case MPIB_REG_FAILED:
		r = reg->error;
		break;
	case MPIB_REG_WANTED:
	case MPIB_REG_SENT:
		/* No agent now: it was there at init, or is optional. Go on without, the helper
		 * thread registers when it is back. */
		if (agent.sock.fd < 0 || agent.stale)
			r = 1;
		else if (mpib_now_ms() >= reg->deadline_ms)
			r = timed_out(reg);
		break;
	}
	if (r > 0)
		reg->handed_out = true;
	mpib_watch_unlock();
	return r;
}

void mpib_agent_deregister(struct mpib_agent_reg *reg)
{
	mpib_watch_lock();
	if (get_state(reg) != MPIB_REG_NONE) {
		struct mpib_agent_reg **at = &agent.regs;

		while (*at != reg)
			at = &(*at)->next;
		*at = reg->next;
		for (unsigned int k = 0; k < agent.queue_len; k++) {
			struct pending *p = &agent.queue[(agent.queue_head + k) % QUEUE_MAX];

			if (p->reg == reg)
				p->reg = NULL;
		}
		if (reg->asked) {
			add_leaving(reg->conn_id);
			pump();
		} else {
			free_id(reg->conn_id);
		}
		reg->asked = false;
		set_state(reg, MPIB_REG_NONE);
	}
	mpib_watch_unlock();
}
