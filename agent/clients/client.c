/* SPDX-License-Identifier: Apache-2.0 */
/* Flow of one turn: send what is pending; read once, where nothing waits to be answered; answer a
 * few frames for which the output has room, send. A client that doesn't read its answers isn't
 * read. */
#include "agent/clients/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire.h"

/* Frames answered in one turn, a frame of a long answer counting as one: about 100 us. */
#define TURN_FRAMES 16u

/* What is always watched for. */
#define INPUT (EPOLLIN | EPOLLRDHUP)

/* ---- registrations -------------------------------------------------------------------------- */

static void handle_register(struct mpib_client *client, const struct mpib_wire_msg *msg)
{
	struct mpib_addresses addresses = {
		.sout_src_be = msg->sout_src_be,
		.sout_dst_be = msg->sout_dst_be,
		.sup_src_be = msg->sup_src_be,
		.sup_dst_be = msg->sup_dst_be,
	};
	uint8_t status = MPIB_STATUS_INVALID;
	uint32_t slot = 0;

	if (client->peer->dead)
		mpib_journal_refusal(client->flows->journal, client->peer, msg->conn_id, &addresses,
				     "the process that connected has ended");
	else
		status = mpib_flows_register(client->flows, client->peer, msg->conn_id, &addresses,
					     &slot);

	mpib_outbox_answer(&client->out, MPIB_MSG_REGISTER, status, slot);
}

static void handle_deregister(struct mpib_client *client, const struct mpib_wire_msg *msg)
{
	uint8_t status = mpib_flows_deregister(client->flows, client->peer, msg->conn_id);

	mpib_outbox_answer(&client->out, MPIB_MSG_DEREGISTER, status, 0);
}

/* Instead of the one before. To close a memfd of the keeper's doesn't take long. */
static void set_table(struct mpib_client *client, int fd)
{
	if (client->table_fd >= 0)
		(void)close(client->table_fd);
	client->table_fd = fd;
}

static void handle_counters(struct mpib_client *client, const uint8_t *frame, size_t len)
{
	uint8_t status = MPIB_STATUS_INVALID;
	struct mpib_msg_counters message;
	int r = -EINVAL;

	if (len == sizeof(message) && client->table_fd >= 0 && !client->peer->dead) {
		memcpy(&message, frame, sizeof(message));
		r = mpib_traffic_set_table(&client->flows->traffic, client->peer, client->table_fd,
					   message.size);
	}
	set_table(client, -1);
	if (r == 0) {
		status = MPIB_STATUS_OK;
	} else if (r == -EDQUOT) {
		status = MPIB_STATUS_NO_SLOT;
		mpib_flows_refused(client->flows, client->user, client->pid, MPIB_GOOD_TABLES,
				   "as many counter tables as one user may hand over");
	}
	mpib_outbox_answer(&client->out, MPIB_MSG_COUNTERS, status, 0);
}

static void handle_frame(struct mpib_client *client, const uint8_t *frame, size_t len)
{
	struct mpib_wire_msg msg;
	int r = mpib_wire_decode_request(frame, len, &msg);

	if (r == 0 && msg.type == MPIB_MSG_REGISTER)
		handle_register(client, &msg);
	else if (r == 0)
		handle_deregister(client, &msg);
	else if (r == -ENOTSUP && msg.type == MPIB_MSG_COUNTERS)
		handle_counters(client, frame, len);
	else if (r == -ENOTSUP)
		mpib_session_frame(&client->session, msg.type, frame, len);
	else
		mpib_outbox_answer(&client->out, msg.type, MPIB_STATUS_INVALID, 0);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static bool is_closing(const struct mpib_client *client)
{
	return client->closing || client->out.overrun;
}

static void drop_garbage(struct mpib_client *client)
{
	mpib_journal_client(client->flows->journal, client->pid, client->uid,
			    "it sent something else than MPIB messages");
	client->closing = true;
}

/* Takes one frame, or a part of one that is skipped, from @at on. Returns the bytes used; 0 where
 * more have to come first. */
static size_t answer_frame(struct mpib_client *client, size_t at)
{
	const uint8_t *frame = client->in + at;
	size_t have = client->n_in - at;
	size_t len;
	int r;

	if (client->skip) {
		size_t used = have < client->skip ? have : client->skip;

		client->skip -= used;
		if (!client->skip)
			mpib_outbox_answer(&client->out, client->skip_type, MPIB_STATUS_INVALID, 0);
		return used;
	}

	r = mpib_wire_frame(frame, have, &len);
	if (r < 0) {
		drop_garbage(client);
		return 0;
	}
	if (r > 0) {
		handle_frame(client, frame, len);
		return len;
	}

	/* No known message is that long: say so when all of it has passed by. */
	if (len > sizeof(client->in)) {
		client->skip_type = frame[offsetof(struct mpib_msg_header, msg_type)];
		client->skip = len - have;
		return have;
	}

	return 0;
}

/* Answers what there is. True where it stopped for want of room in the output, or at the end of the
 * client's turn. */
static bool answer_frames(struct mpib_client *client)
{
	unsigned int left = TURN_FRAMES;
	size_t at = 0;
	bool more = true;

	while (left > 0 && mpib_outbox_room(&client->out) >= MPIB_ADMIN_FRAME_MAX) {
		size_t used = 0;

		if (mpib_session_waits(&client->session)) {
			more = false;
			break;
		}
		left--;
		if (mpib_session_has_more(&client->session)) {
			mpib_session_step(&client->session);
			continue;
		}
		if (!is_closing(client) && at < client->n_in)
			used = answer_frame(client, at);
		if (!used) {
			more = false;
			break;
		}
		at += used;
	}

	memmove(client->in, client->in + at, client->n_in - at);
	client->n_in -= at;
	return more;
}

static bool may_read(const struct mpib_client *client)
{
	return client->readable && !client->eof && !client->more && !client->out.n &&
	       client->n_in < sizeof(client->in) && !is_closing(client) &&
	       !mpib_session_waits(&client->session);
}

/* 0, or a negative errno that ends the connection. */
static int read_some(struct mpib_client *client)
{
	size_t room = sizeof(client->in) - client->n_in;
	bool fds;
	ssize_t n;

	n = mpib_keeper_peek(client->fd, client->in + client->n_in, room, &fds);
	if (n == -EAGAIN)
		client->readable = false;
	if (n < 0)
		return n == -EAGAIN || n == -EINTR ? 0 : (int)n;
	if (fds) {
		/* Not watched, so not read, until it is told what the keeper read. */
		client->readable = false;
		mpib_poller_remove(&client->io);
		return mpib_keeper_fetch(client->keeper, client->fd, room, client);
	}
	if (n == 0)
		client->eof = true;

	/* Less than there was room for is all that there was: what comes next is told, but for an
	 * end that was told already. */
	client->readable = (size_t)n == room || client->ending;
	client->n_in += (size_t)n;
	client->n_peeked = (size_t)n;
	return 0;
}

static int send_some(struct mpib_client *client)
{
	ssize_t n;

	if (!client->out.n)
		return 0;

	n = send(client->fd, client->out.bytes, client->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
		/* Nobody reads it any more; what was asked before is done all the same. */
		n = (ssize_t)client->out.n;
		mpib_session_stop_dump(&client->session);
	}
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;

	mpib_outbox_sent(&client->out, (size_t)n);
	return 0;
}

/* Watches for what can go on, or asks for the next turn. */
static int set_events(struct mpib_client *client)
{
	if (!client->io.of)
		return 0;
	if (client->out.n)
		return mpib_poller_change(&client->io, INPUT | EPOLLOUT);

	if (client->more || may_read(client))
		mpib_poller_again(&client->io);
	return mpib_poller_change(&client->io, INPUT);
}

static int serve(struct mpib_client *client)
{
	int r;

	client->more = answer_frames(client);
	r = send_some(client);
	mpib_keeper_consume(client->fd, client->n_peeked);
	client->n_peeked = 0;
	/* What came with whole messages that don't take it is nobody's. */
	if (!client->n_in)
		set_table(client, -1);
	return r;
}

static bool finished(const struct mpib_client *client)
{
	return (is_closing(client) || client->eof) && !client->out.n && !client->more;
}

/* @r: what reading and sending came to so far. */
static void go_on(struct mpib_client *client, int r)
{
	if (r >= 0)
		r = serve(client);
	if (r >= 0 && !finished(client))
		r = set_events(client);

	if (r < 0 || finished(client))
		client->ops->closed(client->ops_user, client);
}

static void on_io(void *user, uint32_t revents);

static int watch(struct mpib_client *client)
{
	return mpib_poller_add(client->poller, client->uid, &client->io, client->fd, INPUT, on_io,
			       client);
}

static void note_active(struct mpib_client *client)
{
	if (sd_event_now(client->loop, CLOCK_MONOTONIC, &client->active_usec) < 0)
		client->active_usec = 0;
}

static void on_io(void *user, uint32_t revents)
{
	struct mpib_client *client = user;
	int r;

	if (revents & EPOLLIN)
		note_active(client);
	if (revents & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		client->ending = true;
	client->readable |= revents & EPOLLIN || client->ending;

	r = send_some(client);
	if (r >= 0 && may_read(client))
		r = read_some(client);
	go_on(client, r);
}

void mpib_client_fetched(void *user, const struct mpib_keeper_fetched *fetched)
{
	struct mpib_client *client = user;
	int r = fetched->n < 0 && fetched->n != -EAGAIN ? (int)fetched->n : 0;

	set_table(client, fetched->table);
	if (fetched->n_fds && fetched->table < 0)
		mpib_journal_descriptor(client->flows->journal, client->pid, client->uid);
	if (r >= 0 && fetched->n > 0) {
		memcpy(client->in + client->n_in, fetched->bytes, (size_t)fetched->n);
		client->n_in += (size_t)fetched->n;
	}

	note_active(client);
	if (r >= 0)
		r = watch(client);
	go_on(client, r);
}

/* Events for a monitor: sent at once, unless something waits to be sent; then they follow. */
static void on_events(void *owner)
{
	struct mpib_client *client = owner;

	/* While the keeper reads it isn't watched: its turn comes with the keeper's answer. */
	if (client->io.of && !client->out.n && !client->more)
		go_on(client, 0);
}

int mpib_client_start(struct mpib_client *client, sd_event *loop, struct mpib_poller *poller)
{
	client->loop = loop;
	client->poller = poller;
	client->session.out = &client->out;
	client->session.fd = client->fd;
	client->session.wake = on_events;
	client->session.owner = client;
	if (sd_event_now(loop, CLOCK_MONOTONIC, &client->active_usec) < 0)
		return -EINVAL;

	return watch(client);
}

struct mpib_client *mpib_client_free(struct mpib_client *client)
{
	if (!client)
		return NULL;

	mpib_poller_remove(&client->io);
	if (client->fd >= 0)
		mpib_keeper_close(client->keeper, client->fd);
	set_table(client, -1);
	mpib_session_done(&client->session);
	free(client);
	return NULL;
}
