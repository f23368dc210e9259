/* SPDX-License-Identifier: Apache-2.0 */
/* Rails and devices that are lost, and verbs that fail: the mesh fails as a whole, with a line that
 * names the rail, and nothing that was under way is reported done. FABRICCTL makes the faults. */
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define BYTES 65536

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
	if (rank == 0)
		ctl(fault);
	barrier();
	result = put_until_it_fails(&mesh, size, &request);
	CHECK(result == (rank == 0 ? here : ncclRemoteError));
	CHECK(strstr(warned, "device-initiated communication of rank"));
	CHECK(rank != 0 || strstr(warned, line));
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
	lost("port 1/sup down", BYTES, ncclRemoteError, "SUP rail sup");
}

static void sout_cut(void)
{
	lost("port 1/sout down", 64, ncclRemoteError, "SOUT rail sout");
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
	{ .name = "sout-cut", .run = sout_cut },
	{ .name = "device-lost", .run = device_lost },
	{ .name = "verbs-fail", .run = verbs_fail },
	{ 0 },
};
