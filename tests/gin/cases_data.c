/* SPDX-License-Identifier: Apache-2.0 */
/* Data and signals, and their order: what a signal announces is looked at as soon as it is seen. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define SLOT (2u << 20) /* bytes of the data window that one rank's puts to this one have */

static uint64_t place_of(int from)
{
	return (uint64_t)from * SLOT;
}

/* In the window of each rank: what it sends at the place of its own rank, what it gets from others
 * at theirs; so its own slot is source, and for a put to itself source and destination. */
static void exchange(struct mesh *mesh, size_t size, uint64_t round)
{
	void *request[RANKS_MAX] = { 0 };

	fill(mesh->data.at + place_of(rank), size, round * 100 + (uint64_t)rank);
	for (int to = 0; to < ranks; to++)
		request[to] = put_signal(mesh, to, place_of(rank), size, (size_t)rank, 1);
	for (int seen = 0, from = rank; seen < ranks; seen++, from = (from + 1) % ranks) {
		await_signal(mesh, (size_t)from, round);
		CHECK(holds(mesh->data.at + place_of(from), size, round * 100 + (uint64_t)from));
	}
	for (int to = 0; to < ranks; to++)
		await(mesh, request[to]);
	barrier();
}

static void sizes(void)
{
	static const size_t sizes[] = { 0,     1,     7,      8,       9,	 64,	1000,
					4096,  8191,  8192,   8193,    8200,	 12289, 65535,
					65536, 65537, 262144, 1000003, SLOT - 1, SLOT };
	struct mesh mesh = { 0 };
	uint64_t round = 0;

	mesh_open(&mesh, (size_t)ranks * SLOT);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		exchange(&mesh, sizes[k], ++round);
	for (int k = 0; k < ranks; k++)
		CHECK(signal_value(&mesh, (size_t)k) == round);
	mesh_close(&mesh);
}

/* Puts without signals, of sizes that take different rails and arrive out of turn, and then one
 * signal for all of them; the next round begins once the receiver has looked. */
#define BURST 24
static size_t burst_size(uint64_t round, unsigned int k)
{
	static const size_t sizes[] = { 8, 20000, 4096, 100000, 33, 9000, 70001, 512 };

	return sizes[(round * 5 + k * 3) % 8];
}

static void burst(struct mesh *mesh, int to, uint64_t round)
{
	void *request[BURST + 1];
	uint64_t offset = place_of(rank);

	for (unsigned int k = 0; k < BURST; k++) {
		size_t size = burst_size(round, k);

		fill(mesh->data.at + offset, size, round * 1000 + k);
		request[k] = put(mesh, to, offset, size);
		offset += size;
	}
	request[BURST] = put_signal(mesh, to, 0, 0, (size_t)rank, 1);
	for (unsigned int k = 0; k <= BURST; k++)
		await(mesh, request[k]);
}

static void check_burst(struct mesh *mesh, int from, uint64_t round)
{
	uint64_t offset = place_of(from);

	await_signal(mesh, (size_t)from, round);
	for (unsigned int k = 0; k < BURST; k++) {
		size_t size = burst_size(round, k);

		CHECK(holds(mesh->data.at + offset, size, round * 1000 + k));
		offset += size;
	}
}

static void order(void)
{
	struct mesh mesh = { 0 };

	mesh_open(&mesh, (size_t)ranks * SLOT);
	for (uint64_t round = 1; round <= 12; round++) {
		burst(&mesh, (rank + 1) % ranks, round);
		check_burst(&mesh, (rank + ranks - 1) % ranks, round);
		barrier();
	}
	mesh_close(&mesh);
}

/* A put with its signal while others to the same rank are under way: none may wait for the rest,
 * all must be in order. Each signal is a word of its own, the data a slot of its own. */
static void pipeline(void)
{
	enum { COUNT = 200, BYTES = 12000 };
	struct mesh mesh = { 0 };
	void *request[DEPTH] = { 0 };
	int to = (rank + 1) % ranks;
	unsigned int seen = 0;

	mesh_open(&mesh, 2 * (size_t)COUNT * BYTES);
	fill(mesh.data.at, (size_t)COUNT * BYTES, (uint64_t)rank);
	barrier();
	for (unsigned int k = 0; k < COUNT || seen < COUNT;) {
		if (k < COUNT && request[k % DEPTH] && await_for(&mesh, request[k % DEPTH], 0))
			request[k % DEPTH] = NULL;
		if (k < COUNT && !request[k % DEPTH]) {
			size_t size = k % 3 ? BYTES : 100;
			void *next = NULL;

			CHECK(table->iputSignal(mesh.coll, (uint64_t)k * BYTES, mesh.data.handle,
						size, (uint64_t)(COUNT + k) * BYTES,
						mesh.data.handle, (uint32_t)to, 8ull * k,
						mesh.signals.handle, 7, NCCL_NET_SIGNAL_OP_INC,
						&next) == ncclSuccess);
			request[k++ % DEPTH] = next;
		}
		while (seen < COUNT && signal_value(&mesh, seen)) {
			uint8_t *got = mesh.data.at + (size_t)(COUNT + seen) * BYTES;
			size_t size = seen % 3 ? BYTES : 100;
			static uint8_t want[COUNT * BYTES];

			if (!want[0])
				fill(want, sizeof(want), (uint64_t)((rank + ranks - 1) % ranks));
			CHECK(memcmp(got, want + (size_t)seen * BYTES, size) == 0);
			CHECK(signal_value(&mesh, seen) == 1); /* INC adds 1, whatever the value */
			seen++;
		}
		CHECK(table->ginProgress(mesh.coll) == ncclSuccess);
	}
	for (unsigned int k = 0; k < DEPTH; k++)
		if (request[k])
			await(&mesh, request[k]);
	mesh_close(&mesh);
}

/* All ranks add to the same words of all ranks at once, some with data, by either rail. */
static void sum(void)
{
	enum { EACH = 300 };
	struct mesh mesh = { 0 };
	void *request[RANKS_MAX][DEPTH] = { 0 };
	uint64_t want = 0;

	mesh_open(&mesh, (size_t)ranks * SLOT);
	for (unsigned int k = 0; k < EACH; k++) {
		for (int to = 0; to < ranks; to++) {
			void **at = &request[to][k % DEPTH];

			if (*at)
				await(&mesh, *at);
			*at = put_signal(&mesh, to, place_of(rank),
					 k % 4 == 0   ? 20000
					 : k % 4 == 1 ? 8
						      : 0,
					 3, k * 1000003ull + (uint64_t)rank);
		}
	}
	for (int to = 0; to < ranks; to++)
		for (unsigned int k = 0; k < DEPTH; k++)
			await(&mesh, request[to][k]);
	for (int from = 0; from < ranks; from++)
		for (unsigned int k = 0; k < EACH; k++)
			want += k * 1000003ull + (uint64_t)from;
	barrier();
	CHECK(signal_value(&mesh, 3) == want);
	CHECK(signal_value(&mesh, 2) == 0 && signal_value(&mesh, 4) == 0);
	mesh_close(&mesh);
}

/* A put of 1 GiB, the largest that NCCL makes of one, and one behind it; the memory is looked at in
 * places, so that only the destination is all there. */
static void large(void)
{
	const size_t size = 1ull << 30, tail = 5000001;
	struct mesh mesh = { 0 };

	mesh_open(&mesh, size + tail);
	if (rank == 0) {
		void *request[2];

		for (size_t at = 0; at < size + tail; at += 37 * 1000003)
			fill(mesh.data.at + at, 64, at);
		request[0] = put(&mesh, 1, 0, size);
		request[1] = put_signal(&mesh, 1, size, tail, 0, 1);
		await(&mesh, request[0]);
		await(&mesh, request[1]);
	} else if (rank == 1) {
		await_signal(&mesh, 0, 1);
		for (size_t at = 0; at < size + tail; at += 37 * 1000003)
			CHECK(holds(mesh.data.at + at, 64, at));
	}
	mesh_close(&mesh);
}

/* Up and down again and again, and several meshes at once, as NCCL's contexts are. */
static void contexts(void)
{
	struct mesh mesh[4] = { 0 };

	for (unsigned int round = 0; round < 3; round++) {
		for (unsigned int k = 0; k < 4; k++)
			mesh_open(&mesh[k], 65536);
		for (unsigned int k = 0; k < 4; k++)
			await(&mesh[k], put_signal(&mesh[k], (rank + 1) % ranks, 0, 65536, k, 1));
		for (unsigned int k = 0; k < 4; k++)
			await_signal(&mesh[k], k, 1);
		for (unsigned int k = 0; k < 4; k++)
			mesh_close(&mesh[k]);
	}
}

static void *connect_mate(void *arg)
{
	struct mesh *mesh = arg;
	void *handles[2] = { (char *)mesh[-1].handle, mesh->handle };

	CHECK(table->connect(mesh->ctx, handles, 2, 1, mesh->listener, &mesh->coll) == ncclSuccess);
	return NULL;
}

/* How long it takes one thread to close two ranks that two threads have set up. */
static uint64_t close_mates(void)
{
	struct mesh mesh[2] = { 0 };
	void *handles[2] = { mesh[0].handle, mesh[1].handle };
	pthread_t thread;
	uint64_t took;

	for (int k = 0; k < 2; k++) {
		table_init(&mesh[k]);
		CHECK(table->listen(mesh[k].ctx, 0, mesh[k].handle, &mesh[k].listener) ==
		      ncclSuccess);
	}
	CHECK(pthread_create(&thread, NULL, connect_mate, &mesh[1]) == 0);
	CHECK(table->connect(mesh[0].ctx, handles, 2, 0, mesh[0].listener, &mesh[0].coll) ==
	      ncclSuccess);
	CHECK(pthread_join(thread, NULL) == 0);
	took = clock_ms();
	for (int k = 0; k < 2; k++)
		CHECK(table->closeColl(mesh[k].coll) == ncclSuccess);
	took = clock_ms() - took;
	for (int k = 0; k < 2; k++) {
		CHECK(table->closeListen(mesh[k].listener) == ncclSuccess);
		CHECK(table->finalize(mesh[k].ctx) == ncclSuccess);
	}
	CHECK(warnings == 0);
	return took;
}

/* Two ranks in one process: neither waits for the other, which would take a second each time. One
 * that only waits for the processor doesn't each time. */
static void mates(void)
{
	unsigned int late = 0;

	while (close_mates() >= 900)
		CHECK(++late < 5);
}

static void *proxy(void *arg)
{
	struct mesh *mesh = arg;

	for (unsigned int k = 1; k <= 300; k++)
		await(mesh, put_signal(mesh, (rank + 1) % ranks, 0, k % 2 ? 30000 : 64, 0, 1));
	return NULL;
}

/* NCCL registers memory in one thread while another one puts. */
static void registers_meanwhile(void)
{
	struct mesh mesh = { 0 };
	pthread_t thread;

	mesh_open(&mesh, 65536);
	CHECK(pthread_create(&thread, NULL, proxy, &mesh) == 0);
	for (unsigned int k = 0; k < 10; k++) {
		struct window more;

		CHECK(window_open(&mesh, &more, 4096 * (k + 1), 0) == ncclSuccess);
		window_close(&mesh, &more);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	await_signal(&mesh, 0, 300);
	mesh_close(&mesh);
}

/* Several proxy threads of a process, each with its own meshes, as NCCL 2.31 has them
 * (NCCL_GIN_PROXY_NTHREADS), while another thread makes and ends one. */
static void proxies(void)
{
	struct mesh mesh[4] = { 0 }, more = { 0 };
	pthread_t thread[4];

	for (unsigned int k = 0; k < 4; k++)
		mesh_open(&mesh[k], 65536);
	for (unsigned int k = 0; k < 4; k++)
		CHECK(pthread_create(&thread[k], NULL, proxy, &mesh[k]) == 0);
	for (unsigned int k = 0; k < 3; k++) {
		mesh_open(&more, 4096);
		await(&more, put_signal(&more, (rank + 1) % ranks, 0, 4096, 0, 1));
		await_signal(&more, 0, 1);
		mesh_close(&more);
	}
	for (unsigned int k = 0; k < 4; k++)
		CHECK(pthread_join(thread[k], NULL) == 0);
	for (unsigned int k = 0; k < 4; k++)
		await_signal(&mesh[k], 0, 300);
	for (unsigned int k = 0; k < 4; k++)
		mesh_close(&mesh[k]);
}

/* From @part on, what rank 0's agent says of its flow to rank 1; NULL: nothing like it. Counters
 * come to it once a second. */
static const char *agent_says(const char *part)
{
	const char *tool = getenv("MPIBCTL");
	static char text[8192];
	char line[512];
	size_t used;
	FILE *out;

	CHECK(tool && snprintf(line, sizeof(line), "%s --json flows", tool) < (int)sizeof(line));
	out = popen(line, "r");
	CHECK(out);
	used = fread(text, 1, sizeof(text) - 1, out);
	text[used] = '\0';
	CHECK(pclose(out) == 0);
	return strstr(text, part);
}

/* Puts and bytes are counted by rail, those of a half on both; a get's bytes are received. */
static void seen(void)
{
	struct mesh mesh = { 0 };
	uint64_t end;

	mesh_open(&mesh, 1 << 20);
	for (int k = 0; k < 3 && rank == 0; k++)
		await(&mesh, put(&mesh, 1, 0, 1000));
	for (int k = 0; k < 2 && rank == 0; k++)
		await(&mesh, put_signal(&mesh, 1, 0, 1 << 18, 0, 1));
	if (rank == 0)
		await(&mesh, put_signal(&mesh, 1, 0, 0, 0, 1));
	end = clock_ms() + 20000;
	while (rank == 0 && !agent_says("\"kind\": \"gin\", \"gin_connections\": 1, "
					"\"sout_puts\": 5, \"sup_puts\": 2, "
					"\"sout_put_bytes\": 265144, \"sup_put_bytes\": 262144")) {
		CHECK(clock_ms() < end);
		(void)usleep(200000);
	}
	mesh_close(&mesh);
}

/* A flow's share finds itself from puts alone, small ones among them: SUP is the slower rail, and
 * its port says otherwise. */
static void finds(void)
{
	enum { BYTES = 1 << 19, AT_ONCE = 8, RIGHT = 205, FAR = 80 };
	struct mesh mesh = { 0 };
	void *request[AT_ONCE] = { 0 };
	uint64_t end = clock_ms() + 20000;
	unsigned int puts = 0;
	int share = -1;

	mesh_open(&mesh, (size_t)AT_ONCE * BYTES);
	while (rank == 0 && (share < RIGHT - FAR || share > RIGHT + FAR)) {
		const char *said;

		for (unsigned int k = 0; k < AT_ONCE; k++) {
			if (request[k])
				await(&mesh, request[k]);
			request[k] = put_signal(&mesh, 1, (uint64_t)k * BYTES, k % 4 ? BYTES : 512,
						0, 1);
		}
		if (++puts % 8)
			continue;
		CHECK(clock_ms() < end);
		said = agent_says("\"share\": ");
		CHECK(said && sscanf(said, "\"share\": %d", &share) == 1);
	}
	for (unsigned int k = 0; rank == 0 && k < AT_ONCE; k++)
		await(&mesh, request[k]);
	mesh_close(&mesh);
}

/* One at a time, each is over before the next: gin.sh looks at SUP's bytes. */
static void alone(void)
{
	static const size_t sizes[] = { 64, 8193, 20000, 65536 };
	struct mesh mesh = { 0 };
	uint64_t seen = 0;

	mesh_open(&mesh, (size_t)ranks * SLOT);
	for (unsigned int k = 0; k < 40; k++) {
		size_t size = sizes[k % 4];
		void *request;

		if (rank == 0) {
			fill(mesh.data.at, size, k);
			request = put_signal(&mesh, 1, 0, size, 0, 1);
			await(&mesh, request);
		}
		if (rank == 1) {
			await_signal(&mesh, 0, ++seen);
			CHECK(holds(mesh.data.at, size, k));
		}
		barrier();
	}
	mesh_close(&mesh);
}

/* The same sizes, always with others under way: all but the first take SUP. */
static void together(void)
{
	enum { PUTS = 400 };
	void *request[DEPTH] = { 0 };
	struct mesh mesh = { 0 };

	mesh_open(&mesh, SLOT);
	for (unsigned int k = 0; rank == 0 && k < PUTS + DEPTH; k++) {
		if (request[k % DEPTH])
			await(&mesh, request[k % DEPTH]);
		request[k % DEPTH] = k < PUTS ? put_signal(&mesh, 1, 0, 65536, 0, 1) : NULL;
	}
	if (rank == 1)
		await_signal(&mesh, 0, PUTS);
	mesh_close(&mesh);
}

const struct gin_case data_cases[] = {
	{ .name = "alone", .run = alone },
	{ .name = "together", .run = together },
	{ .name = "finds", .run = finds },
	{ .name = "mates", .run = mates },
	{ .name = "registers-meanwhile", .run = registers_meanwhile },
	{ .name = "proxies", .run = proxies },
	{ .name = "sizes", .run = sizes },
	{ .name = "order", .run = order },
	{ .name = "pipeline", .run = pipeline },
	{ .name = "sum", .run = sum },
	{ .name = "large", .run = large },
	{ .name = "contexts", .run = contexts },
	{ .name = "seen", .run = seen },
	{ 0 },
};
