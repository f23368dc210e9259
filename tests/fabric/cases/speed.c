/* SPDX-License-Identifier: Apache-2.0 */
/* fabric-speed: what two processes reach on this machine by a plain ring in shared memory (one
 * copies in, the other copies out), and what one rail reaches with 1 MiB writes, in turns in one
 * run. Exit 1 if the rail's best is under half of the ring's best. */
#include "tests/fabric/conform/conform.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE	 (1U << 20)
#define MESSAGES 2000U
#define PART	 65536U
#define RING	 (1U << 20)
#define DEPTH	 4U
#define ROUNDS	 3

struct shared {
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) uint8_t data[RING];
};

static double seconds(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Waits a little for the other process without keeping it from running. */
static void pause_a_little(unsigned int *spins)
{
	if (++*spins % 256 == 0)
		(void)sched_yield();
}

static void ring_send(struct shared *sh, const uint8_t *from)
{
	unsigned int spins = 0;

	for (uint64_t at = 0; at < (uint64_t)MESSAGES * MESSAGE; at += PART) {
		while (at + PART - atomic_load_explicit(&sh->head, memory_order_acquire) > RING)
			pause_a_little(&spins);
		memcpy(sh->data + at % RING, from + at % MESSAGE, PART);
		atomic_store_explicit(&sh->tail, at + PART, memory_order_release);
	}
}

static void ring_receive(struct shared *sh, uint8_t *to)
{
	unsigned int spins = 0;

	for (uint64_t at = 0; at < (uint64_t)MESSAGES * MESSAGE; at += PART) {
		while (atomic_load_explicit(&sh->tail, memory_order_acquire) < at + PART)
			pause_a_little(&spins);
		memcpy(to + at % MESSAGE, sh->data + at % RING, PART);
		atomic_store_explicit(&sh->head, at + PART, memory_order_release);
	}
}

static double ring_round(struct side *s, struct shared *sh, uint8_t *buf)
{
	double start;

	sync_ends(s);
	if (!s->client) {
		atomic_store(&sh->head, 0);
		atomic_store(&sh->tail, 0);
	}
	sync_ends(s);
	start = seconds();
	if (s->client)
		ring_send(sh, buf);
	else
		ring_receive(sh, buf);
	sync_ends(s);
	return (double)MESSAGES * MESSAGE / (seconds() - start) / 1e9;
}

/* The server waits in a system call: its side is the library's thread alone. */
static double rail_round(struct side *s, struct pair *p)
{
	uint32_t posted = 0, done = 0;
	double start;

	sync_ends(s);
	start = seconds();
	while (s->client && done < MESSAGES) {
		struct ibv_wc wc;

		if (posted < MESSAGES && posted - done < DEPTH) {
			if (post(p, IBV_WR_RDMA_WRITE, posted++, 0, MESSAGE, IBV_SEND_SIGNALED))
				die("post_send");
		} else if (ibv_poll_cq(p->send_cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				die("a write");
			done++;
		}
	}
	sync_ends(s);
	return (double)MESSAGES * MESSAGE / (seconds() - start) / 1e9;
}

static void open_device(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	s->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (!s->ctx)
		die("opening the device");
	s->pd = ibv_alloc_pd(s->ctx);
	if (!s->pd || ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid))
		die("asking the device");
	s->mtu = IBV_MTU_4096;
}

static int run(struct side *s, struct shared *sh)
{
	struct pair_options options = { 0 };
	double ring = 0, rail = 0;
	struct pair p;

	open_device(s);
	pair_open(s, &p, &options);
	for (int round = 0; round < ROUNDS; round++) {
		double a = ring_round(s, sh, p.buf), b = rail_round(s, &p);

		ring = a > ring ? a : ring;
		rail = b > rail ? b : rail;
	}
	pair_close(&p);
	if (ibv_dealloc_pd(s->pd) || ibv_close_device(s->ctx))
		die("closing");
	if (s->client)
		return 0;
	(void)printf("ring copy %.2f GB/s, one rail with 1 MiB writes %.2f GB/s, ratio %.2f\n",
		     ring, rail, rail / ring);
	return rail < ring / 2;
}

int main(void)
{
	struct side side = { .gid_index = 3 };
	int socks[2], status = 0, r;
	struct shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (sh == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, socks) < 0)
		die("set-up");
	pid = fork();
	if (pid < 0)
		die("fork");
	side.client = pid == 0;
	side.sock = socks[side.client];
	(void)close(socks[!side.client]);
	(void)setenv("MPIB_FABRIC_NODE", side.client ? "2" : "1", 1);
	r = run(&side, sh);
	if (side.client)
		return r;
	(void)waitpid(pid, &status, 0);
	return r || status;
}
