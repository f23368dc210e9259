/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/sweep_impl.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/macros.h"
#include "tests/plugin/driver.h"

static struct {
	atomic_uint calls[HOOK_MAX];
	atomic_int which; /* -1: none */
	atomic_uint at;
	atomic_int error;
	atomic_bool hit;
	atomic_int memory, verbs;
} hook = { .which = -1 };

void hook_arm(enum hooked which, unsigned int skip, int err)
{
	atomic_store(&hook.which, -1);
	for (unsigned int k = 0; k < HOOK_MAX; k++)
		atomic_store(&hook.calls[k], 0);
	atomic_store(&hook.at, skip);
	atomic_store(&hook.error, err);
	atomic_store(&hook.hit, false);
	if (err)
		atomic_store(&hook.which, (int)which);
}

bool hook_hit(void)
{
	return atomic_load(&hook.hit);
}

unsigned int hook_calls(enum hooked which)
{
	return atomic_load(&hook.calls[which]);
}

int hook_live_memory(void)
{
	return atomic_load(&hook.memory);
}

int hook_live_verbs(void)
{
	return atomic_load(&hook.verbs);
}

bool hook_fails(enum hooked which)
{
	unsigned int at = atomic_fetch_add(&hook.calls[which], 1);

	if (atomic_load(&hook.which) != (int)which || at != atomic_load(&hook.at))
		return false;
	atomic_store(&hook.hit, true);
	errno = atomic_load(&hook.error);
	return true;
}

static void *counted(void *made)
{
	atomic_fetch_add(&hook.memory, made != NULL);
	return made;
}

/* ---- the C library --------------------------------------------------------------------------- */

static void *hook_malloc(size_t size)
{
	return hook_fails(HOOK_ALLOC) ? NULL : counted(malloc(size));
}

static void *hook_calloc(size_t count, size_t size)
{
	return hook_fails(HOOK_ALLOC) ? NULL : counted(calloc(count, size));
}

static void *hook_realloc(void *old, size_t size)
{
	void *grown;

	if (hook_fails(HOOK_ALLOC))
		return NULL;
	grown = realloc(old, size);
	return old ? grown : counted(grown);
}

static void *hook_aligned_alloc(size_t align, size_t size)
{
	return hook_fails(HOOK_ALLOC) ? NULL : counted(aligned_alloc(align, size));
}

static void hook_free(void *old)
{
	atomic_fetch_sub(&hook.memory, old != NULL);
	free(old);
}

static void *hook_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *made;

	if (hook_fails(HOOK_MMAP))
		return MAP_FAILED;
	made = mmap(addr, len, prot, flags, fd, off);
	atomic_fetch_add(&hook.memory, made != MAP_FAILED);
	return made;
}

static int hook_munmap(void *addr, size_t len)
{
	atomic_fetch_sub(&hook.memory, addr != NULL);
	return munmap(addr, len);
}

static int hook_socket(int domain, int type, int protocol)
{
	return hook_fails(HOOK_SOCKET) ? -1 : socket(domain, type, protocol);
}

static int hook_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	return hook_fails(HOOK_BIND) ? -1 : bind(fd, addr, len);
}

static int hook_listen(int fd, int backlog)
{
	return hook_fails(HOOK_LISTEN) ? -1 : listen(fd, backlog);
}

/* One that a signal interrupts goes on by itself. */
static int hook_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (hook_fails(HOOK_CONNECT)) {
		if (errno == EINTR) {
			(void)connect(fd, addr, len);
			errno = EINTR;
		}
		return -1;
	}
	return connect(fd, addr, len);
}

static int hook_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return hook_fails(HOOK_ACCEPT4) ? -1 : accept4(fd, addr, len, flags);
}

static int hook_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	return hook_fails(HOOK_GETSOCKNAME) ? -1 : getsockname(fd, addr, len);
}

static int hook_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	return hook_fails(HOOK_GETSOCKOPT) ? -1 : getsockopt(fd, level, name, value, len);
}

static ssize_t hook_send(int fd, const void *data, size_t len, int flags)
{
	return hook_fails(HOOK_SEND) ? -1 : send(fd, data, len, flags);
}

static ssize_t hook_recv(int fd, void *data, size_t len, int flags)
{
	return hook_fails(HOOK_RECV) ? -1 : recv(fd, data, len, flags);
}

static int hook_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return hook_fails(HOOK_POLL) ? -1 : poll(fds, n, timeout);
}

static int hook_epoll_ctl(int fd, int op, int item, struct epoll_event *event)
{
	if (op == EPOLL_CTL_ADD && hook_fails(HOOK_EPOLL_CTL))
		return -1;
	return epoll_ctl(fd, op, item, event);
}

static int hook_epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	return hook_fails(HOOK_EPOLL_WAIT) ? -1 : epoll_wait(fd, events, n, timeout);
}

static int hook_memfd_create(const char *name, unsigned int flags)
{
	return hook_fails(HOOK_MEMFD) ? -1 : memfd_create(name, flags);
}

static int hook_ioctl(int fd, unsigned long request, void *arg)
{
	return hook_fails(HOOK_IOCTL) ? -1 : ioctl(fd, request, arg);
}

static ssize_t hook_getrandom(void *into, size_t len, unsigned int flags)
{
	return hook_fails(HOOK_GETRANDOM) ? -1 : getrandom(into, len, flags);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static struct {
	int (*query_port)(struct ibv_context *, uint8_t, void *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *,
				    int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
} real;

static int hook_query_port(struct ibv_context *ctx, uint8_t port, void *attr)
{
	return hook_fails(HOOK_QUERY_PORT) ? errno : real.query_port(ctx, port, attr);
}

static struct ibv_mr *hook_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = hook_fails(HOOK_REG_MR) ? NULL : real.reg_mr(pd, addr, len, access);

	atomic_fetch_add(&hook.verbs, mr != NULL);
	return mr;
}

static struct ibv_mr *hook_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
					unsigned int access)
{
	struct ibv_mr *mr =
		hook_fails(HOOK_REG_MR) ? NULL : real.reg_mr_iova2(pd, addr, len, iova, access);

	atomic_fetch_add(&hook.verbs, mr != NULL);
	return mr;
}

/* A destructor does its work and reports a failure all the same. */
static int hook_dereg_mr(struct ibv_mr *mr)
{
	bool bad = hook_fails(HOOK_DEREG_MR);
	int err = errno, r = real.dereg_mr(mr);

	atomic_fetch_sub(&hook.verbs, 1);
	return bad ? err : r;
}

static struct ibv_cq *hook_create_cq(struct ibv_context *ctx, int depth, void *owner,
				     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = hook_fails(HOOK_CREATE_CQ)
				    ? NULL
				    : real.create_cq(ctx, depth, owner, channel, vector);

	atomic_fetch_add(&hook.verbs, cq != NULL);
	return cq;
}

static int hook_destroy_cq(struct ibv_cq *cq)
{
	bool bad = hook_fails(HOOK_DESTROY_CQ);
	int err = errno, r = real.destroy_cq(cq);

	atomic_fetch_sub(&hook.verbs, 1);
	return bad ? err : r;
}

/* One for each device, until finalize. */
static struct ibv_srq *hook_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return hook_fails(HOOK_CREATE_SRQ) ? NULL : real.create_srq(pd, attr);
}

static struct ibv_qp *hook_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = hook_fails(HOOK_CREATE_QP) ? NULL : real.create_qp(pd, attr);

	atomic_fetch_add(&hook.verbs, qp != NULL);
	return qp;
}

static int hook_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return hook_fails(HOOK_MODIFY_QP) ? errno : real.modify_qp(qp, attr, mask);
}

static int hook_destroy_qp(struct ibv_qp *qp)
{
	bool bad = hook_fails(HOOK_DESTROY_QP);
	int err = errno, r = real.destroy_qp(qp);

	atomic_fetch_sub(&hook.verbs, 1);
	return bad ? err : r;
}

static int hook_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (hook_fails(HOOK_POST_SEND)) {
		*bad = wr;
		return errno;
	}
	return real.post_send(qp, wr, bad);
}

static int hook_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return hook_fails(HOOK_POLL_CQ) ? -1 : real.poll_cq(cq, n, wc);
}

static struct ibv_context *hook_open_device(struct ibv_device *device)
{
	struct ibv_context *ctx = hook_fails(HOOK_OPEN_DEVICE) ? NULL : real.open_device(device);

	if (ctx) {
		real.post_send = ctx->ops.post_send;
		real.poll_cq = ctx->ops.poll_cq;
		ctx->ops.post_send = hook_post_send;
		ctx->ops.poll_cq = hook_poll_cq;
	}
	return ctx;
}

static void *hook_dlsym(void *from, const char *name);

/* ---- the table of imports -------------------------------------------------------------------- */

#define HOOK(name)                                                                                 \
	{                                                                                          \
#name, (void *)(uintptr_t)hook_##name, NULL                                        \
	}
#define VERB(name)                                                                                 \
	{                                                                                          \
		"ibv_" #name, (void *)(uintptr_t)hook_##name, &real.name                           \
	}

static const struct hook_row own_rows[] = {
	HOOK(malloc),	     HOOK(calloc),	 HOOK(realloc),
	HOOK(aligned_alloc), HOOK(free),	 HOOK(mmap),
	HOOK(munmap),	     HOOK(socket),	 HOOK(bind),
	HOOK(listen),	     HOOK(connect),	 HOOK(accept4),
	HOOK(getsockname),   HOOK(getsockopt),	 HOOK(send),
	HOOK(recv),	     HOOK(poll),	 HOOK(epoll_ctl),
	HOOK(epoll_wait),    HOOK(memfd_create), { "mmap64", (void *)(uintptr_t)hook_mmap, NULL },
	HOOK(ioctl),	     HOOK(getrandom),	 HOOK(dlsym),
	VERB(query_port),    VERB(reg_mr),	 VERB(reg_mr_iova2),
	VERB(dereg_mr),	     VERB(create_cq),	 VERB(destroy_cq),
	VERB(create_srq),    VERB(create_qp),	 VERB(modify_qp),
	VERB(destroy_qp),    VERB(open_device),	 { NULL, NULL, NULL },
};

static const struct hook_row *const tables[] = { own_rows, hook_start_rows };

/* NULL where none is of that name; @looked_up: it is one that the plugin looks up itself. */
static const struct hook_row *row_of(const char *name, bool looked_up)
{
	for (size_t t = 0; t < MPIB_ARRAY_SIZE(tables); t++)
		for (const struct hook_row *row = tables[t]; row->name; row++)
			if (!row->real == !looked_up && strcmp(row->name, name) == 0)
				return row;
	return NULL;
}

static void *hook_dlsym(void *from, const char *name)
{
	const struct hook_row *row = row_of(name, true);
	void *address = dlsym(from, name);

	if (!address || !row)
		return address;
	memcpy(row->real, &address, sizeof(address));
	return row->function;
}

/* Imports stand in pages that the loader made read-only. */
static void lead(const ElfW(Rela) * rela, size_t count, const ElfW(Sym) * symbols,
		 const char *strings, uintptr_t base, unsigned int *led)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	for (size_t n = 0; n < count; n++) {
		const char *name = strings + symbols[ELF64_R_SYM(rela[n].r_info)].st_name;
		void **slot = (void **)(base + rela[n].r_offset);
		const struct hook_row *row = row_of(name, false);

		if (!row)
			continue;
		CHECK(mprotect((void *)((uintptr_t)slot & ~(page - 1)), page,
			       PROT_READ | PROT_WRITE) == 0);
		*slot = row->function;
		(*led)++;
	}
}

void hook_library(void *opened)
{
	const ElfW(Rela) *rela = NULL, *plt = NULL;
	size_t rela_size = 0, plt_size = 0;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	struct link_map *map = NULL;
	unsigned int led = 0;

	CHECK(dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0);
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		const void *at = (const void *)d->d_un.d_ptr;

		if (d->d_tag == DT_SYMTAB)
			symbols = at;
		else if (d->d_tag == DT_STRTAB)
			strings = at;
		else if (d->d_tag == DT_RELA)
			rela = at;
		else if (d->d_tag == DT_RELASZ)
			rela_size = d->d_un.d_val;
		else if (d->d_tag == DT_JMPREL)
			plt = at;
		else if (d->d_tag == DT_PLTRELSZ)
			plt_size = d->d_un.d_val;
	}
	CHECK(symbols && strings && rela && plt);
	lead(rela, rela_size / sizeof(*rela), symbols, strings, map->l_addr, &led);
	lead(plt, plt_size / sizeof(*plt), symbols, strings, map->l_addr, &led);
	CHECK(led >= 15);
}

const char *hook_name(enum hooked which)
{
	static const char *const names[HOOK_MAX] = {
		[HOOK_ALLOC] = "allocation",
		[HOOK_MMAP] = "mmap",
		[HOOK_SOCKET] = "socket",
		[HOOK_BIND] = "bind",
		[HOOK_LISTEN] = "listen",
		[HOOK_CONNECT] = "connect",
		[HOOK_ACCEPT4] = "accept4",
		[HOOK_GETSOCKNAME] = "getsockname",
		[HOOK_GETSOCKOPT] = "getsockopt",
		[HOOK_SEND] = "send",
		[HOOK_RECV] = "recv",
		[HOOK_POLL] = "poll",
		[HOOK_EPOLL_CTL] = "epoll_ctl",
		[HOOK_EPOLL_WAIT] = "epoll_wait",
		[HOOK_MEMFD] = "memfd_create",
		[HOOK_IOCTL] = "ioctl",
		[HOOK_GETRANDOM] = "getrandom",
		[HOOK_OPEN] = "open",
		[HOOK_STAT] = "stat",
		[HOOK_FTRUNCATE] = "ftruncate",
		[HOOK_FCNTL] = "fcntl",
		[HOOK_EPOLL_CREATE] = "epoll_create1",
		[HOOK_EVENTFD] = "eventfd",
		[HOOK_THREAD] = "pthread_create",
		[HOOK_GETIFADDRS] = "getifaddrs",
		[HOOK_SETSOCKOPT] = "setsockopt",
		[HOOK_SENDMSG] = "sendmsg",
		[HOOK_DEVICE_LIST] = "ibv_get_device_list",
		[HOOK_OPEN_DEVICE] = "ibv_open_device",
		[HOOK_QUERY_DEVICE] = "ibv_query_device",
		[HOOK_ALLOC_PD] = "ibv_alloc_pd",
		[HOOK_QUERY_GID] = "ibv_query_gid_ex",
		[HOOK_QUERY_PORT] = "ibv_query_port",
		[HOOK_REG_MR] = "ibv_reg_mr",
		[HOOK_CREATE_CQ] = "ibv_create_cq",
		[HOOK_CREATE_SRQ] = "ibv_create_srq",
		[HOOK_CREATE_QP] = "ibv_create_qp",
		[HOOK_MODIFY_QP] = "ibv_modify_qp",
		[HOOK_POST_SEND] = "ibv_post_send",
		[HOOK_POLL_CQ] = "ibv_poll_cq",
		[HOOK_DEREG_MR] = "ibv_dereg_mr",
		[HOOK_DESTROY_CQ] = "ibv_destroy_cq",
		[HOOK_DESTROY_QP] = "ibv_destroy_qp",
	};

	return names[which];
}
