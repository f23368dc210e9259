/* SPDX-License-Identifier: Apache-2.0 */
/* What things cost: instructions, for tests/bench/instructions, which counts mpib_bench_measured()
 * alone; and time and memory of a mesh. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define WINDOW 8
#define COUNT  800 /* as tests/bench/instructions has it, a multiple of WINDOW */

enum cost { COST_PUT, COST_SIGNAL, COST_IDLE };

void mpib_bench_measured(struct mesh *mesh, enum cost what, int count);

/* A window of requests, and then as many tests as it takes, as NCCL's proxy does. */
static void round_of(struct mesh *mesh, enum cost what)
{
	void *request[WINDOW];

	for (int k = 0; k < WINDOW; k++)
		request[k] = what == COST_PUT ? put(mesh, 0, 0, 64)
					      : put_signal(mesh, 0, 0, 64, (size_t)k, 1);
	for (int k = 0; k < WINDOW; k++) {
		int done = 0;

		while (!done)
			CHECK(table->test(mesh->coll, request[k], &done) == ncclSuccess);
	}
}

__attribute__((noinline)) void mpib_bench_measured(struct mesh *mesh, enum cost what, int count)
{
	for (int k = 0; k < count; k += what == COST_IDLE ? 1 : WINDOW) {
		if (what == COST_IDLE)
			(void)table->ginProgress(mesh->coll);
		else
			round_of(mesh, what);
	}
}

static void cost(enum cost what)
{
	struct mesh mesh = { 0 };

	mesh_open(&mesh, 65536);
	for (int k = 0; k < 4 && what != COST_IDLE; k++)
		round_of(&mesh, what);
	mpib_bench_measured(&mesh, what, COUNT);
	mesh_close(&mesh);
	(void)printf("{\"posts\": 0, \"requests\": 0, \"recv_posts\": 0, \"polls\": 0, "
		     "\"completions\": 0}\n");
}

static void cost_put(void)
{
	cost(COST_PUT);
}

static void cost_signal(void)
{
	cost(COST_SIGNAL);
}

static void cost_idle(void)
{
	cost(COST_IDLE);
}

static long resident_kib(void)
{
	long pages = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
	(void)fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A mesh of many: how long it takes all of them, and what each of them has more then. */
static void many(void)
{
	struct mesh mesh = { 0 };
	long before, after;
	uint64_t begin;

	table_init(&mesh);
	mesh_listen(&mesh);
	before = resident_kib();
	begin = clock_ms();
	CHECK(mesh_connect(&mesh) == ncclSuccess);
	barrier();
	after = resident_kib();
	if (rank == 0)
		(void)printf("%d ranks: %" PRIu64 " ms, %ld KiB a rank\n", ranks,
			     clock_ms() - begin, after - before);
	CHECK(table->closeListen(mesh.listener) == ncclSuccess);
	CHECK(window_open(&mesh, &mesh.data, 65536, 0) == ncclSuccess);
	CHECK(window_open(&mesh, &mesh.signals, SIGNALS * 8, NCCL_NET_MR_FLAG_FORCE_SO) ==
	      ncclSuccess);
	for (int k = 0; k < ranks; k++)
		await(&mesh, put_signal(&mesh, (rank + k) % ranks, 0, 8, 0, 1));
	await_signal(&mesh, 0, (uint64_t)ranks);
	mesh_close(&mesh);
}

/* Bytes a second that rank 0 sends while all send to all others. */
static void all_to_all(void)
{
	enum { BYTES = 1 << 20, ROUNDS = 24 };
	struct mesh mesh = { 0 };
	void *request[RANKS_MAX] = { 0 };
	uint64_t begin;

	mesh_open(&mesh, BYTES);
	begin = clock_ms();
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		for (int k = 1; k < ranks; k++)
			request[k] = put_signal(&mesh, (rank + k) % ranks, 0, BYTES, 0, 1);
		for (int k = 1; k < ranks; k++)
			await(&mesh, request[k]);
	}
	await_signal(&mesh, 0, ROUNDS * (uint64_t)(ranks - 1));
	if (rank == 0)
		(void)printf("all to all: %.1f MB/s\n", (double)BYTES * ROUNDS * (ranks - 1) /
								1000 /
								(double)(clock_ms() - begin));
	mesh_close(&mesh);
}

/* What a put with its signal takes there and back, and what a rank sends while puts with signals
 * are always under way, by size: where the bound of puts that take SOUT whole should be. */
static void bound(void)
{
	enum { TRIPS = 60, PUTS = 600 };
	static const size_t sizes[] = { 1024, 2048, 4096, 8192, 16384, 32768, 65536 };
	uint64_t seen = 0, sent = 0;
	struct mesh mesh = { 0 };

	mesh_open(&mesh, 65536);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		void *request[DEPTH] = { 0 };
		uint64_t begin = clock_ms(), trips;

		for (unsigned int n = 0; n < TRIPS; n++) {
			if (rank == 1)
				await_signal(&mesh, 0, ++seen);
			await(&mesh, put_signal(&mesh, !rank, 0, sizes[k], 0, 1));
			if (rank == 0)
				await_signal(&mesh, 0, ++seen);
		}
		trips = clock_ms() - begin;
		barrier();
		begin = clock_ms();
		for (unsigned int n = 0; rank == 0 && n < PUTS; n++) {
			if (request[n % DEPTH])
				await(&mesh, request[n % DEPTH]);
			request[n % DEPTH] = put_signal(&mesh, 1, 0, sizes[k], 1, 1);
		}
		for (unsigned int n = 0; rank == 0 && n < DEPTH; n++)
			await(&mesh, request[n]);
		sent += PUTS;
		if (rank == 1)
			await_signal(&mesh, 1, sent);
		if (rank == 0)
			(void)printf("%6zu bytes: %6.0f us, %6.1f MB/s\n", sizes[k],
				     (double)trips * 500 / TRIPS,
				     (double)sizes[k] * PUTS / 1000 /
					     (double)(clock_ms() - begin + 1));
		barrier();
	}
	mesh_close(&mesh);
}

const struct gin_case cost_cases[] = {
	{ .name = "cost-put", .run = cost_put },
	{ .name = "cost-signal", .run = cost_signal },
	{ .name = "cost-idle", .run = cost_idle },
	{ .name = "many", .run = many },
	{ .name = "all-to-all", .run = all_to_all },
	{ .name = "bound", .run = bound },
	{ 0 },
};
