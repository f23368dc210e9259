/* SPDX-License-Identifier: Apache-2.0 */
/* What failover stands on: once an end has moved its queue pair to the error state and has polled
 * what was complete by then, nothing of that queue pair reaches its memory any more, and whatever
 * the other end saw acknowledged has its completion here. */
#include "tests/fabric/conform/conform.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#define ROUNDS	  10
#define WRITES	  900
#define MOMENT	  20 /* messages after which the error state comes, and as many more a round */
#define IN_FLIGHT 16

static uint64_t memory(const struct pair *p)
{
	return atomic_load((_Atomic uint64_t *)(uintptr_t)(p->buf + ARENA));
}

static int successes(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(cq, 1, &wc) == 1)
		n += wc.status == IBV_WC_SUCCESS;
	return n;
}

static void to_error(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (ibv_modify_qp(p->qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
}

/* One completion. The other end says when it has stopped: what isn't acknowledged by then never
 * will be, and need not be tried until the retries run out. */
static struct ibv_wc completion(struct pair *p)
{
	struct pollfd word = { .fd = p->side->sock, .events = POLLIN };
	struct ibv_wc wc;

	for (unsigned int k = 1; ibv_poll_cq(p->send_cq, 1, &wc) != 1; k++)
		if (k % 256 == 0 && poll(&word, 1, 0) == 1) {
			to_error(p);
			return await(p->send_cq);
		}
	return wc;
}

/* Writes numbers until it fails; how many were acknowledged. */
static int write_numbers(struct pair *p)
{
	uint64_t *numbers = (uint64_t *)(void *)p->buf;
	int posted = 0, acked = 0;

	for (;;) {
		struct ibv_wc wc;

		while (posted < WRITES && posted < acked + IN_FLIGHT) {
			numbers[posted] = (uint64_t)posted + 1;
			if (post(p, IBV_WR_RDMA_WRITE_WITH_IMM, 1, (uint64_t)posted * 8, 8,
				 IBV_SEND_SIGNALED))
				die("post_send");
			posted++;
		}
		wc = completion(p);
		if (wc.status != IBV_WC_SUCCESS || ++acked == WRITES)
			return acked;
	}
}

/* Returns the immediates that had completed when the error state was there. */
static int stop_in_the_middle(struct pair *p, int moment, bool *ret_final)
{
	uint64_t at;
	int n = 0;

	while (n < moment) {
		if (await(p->recv_cq).status != IBV_WC_SUCCESS)
			die("an immediate");
		n++;
	}
	to_error(p);
	n += successes(p->recv_cq);
	at = memory(p);
	(void)usleep(50000);
	*ret_final = successes(p->recv_cq) == 0 && memory(p) == at;
	return n;
}

void check_final(struct side *s)
{
	struct pair_options options = { .srq = true, .recv_wr = 1024, .cqe = 2048 };
	int final = 0, known = 0;

	for (int round = 0; round < ROUNDS; round++) {
		int mine, theirs;
		bool is_final = true;
		struct pair p;

		pair_open(s, &p, &options);
		for (uint64_t k = 0; !s->client && k < WRITES; k++)
			if (post_recv(&p, k, 2 * ARENA, 8))
				die("post_recv");
		sync_ends(s);
		mine = s->client ? write_numbers(&p)
				 : stop_in_the_middle(&p, MOMENT * (round + 1), &is_final);
		swap_bytes(s, &mine, &theirs, sizeof(mine));
		final += is_final;
		known += s->client ? mine <= theirs : theirs <= mine;
		pair_close(&p);
	}
	expect_int(s, "final.nothing_after_err", final, ROUNDS);
	expect_int(s, "final.acknowledged_is_known", known, ROUNDS);
}
