/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that help whoever holds the engine's lock to copy: a long part is cut among them and the
 * holder. One thread copies a few GB/s, less than what two rails and a program ask for on a large
 * machine; with `copiers` in the configuration the fabric keeps up. A helper that was busy a moment
 * ago spins for the next part, then sleeps. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHARE_MIN 8192	 /* bytes of a part that are worth handing over */
#define SPIN_NS	  100000 /* how long a helper looks for more before it sleeps */

enum turn {
	TURN_REST, /* nothing to do, the helper spins */
	TURN_SLEEP,
	TURN_COPY,
	TURN_END
};

struct helper {
	_Alignas(64) _Atomic uint32_t turn;
	uint8_t *to; /* below: the holder's until TURN_COPY, then the helper's until TURN_REST */
	const uint8_t *from;
	size_t len;
	pthread_t thread;
};

static struct helper crew[FAB_COPIERS_MAX];
static unsigned int crew_size; /* engine lock */

static void relax(unsigned int *spins)
{
	if (++*spins % 128 == 0)
		(void)sched_yield();
	else
		atomic_signal_fence(memory_order_seq_cst);
}

static void sleep_while(struct helper *h, uint32_t turn)
{
	(void)syscall(SYS_futex, &h->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
}

static void hand_over(struct helper *h, uint32_t turn)
{
	if (atomic_exchange_explicit(&h->turn, turn, memory_order_acq_rel) == TURN_SLEEP)
		(void)syscall(SYS_futex, &h->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *help(void *arg)
{
	struct helper *h = arg;
	uint64_t idle_since = fab_now();
	unsigned int spins = 0;

	(void)pthread_setname_np(pthread_self(), "mpib-copier");
	for (;;) {
		uint32_t turn = atomic_load_explicit(&h->turn, memory_order_acquire);

		switch (turn) {
		case TURN_COPY:
			fab_copy_bulk(h->to, h->from, h->len);
			atomic_store_explicit(&h->turn, TURN_REST, memory_order_release);
			idle_since = fab_now();
			break;
		case TURN_END:
			return NULL;
		case TURN_SLEEP:
			sleep_while(h, TURN_SLEEP);
			break;
		default:
			relax(&spins);
			if (fab_now() - idle_since > SPIN_NS)
				(void)atomic_compare_exchange_strong(&h->turn, &turn, TURN_SLEEP);
		}
	}
}

int fab_crew_start(unsigned int size)
{
	sigset_t all, old;
	int r = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	for (crew_size = 0; crew_size < size && r == 0; crew_size += r == 0) {
		struct helper *h = &crew[crew_size];

		atomic_store(&h->turn, TURN_REST);
		r = -pthread_create(&h->thread, NULL, help, h);
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		fab_crew_end();
	return r;
}

void fab_crew_end(void)
{
	while (crew_size) {
		struct helper *h = &crew[--crew_size];

		hand_over(h, TURN_END);
		(void)pthread_join(h->thread, NULL);
	}
}

void fab_crew_forget(void)
{
	crew_size = 0;
}

void fab_crew_copy(uint8_t *to, const uint8_t *from, size_t len)
{
	size_t share = len / (crew_size + 1) & ~(size_t)63;
	unsigned int used = share < SHARE_MIN ? 0 : crew_size, spins = 0;

	for (unsigned int k = 0; k < used; k++) {
		struct helper *h = &crew[k];

		h->to = to + k * share;
		h->from = from + k * share;
		h->len = share;
		hand_over(h, TURN_COPY);
	}
	fab_copy_bulk(to + used * share, from + used * share, len - used * share);
	for (unsigned int k = 0; k < used; k++)
		while (atomic_load_explicit(&crew[k].turn, memory_order_acquire) == TURN_COPY)
			relax(&spins);
}
