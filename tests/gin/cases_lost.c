/* SPDX-License-Identifier: Apache-2.0 */
/* Rails and devices that are lost, and verbs that fail: the mesh fails as a whole, with a line that
 * names the rail, and nothing that was under way is reported done. FABRICCTL makes the faults. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define BYTES 100000 /* more than takes SOUT whole */

static void ctl(const char *words)
{
	const char *tool = getenv("FABRICCTL");
	char line[512];

	CHECK(tool && snprintf(line, sizeof(line), "%s %s", tool, words) < (int)sizeof(line));
	CHECK(system(line) == 0);
}

/* Calls until one fails; that is soon. */
static ncclResult_t put_until_it_fails(struct mesh *mesh, size_t size, void **ret_request)
{
	ncclResult_t result = ncclSuccess;
	uint64_t end = clock_ms() + 20000;
	int done = 0;

	*ret_request = NULL;
	while (result == ncclSuccess && clock_ms() < end) {
		if (*ret_request) {
			CHECK(table->test(mesh->coll, *ret_request, &done) == ncclSuccess);
			if (done)
				*ret_request = NULL;
		}
		if (!*ret_request)
			result = table->iput(mesh->coll, 0, mesh->data.handle, size, 0,
					     mesh->data.handle, (uint32_t)((rank + 1) % ranks),
					     ret_request);
		else
			result = table->iput(mesh->coll, 0, mesh->data.handle, 0, 0, NULL,
					     (uint32_t)rank, &(void *){ NULL });
		(void)usleep(1000);
	}
	return result;
}

/* Every rank's mesh fails; what is left can be closed. */
static void lost(const char *fault, size_t size, ncclResult_t here, const char *line)
{
	struct mesh mesh = { 0 };
	ncclResult_t result;
	void *request;
	int done = 0;

	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	mesh_open(&mesh, BYTES);
	await(&mesh, put_signal(&mesh, (rank + 1) % ranks, 0, BYTES, 0, 1));
	barrier();
	if (rank == 0 && getenv("MPIB_TEST_FAULT"))
		ctl(getenv("MPIB_TEST_FAULT"));
	if (rank == 0)
		ctl(fault);
	barrier();
	result = put_until_it_fails(&mesh, size, &request);
	CHECK(result == (rank == 0 ? here : ncclRemoteError));
	CHECK(strstr(warned_text(), "device-initiated communication of rank"));
	CHECK(rank != 0 || strstr(warned_text(), line));
	if (request)
		CHECK(table->test(mesh.coll, request, &done) == ncclSuccess && !done);
	CHECK(table->iput(mesh.coll, 0, mesh.data.handle, 8, 0, mesh.data.handle, (uint32_t)rank,
			  &request) == result);
	CHECK(table->deregMrSym(mesh.coll, mesh.data.mhandle) == ncclSuccess);
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

static void sup_cut(void)
{
	(void)setenv("MPIB_FAILOVER", "0", 1);
	lost("port 1/sup down", BYTES, ncclRemoteError, "SUP rail sup");
}

/* ---- a mesh that goes on --------------------------------------------------------------------- */

#define OPS	   20
#define SUP_WRITES 33 /* that a rank has at least in rounds with one other */
/* Of the window; what one rank puts to this one. */
#define PLACE (OPS * 72000u)

static bool one_way; /* only the first rank puts anything on SUP */

static size_t op_size(int from, unsigned int k)
{
	static const size_t sizes[] = { 20000, 100, 70001, 0, 12000 };

	return one_way && from != 0 ? k % 5 : sizes[k % 5];
}

/* Some have no signal: the next one is theirs, too. */
static bool op_signals(unsigned int k)
{
	return k % 5 != 0 && k % 5 != 2;
}

static uint64_t op_seed(int from, unsigned int k, uint64_t round)
{
	return round * 1000000 + (uint64_t)from * 1000 + k;
}

static uint64_t place_of(int from, unsigned int k)
{
	return (uint64_t)from * PLACE + k * 72000ull;
}

/* What each rank puts is read from the place that the own rank has in its own
 * window. */
static void put_round(struct mesh *mesh, uint64_t round, void *request[RANKS_MAX][OPS])
{
	for (unsigned int k = 0; k < OPS; k++)
		fill(mesh->data.at + place_of(rank, k), op_size(rank, k), op_seed(rank, k, round));
	for (unsigned int k = 0; k < OPS; k++)
		for (int n = 1; n < ranks; n++) {
			int to = (rank + n) % ranks;

			request[to][k] =
				op_signals(k) ? put_signal(mesh, to, place_of(rank, k),
							   op_size(rank, k), (size_t)rank, 1)
					      : put(mesh, to, place_of(rank, k), op_size(rank, k));
		}
}

static void check_ops(const struct mesh *mesh, int from, unsigned int until, uint64_t round)
{
	for (unsigned int k = 0; k < until; k++)
		CHECK(holds(mesh->data.at + place_of(from, k), op_size(from, k),
			    op_seed(from, k, round)));
}

/* Each signal announces all that its sender has put before it. */
static void check_round(struct mesh *mesh, int from, uint64_t round)
{
	uint64_t seen = 0, signals = 0;

	for (unsigned int k = 0; k < OPS; k++)
		signals += op_signals(k);
	for (unsigned int k = 0; k < OPS; k++) {
		seen += op_signals(k);
		if (!op_signals(k))
			continue;
		await_signal(mesh, (size_t)from, (round - 1) * signals + seen);
		check_ops(mesh, from, k + 1, round);
	}
	CHECK(signal_value(mesh, (size_t)from) == round * signals);
}

static void await_all(struct mesh *mesh, void *request[RANKS_MAX][OPS])
{
	for (int n = 1; n < ranks; n++)
		for (unsigned int k = 0; k < OPS; k++)
			await(mesh, request[(rank + n) % ranks][k]);
}

/* All ranks add to a word of each other one at once, through which rail ever. */
#define CROWD (SIGNALS - 1)
#define ADDS  6 /* of a rank to each word, a round */

static void crowd(struct mesh *mesh, void *request[RANKS_MAX][ADDS])
{
	for (unsigned int k = 0; k < ADDS; k++)
		for (int n = 1; n < ranks; n++) {
			int to = (rank + n) % ranks;

			request[to][k] = put_signal(mesh, to, 0, 0, CROWD, 1);
		}
}

static void await_crowd(struct mesh *mesh, void *request[RANKS_MAX][ADDS], uint64_t round)
{
	for (int n = 1; n < ranks; n++)
		for (unsigned int k = 0; k < ADDS; k++)
			await(mesh, request[(rank + n) % ranks][k]);
	await_signal(mesh, CROWD, round * ADDS * (uint64_t)(ranks - 1));
}

/* Both rails have brought something, or each end's packets say nothing of what it had got. */
static void warm_up(struct mesh *mesh)
{
	for (int n = 1; n < ranks; n++)
		await(mesh, put_signal(mesh, (rank + n) % ranks, 0, 0, CROWD - 1, 1));
	await_signal(mesh, CROWD - 1, (uint64_t)(ranks - 1));
	barrier();
}

/* Rounds between all ranks, the first of which loses a rail as its request
 * number @cut leaves. */
static void rounds_with(const char *dev, unsigned int cut, const char *line)
{
	static void *added[RANKS_MAX][ADDS];
	static void *request[RANKS_MAX][OPS];
	struct mesh mesh = { 0 };
	char fault[64];

	warnings = 0;
	warned[0] = '\0';
	if (rank == 0) {
		ctl("reset");
		ctl("unseen 1/sup 1000");
		ctl("unseen 2/sup 1000");
		ctl("latency 1/sup 1000"); /* something is under way at the cut... */
		ctl("late 1/sup 120000");  /* ...and comes late, or not at all */
	}
	if (rank == 0 && strstr(dev, "sout")) {
		ctl("unseen 1/sout 1000");
		ctl("unseen 2/sout 1000");
		ctl("latency 1/sout 1000");
		ctl("late 1/sout 120000");
		ctl("late 2/sout 120000");
	}
	barrier();
	mesh_open(&mesh, (size_t)ranks * PLACE);
	warm_up(&mesh);
	(void)snprintf(fault, sizeof(fault), "cut %s %u", dev, cut);
	if (rank == 0)
		ctl(fault);
	barrier();
	for (uint64_t round = 1; round <= 3; round++) {
		put_round(&mesh, round, request);
		crowd(&mesh, added);
		for (int n = 1; n < ranks; n++)
			check_round(&mesh, (rank + n) % ranks, round);
		await_all(&mesh, request);
		await_crowd(&mesh, added, round);
		barrier();
	}
	(void)usleep(one_way || strstr(dev, "sout") ? 150000 : 20000); /* it writes over nothing */
	for (int n = 1; n < ranks; n++)
		check_round(&mesh, (rank + n) % ranks, 3);
	CHECK(signal_value(&mesh, CROWD) == 3ull * ADDS * (uint64_t)(ranks - 1));
	CHECK(!strstr(warned_text(), "fails"));
	CHECK(rank != 0 || !line || strstr(warned_text(), line));
	warnings = 0;
	mesh_close(&mesh);
}

/* CUTS is the first request at which it happens, and how many of them are tried; each up to @least
 * is there, and its loss told by @line. */
static void lost_at_each(const char *nic, unsigned int least, const char *line)
{
	const char *cuts = getenv("CUTS");
	unsigned int first = 1, count = 4;

	if (cuts)
		CHECK(sscanf(cuts, "%u %u", &first, &count) == 2);
	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	for (unsigned int n = first; n < first + count; n++) {
		one_way = n % 2;
		rounds_with(nic, n, n <= least ? line : NULL);
	}
}

static void sup_lost(void)
{
	lost_at_each("1/sup", SUP_WRITES, "SUP rail sup:1 is lost to rank");
}

/* The same of SOUT, whose requests have a signal in them more often than not. */
#define SOUT_REQUESTS 66 /* that a rank has at least in rounds with one other */

static void sout_lost(void)
{
	lost_at_each("1/sout", SOUT_REQUESTS, "SOUT rail sout:1 is lost");
}

/* What node 2 answers by SOUT is lost, requests of the others to it are done all the same: none may
 * be done twice, and none of its own gets away. */
static void sout_silent(void)
{
	static void *request[RANKS_MAX][OPS], *added[RANKS_MAX][ADDS];
	struct mesh mesh = { 0 };

	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	mesh_open(&mesh, (size_t)ranks * PLACE);
	warm_up(&mesh);
	for (uint64_t round = 1; round <= 4; round++) {
		if (rank == 0 && round == 2)
			ctl("silent 2/sout on");
		barrier();
		put_round(&mesh, round, request);
		crowd(&mesh, added);
		for (int n = 1; n < ranks; n++)
			check_round(&mesh, (rank + n) % ranks, round);
		await_all(&mesh, request);
		await_crowd(&mesh, added, round);
		barrier();
		CHECK(signal_value(&mesh, CROWD) == round * ADDS * (uint64_t)(ranks - 1));
		barrier(); /* all have looked */
	}
	CHECK(!strstr(warned_text(), "fails") && strstr(warned_text(), "SOUT rail sout"));
	warnings = 0;
	mesh_close(&mesh);
}

static bool all_have_told(void)
{
	for (int k = 0; k < ranks; k++)
		if (!atomic_load(shared_word(k)))
			return false;
	return true;
}

/* Rounds, while somebody else takes SUP away from a node, until all ranks have told so and a few
 * more are done. */
static void outlasts(void)
{
	static void *request[RANKS_MAX][OPS];
	uint64_t end = clock_ms() + 90000;
	struct mesh mesh = { 0 };
	unsigned int more = 0;

	mesh_open(&mesh, (size_t)ranks * PLACE);
	(void)printf("rank %d begins\n", rank);
	(void)fflush(stdout);
	for (uint64_t round = 1; more < 3; round++) {
		put_round(&mesh, round, request);
		for (int n = 1; n < ranks; n++)
			check_round(&mesh, (rank + n) % ranks, round);
		await_all(&mesh, request);
		atomic_store(shared_word(rank), strstr(warned_text(), "SOUT takes over") != NULL);
		barrier();
		more += all_have_told();
		CHECK(clock_ms() < end);
		barrier(); /* all have looked */
	}
	CHECK(!strstr(warned_text(), "fails"));
	warnings = 0;
	mesh_close(&mesh);
}

static void sout_cut(void)
{
	(void)setenv("MPIB_FAILOVER", "0", 1);
	lost("port 1/sout down", 64, ncclRemoteError, "SUP can't take over: MPIB_FAILOVER=0");
}

/* Ranks of two islands have SOUT alone. */
static void sout_cut_islands(void)
{
	lost("port 1/sout down", 64, ncclRemoteError, "ranks of other islands");
}

/* With an INI whose SUP has none. */
static void sout_cut_atomics(void)
{
	lost("port 1/sout down", 64, ncclRemoteError, "it has no atomics");
}

/* What its QPs have got this end can't tell the others. */
static void sout_untold(void)
{
	(void)setenv("MPIB_TEST_FAULT", "fail 1/sout query_qp EIO", 1);
	lost("port 1/sout down", 64, ncclRemoteError, "what it brought can't be told");
}

/* No QP has got anything yet: whether the devices count packets nobody knows. */
static void sout_uncounted(void)
{
	struct mesh mesh = { 0 };
	ncclResult_t result;
	void *request;

	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	mesh_open(&mesh, BYTES);
	if (rank == 0)
		ctl("cut 1/sout 1");
	barrier();
	result = put_until_it_fails(&mesh, 64, &request);
	CHECK(result == ncclRemoteError);
	CHECK(strstr(warned_text(), "can't tell which of"));
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

static bool is_lost(const char *rail)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%s rail %s", rail,
		       *rail == 'S' && rail[1] == 'U' ? "sup" : "sout");
	return strstr(warned_text(), text) != NULL;
}

/* Puts of all to all until each rank has told that the first rail is lost; then the other one goes,
 * or a rank. */
static void then(const char *first, const char *told, const char *second, const char *line)
{
	uint64_t end = clock_ms() + 30000, sent = 0;
	struct mesh mesh = { 0 };
	unsigned int failed = 0;
	ncclResult_t result;
	void *request;

	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	mesh_open(&mesh, BYTES);
	warm_up(&mesh);
	if (rank == 0)
		ctl(first);
	while (atomic_load(shared_word(ranks)) < (uint64_t)ranks) {
		for (int n = 1; n < ranks; n++)
			await(&mesh, put_signal(&mesh, (rank + n) % ranks, 0, BYTES, 0, 1));
		if (!sent && is_lost(told))
			sent = atomic_fetch_add(shared_word(ranks), 1) + 1;
		CHECK(clock_ms() < end);
	}
	barrier();
	if (rank == 0)
		ctl(second);
	barrier();
	result = put_until_it_fails(&mesh, BYTES, &request);
	CHECK(result == ncclRemoteError);
	for (const char *at = warned_text(); (at = strstr(at, " fails: ")); at++)
		failed++;
	CHECK(failed == 1);
	CHECK(rank != 0 || strstr(strstr(warned_text(), " fails: "), line));
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

static void sout_then_sup(void)
{
	then("port 1/sout down", "SOUT", "port 1/sup down", "SUP");
}

static void sup_then_sout(void)
{
	then("port 1/sup down", "SUP", "port 1/sout down", "SUP can't take over: SUP is lost, too");
}

/* The last rank goes as SOUT does: nobody hears what it had got. */
static void sout_lost_dies(void)
{
	struct mesh mesh = { 0 };
	ncclResult_t result;
	void *request;

	(void)setenv("MPIB_IB_TIMEOUT", "10", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "1", 1);
	mesh_open(&mesh, BYTES);
	warm_up(&mesh);
	if (rank == 0)
		ctl("port 1/sout down");
	barrier();
	if (rank == ranks - 1)
		(void)kill(getpid(), SIGKILL);
	result = put_until_it_fails(&mesh, 64, &request);
	CHECK(result == ncclRemoteError);
	CHECK(strstr(warned_text(), "its process or host is gone") ||
	      strstr(warned_text(), "failed: "));
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

static void device_lost(void)
{
	lost("kill 1/sup", BYTES, ncclSystemError, "SUP rail sup:1: the device is lost");
}

/* One verb of one rank fails in set-up or in a registration: all ranks have an error, none waits
 * for the time-out. */
static void verbs_fail(void)
{
	static const char *const faults[] = {
		"fail 1/sout create_cq ENOMEM", "fail 1/sup create_qp ENOMEM",
		"fail 1/sout modify_qp EINVAL", "fail 1/sup modify_qp EINVAL 1 5",
		"fail 1/sout reg_mr ENOMEM",	"fail 1/sup query_port EIO"
	};

	for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
		struct mesh mesh = { 0 };
		uint64_t begin;

		table_init(&mesh);
		mesh_listen(&mesh);
		if (rank == 0)
			ctl(faults[k]);
		barrier();
		begin = clock_ms();
		warnings = 0;
		CHECK(mesh_connect(&mesh) != ncclSuccess);
		CHECK(warnings >= 1 && clock_ms() - begin < 20000);
		CHECK(mesh.coll == NULL);
		CHECK(table->closeListen(mesh.listener) == ncclSuccess);
		CHECK(table->finalize(mesh.ctx) == ncclSuccess);
		barrier();
		if (rank == 0)
			ctl("reset");
		barrier();
	}
}

const struct gin_case lost_cases[] = {
	{ .name = "sup-cut", .run = sup_cut },
	{ .name = "sup-lost", .run = sup_lost },
	{ .name = "sout-lost", .run = sout_lost },
	{ .name = "sout-silent", .run = sout_silent },
	{ .name = "outlasts", .run = outlasts },
	{ .name = "sout-cut", .run = sout_cut },
	{ .name = "sout-cut-islands", .run = sout_cut_islands },
	{ .name = "sout-cut-atomics", .run = sout_cut_atomics },
	{ .name = "sout-untold", .run = sout_untold },
	{ .name = "sout-uncounted", .run = sout_uncounted },
	{ .name = "sout-then-sup", .run = sout_then_sup },
	{ .name = "sup-then-sout", .run = sup_then_sout },
	{ .name = "sout-lost-dies", .run = sout_lost_dies, .dies = true },

	{ .name = "device-lost", .run = device_lost },
	{ .name = "verbs-fail", .run = verbs_fail },
	{ 0 },
};
