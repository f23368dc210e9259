/* SPDX-License-Identifier: Apache-2.0 */
/* Gets and flushes, of the tables that have them. */
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define BYTES (1u << 20)

static void *get(struct mesh *mesh, int of, uint64_t from, size_t size, uint64_t to)
{
	void *request = NULL;

	CHECK(table_get(mesh->coll, 0, from, mesh->data.handle, size, to, mesh->data.handle,
			(uint32_t)of, &request) == ncclSuccess);
	CHECK(request);
	return request;
}

static void flush(struct mesh *mesh, int of)
{
	void *request = NULL;

	CHECK(table_flush(mesh->coll, 0, mesh->data.handle, (uint32_t)of, &request) == ncclSuccess);
	CHECK(request);
	await(mesh, request);
}

/* From all ranks at once, more of them than may be under way on a QP. */
static void gets(void)
{
	static const size_t sizes[] = { 0, 1, 8, 100, 8192, 8193, 50000, 262144 };
	const size_t n = sizeof(sizes) / sizeof(sizes[0]);
	struct mesh mesh = { 0 };
	void *request[RANKS_MAX][DEPTH] = { 0 };

	mesh_open(&mesh, 2 * BYTES * (size_t)ranks);
	fill(mesh.data.at, BYTES, (uint64_t)rank);
	barrier();
	for (int of = 0; of < ranks; of++)
		for (size_t k = 0; k < DEPTH; k++)
			request[of][k] =
				get(&mesh, of, 8 * k, sizes[k % n],
				    BYTES * (1 + (uint64_t)of) + 8 * k + BYTES / 2 * (k / n % 2));
	for (int of = 0; of < ranks; of++)
		for (size_t k = 0; k < DEPTH; k++)
			await(&mesh, request[of][k]);
	flush(&mesh, rank);
	for (int of = 0; of < ranks; of++) {
		static uint8_t want[BYTES];

		fill(want, BYTES, (uint64_t)of);
		await(&mesh, get(&mesh, of, 3, BYTES - 3, BYTES * (1 + (uint64_t)of)));
		flush(&mesh, rank);
		CHECK(memcmp(mesh.data.at + BYTES * (1 + (size_t)of), want + 3, BYTES - 3) == 0);
	}
	mesh_close(&mesh);
}

/* After a flush of another rank's memory all that was put there can be seen, without a signal: the
 * other rank hears of it by another way. */
static void flushes(void)
{
	struct mesh mesh = { 0 };
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
	void *request;

	mesh_open(&mesh, 2 * BYTES);
	for (uint64_t round = 1; round <= 20; round++) {
		fill(mesh.data.at, 100000, round * 10 + (uint64_t)rank);
		CHECK(table->iput(mesh.coll, 0, mesh.data.handle, 100000, BYTES, mesh.data.handle,
				  (uint32_t)to, &request) == ncclSuccess);
		await(&mesh, request);
		flush(&mesh, to);
		barrier();
		CHECK(holds(mesh.data.at + BYTES, 100000, round * 10 + (uint64_t)from));
		barrier();
	}
	mesh_close(&mesh);
}

static void bad_gets(void)
{
	struct mesh pair[2] = { 0 }, *mesh = &pair[0];
	void *request, *mh, *others;
	static const struct {
		uint64_t from, size, to;
		uint32_t of;
	} bad[] = { { 0, BYTES + 1, 0, 0 },  { BYTES, 1, 0, 0 },      { 0, 2, BYTES - 1, 0 },
		    { UINT64_MAX, 8, 0, 0 }, { 0, 8, UINT64_MAX, 0 }, { 0, 8, 0, UINT32_MAX } };

	mesh_open(mesh, BYTES);
	mesh_open(&pair[1], BYTES);
	mh = mesh->data.handle;
	others = pair[1].data.handle;
	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		CHECK(table_get(mesh->coll, 0, bad[k].from, mh, bad[k].size, bad[k].to, mh,
				bad[k].of, &request) == ncclInvalidArgument);
		CHECK(warnings == k + 1);
	}
	CHECK(table_get(mesh->coll, 0, 0, NULL, 8, 0, mh, 0, &request) == ncclInvalidArgument);
	CHECK(table_get(mesh->coll, 0, 0, others, 8, 0, mh, 0, &request) == ncclInvalidArgument);
	CHECK(table_get(mesh->coll, 0, 0, mh, 8, 0, others, 0, &request) == ncclInvalidArgument);
	CHECK(table_flush(mesh->coll, 0, others, 0, &request) == ncclInvalidArgument);
	CHECK(table_flush(mesh->coll, 0, NULL, 0, &request) == ncclInvalidArgument);
	CHECK(table_flush(mesh->coll, 0, mh, (uint32_t)ranks, &request) == ncclInvalidArgument);
	CHECK(warnings == sizeof(bad) / sizeof(bad[0]) + 6);
	warnings = 0;
	await(mesh, get(mesh, 0, 0, 8, 8));
	mesh_close(&pair[1]);
	mesh_close(mesh);
}

const struct gin_case get_cases[] = {
	{ .name = "gets", .run = gets },
	{ .name = "flushes", .run = flushes },
	{ .name = "bad-gets", .run = bad_gets },
	{ 0 },
};
