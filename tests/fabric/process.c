/* SPDX-License-Identifier: Apache-2.0 */
/* The process's part in the fabric: reading the configuration, taking a slot and starting the
 * engine with the first open device, leaving with the last, and what a fork means for it. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fab_engine fab = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1, .wake_fd = -1, .listen_fd = -1
};
static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the engine's */
static bool prepared;
static int prepare_result;

static void before_fork(void)
{
	(void)pthread_mutex_lock(&setup_lock);
	(void)pthread_mutex_lock(&fab.lock);
}

static void after_fork_parent(void)
{
	(void)pthread_mutex_unlock(&fab.lock);
	(void)pthread_mutex_unlock(&setup_lock);
}

/* The child takes no part: it has no thread and no slot. Its copies of the sockets would hide the
 * parent's death from the peers. It may open devices anew. */
static void after_fork_child(void)
{
	struct fab_link *link;

	TAILQ_FOREACH(link, &fab.links, node)
	{
		if (link->fd >= 0)
			(void)close(link->fd);
		if (link->pid_fd >= 0)
			(void)close(link->pid_fd);
	}
	TAILQ_INIT(&fab.links);
	TAILQ_INIT(&fab.active);
	TAILQ_INIT(&fab.waiting);
	TAILQ_INIT(&fab.holding);
	LIST_INIT(&fab.contexts);
	if (fab.users) {
		(void)close(fab.epoll_fd);
		(void)close(fab.wake_fd);
		(void)close(fab.listen_fd);
	}
	fab.epoll_fd = fab.wake_fd = fab.listen_fd = -1;
	fab.users = 0;
	fab.meeting.slot = 0;
	atomic_store(&fab.running, false);
	atomic_store(&fab.inbox, NULL);
	atomic_store(&fab.waiters, 0);
	memset(fab.qps, 0, sizeof(*fab.qps) * FAB_QP_INDEXES);
	fab_crew_forget();
	fab_pages_forget();
	(void)pthread_mutex_unlock(&fab.lock);
	(void)pthread_mutex_unlock(&setup_lock);
}

static int find_node(const struct fab_config *conf, uint32_t *ret_node)
{
	const char *name = getenv("MPIB_FABRIC_NODE");

	*ret_node = 0;
	if (!name || !name[0])
		return 0;
	for (uint32_t n = 0; n < conf->nodes; n++) {
		if (strcmp(conf->node[n].name, name) == 0) {
			*ret_node = n;
			return 0;
		}
	}
	(void)fprintf(stderr, "mpib-fabric: MPIB_FABRIC_NODE '%s' is not in the configuration\n",
		      name);
	return -ENODEV;
}

static int prepare(void)
{
	struct fab_config *conf = calloc(1, sizeof(*conf));
	const char *null = getenv("MPIB_FABRIC_NULL"), *path = getenv("MPIB_FABRIC");
	char err[256] = "", text[4608];
	int r;

	if (!conf)
		return -ENOMEM;
	r = fab_env_config(conf, err, sizeof(err));
	if (r < 0) {
		(void)fprintf(stderr, "mpib-fabric: %s: %s\n", path ? path : "built in", err);
		goto out;
	}
	if (null && strcmp(null, "1") == 0)
		conf->null = 1;
	r = find_node(conf, &fab.node);
	if (r < 0)
		goto out;
	r = fab_meeting_open(conf, &fab.meeting);
	if (r < 0) {
		(void)fprintf(stderr, "mpib-fabric: %s\n",
			      fab_meeting_error(r, text, sizeof(text)));
		goto out;
	}
	fab.conf = &fab.meeting.state->conf;
	TAILQ_INIT(&fab.active);
	TAILQ_INIT(&fab.waiting);
	TAILQ_INIT(&fab.holding);
	TAILQ_INIT(&fab.links);
	LIST_INIT(&fab.contexts);
	fab.qps = calloc(FAB_QP_INDEXES, sizeof(*fab.qps));
	r = fab.qps ? -pthread_atfork(before_fork, after_fork_parent, after_fork_child) : -ENOMEM;
out:
	free(conf);
	return r;
}

/* A program that unloads the library gets its files back. One that ends with devices open, or is
 * inside of it at that moment, doesn't need them. */
__attribute__((destructor)) static void unload(void)
{
	if (pthread_mutex_trylock(&setup_lock) != 0)
		return;
	if (prepared && prepare_result == 0 && !fab.users) {
		free(fab.qps);
		fab.qps = NULL;
		fab_meeting_close(&fab.meeting);
		fab_pages_forget();
		prepared = false;
	}
	(void)pthread_mutex_unlock(&setup_lock);
}

int fab_engine_prepare(void)
{
	(void)pthread_mutex_lock(&setup_lock);
	if (!prepared)
		prepare_result = prepare();
	prepared = true;
	(void)pthread_mutex_unlock(&setup_lock);
	return prepare_result;
}

static int watch(int fd, void *what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = what };

	return epoll_ctl(fab.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void engine_close(void)
{
	struct fab_link *link;

	fab_engine_lock();
	while ((link = TAILQ_FIRST(&fab.links)))
		fab_link_free(link);
	fab_meeting_leave(&fab.meeting);
	if (fab.listen_fd >= 0)
		(void)close(fab.listen_fd);
	if (fab.wake_fd >= 0)
		(void)close(fab.wake_fd);
	if (fab.epoll_fd >= 0)
		(void)close(fab.epoll_fd);
	fab.listen_fd = fab.wake_fd = fab.epoll_fd = -1;
	free(fab.mrs);
	fab.mrs = NULL;
	fab.mr_max = 0;
	(void)pthread_mutex_unlock(&fab.lock);
	fab_crew_end();
}

static int engine_open(void)
{
	sigset_t all, old;
	int r;

	fab.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	fab.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fab.epoll_fd < 0 || fab.wake_fd < 0)
		return -errno;
	fab.log_seen = atomic_load(&fab.meeting.state->log_end);
	r = fab_meeting_join(&fab.meeting, fab.node, &fab.listen_fd);
	if (r < 0)
		return r;
	fab.self = &fab.meeting.state->proc[fab.meeting.slot];
	atomic_store(&fab.seen, atomic_load(&fab.self->activity));
	atomic_store(&fab.next_due, FAB_NEVER);
	/* A slot's new owner must not give out the numbers that the last one had. */
	fab.qp_next = (atomic_load(&fab.self->generation) * 4099U) % FAB_QP_INDEXES;
	r = watch(fab.wake_fd, &fab.wake_fd);
	if (r == 0)
		r = watch(fab.listen_fd, &fab.listen_fd);
	if (r < 0)
		return r;
	r = fab_crew_start(fab.conf->copiers);
	if (r < 0)
		return r;
	atomic_store(&fab.running, true);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&fab.thread, NULL, fab_engine_thread, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		atomic_store(&fab.running, false);
	return r;
}

int fab_engine_get(void)
{
	int r = 0;

	(void)pthread_mutex_lock(&setup_lock);
	if (!fab.users) {
		r = engine_open();
		if (r < 0)
			engine_close();
	}
	if (r == 0)
		fab.users++;
	(void)pthread_mutex_unlock(&setup_lock);
	return r;
}

void fab_engine_put(void)
{
	(void)pthread_mutex_lock(&setup_lock);
	if (--fab.users == 0) {
		atomic_store(&fab.running, false);
		fab_engine_wake();
		(void)pthread_join(fab.thread, NULL);
		engine_close();
	}
	(void)pthread_mutex_unlock(&setup_lock);
}
