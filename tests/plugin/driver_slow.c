/* SPDX-License-Identifier: Apache-2.0 */
/* A rail is lost and comes back while verbs on its device take long: messages don't wait for them,
 * and whatever is closed, forked or unloaded meanwhile leaves nothing behind. Both ends are in this
 * process, on node 1. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/plugin/driver_loss.h"

#define SLOW_MS 1000

static void slow(const char *verb, unsigned int ms)
{
	loss_ctl("slow", verb, 1000 * ms);
}

/* The longest gap between messages is shorter than any of the verbs. */
static void lose_and_return(const char *const *verbs)
{
	struct ends ends;
	void *ctx = loss_start(&ends);
	uint64_t gap, more;

	for (unsigned int k = 0; k < 10; k++)
		(void)loss_move(&ends);
	for (const char *const *verb = verbs; *verb; verb++)
		slow(*verb, SLOW_MS);
	loss_port("sup", false);
	gap = loss_move_until(&ends, &loss_lost, 2);
	loss_port("sup", true);
	more = loss_move_until(&ends, &loss_back, 2);
	for (const char *const *verb = verbs; *verb; verb++)
		slow(*verb, 0);
	(void)printf("verbs of %u ms: the longest message took %u ms at the loss, %u ms until the "
		     "rail was back\n",
		     SLOW_MS, (unsigned int)gap, (unsigned int)more);
	CHECK(gap < SLOW_MS && more < SLOW_MS);
	for (unsigned int k = 0; k < 10; k++)
		(void)loss_move(&ends);
	loss_stop(&ends, ctx);
}

static void slow_make(void)
{
	static const char *const verbs[] = { "destroy_qp", "create_qp", NULL };

	lose_and_return(verbs);
}

/* Messages that take the other rail alone don't wait for the queue pairs to go to ERR. */
static void slow_modify(void)
{
	static const char *const verbs[] = { "modify_qp", NULL };

	lose_and_return(verbs);
}

/* A child takes no part: what it closes is at once over, and it ends. */
static void fork_meanwhile(struct ends *ends, void *ctx)
{
	pid_t pid = fork();
	int status = -1;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(net->closeSend(ends->send) == ncclSuccess);
		CHECK(net->closeRecv(ends->recv) == ncclSuccess);
		CHECK(net->finalize(ctx) == ncclSuccess);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Closed, finalized and unloaded at each moment of loss and return. */
static void slow_close(void)
{
	static const char *const verbs[] = { "destroy_qp", "create_qp", "modify_qp", NULL };

	for (unsigned int ms = 0; ms < 600; ms += 100) {
		struct ends ends;
		void *ctx = loss_start(&ends);

		(void)loss_move(&ends);
		for (const char *const *verb = verbs; *verb; verb++)
			slow(*verb, 50);
		loss_port("sup", false);
		if (ms % 200 == 0) /* else a return is under way that follows the loss at once */
			(void)loss_move_until(&ends, &loss_lost, 2);
		loss_port("sup", true);
		for (uint64_t until = clock_ms() + ms; clock_ms() < until;)
			(void)loss_move(&ends);
		fork_meanwhile(&ends, ctx);
		loss_stop(&ends, ctx);
		CHECK(count_threads("mpib-rail") == 0);
		loss_ctl("reset", NULL, 0);
	}
	await_end_of_watch();
}

const struct trap slow_traps[] = {
	{ "slow-make", slow_make },
	{ "slow-modify", slow_modify },
	{ "slow-close", slow_close },
	{ NULL, NULL },
};
