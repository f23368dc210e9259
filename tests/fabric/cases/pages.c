/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that was unmapped, or mapped anew, since it was registered: with MPIB_FABRIC_PAGES=1 no
 * key leads there, though the address is good. */
#include "tests/fabric/cases/faults.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE  4096u
#define PAGES 16u

/* A QP connected to itself, and an arena that is registered. */
struct arena {
	struct pair pair;
	struct ibv_mr *mr;
	uint8_t *at;
};

static void map(uint8_t *at, size_t pages, int shared)
{
	require(mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
		     MAP_FIXED | MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0) == at,
		"a mapping");
}

static void arena_open(struct side *s, struct arena *a, int shared)
{
	struct pair_options options = { .no_connect = true };

	pair_open(s, &a->pair, &options);
	a->pair.peer = a->pair.mine;
	require(!to_init(&a->pair, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) &&
			!to_rtr(&a->pair) && !to_rts(&a->pair, &options),
		"a QP connected to itself");
	a->at = mmap(NULL, (size_t)PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(a->at != MAP_FAILED, "addresses");
	map(a->at, PAGES, shared);
	a->mr = ibv_reg_mr(s->pd, a->at, (size_t)PAGES * PAGE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	require(a->mr != NULL, "a registration");
}

static void arena_close(struct arena *a)
{
	require(!ibv_dereg_mr(a->mr) && !munmap(a->at, (size_t)PAGES * PAGE), "the end");
	pair_close(&a->pair);
}

/* Between the pair's buffer and @pages pages of the arena from @first on. */
static enum ibv_wc_status move(struct arena *a, enum ibv_wr_opcode op, bool arena_is_local,
			       size_t first, uint32_t pages)
{
	struct pair *p = &a->pair;
	struct ibv_sge arena = { (uintptr_t)(a->at + first * PAGE), pages * PAGE, a->mr->lkey };
	struct ibv_sge buffer = { (uintptr_t)p->buf, pages * PAGE, p->mr->lkey };
	struct ibv_sge *local = arena_is_local ? &arena : &buffer;
	struct ibv_sge *remote = arena_is_local ? &buffer : &arena;
	struct ibv_send_wr *bad, wr = {
		.opcode = op, .sg_list = local, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED
	};

	wr.wr.rdma.remote_addr = remote->addr;
	wr.wr.rdma.rkey = remote->lkey;
	require(ibv_post_send(p->qp, &wr, &bad) == 0, "a post");
	return await(p->send_cq).status;
}

/* Each way to touch the arena (the QP is its own peer, so either end's error may come first), after
 * a change that leaves the pages below @first and from @end on.
 */
static void each_way(struct side *s, void (*change)(struct arena *a), size_t first, size_t end,
		     int shared)
{
	static const struct {
		enum ibv_wr_opcode op;
		bool arena_is_local;
	} ways[] = {
		{ IBV_WR_RDMA_WRITE, false },
		{ IBV_WR_RDMA_READ, false },
		{ IBV_WR_RDMA_WRITE, true },
		{ IBV_WR_RDMA_READ, true },
	};

	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
		struct arena a;

		arena_open(s, &a, shared);
		require(move(&a, ways[k].op, ways[k].arena_is_local, 0, PAGES) == IBV_WC_SUCCESS,
			"all of it as registered");
		change(&a);
		require(move(&a, ways[k].op, ways[k].arena_is_local, 0, (uint32_t)first) ==
				IBV_WC_SUCCESS,
			"what is below the change");
		require(move(&a, ways[k].op, ways[k].arena_is_local, end, PAGES - (uint32_t)end) ==
				IBV_WC_SUCCESS,
			"what is above the change");
		require(move(&a, ways[k].op, ways[k].arena_is_local, first, 1) != IBV_WC_SUCCESS,
			"the changed pages to be refused");
		arena_close(&a);
	}
}

static void unmapped(struct arena *a)
{
	require(munmap(a->at + 4 * PAGE, (size_t)4 * PAGE) == 0, "munmap");
}

static void mapped_anew(struct arena *a)
{
	unmapped(a);
	map(a->at + 4 * PAGE, 4, 0);
}

static void mapped_over(struct arena *a)
{
	map(a->at + 4 * PAGE, 4, 1);
}

/* The pages move away, and others come. */
static void moved_away(struct arena *a)
{
	uint8_t *from = a->at + 4 * PAGE;
	void *to =
		mremap(from, (size_t)4 * PAGE, (size_t)4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       mmap(NULL, (size_t)4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	require(to != MAP_FAILED && munmap(to, (size_t)4 * PAGE) == 0, "mremap");
	map(from, 4, 0);
}

/* Another registration of the new pages doesn't make the old key good. */
static void registered_anew(struct arena *a)
{
	struct ibv_mr *mr;

	mapped_anew(a);
	mr = ibv_reg_mr(a->mr->pd, a->at + 4 * PAGE, (size_t)4 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	require(mr && ibv_dereg_mr(mr) == 0, "another registration");
}

static void pages(struct side *s)
{
	struct arena a;

	/* 1: from user mode alone, which needs no right */
	if (syscall(SYS_userfaultfd, O_CLOEXEC | 1) < 0)
		_exit(77);
	if (s->client)
		return;
	each_way(s, unmapped, 4, 8, 0);
	each_way(s, mapped_anew, 4, 8, 0);
	each_way(s, mapped_anew, 4, 8, 1);
	each_way(s, mapped_over, 4, 8, 0);
	each_way(s, moved_away, 4, 8, 0);
	/* From here on all of the key is lost: it was found out without a use. */
	arena_open(s, &a, 0);
	registered_anew(&a);
	require(move(&a, IBV_WR_RDMA_WRITE, false, 4, 1) != IBV_WC_SUCCESS,
		"a registration anew not to help the old key");
	arena_close(&a);
	/* As a program does that keeps its memory: registered often, grown, read-only for a time.
	 */
	arena_open(s, &a, 0);
	for (unsigned int k = 0; k < 100; k++) {
		struct ibv_mr *mr = ibv_reg_mr(s->pd, a.at + (k % 8) * PAGE, (size_t)8 * PAGE, 0);

		require(mr && ibv_dereg_mr(mr) == 0, "registrations inside");
	}
	require(mprotect(a.at, PAGE, PROT_READ) == 0 &&
			mprotect(a.at, PAGE, PROT_READ | PROT_WRITE) == 0,
		"mprotect");
	require(move(&a, IBV_WR_RDMA_WRITE, false, 0, PAGES) == IBV_WC_SUCCESS, "a kept key");
	arena_close(&a);
}

const struct fault_case page_cases[] = {
	{ .name = "pages", .run = pages },
	{ 0 },
};
