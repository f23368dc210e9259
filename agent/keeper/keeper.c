/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side. What is asked of the keeper goes out in its order, once a turn of the loop, and
 * waits here until then, or until there is room, with its descriptors open: each packet wakes the
 * keeper. */
#include "agent/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/keeper/keeper_impl.h"

/* How long the end of the agent waits for the keeper to take what it has to know. */
#define FLUSH_MS 1000

/* How long it waits for the keeper's end, so that a service has none of its processes left. */
#define END_MS 500

/* A socket of the loop, by its descriptor. */
struct entry {
	bool held;
	uint32_t serial; /* of the take that is under way, or 0 */
	void *owner;
};

struct outgoing {
	struct mpib_keeper_message message;
	int fd; /* HOLD: sent along; DROP: closed afterwards; else -1 */
};

struct mpib_keeper {
	int channel;
	pid_t pid;
	sd_event_source *io;
	const struct mpib_keeper_ops *ops;
	void *user;
	struct entry *entries;
	size_t n_entries;
	struct outgoing *queue; /* a ring */
	size_t first;
	size_t n_queued;
	size_t capacity; /* a power of two, or 0 */
	bool room_watched;
	uint32_t n_closing;
	uint32_t serial;
};

/* ---- sockets -------------------------------------------------------------------------------- */

ssize_t mpib_keeper_peek(int fd, void *buf, size_t size, bool *ret_fds)
{
	struct iovec part = { .iov_base = buf, .iov_len = size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	/* Without room for descriptors none are made, and the kernel says that some are there. */
	n = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
	*ret_fds = n > 0 && message.msg_flags & MSG_CTRUNC;
	if (n < 0)
		return -errno;
	return *ret_fds ? 0 : n;
}

void mpib_keeper_consume(int fd, size_t n)
{
	static uint8_t bytes[MPIB_KEEPER_ROOM];

	/* These and no more: what came since may be of another kind. */
	while (n > 0) {
		ssize_t got = recv(fd, bytes, n < sizeof(bytes) ? n : sizeof(bytes), MSG_DONTWAIT);

		if (got <= 0 && errno != EINTR)
			return;
		n -= got > 0 ? (size_t)got : 0;
	}
}

bool mpib_keeper_is_empty(int fd)
{
	struct iovec part = { .iov_base = &(char){ 0 }, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	return recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static struct entry *find_entry(struct mpib_keeper *keeper, int fd)
{
	return (size_t)fd < keeper->n_entries ? &keeper->entries[fd] : NULL;
}

static struct entry *make_entry(struct mpib_keeper *keeper, int fd)
{
	size_t n = keeper->n_entries ? keeper->n_entries : MPIB_KEEPER_PLACES;
	struct entry *grown;

	if ((size_t)fd < keeper->n_entries)
		return &keeper->entries[fd];

	while (n <= (size_t)fd)
		n *= 2;
	grown = realloc(keeper->entries, n * sizeof(*grown));
	if (!grown)
		return NULL;
	memset(grown + keeper->n_entries, 0, (n - keeper->n_entries) * sizeof(*grown));
	keeper->entries = grown;
	keeper->n_entries = n;
	return &grown[fd];
}

/* ---- packets to the keeper ------------------------------------------------------------------ */

/* Closes a socket that was shut down. Where nobody else holds it, one that isn't empty stays:
 * better a descriptor less than a loop that sleeps. */
static void close_ours(struct mpib_keeper *keeper, int fd, bool held)
{
	if (!held && !mpib_keeper_is_empty(fd))
		return;
	(void)close(fd);
	keeper->n_closing--;
}

/* @r: what became of the packet that it went with. */
static void settle(struct mpib_keeper *keeper, const struct outgoing *out, int r)
{
	struct entry *entry = find_entry(keeper, out->message.id);

	if (out->message.type == MPIB_KEEPER_HOLD && r < 0 && entry)
		entry->held = false;
	else if (out->message.type == MPIB_KEEPER_DROP)
		close_ours(keeper, out->fd, r == 0);
}

static struct outgoing *queued(const struct mpib_keeper *keeper, size_t n)
{
	return &keeper->queue[(keeper->first + n) & (keeper->capacity - 1)];
}

/* As many as one packet takes. False where there is no room for it. */
static bool send_packet(struct mpib_keeper *keeper)
{
	struct mpib_keeper_message messages[MPIB_KEEPER_BATCH];
	struct iovec part = { .iov_base = messages };
	int fds[MPIB_KEEPER_BATCH];
	size_t n_fds = 0;
	size_t count = 0;
	int r;

	for (; count < keeper->n_queued && count < MPIB_KEEPER_BATCH; count++) {
		const struct outgoing *out = queued(keeper, count);

		messages[count] = out->message;
		if (out->message.type == MPIB_KEEPER_HOLD)
			fds[n_fds++] = out->fd;
	}
	part.iov_len = count * sizeof(messages[0]);
	r = mpib_keeper_send(keeper->channel, &part, 1, fds, n_fds, MSG_DONTWAIT);
	if (r == -EAGAIN || r == -EINTR || r == -ENOBUFS || r == -ENOMEM)
		return false;

	for (size_t n = 0; n < count; n++)
		settle(keeper, queued(keeper, n), r);
	keeper->first = (keeper->first + count) & (keeper->capacity - 1);
	keeper->n_queued -= count;
	return true;
}

static void watch_room(struct mpib_keeper *keeper, bool wanted)
{
	if (!keeper->io || keeper->room_watched == wanted)
		return;
	keeper->room_watched = wanted;
	(void)sd_event_source_set_io_events(keeper->io, EPOLLIN | (wanted ? EPOLLOUT : 0));
}

void mpib_keeper_flush(struct mpib_keeper *keeper)
{
	while (keeper->n_queued && send_packet(keeper))
		;
	watch_room(keeper, keeper->n_queued > 0);
}

static int grow_queue(struct mpib_keeper *keeper)
{
	size_t capacity = keeper->capacity ? 2 * keeper->capacity : MPIB_KEEPER_PLACES;
	struct outgoing *grown = calloc(capacity, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	for (size_t n = 0; n < keeper->n_queued; n++)
		grown[n] = *queued(keeper, n);
	free(keeper->queue);
	keeper->queue = grown;
	keeper->first = 0;
	keeper->capacity = capacity;
	return 0;
}

/* Goes with the next flush. -ENOMEM. */
static int enqueue(struct mpib_keeper *keeper, const struct outgoing *out)
{
	if (keeper->n_queued == keeper->capacity && grow_queue(keeper) < 0)
		return -ENOMEM;

	*queued(keeper, keeper->n_queued++) = *out;
	return 0;
}

void mpib_keeper_hold(struct mpib_keeper *keeper, int fd, uid_t uid)
{
	struct entry *entry = make_entry(keeper, fd);
	struct outgoing out = {
		.message = { .type = MPIB_KEEPER_HOLD, .id = fd, .uid = uid },
		.fd = fd,
	};

	if (!entry)
		return;
	*entry = (struct entry){ .held = true };
	if (enqueue(keeper, &out) < 0)
		entry->held = false;
}

int mpib_keeper_fetch(struct mpib_keeper *keeper, int fd, size_t room, void *owner)
{
	struct entry *entry = find_entry(keeper, fd);
	struct outgoing out = { .message = { .type = MPIB_KEEPER_FETCH, .id = fd }, .fd = -1 };
	int r;

	if (!entry || !entry->held)
		return -EBADF;

	if (++keeper->serial == 0)
		keeper->serial = 1;
	out.message.serial = keeper->serial;
	out.message.room = room < MPIB_KEEPER_ROOM ? (uint32_t)room : MPIB_KEEPER_ROOM;
	r = enqueue(keeper, &out);
	if (r < 0)
		return r;

	entry->serial = keeper->serial;
	entry->owner = owner;
	return 0;
}

void mpib_keeper_close(struct mpib_keeper *keeper, int fd)
{
	struct entry *entry = find_entry(keeper, fd);
	struct outgoing out = { .message = { .type = MPIB_KEEPER_DROP, .id = fd }, .fd = fd };
	bool held = entry && entry->held;

	if (entry)
		*entry = (struct entry){ 0 };
	(void)shutdown(fd, SHUT_RDWR);
	keeper->n_closing++;
	if (held && enqueue(keeper, &out) == 0)
		return;

	close_ours(keeper, fd, false);
}

uint32_t mpib_keeper_n_closing(const struct mpib_keeper *keeper)
{
	return keeper->n_closing;
}

/* ---- packets from the keeper ---------------------------------------------------------------- */

static void hand_out(struct mpib_keeper *keeper, const struct mpib_keeper_message *message,
		     const uint8_t *bytes, int fd)
{
	struct mpib_keeper_fetched fetched = { .bytes = bytes, .n = -EIO, .table = fd };
	struct entry *entry = find_entry(keeper, message->id);
	void *owner;

	if (!entry || !entry->serial || entry->serial != message->serial) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}

	owner = entry->owner;
	entry->serial = 0;
	entry->owner = NULL;
	if (message->type == MPIB_KEEPER_FETCHED) {
		fetched.n = message->n;
		fetched.n_fds = message->n_fds;
	}
	keeper->ops->fetched(owner, &fetched);
}

static int on_channel(sd_event_source *source, int channel, uint32_t revents, void *user)
{
	struct mpib_keeper *keeper = user;
	struct mpib_keeper_message message;
	uint8_t bytes[MPIB_KEEPER_ROOM];
	const struct iovec parts[2] = {
		{ .iov_base = &message, .iov_len = sizeof(message) },
		{ .iov_base = bytes, .iov_len = sizeof(bytes) },
	};
	size_t n_fds = 1;
	int fd;
	ssize_t n;

	if (revents & EPOLLOUT)
		mpib_keeper_flush(keeper);

	/* One a turn: what it brings is work. */
	n = mpib_keeper_receive(channel, parts, 2, &fd, &n_fds);
	if (n > 0) {
		hand_out(keeper, &message, bytes, n_fds ? fd : -1);
	} else if (n == 0 || (n != -EAGAIN && n != -EINTR)) {
		(void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
		keeper->ops->gone(keeper->user);
	}
	return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

int mpib_keeper_new(struct mpib_keeper **ret)
{
	struct mpib_keeper *keeper = calloc(1, sizeof(*keeper));
	int ends[2];
	pid_t pid;
	int r;

	if (!keeper)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		r = -errno;
		free(keeper);
		return r;
	}

	pid = fork();
	if (pid == 0)
		mpib_keeper_serve(ends[1]);
	r = -errno;
	(void)close(ends[1]);
	keeper->channel = ends[0];
	keeper->pid = pid;
	if (pid < 0) {
		(void)mpib_keeper_free(keeper);
		return r;
	}

	*ret = keeper;
	return 0;
}

int mpib_keeper_start(struct mpib_keeper *keeper, sd_event *loop, const struct mpib_keeper_ops *ops,
		      void *user)
{
	int r;

	keeper->ops = ops;
	keeper->user = user;
	r = sd_event_add_io(loop, &keeper->io, keeper->channel, EPOLLIN, on_channel, keeper);
	if (r < 0)
		return r;
	(void)sd_event_source_set_description(keeper->io, "keeper");
	return 0;
}

/* It may sleep while it ends: nothing depends on it then. */
static void await_end(pid_t pid)
{
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

	if (end.fd < 0)
		return;
	(void)poll(&end, 1, END_MS);
	(void)close(end.fd);
	(void)waitpid(pid, NULL, WNOHANG);
}

struct mpib_keeper *mpib_keeper_free(struct mpib_keeper *keeper)
{
	if (!keeper)
		return NULL;

	(void)sd_event_source_unref(keeper->io);
	keeper->io = NULL;
	mpib_keeper_flush(keeper);
	while (keeper->n_queued) {
		struct pollfd room = { .fd = keeper->channel, .events = POLLOUT };

		if (poll(&room, 1, FLUSH_MS) != 1)
			break;
		mpib_keeper_flush(keeper);
	}
	(void)close(keeper->channel);
	if (keeper->pid > 0)
		await_end(keeper->pid);
	free(keeper->queue);
	free(keeper->entries);
	free(keeper);
	return NULL;
}
