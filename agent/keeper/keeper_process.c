/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's process. It receives sockets of ours and nothing else, and closes those that are
 * empty: so it never sleeps but to wait. Other work is a child's, and a user has one child at a
 * time: what comes meanwhile waits for it, in order. */
#include "agent/keeper/keeper_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/macros.h"

/* Children at once. */
#define CHILDREN_MAX 256u

/* Descriptors that it holds at most, whatever the limit says. */
#define FDS_MAX (1u << 20)

/* Jobs of one user that are more than a child who sleeps may keep waiting here: another child takes
 * them, so that a user's closed sockets don't fill this process's table. */
#define JOBS_MAX 1024u

/* Descriptors that stay free: a packet's sockets must find room. */
#define SPARE_FDS MPIB_KEEPER_BATCH

/* After a want of processes, descriptors or memory. */
#define RETRY_SEC 1

struct owner {
	LIST_ENTRY(owner) all;
	uid_t uid;
	struct mpib_keeper_jobs jobs; /* that wait */
	unsigned int n_jobs;
	unsigned int n_children;
};

LIST_HEAD(owner_list, owner);

struct child {
	pid_t pid; /* 0: free */
	struct owner *owner;
	struct mpib_keeper_jobs jobs; /* under way */
};

/* By the loop's number of the socket. */
struct held {
	int fd; /* ours; -1: none */
	uid_t uid;
	uint32_t taking; /* serial of the job that reads it, or 0 */
};

struct keeper {
	int channel;
	struct held *held;
	size_t n_held; /* room */
	struct owner_list owners;
	struct child children[CHILDREN_MAX];
	unsigned int n_fds; /* sockets that are open */
	unsigned int max_fds;
	bool short_of; /* something couldn't be had: try again soon */
};

/* Without memory there is no keeping, and the agent starts again. */
static void *must_have(void *ptr)
{
	if (!ptr)
		_exit(EXIT_FAILURE);
	return ptr;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static struct owner *get_owner(struct keeper *keeper, uid_t uid)
{
	struct owner *owner = LIST_FIRST(&keeper->owners);

	while (owner && owner->uid != uid)
		owner = LIST_NEXT(owner, all);
	if (owner)
		return owner;

	owner = must_have(calloc(1, sizeof(*owner)));
	owner->uid = uid;
	STAILQ_INIT(&owner->jobs);
	LIST_INSERT_HEAD(&keeper->owners, owner, all);
	return owner;
}

static void add_job(struct keeper *keeper, const struct mpib_keeper_message *message,
		    const struct held *held)
{
	struct owner *owner = get_owner(keeper, held->uid);
	struct mpib_keeper_job *job = must_have(calloc(1, sizeof(*job)));

	*job = (struct mpib_keeper_job){
		.type = (enum mpib_keeper_type)message->type,
		.fd = held->fd,
		.id = message->id,
		.serial = message->serial,
		.room = message->room,
	};
	STAILQ_INSERT_TAIL(&owner->jobs, job, next);
	owner->n_jobs++;
}

static void say_failed(struct keeper *keeper, int32_t id, uint32_t serial)
{
	struct mpib_keeper_message message = {
		.type = MPIB_KEEPER_FAILED,
		.id = id,
		.serial = serial,
	};
	const struct iovec part = { .iov_base = &message, .iov_len = sizeof(message) };

	(void)mpib_keeper_send(keeper->channel, &part, 1, NULL, 0, 0);
}

/* ---- children ------------------------------------------------------------------------------- */

/* Those that are to be closed are the child's, which doesn't end before they are empty. */
static void close_dropped(struct keeper *keeper, const struct mpib_keeper_jobs *jobs)
{
	const struct mpib_keeper_job *job;

	STAILQ_FOREACH(job, jobs, next)
	{
		if (job->type == MPIB_KEEPER_DROP) {
			(void)close(job->fd);
			keeper->n_fds--;
		}
	}
}

/* In the child: closes what isn't for its jobs, so that it keeps nothing of others while it sleeps.
 * This process has those open, too, so nothing ends by it. */
static void close_others(struct keeper *keeper, const struct owner *mine)
{
	const struct mpib_keeper_job *job;
	struct owner *owner;

	STAILQ_FOREACH(job, &mine->jobs, next)
	{
		if (keeper->held[job->id].fd == job->fd)
			keeper->held[job->id].fd = -1;
	}
	for (size_t n = 0; n < keeper->n_held; n++) {
		if (keeper->held[n].fd >= 0)
			(void)close(keeper->held[n].fd);
	}
	LIST_FOREACH(owner, &keeper->owners, all)
	{
		if (owner != mine)
			close_dropped(keeper, &owner->jobs);
	}
}

/* Those that were answered before the child failed are known by their serial. */
static void end_jobs(struct keeper *keeper, struct mpib_keeper_jobs *jobs, bool failed)
{
	while (!STAILQ_EMPTY(jobs)) {
		struct mpib_keeper_job *job = STAILQ_FIRST(jobs);
		struct held *held = &keeper->held[job->id];

		if (job->type == MPIB_KEEPER_FETCH) {
			if (held->taking == job->serial)
				held->taking = 0;
			if (failed)
				say_failed(keeper, job->id, job->serial);
		}
		STAILQ_REMOVE_HEAD(jobs, next);
		free(job);
	}
}

static struct child *find_child(struct keeper *keeper, pid_t pid)
{
	for (unsigned int n = 0; n < CHILDREN_MAX; n++) {
		if (keeper->children[n].pid == pid)
			return &keeper->children[n];
	}
	return NULL;
}

static void start_child(struct keeper *keeper, struct owner *owner)
{
	struct child *child = find_child(keeper, 0);
	pid_t pid = child ? fork() : -1;

	if (pid < 0) {
		keeper->short_of = true;
		return;
	}
	if (pid == 0) {
		close_others(keeper, owner);
		mpib_keeper_work(keeper->channel, &owner->jobs);
		_exit(EXIT_SUCCESS);
	}

	child->pid = pid;
	child->owner = owner;
	STAILQ_INIT(&child->jobs);
	STAILQ_CONCAT(&child->jobs, &owner->jobs);
	owner->n_jobs = 0;
	owner->n_children++;
	close_dropped(keeper, &child->jobs);
}

static void start_children(struct keeper *keeper)
{
	struct owner *owner = LIST_FIRST(&keeper->owners);

	keeper->short_of = false;
	while (owner) {
		struct owner *next = LIST_NEXT(owner, all);

		if (owner->n_jobs && (!owner->n_children || owner->n_jobs >= JOBS_MAX))
			start_child(keeper, owner);
		if (!owner->n_jobs && !owner->n_children) {
			LIST_REMOVE(owner, all);
			free(owner);
		}
		owner = next;
	}
}

static void reap_children(struct keeper *keeper)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct child *child = find_child(keeper, pid);

		if (!child)
			continue;
		end_jobs(keeper, &child->jobs, status != 0);
		child->owner->n_children--;
		child->pid = 0;
	}
}

/* ---- packets -------------------------------------------------------------------------------- */

static void make_room(struct keeper *keeper, size_t id)
{
	size_t n = keeper->n_held ? keeper->n_held : MPIB_KEEPER_PLACES;

	while (n <= id)
		n *= 2;
	keeper->held = must_have(realloc(keeper->held, n * sizeof(*keeper->held)));
	while (keeper->n_held < n)
		keeper->held[keeper->n_held++] = (struct held){ .fd = -1 };
}

static void hold(struct keeper *keeper, const struct mpib_keeper_message *message, int fd)
{
	if ((size_t)message->id >= keeper->n_held || !keeper->held)
		make_room(keeper, (size_t)message->id);
	keeper->n_fds += fd >= 0;
	keeper->held[message->id] = (struct held){ .fd = fd, .uid = message->uid };
}

static void drop(struct keeper *keeper, const struct mpib_keeper_message *message,
		 struct held *held)
{
	/* To look at one that a child reads could close for it what it just read. */
	if (!held->taking && mpib_keeper_is_empty(held->fd)) {
		(void)close(held->fd);
		keeper->n_fds--;
	} else {
		add_job(keeper, message, held);
	}
	held->fd = -1;
}

static struct held *find_held(const struct keeper *keeper, int32_t id)
{
	struct held *held = (size_t)id < keeper->n_held ? keeper->held : NULL;

	return held && held[id].fd >= 0 ? &held[id] : NULL;
}

static void do_message(struct keeper *keeper, const struct mpib_keeper_message *message, int fd)
{
	struct held *held = find_held(keeper, message->id);

	if (message->type == MPIB_KEEPER_HOLD) {
		hold(keeper, message, fd);
	} else if (message->type == MPIB_KEEPER_DROP && held) {
		drop(keeper, message, held);
	} else if (message->type == MPIB_KEEPER_FETCH && held) {
		held->taking = message->serial;
		add_job(keeper, message, held);
	} else if (message->type == MPIB_KEEPER_FETCH) {
		say_failed(keeper, message->id, message->serial);
	}
}

/* False where the agent is gone. */
static bool read_packet(struct keeper *keeper)
{
	struct mpib_keeper_message messages[MPIB_KEEPER_BATCH];
	const struct iovec part = { .iov_base = messages, .iov_len = sizeof(messages) };
	int fds[MPIB_KEEPER_BATCH];
	size_t n_fds = MPIB_KEEPER_BATCH;
	size_t next_fd = 0;
	ssize_t n = mpib_keeper_receive(keeper->channel, &part, 1, fds, &n_fds);

	if (n <= 0)
		return n == -EAGAIN || n == -EINTR;

	for (size_t k = 0; k < (size_t)n / sizeof(messages[0]); k++) {
		bool holds = messages[k].type == MPIB_KEEPER_HOLD;

		do_message(keeper, &messages[k], holds && next_fd < n_fds ? fds[next_fd++] : -1);
	}
	return true;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_signal(int number)
{
	(void)number;
}

/* What a service manager or a terminal sends to all of a service is for the agent: this process
 * ends with it. Children that end are told by a signal that comes while there is a wait. */
static void set_signals(void)
{
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };
	const struct sigaction wake = { .sa_handler = on_signal };
	sigset_t set;

	for (unsigned int n = 0; n < MPIB_ARRAY_SIZE(ignored); n++)
		(void)signal(ignored[n], SIG_IGN);
	(void)sigaction(SIGCHLD, &wake, NULL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
}

static void close_all_but(int channel)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
		(void)dup2(null, fd);
	(void)close_range(STDERR_FILENO + 1, (unsigned int)channel - 1, 0);
	(void)close_range((unsigned int)channel + 1, ~0u, 0);
}

static void set_limits(struct keeper *keeper)
{
	struct rlimit limit = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	keeper->max_fds = limit.rlim_cur < FDS_MAX ? (unsigned int)limit.rlim_cur : FDS_MAX;
}

/* The agent is gone: all its connections end for their peers at once. What isn't empty the kernel
 * closes with this process, which nobody waits for. */
static void leave(struct keeper *keeper)
{
	for (size_t n = 0; n < keeper->n_held; n++) {
		if (keeper->held[n].fd >= 0)
			(void)shutdown(keeper->held[n].fd, SHUT_RDWR);
	}
	for (size_t n = 0; n < keeper->n_held; n++) {
		const struct held *held = &keeper->held[n];

		if (held->fd >= 0 && !held->taking && mpib_keeper_is_empty(held->fd))
			(void)close(held->fd);
	}
	_exit(EXIT_SUCCESS);
}

void mpib_keeper_serve(int channel)
{
	const struct timespec soon = { .tv_sec = RETRY_SEC };
	struct keeper *keeper = must_have(calloc(1, sizeof(*keeper)));
	sigset_t none;

	keeper->channel = channel;
	LIST_INIT(&keeper->owners);
	(void)prctl(PR_SET_NAME, "mpib-keeper");
	(void)sigemptyset(&none);
	set_signals();
	close_all_but(channel);
	set_limits(keeper);

	for (;;) {
		bool full = keeper->n_fds + SPARE_FDS >= keeper->max_fds;
		struct pollfd packet = { .fd = channel, .events = full ? 0 : POLLIN };

		if (ppoll(&packet, 1, full || keeper->short_of ? &soon : NULL, &none) > 0 &&
		    (full ? packet.revents & POLLHUP : !read_packet(keeper)))
			leave(keeper);
		reap_children(keeper);
		start_children(keeper);
	}
}
