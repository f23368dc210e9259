/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains and memory regions. A key is an index and eight bits that change with each use
 * of the index, so that a stale key is refused. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#undef ibv_reg_mr /* macros that choose a version */
#undef ibv_reg_mr_iova

#define ACCESS_KNOWN                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_OPTIONAL_RANGE)

FAB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fab_context *ctx = fab_context_of(context);
	int err = fab_fault(ctx->dev, FAB_VERB_ALLOC_PD);
	struct fab_pd *pd;

	if (err) {
		errno = err;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->pd.context = context;
	return &pd->pd;
}

FAB_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct fab_pd *pd = mpib_container_of(ibpd, struct fab_pd, pd);
	struct fab_context *ctx = fab_context_of(ibpd->context);
	int err = fab_fault(ctx->dev, FAB_VERB_DEALLOC_PD);

	if (err)
		return err;
	if (atomic_load(&pd->objects))
		return EBUSY;
	free(pd);
	return 0;
}

/* --- keys, engine lock --- */

static int key_new(struct fab_mr *mr, uint32_t *ret_key)
{
	uint32_t at;

	if (fab.mr_count >= fab.mr_max) {
		uint32_t max = fab.mr_max ? fab.mr_max * 2 : 256;
		struct fab_mr **mrs = realloc(fab.mrs, max * sizeof(*mrs));

		if (!mrs)
			return -ENOMEM;
		memset(mrs + fab.mr_max, 0, (max - fab.mr_max) * sizeof(*mrs));
		fab.mrs = mrs;
		fab.mr_max = max;
	}
	for (at = fab.mr_next % fab.mr_max; fab.mrs[at]; at = (at + 1) % fab.mr_max)
		;
	fab.mr_next++;
	fab.mrs[at] = mr;
	fab.mr_count++;
	*ret_key = (at + 1) << 8 | ((fab.mr_next * 37 + fab.meeting.slot) & 0xff);
	return 0;
}

struct fab_mr *fab_mr_find(uint32_t key, struct ibv_pd *pd, uint64_t addr, uint64_t length,
			   unsigned int access)
{
	uint32_t at = (key >> 8) - 1;
	struct fab_mr *mr;

	if (at >= fab.mr_max)
		return NULL;
	mr = fab.mrs[at];
	if (!mr || mr->mr.lkey != key || mr->mr.pd != pd || (mr->access & access) != access)
		return NULL;
	if (addr < mr->iova || length > mr->mr.length || addr - mr->iova > mr->mr.length - length)
		return NULL;
	return mr;
}

/* --- registration --- */

/* What the kernel finds out by pinning: all of it is there. */
/* Asks the kernel for one read, or for one atomic addition of nothing, of the word at @page. It
 * says EFAULT where pinning for that would; nobody sees a change, device mappings included. */
static bool allows(void *page, bool write)
{
	static const struct timespec no_wait;
	static uint32_t word;
	long r;

	if (write)
		r = syscall(SYS_futex, &word, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, page,
			    FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0));
	else
		r = syscall(SYS_futex, page, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &no_wait, NULL, 0);
	return r >= 0 || errno != EFAULT;
}

/* All of it is mapped, and its first and last page allow what the kernel would pin them for. */
static bool mapped(const void *addr, size_t length, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

	return end > start && msync((void *)start, end - start, MS_ASYNC) == 0 &&
	       allows((void *)start, write) && allows((void *)(end - page), write);
}

/* Engine lock. Counts @length against the limit that the kernel would apply. */
static int charge(struct fab_mr *mr, size_t length)
{
	struct rlimit limit;

	if (!fab.conf->memlock || mr->gpu)
		return 0;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    fab.locked_bytes + length > limit.rlim_cur)
		return -ENOMEM;
	fab.locked_bytes += length;
	mr->locked = length;
	return 0;
}

static int add(struct fab_mr *mr)
{
	int r = -fab_object_take(mr->mr.context, FAB_OBJECT_MR);

	if (r < 0)
		return r;
	fab_engine_lock();
	r = charge(mr, mr->mr.length);
	if (r == 0) {
		fab_pages_mark(mr);
		r = key_new(mr, &mr->mr.lkey);
		if (r < 0)
			fab.locked_bytes -= mr->locked;
	}
	if (r < 0)
		fab_object_drop(mr->mr.context, FAB_OBJECT_MR);
	fab_engine_unlock();
	mr->mr.rkey = mr->mr.handle = mr->mr.lkey;
	return r;
}

static struct ibv_mr *reg(struct ibv_pd *ibpd, void *addr, uint8_t *base, size_t length,
			  uint64_t iova, unsigned int access, void *map, size_t map_len)
{
	struct fab_pd *pd = mpib_container_of(ibpd, struct fab_pd, pd);
	uint32_t dev = fab_context_of(ibpd->context)->dev;
	struct fab_mr *mr;
	int r;

	if ((access & ~(unsigned int)ACCESS_KNOWN) ||
	    ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	     !(access & IBV_ACCESS_LOCAL_WRITE)) ||
	    (access & IBV_ACCESS_RELAXED_ORDERING && !fab_dev_conf(dev)->relaxed_ordering)) {
		errno = EINVAL;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	*mr = (struct fab_mr){
		.mr = { .context = ibpd->context, .pd = ibpd, .addr = addr, .length = length },
		.iova = iova,
		.base = base,
		.access = access,
		.map = map,
		.map_len = map_len,
		.gpu = fab_gpu_pointer(base)
	};
	if (length == 0)
		r = -EINVAL;
	else if (!mr->gpu && !mapped(base, length, access & IBV_ACCESS_LOCAL_WRITE))
		r = -EFAULT;
	else
		r = add(mr);
	if (r < 0) {
		free(mr);
		errno = -r;
		return NULL;
	}
	atomic_fetch_add(&pd->objects, 1);
	fab_trace_mr(mr, dev);
	return &mr->mr;
}

FAB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned int access)
{
	int err = fab_fault(fab_context_of(pd->context)->dev, FAB_VERB_REG_MR);

	if (err) {
		errno = err;
		return NULL;
	}
	return reg(pd, addr, addr, length, iova, access, NULL, 0);
}

FAB_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

FAB_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

/* A DMA-BUF of host memory is mapped here. One of device memory can't be mapped back, but its users
 * pass the device's address as @iova, and the driver knows that one. */
FAB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					    uint64_t iova, int fd, int access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = offset & ~(page - 1);
	int err = fab_fault(fab_context_of(pd->context)->dev, FAB_VERB_REG_MR);
	size_t map_len = length + (size_t)(offset - start);
	struct ibv_mr *mr;
	off_t end;
	void *map;

	if (err) {
		errno = err;
		return NULL;
	}
	/* How programs ask whether a driver knows DMA-BUFs at all. Without device memory nobody
	 * here makes any, and a program that was told yes would count on it. */
	if (fd < 0) {
		errno = fab.conf->gpu ? EBADF : EOPNOTSUPP;
		return NULL;
	}
	if (fab_gpu_pointer((void *)(uintptr_t)iova))
		return reg(pd, (void *)(uintptr_t)iova, (uint8_t *)(uintptr_t)iova, length, iova,
			   (unsigned int)access, NULL, 0);
	end = lseek(fd, 0, SEEK_END);
	if (end >= 0 && (offset > (uint64_t)end || length > (uint64_t)end - offset)) {
		errno = EINVAL;
		return NULL;
	}
	map = mmap(NULL, map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
	if (map == MAP_FAILED)
		return NULL;
	mr = reg(pd, NULL, (uint8_t *)map + (offset - start), length, iova, (unsigned int)access,
		 map, map_len);
	if (!mr) {
		err = errno;
		(void)munmap(map, map_len);
		errno = err;
	}
	return mr;
}

FAB_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct fab_mr *mr = mpib_container_of(ibmr, struct fab_mr, mr);
	struct fab_pd *pd = mpib_container_of(ibmr->pd, struct fab_pd, pd);
	int err = fab_fault(fab_context_of(ibmr->context)->dev, FAB_VERB_DEREG_MR);

	if (err)
		return err;
	/* With the lock in hand nobody copies, and afterwards nobody finds it. */
	fab_engine_lock();
	fab_unseen_settle(mr);
	fab.mrs[(mr->mr.lkey >> 8) - 1] = NULL;
	fab.mr_count--;
	fab.locked_bytes -= mr->locked;
	fab_engine_unlock();
	fab_object_drop(ibmr->context, FAB_OBJECT_MR);
	atomic_fetch_sub(&pd->objects, 1);
	if (mr->map)
		(void)munmap(mr->map, mr->map_len);
	free(mr);
	return 0;
}

FAB_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			    size_t length, int access)
{
	(void)mr;
	(void)flags;
	(void)pd;
	(void)addr;
	(void)length;
	(void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_CMD;
}
