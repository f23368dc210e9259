/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection goes through the interface of a rail that is lost: the other rail takes
 * over all the same, and the rail comes back. Both ends are in this process, on node 1, whose
 * control connections are on a loopback of their own. */
#include <string.h>

#include "tests/plugin/driver_loss.h"

#define PROMPT_MS 3000 /* what must not wait for the control connection, which ends after ten s */

static void loopback(bool up)
{
	/* NOLINTNEXTLINE(cert-env33-c): the test's own network namespace */
	CHECK(system(up ? "ip link set lo up" : "ip link set lo down") == 0);
}

static void lose(struct ends *ends, const char *rail)
{
	const unsigned int lost = atomic_load(&loss_lost);

	loss_port(rail, false);
	CHECK(loss_move_until(ends, &loss_lost, lost + 2) < PROMPT_MS);
}

static void find(struct ends *ends, const char *rail)
{
	const unsigned int back = atomic_load(&loss_back);

	loss_port(rail, true);
	CHECK(loss_move_until(ends, &loss_back, back + 2) < PROMPT_MS);
}

/* With the socket there, without a way through it, and when it has ended. */
static void control_lost(void)
{
	struct ends ends;
	void *ctx = loss_start(&ends);

	for (unsigned int k = 0; k < 10; k++)
		(void)loss_move(&ends);
	loopback(false);
	lose(&ends, "sout");
	find(&ends, "sout");
	(void)loss_move_until(&ends, &loss_control, 2);
	lose(&ends, "sout");
	find(&ends, "sout");
	lose(&ends, "sup");
	find(&ends, "sup");
	loss_stop(&ends, ctx);
}

/* It comes through again: what was said meanwhile was heard, and isn't acted on twice. */
static void control_back(void)
{
	struct ends ends;
	void *ctx = loss_start(&ends);

	(void)loss_move(&ends);
	loopback(false);
	lose(&ends, "sout");
	loopback(true);
	for (uint64_t until = clock_ms() + 3000; clock_ms() < until;)
		(void)loss_move(&ends);
	find(&ends, "sout");
	lose(&ends, "sup");
	find(&ends, "sup");
	CHECK(atomic_load(&loss_control) == 0);
	CHECK(atomic_load(&loss_lost) == 4 && atomic_load(&loss_back) == 4);
	loss_stop(&ends, ctx);
}

/* Then the last rail: both ends fail at once, since no rail can come back. */
static void control_last(void)
{
	void *in, *recv = NULL;
	ncclResult_t r = ncclSuccess;
	struct ends ends;
	void *ctx = loss_start(&ends);
	uint64_t until;
	size_t room = 100;
	int tag = 3, done = 0;

	loopback(false);
	(void)loss_move_until(&ends, &loss_control, 2);
	in = ends.in;
	CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &recv) ==
	      ncclSuccess);
	CHECK(recv);
	/* nothing is under way but a question, each second */
	loss_port("sup", false);
	loss_port("sout", false);
	for (until = clock_ms() + LOSS_BOUND_MS; r == ncclSuccess && clock_ms() < until;)
		r = net->test(recv, &done, NULL);
	CHECK(r == ncclRemoteError && !done);
	loss_stop(&ends, ctx);
}

const struct trap control_traps[] = {
	{ "control-lost", control_lost },
	{ "control-back", control_back },
	{ "control-last", control_last },
	{ NULL, NULL },
};
