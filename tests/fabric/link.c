/* SPDX-License-Identifier: Apache-2.0 */
/* Links: making, finding, ringing and burying them, and the byte rings in them. Nothing here knows
 * what the entries mean. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELLO_MAGIC 0x4d50464cU
#define RINGS_AT    4096 /* the rings' bytes begin on a page of their own */

_Static_assert(sizeof(struct fab_pkt) % 8 == 0, "payload stays aligned");
_Static_assert(sizeof(struct fab_link_shm) <= RINGS_AT, "ring heads fit");

/* --- rings --- */

struct fab_pkt *fab_ring_reserve(struct fab_ring *ring, size_t len)
{
	uint64_t size = (sizeof(struct fab_pkt) + len + FAB_RING_ALIGN - 1) &
			~(uint64_t)(FAB_RING_ALIGN - 1);
	uint64_t at = ring->tail & (ring->size - 1);
	uint64_t pad = ring->size - at < size ? ring->size - at : 0;

	if (ring->tail + pad + size - ring->head > ring->size) {
		ring->head = atomic_load_explicit(&ring->shm->head, memory_order_acquire);
		if (ring->tail + pad + size - ring->head > ring->size) {
			atomic_store(&ring->shm->want_space, 1);
			ring->head = atomic_load(&ring->shm->head);
			if (ring->tail + pad + size - ring->head > ring->size)
				return NULL;
		}
	}
	if (pad) {
		struct fab_pkt *fill = (struct fab_pkt *)(ring->data + at);

		fill->size = (uint32_t)pad;
		fill->op = FAB_OP_PAD;
		ring->tail += pad;
		/* Of a device's link to itself both ends are here: what one of them takes from the
		 * shared head and tail is the other's, too. */
		atomic_store(&ring->shm->tail, ring->tail);
		at = 0;
	}
	((struct fab_pkt *)(ring->data + at))->size = (uint32_t)size;
	return (struct fab_pkt *)(ring->data + at);
}

void fab_ring_publish(struct fab_ring *ring, struct fab_pkt *pkt)
{
	ring->tail += pkt->size;
	atomic_store(&ring->shm->tail, ring->tail);
}

struct fab_pkt *fab_ring_peek(struct fab_ring *ring, uint64_t now, uint64_t *ret_due)
{
	for (;;) {
		uint64_t at = ring->head & (ring->size - 1), used;
		struct fab_pkt *pkt = (struct fab_pkt *)(ring->data + at);

		if (ring->head == ring->tail) {
			ring->tail = atomic_load_explicit(&ring->shm->tail, memory_order_acquire);
			if (ring->head == ring->tail)
				return NULL;
		}
		used = ring->tail - ring->head;
		if (pkt->size < FAB_RING_ALIGN || pkt->size % FAB_RING_ALIGN || pkt->size > used ||
		    pkt->size > ring->size - at) {
			ring->head = ring->tail; /* not ours: skip what is there */
			continue;
		}
		if (pkt->op == FAB_OP_PAD) {
			ring->head += pkt->size;
			continue;
		}
		if (pkt->due_ns > now) {
			*ret_due = pkt->due_ns;
			return NULL;
		}
		return pkt;
	}
}

bool fab_ring_consume(struct fab_ring *ring, const struct fab_pkt *pkt)
{
	ring->head += pkt->size;
	atomic_store(&ring->shm->head, ring->head);
	return atomic_load(&ring->shm->want_space) && atomic_exchange(&ring->shm->want_space, 0);
}

/* --- the bell --- */

void fab_link_ring(struct fab_link *link)
{
	struct fab_state_proc *proc = &fab.meeting.state->proc[link->peer_slot];

	atomic_fetch_add(&proc->activity, 1);
	if (link->fd >= 0 && atomic_load(&proc->armed) && atomic_exchange(&proc->armed, 0))
		(void)send(link->fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool fab_link_port_up(const struct fab_link *link)
{
	const struct fab_state_dev *a = fab_dev_state(link->local_dev);
	const struct fab_state_dev *b = fab_dev_state(link->peer_dev);

	return atomic_load_explicit(&a->port_up, memory_order_relaxed) &&
	       atomic_load_explicit(&b->port_up, memory_order_relaxed) &&
	       !atomic_load_explicit(&a->dead, memory_order_relaxed) &&
	       !atomic_load_explicit(&b->dead, memory_order_relaxed);
}

bool fab_link_silent(const struct fab_link *link, uint32_t dev)
{
	return link->local_dev != link->peer_dev &&
	       atomic_load_explicit(&fab_dev_state(dev)->silent, memory_order_relaxed);
}

/* --- making --- */

static int watch(struct fab_link *link, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = link };

	return epoll_ctl(fab.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The peer's socket tells of its death, unless a child of its holds a copy: so its pid too. */
static void watch_pid(struct fab_link *link)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.pid <= 0)
		return;
	link->pid_fd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	if (link->pid_fd >= 0)
		(void)watch(link, link->pid_fd);
}

static struct fab_link *link_new(int fd, int mem_fd, const struct fab_hello *hello)
{
	struct fab_link *link = calloc(1, sizeof(*link));
	uint8_t *map;

	if (!link)
		return NULL;
	link->fd = fd;
	link->pid_fd = -1;
	link->shm_len = (size_t)RINGS_AT + hello->req_size + hello->resp_size;
	map = mmap(NULL, link->shm_len, PROT_READ | PROT_WRITE, MAP_SHARED, mem_fd, 0);
	if (map == MAP_FAILED) {
		free(link);
		return NULL;
	}
	link->shm = (struct fab_link_shm *)map;
	link->req = (struct fab_ring){ .shm = &link->shm->req,
				       .data = map + RINGS_AT,
				       .size = hello->req_size };
	link->resp = (struct fab_ring){ .shm = &link->shm->resp,
					.data = map + RINGS_AT + hello->req_size,
					.size = hello->resp_size };
	TAILQ_INIT(&link->reads);
	TAILQ_INIT(&link->spread);
	TAILQ_INIT(&link->late);
	TAILQ_INIT(&link->unseen);
	TAILQ_INSERT_TAIL(&fab.links, link, node);
	return link;
}

static int send_hello(int fd, int mem_fd, const struct fab_hello *hello)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)hello, .iov_len = sizeof(*hello) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &mem_fd, sizeof(int));
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static struct fab_link *link_connect(uint32_t dev, uint32_t slot, uint32_t peer_dev)
{
	struct fab_hello hello = { .magic = HELLO_MAGIC,
				   .slot = fab.meeting.slot,
				   .src_dev = dev,
				   .dst_dev = peer_dev,
				   .req_size = fab.conf->ring,
				   .resp_size = fab.conf->ring };
	bool self = slot == fab.meeting.slot;
	struct fab_link *link = NULL;
	int fd = -1, mem_fd;

	mem_fd = memfd_create("mpib-fabric-link", MFD_CLOEXEC);
	if (mem_fd < 0)
		return NULL;
	if (ftruncate(mem_fd, (off_t)RINGS_AT + hello.req_size + hello.resp_size) < 0)
		goto out;
	if (!self) {
		fd = fab_meeting_connect(&fab.meeting, slot);
		if (fd < 0)
			goto out;
	}
	link = link_new(fd, mem_fd, &hello);
	if (!link)
		goto out;
	link->requester = true;
	link->responder = self;
	link->local_dev = dev;
	link->peer_slot = slot;
	link->peer_dev = peer_dev;
	if (!self && (send_hello(fd, mem_fd, &hello) < 0 || watch(link, fd) < 0)) {
		fab_link_free(link);
		link = NULL;
		fd = -1;
	} else if (!self) {
		watch_pid(link);
	}
out:
	if (!link && fd >= 0)
		(void)close(fd);
	(void)close(mem_fd);
	return link;
}

struct fab_link *fab_link_get(uint32_t dev, uint32_t qpn, const struct ibv_ah_attr *ah)
{
	uint32_t slot = qpn >> FAB_QPN_BITS, peer = fab_route(dev, ah);
	struct fab_link *link;

	if (peer == fab.conf->devs || !slot || slot >= FAB_PROCS_MAX ||
	    atomic_load(&fab.meeting.state->proc[slot].node) != fab_dev_conf(peer)->node + 1)
		return NULL;
	TAILQ_FOREACH(link, &fab.links, node)
	if (link->requester && !link->dead && link->peer_slot == slot && link->local_dev == dev &&
	    link->peer_dev == peer)
		return link;
	if (slot != fab.meeting.slot && !fab_meeting_alive(&fab.meeting, slot))
		return NULL;
	return link_connect(dev, slot, peer);
}

/* --- accepting --- */

static bool hello_fits(const struct fab_hello *hello, int mem_fd)
{
	struct stat st;

	return hello->magic == HELLO_MAGIC && hello->slot && hello->slot < FAB_PROCS_MAX &&
	       hello->src_dev < fab.conf->devs && hello->dst_dev < fab.conf->devs &&
	       hello->req_size == fab.conf->ring && hello->resp_size == fab.conf->ring &&
	       fstat(mem_fd, &st) == 0 &&
	       st.st_size >= (off_t)RINGS_AT + hello->req_size + hello->resp_size;
}

/* Reads the hello; the memory's descriptor or -1. The sender sends it right after connecting. */
static int recv_hello(int fd, struct fab_hello *ret_hello)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = ret_hello, .iov_len = sizeof(*ret_hello) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *cmsg;
	int mem_fd = -1;

	if (recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(*ret_hello))
		return -1;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS || cmsg->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&mem_fd, CMSG_DATA(cmsg), sizeof(int));
	return mem_fd;
}

void fab_link_socket(struct fab_link *link, uint32_t events)
{
	struct fab_hello hello;
	char bells[64];
	int mem_fd;

	if (link->shm) {
		ssize_t n = recv(link->fd, bells, sizeof(bells), MSG_DONTWAIT);

		/* The pid's descriptor becomes readable at death, the socket says end of file. */
		if (n == 0 || (n < 0 && errno != EAGAIN) || (events & (EPOLLHUP | EPOLLRDHUP)) ||
		    (n < 0 && link->pid_fd >= 0 &&
		     !fab_meeting_alive(&fab.meeting, link->peer_slot)))
			link->dead = true;
		return;
	}
	mem_fd = recv_hello(link->fd, &hello);
	if (mem_fd >= 0 && hello_fits(&hello, mem_fd)) {
		struct fab_link *full = link_new(link->fd, mem_fd, &hello);

		if (full) {
			full->responder = true;
			full->local_dev = hello.dst_dev;
			full->peer_dev = hello.src_dev;
			full->peer_slot = hello.slot;
			(void)epoll_ctl(fab.epoll_fd, EPOLL_CTL_DEL, full->fd, NULL);
			(void)watch(full, full->fd);
			watch_pid(full);
			link->fd = -1;
		}
	}
	if (mem_fd >= 0)
		(void)close(mem_fd);
	link->dead = true; /* the half-open one; a bare visitor only wanted us to look around */
}

void fab_link_accept(void)
{
	int fd;

	while ((fd = accept4(fab.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct fab_link *link = calloc(1, sizeof(*link));

		if (!link) {
			(void)close(fd);
			return;
		}
		link->fd = fd;
		link->pid_fd = -1;
		TAILQ_INIT(&link->reads);
		TAILQ_INIT(&link->spread);
		TAILQ_INIT(&link->late);
		TAILQ_INIT(&link->unseen);
		TAILQ_INSERT_TAIL(&fab.links, link, node);
		if (watch(link, fd) < 0)
			link->dead = true;
	}
}

/* --- burying --- */

/* Closing alone isn't enough: a child between its fork and exec has a copy, and as long as it has,
 * the kernel goes on telling of a link that is gone. */
static void unwatch(int fd)
{
	if (fd < 0)
		return;
	(void)epoll_ctl(fab.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	(void)close(fd);
}

void fab_link_free(struct fab_link *link)
{
	struct fab_read *read;

	/* What had left the peer before it died still counts. */
	if (link->responder)
		(void)fab_responder_poll(link, FAB_NEVER);
	if (link->requester)
		(void)fab_requester_poll(link, FAB_NEVER);
	link->dead = true;
	fab_spread_forget(link, NULL);
	fab_late_forget(link);
	fab_unseen_place_all(link);
	while ((read = TAILQ_FIRST(&link->reads))) {
		TAILQ_REMOVE(&link->reads, read, node);
		free(read);
	}
	TAILQ_REMOVE(&fab.links, link, node);
	for (uint32_t k = 0; link->requester && fab.qp_count && k < FAB_QP_INDEXES; k++) {
		struct fab_qp *qp = fab.qps[k];

		if (qp && qp->link == link) {
			qp->link = NULL;
			if (qp->sq_una != qp->sq_tx || qp->sq_tx_off)
				fab_requester_lost(qp, qp->sq_una, 0);
		}
	}
	unwatch(link->fd);
	unwatch(link->pid_fd);
	if (link->shm)
		(void)munmap(link->shm, link->shm_len);
	free(link);
}
