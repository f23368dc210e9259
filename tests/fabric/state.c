/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting directory and the shared state in it. Used by the library and by fabricctl; nothing
 * here knows verbs. */
#include "tests/fabric/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/macros.h"

#define STATE_MAGIC 0x4d504642U
/* Raised when the meaning of a field changes; other changes show in the size. */
#define STATE_VERSION (2U << 24 | (uint32_t)sizeof(struct fab_state))

static const char *const verb_names[FAB_VERB_MAX] = {
	[FAB_VERB_OPEN_DEVICE] = "open_device",
	[FAB_VERB_QUERY_DEVICE] = "query_device",
	[FAB_VERB_QUERY_PORT] = "query_port",
	[FAB_VERB_QUERY_GID] = "query_gid",
	[FAB_VERB_ALLOC_PD] = "alloc_pd",
	[FAB_VERB_DEALLOC_PD] = "dealloc_pd",
	[FAB_VERB_REG_MR] = "reg_mr",
	[FAB_VERB_DEREG_MR] = "dereg_mr",
	[FAB_VERB_CREATE_CQ] = "create_cq",
	[FAB_VERB_DESTROY_CQ] = "destroy_cq",
	[FAB_VERB_CREATE_SRQ] = "create_srq",
	[FAB_VERB_DESTROY_SRQ] = "destroy_srq",
	[FAB_VERB_CREATE_QP] = "create_qp",
	[FAB_VERB_QUERY_QP] = "query_qp",
	[FAB_VERB_MODIFY_QP] = "modify_qp",
	[FAB_VERB_DESTROY_QP] = "destroy_qp",
	[FAB_VERB_POST_SEND] = "post_send",
	[FAB_VERB_POST_RECV] = "post_recv",
	[FAB_VERB_POST_SRQ_RECV] = "post_srq_recv",
	[FAB_VERB_POLL_CQ] = "poll_cq",
	[FAB_VERB_REQ_NOTIFY] = "req_notify_cq",
};

const char *fab_verb_name(unsigned int verb)
{
	return verb < FAB_VERB_MAX ? verb_names[verb] : NULL;
}

int fab_env_config(struct fab_config *ret_conf, char *err, size_t err_len)
{
	const char *path = getenv("MPIB_FABRIC");

	if (path && path[0])
		return fab_config_load(path, ret_conf, err, err_len);
	fab_config_default(ret_conf);
	return 0;
}

/* A directory that only we can write: made here, or ours already. */
static int make_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return -EPERM;
	return 0;
}

static int base_dir(char *ret_path, size_t size)
{
	const char *base = getenv("MPIB_FABRIC_DIR");
	int r;

	if (base && base[0])
		r = snprintf(ret_path, size, "%s", base);
	else
		r = snprintf(ret_path, size, "/dev/shm/mpib-fabric-%u", geteuid());
	return r >= (int)size - FAB_NAME_MAX - 16 ? -ENAMETOOLONG : 0;
}

static int open_dir(const struct fab_config *conf)
{
	char path[4096];
	int r, fd;

	r = base_dir(path, sizeof(path));
	if (r < 0)
		return r;
	r = make_dir(path);
	if (r < 0)
		return r;
	(void)snprintf(path + strlen(path), FAB_NAME_MAX + 16, "/%s-%08x", conf->name,
		       fab_config_hash(conf));
	r = make_dir(path);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

void fab_state_gid_get(struct fab_state_dev *dev, unsigned int index, struct fab_gid *ret_gid)
{
	for (unsigned int k = 0; k < 2; k++) {
		uint64_t half =
			atomic_load_explicit(&dev->gid[index].half[k], memory_order_acquire);

		memcpy(ret_gid->raw + 8 * k, &half, 8);
	}
	ret_gid->type = atomic_load_explicit(&dev->gid[index].type, memory_order_acquire);
}

void fab_state_gid_set(struct fab_state_dev *dev, unsigned int index, const struct fab_gid *gid)
{
	for (unsigned int k = 0; k < 2; k++) {
		uint64_t half;

		memcpy(&half, gid->raw + 8 * k, 8);
		atomic_store_explicit(&dev->gid[index].half[k], half, memory_order_release);
	}
	atomic_store_explicit(&dev->gid[index].type, gid->type, memory_order_release);
}

/* Called under the directory's lock, before anybody else can see the file's magic. */
static void state_init(struct fab_state *state, const struct fab_config *conf)
{
	memcpy(&state->conf, conf, sizeof(*conf));
	for (uint32_t d = 0; d < conf->devs; d++) {
		struct fab_state_dev *dev = &state->dev[d];

		atomic_store(&dev->port_up, 1);
		atomic_store(&dev->rate, conf->dev[d].rate);
		atomic_store(&dev->latency_ns, conf->dev[d].latency_ns);
		atomic_store(&dev->unseen_ns, conf->dev[d].unseen_ns);
		for (unsigned int g = 0; g < FAB_GIDS_MAX; g++)
			fab_state_gid_set(dev, g, &conf->dev[d].gid[g]);
	}
	atomic_store(&state->version, STATE_VERSION);
	atomic_store(&state->magic, STATE_MAGIC);
}

_Static_assert(sizeof(struct fab_state) < 1U << 24, "the size fits into the version");

/* A file that is being begun, or was by a process that died, is ours to finish. */
static int check_layout(int fd, off_t size)
{
	uint32_t head[2] = { 0, 0 }; /* magic and version, in every build */

	if (pread(fd, head, sizeof(head), 0) < 0)
		return -errno;
	if (head[0] != STATE_MAGIC)
		return 0;
	return head[1] == STATE_VERSION && size == (off_t)sizeof(struct fab_state) ? 0 : -ESTALE;
}

static int map_state(struct fab_meeting *m, const struct fab_config *conf)
{
	const void *theirs, *ours = conf;
	struct stat st;
	void *map;
	int r;

	m->state_fd = openat(m->dir_fd, "state", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (m->state_fd < 0 || fstat(m->state_fd, &st) < 0)
		return -errno;
	r = check_layout(m->state_fd, st.st_size);
	if (r < 0)
		return r;
	if (st.st_size < (off_t)sizeof(struct fab_state)) {
		r = posix_fallocate(m->state_fd, 0, sizeof(struct fab_state));
		if (r)
			return -r;
	}
	map = mmap(NULL, sizeof(struct fab_state), PROT_READ | PROT_WRITE, MAP_SHARED, m->state_fd,
		   0);
	if (map == MAP_FAILED)
		return -errno;
	m->state = map;
	if (atomic_load(&m->state->magic) != STATE_MAGIC)
		state_init(m->state, conf);
	/* Both are zeroed before they are filled, their padding too. */
	theirs = &m->state->conf;
	return memcmp(theirs, ours, sizeof(*conf)) ? -ESTALE : 0;
}

static bool somebody_lives(int state_fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(state_fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

static void unmap_state(struct fab_meeting *m)
{
	if (m->state)
		(void)munmap(m->state, sizeof(*m->state));
	if (m->state_fd >= 0)
		(void)close(m->state_fd);
	m->state = NULL;
	m->state_fd = -1;
}

/* The file of another build, or of a configuration whose number happens to be the same, is replaced
 * by a new one if no process lives in it. */
static int take_state(struct fab_meeting *m, const struct fab_config *conf)
{
	int r = map_state(m, conf);

	if (r != -ESTALE || somebody_lives(m->state_fd))
		return r;
	unmap_state(m);
	return unlinkat(m->dir_fd, "state", 0) < 0 ? -errno : map_state(m, conf);
}

const char *fab_meeting_error(int r, char *ret_text, size_t size)
{
	const char *why = strerror(-r);
	char dir[4096];

	if (base_dir(dir, sizeof(dir)) < 0)
		(void)snprintf(dir, sizeof(dir), "MPIB_FABRIC_DIR");
	if (r == -ESTALE)
		why = "processes of another build of the fabric are in it; end them, or choose "
		      "another directory with MPIB_FABRIC_DIR";
	else if (r == -EPERM)
		why = "it must be a directory of this user that nobody else can write";
	(void)snprintf(ret_text, size, "meeting directory %s: %s", dir, why);
	return ret_text;
}

int fab_meeting_open(const struct fab_config *conf, struct fab_meeting *ret_meeting)
{
	struct fab_meeting m = { .dir_fd = -1, .state_fd = -1 };
	int r;

	m.dir_fd = open_dir(conf);
	if (m.dir_fd < 0)
		return m.dir_fd;
	if (flock(m.dir_fd, LOCK_EX) < 0)
		r = -errno;
	else
		r = take_state(&m, conf);
	(void)flock(m.dir_fd, LOCK_UN);
	if (r < 0) {
		fab_meeting_close(&m);
		return r;
	}
	*ret_meeting = m;
	return 0;
}

bool fab_meeting_alive(const struct fab_meeting *m, uint32_t slot)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1
	};

	if (!slot || slot >= FAB_PROCS_MAX || !atomic_load(&m->state->proc[slot].node))
		return false;
	return fcntl(m->state_fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void socket_name(const struct fab_meeting *m, uint32_t slot, struct sockaddr_un *ret_addr)
{
	/* Through the descriptor: a directory's own name may be longer than a socket's may. */
	*ret_addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(ret_addr->sun_path, sizeof(ret_addr->sun_path), "/proc/self/fd/%d/p%u",
		       m->dir_fd, slot);
}

static int listen_at(const struct fab_meeting *m, uint32_t slot)
{
	struct sockaddr_un addr;
	char name[16];
	int fd;

	(void)snprintf(name, sizeof(name), "p%u", slot);
	if (unlinkat(m->dir_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	socket_name(m, slot, &addr);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1024) < 0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd;
}

int fab_meeting_join(struct fab_meeting *m, uint32_t node, int *ret_listen_fd)
{
	for (uint32_t slot = 1; slot < FAB_PROCS_MAX; slot++) {
		struct flock lock = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1
		};
		struct fab_state_proc *proc = &m->state->proc[slot];
		int fd;

		if (fcntl(m->state_fd, F_SETLK, &lock) < 0)
			continue; /* somebody lives there */
		fd = listen_at(m, slot);
		if (fd < 0)
			return fd;
		atomic_store(&proc->pid, (uint32_t)getpid());
		atomic_fetch_add(&proc->generation, 1);
		atomic_store(&proc->armed, 0);
		atomic_store(&proc->node, node + 1);
		m->slot = slot;
		*ret_listen_fd = fd;
		return 0;
	}
	return -EUSERS;
}

void fab_meeting_leave(struct fab_meeting *m)
{
	struct flock lock = {
		.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = m->slot, .l_len = 1
	};
	char name[16];

	if (!m->slot)
		return;
	(void)snprintf(name, sizeof(name), "p%u", m->slot);
	(void)unlinkat(m->dir_fd, name, 0);
	atomic_store(&m->state->proc[m->slot].node, 0);
	m->slot = 0;
	(void)fcntl(m->state_fd, F_SETLK, &lock);
}

void fab_meeting_close(struct fab_meeting *m)
{
	fab_meeting_leave(m);
	unmap_state(m);
	if (m->dir_fd >= 0)
		(void)close(m->dir_fd);
	*m = (struct fab_meeting){ .dir_fd = -1, .state_fd = -1 };
}

int fab_meeting_connect(const struct fab_meeting *m, uint32_t slot)
{
	struct sockaddr_un addr;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	socket_name(m, slot, &addr);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd;
}

void fab_meeting_wake(const struct fab_meeting *m)
{
	for (uint32_t slot = 1; slot < FAB_PROCS_MAX; slot++) {
		int fd;

		if (slot == m->slot || !fab_meeting_alive(m, slot))
			continue;
		fd = fab_meeting_connect(m, slot);
		if (fd >= 0)
			(void)close(fd);
	}
}

uint64_t fab_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

bool fab_meeting_port(const struct fab_meeting *m, uint32_t dev, bool up)
{
	struct fab_state_dev *state = &m->state->dev[dev];

	if (!up && atomic_load(&state->port_up))
		atomic_store(&state->down_ns, fab_now());
	if (atomic_exchange(&state->port_up, up) == up)
		return false;
	fab_state_log_add(m->state, FAB_LOG_PORT, dev, up);
	fab_meeting_wake(m);
	return true;
}

void fab_state_log_add(struct fab_state *state, enum fab_log_kind kind, uint32_t dev, uint32_t arg)
{
	uint64_t at = atomic_fetch_add(&state->log_end, 1);
	struct fab_state_log *entry = &state->log[at % FAB_LOG_MAX];

	atomic_store(&entry->seq, 0);
	atomic_store(&entry->kind, kind);
	atomic_store(&entry->dev, dev);
	atomic_store(&entry->arg, arg);
	atomic_store(&entry->seq, at + 1);
}
