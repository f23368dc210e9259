/* SPDX-License-Identifier: Apache-2.0 */
/* All that NCCL may have under way, completed and looked at by nobody: no completion queue is too
 * small for it. The fabric raises an event where one overflows, and the plugin logs it. */
#include "tests/plugin/driver.h"

#include <string.h>

#define REQUESTS 256 /* NCCL's 32, times a group of 8 */
#define QUIET_MS 400 /* nobody polls meanwhile */
#define MOVE_MS	 60000

enum kind { WHOLE, GROUPS, CUT, MIXED, KINDS };

struct load {
	void *send[REQUESTS], *recv[REQUESTS];
	unsigned int sends, recvs;
};

/* Of message @n; a port's limit is 4 KiB here. */
static size_t size_of(enum kind kind, unsigned int n)
{
	if (kind == CUT)
		return 40000;
	/* One for each QP of SOUT: nearly all that it takes of cut messages. */
	return kind == MIXED && n < 2 ? (size_t)2 * 60 * 4096 : 3000;
}

static void fabricctl(const char *what)
{
	const char *tool = getenv("FABRICCTL");
	char command[512];

	for (unsigned int rail = 0; rail < 2; rail++) {
		CHECK(tool && snprintf(command, sizeof(command), "%s port 1/%s %s", tool,
				       rail ? "sup" : "sout", what) < (int)sizeof(command));
		CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the test's own tool */
	}
}

static bool one_receive(struct ends *ends, enum kind kind, unsigned int n, void **ret)
{
	void *in[8], *mrs[8];
	size_t room[8];
	int tags[8];

	for (unsigned int k = 0; k < 8; k++) {
		in[k] = ends->in + (size_t)k * 65536;
		mrs[k] = ends->recv_mr;
		room[k] = size_of(kind, n);
		tags[k] = (int)k;
	}
	*ret = NULL;
	CHECK(net->irecv(ends->recv, kind == GROUPS ? 8 : 1, in, room, tags, mrs, NULL, ret) ==
	      ncclSuccess);
	return *ret != NULL;
}

static bool one_send(struct ends *ends, enum kind kind, unsigned int n, void **ret)
{
	*ret = NULL;
	CHECK(net->isend(ends->send, ends->out, size_of(kind, n), kind == GROUPS ? (int)(n % 8) : 0,
			 ends->send_mr, NULL, ret) == ncclSuccess);
	return *ret != NULL;
}

/* Until nothing more is taken, for as long as a clear-to-send may be on its way. */
static void load_sends(struct ends *ends, enum kind kind, struct load *load, unsigned int most)
{
	for (uint64_t until = clock_ms() + 200; load->sends < most && clock_ms() < until;)
		if (one_send(ends, kind, load->sends, &load->send[load->sends])) {
			load->sends++;
			until = clock_ms() + 200;
		}
}

static void load_receives(struct ends *ends, enum kind kind, struct load *load, unsigned int most)
{
	while (load->recvs < most && one_receive(ends, kind, load->recvs, &load->recv[load->recvs]))
		load->recvs++;
}

/* Tests each once: how many are left, or -1 where one has failed. */
static int test_all(struct load *load)
{
	int left = 0;

	for (unsigned int k = 0; k < load->sends + load->recvs; k++) {
		void **request = k < load->sends ? &load->send[k] : &load->recv[k - load->sends];
		int done = 0;

		if (!*request)
			continue;
		if (net->test(*request, &done, NULL) != ncclSuccess)
			return -1;
		if (done)
			*request = NULL;
		left += !done;
	}
	return left;
}

static unsigned int rows(enum kind kind)
{
	return kind == GROUPS ? REQUESTS / 8 : REQUESTS;
}

/* All that fits, moved without a look at any completion. */
static void unpolled(struct ends *ends, enum kind kind)
{
	uint64_t until = clock_ms() + MOVE_MS;
	struct load load = { .sends = 0 };

	load_receives(ends, kind, &load, rows(kind));
	load_sends(ends, kind, &load, REQUESTS);
	CHECK(load.recvs == rows(kind));
	CHECK(load.sends == REQUESTS || kind != WHOLE);
	sleep_ms(QUIET_MS);
	CHECK(warnings == 0);
	/* What waited for room goes on while others are tested. */
	for (int left = 1; left || load.sends < REQUESTS;) {
		if (load.sends < REQUESTS)
			load.sends += one_send(ends, kind, load.sends, &load.send[load.sends]);
		left = test_all(&load);
		CHECK(left >= 0 && clock_ms() < until);
	}
	CHECK(warnings == 0);
}

/* The rails break with all of it in the queues: each request completes, those that never asked for
 * a completion, too. */
static void broken(struct ends *ends, enum kind kind, bool receiver)
{
	struct load load = { .sends = 0 };
	uint64_t until = clock_ms() + MOVE_MS;
	unsigned int first = receiver ? rows(kind) / 2 : rows(kind);

	load_receives(ends, kind, &load, first);
	if (receiver) {
		load_sends(ends, kind, &load, rows(kind) == REQUESTS ? first : REQUESTS / 2);
		sleep_ms(QUIET_MS); /* immediates that nobody takes */
		fabricctl("down");
		load_receives(ends, kind, &load, rows(kind)); /* and clear-to-sends that fail */
	} else {
		sleep_ms(QUIET_MS);
		fabricctl("down");
		load_sends(ends, kind, &load, REQUESTS);
		CHECK(load.sends == REQUESTS || kind == GROUPS || kind == CUT);
	}
	sleep_ms(QUIET_MS);
	CHECK(load.recvs == rows(kind));
	while (test_all(&load) > 0)
		CHECK(clock_ms() < until);
	fabricctl("up");
}

static void completion_queues(void)
{
	struct ends ends;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	for (unsigned int kind = 0; kind < KINDS; kind++) {
		ends_open(&ends, ctx);
		unpolled(&ends, kind);
		ends_close(&ends);
	}
	for (unsigned int k = 0; k < 2 * KINDS; k++) {
		warnings = 0;
		ends_open(&ends, ctx);
		broken(&ends, k / 2, k & 1);
		ends_close(&ends);
	}
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

const struct trap queue_traps[] = {
	{ "completion-queues", completion_queues },
	{ NULL, NULL },
};
