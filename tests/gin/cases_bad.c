/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments, and ranks that die: an error with one line, and nothing written or reported done
 * that isn't. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define BYTES 65536

/* The call is refused as the caller's mistake, with one line that has @text. */
#define REFUSED(call, text)                                                                        \
	do {                                                                                       \
		void *request_ = mesh;                                                             \
		unsigned int before_ = warnings;                                                   \
		(void)request_;                                                                    \
		warned[0] = '\0';                                                                  \
		warnings = 0;                                                                      \
		CHECK((call) == ncclInvalidArgument);                                              \
		CHECK(warnings == 1 && strstr(warned, text));                                      \
		warnings = before_;                                                                \
	} while (0)

static ncclResult_t try_put(struct mesh *mesh, uint64_t from, size_t size, uint64_t to,
			    uint32_t to_rank)
{
	void *request;

	return table->iput(mesh->coll, from, mesh->data.handle, size, to, mesh->data.handle,
			   to_rank, &request);
}

static ncclResult_t try_signal(struct mesh *mesh, void *data, size_t size, uint64_t at,
			       void *signal, uint32_t op)
{
	void *request;

	return table->iputSignal(mesh->coll, 0, data, size, 0, data, 0, at, signal, 1, op,
				 &request);
}

static void bad_puts(struct mesh *mesh, struct mesh *other)
{
	void *signals = mesh->signals.handle, *data = mesh->data.handle;

	REFUSED(try_put(mesh, 0, BYTES + 1, 0, 0), "beyond the local memory");
	REFUSED(try_put(mesh, BYTES, 1, 0, 0), "beyond the local memory");
	REFUSED(try_put(mesh, UINT64_MAX, 2, 0, 0), "beyond the local memory");
	REFUSED(try_put(mesh, 0, 2, BYTES - 1, 0), "beyond the remote memory");
	REFUSED(try_put(mesh, 0, 8, UINT64_MAX - 3, 0), "beyond the remote memory");
	REFUSED(try_put(mesh, 0, 8, 0, (uint32_t)ranks), "there is no rank");
	REFUSED(try_put(mesh, 0, 8, 0, UINT32_MAX), "there is no rank");
	REFUSED(try_signal(mesh, data, 8, 0, signals, 3), "signal operation 3 is unknown");
	REFUSED(try_signal(mesh, data, 8, 0, signals, 0), "signal operation 0 is unknown");
	REFUSED(try_signal(mesh, data, 8, 8 * SIGNALS, signals, 1), "no place for a signal");
	REFUSED(try_signal(mesh, data, 8, 8 * SIGNALS - 4, signals, 1), "no place for a signal");
	REFUSED(try_signal(mesh, data, 8, 12, signals, 1), "no place for a signal");
	REFUSED(try_signal(mesh, data, 8, 0, NULL, 1), "the signal isn't memory");
	REFUSED(try_signal(mesh, data, 8, 0, other->signals.handle, 1), "the signal isn't memory");
	REFUSED(try_signal(mesh, other->data.handle, 8, 0, signals, 1), "isn't memory that was");
	REFUSED(try_signal(mesh, NULL, 8, 0, signals, 1), "isn't memory that was");
	REFUSED(table->deregMrSym(mesh->coll, other->data.mhandle), "another mesh");
}

/* Up to the last byte of a window, and not one further; then all goes on. */
static void edges(void)
{
	struct mesh pair[2] = { 0 }, *mesh = &pair[0];
	uint64_t last = BYTES - 8;

	mesh_open(&pair[0], BYTES);
	mesh_open(&pair[1], BYTES);
	fill(mesh->data.at, BYTES, 5);
	barrier();
	bad_puts(mesh, &pair[1]);
	barrier();
	CHECK(signal_value(mesh, 0) == 0);
	CHECK(holds(mesh->data.at, BYTES, 5));
	barrier();
	if (rank == 0) {
		fill(mesh->data.at + last, 8, 6);
		await(mesh, put_signal(mesh, ranks - 1, last, 8, SIGNALS - 1, 9));
		await(mesh, put_signal(mesh, ranks - 1, 0, BYTES, SIGNALS - 1, 9));
	}
	if (rank == ranks - 1) {
		await_signal(mesh, SIGNALS - 1, 18);
		CHECK(holds(mesh->data.at + last, 8, 6));
	}
	mesh_close(&pair[1]);
	mesh_close(&pair[0]);
}

/* Windows of different sizes on different ranks: each has its own end. */
static void unequal_windows(void)
{
	struct mesh one = { 0 }, *mesh = &one;

	mesh_open(mesh, (size_t)(rank + 1) * 4096);
	for (int to = 0; to < ranks; to++) {
		size_t least = (size_t)(to < rank ? to + 1 : rank + 1) * 4096;

		await(mesh, put(mesh, to, least - 100, 100));
		if (to < rank)
			REFUSED(try_put(mesh, least - 100, 101, least - 100, (uint32_t)to),
				"beyond the remote memory");
	}
	mesh_close(mesh);
}

/* More than a queue of NCCL's holds: the excess is refused, the rest goes on. */
static void too_many(void)
{
	struct mesh one = { 0 }, *mesh = &one;
	void *request[DEPTH * RANKS_MAX] = { 0 }, *more = NULL;

	mesh_open(mesh, BYTES);
	for (int k = 0; k < DEPTH * ranks; k++) /* of v11, whose mesh is one context */
		request[k] = put(mesh, (rank + 1) % ranks, 0, BYTES / (size_t)ranks);
	CHECK(table->iput(mesh->coll, 0, mesh->data.handle, 8, 0, mesh->data.handle, 0, &more) ==
	      ncclInvalidUsage);
	CHECK(warnings == 1);
	warnings = 0;
	for (int k = 0; k < DEPTH * ranks; k++)
		await(mesh, request[k]);
	await(mesh, put(mesh, 0, 0, 8));
	mesh_close(mesh);
}

/* The last rank is of another build, whose JOIN has another version, or has another setting, or the
 * first one believes that there is one rank less: nobody waits, and every rank has one line. It
 * tells why, but for that of a rank which was not @odd and had no word with it, and then met a
 * closed connection. */
static void disagree(int of_ranks, int odd, const char *text)
{
	struct mesh mesh = { 0 };
	uint64_t begin;

	table_init(&mesh);
	mesh_listen(&mesh);
	ranks = of_ranks;
	begin = clock_ms();
	CHECK(mesh_connect(&mesh) != ncclSuccess);
	CHECK(warnings == 1);
	CHECK(strstr(warned, text) || (rank != odd && strstr(warned, "control connection")));
	CHECK(clock_ms() - begin < 20000);
	CHECK(!mesh.coll);
	CHECK(table->closeListen(mesh.listener) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

static void version_differs(void)
{
	const char *other = getenv("PLUGIN_OF_LAST");

	CHECK(other);
	if (rank == ranks - 1)
		(void)setenv("PLUGIN", other, 1);
	disagree(ranks, ranks - 1, "version of device-initiated communication differs");
}

static void ranks_differ(void)
{
	disagree(rank == 0 ? ranks - 1 : ranks, 0, "ranks here and ");
}

static void settings_differ(void)
{
	if (rank == ranks - 1)
		(void)setenv("MPIB_ISLAND_PREFIX_LEN", "16", 1);
	disagree(ranks, ranks - 1, "MPIB_ISLAND_PREFIX_LEN differs");
}

/* Puts without data to the last rank, until one fails; that is soon, with one line. */
static void puts_fail(struct mesh *mesh)
{
	uint64_t end = clock_ms() + 20000;
	ncclResult_t result;
	void *request;
	int done = 0;

	do {
		result = table->iput(mesh->coll, 0, NULL, 0, 0, NULL, (uint32_t)(ranks - 1),
				     &request);
		CHECK(clock_ms() < end);
		CHECK(result != ncclSuccess ||
		      (table->test(mesh->coll, request, &done) == ncclSuccess && done));
	} while (result == ncclSuccess);
	CHECK(result == ncclRemoteError);
}

/* The last rank ends at some moment of its set-up, a bit later each time: the others' set-up fails,
 * soon, or their next put to it. */
static void dies_while_connecting(void)
{
	for (unsigned int us = 100; us < 6000; us += us < 1000 ? 300 : 1000) {
		struct mesh mesh = { 0 };
		uint64_t begin;
		pid_t child = rank == ranks - 1 ? fork() : 0;

		if (child) {
			CHECK(waitpid(child, NULL, 0) == child);
			barrier();
			continue;
		}
		warnings = 0;
		table_init(&mesh);
		mesh_listen(&mesh);
		if (rank == ranks - 1) {
			(void)ualarm(us, 0);
			(void)mesh_connect(&mesh);
			for (;;)
				(void)pause();
		}
		begin = clock_ms();
		if (mesh_connect(&mesh) == ncclSuccess)
			puts_fail(&mesh);
		CHECK(warnings == 1 && clock_ms() - begin < 20000);
		CHECK(table->closeColl(mesh.coll) == ncclSuccess);
		CHECK(table->closeListen(mesh.listener) == ncclSuccess);
		CHECK(table->finalize(mesh.ctx) == ncclSuccess);
		barrier();
	}
}

/* The last rank dies while the others register memory: it is nobody's, and the mesh has failed. */
static void dies_in_registration(void)
{
	struct mesh mesh = { 0 };
	struct window more;
	uint64_t begin;

	mesh_open(&mesh, BYTES);
	if (rank == ranks - 1)
		(void)kill(getpid(), SIGKILL);
	begin = clock_ms();
	CHECK(window_open(&mesh, &more, BYTES, 0) == ncclRemoteError);
	CHECK(!more.mhandle && warnings == 1);
	CHECK(clock_ms() - begin < 20000);
	puts_fail(&mesh);
	CHECK(warnings <= 2); /* the mesh's own line may have been the first */
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* The last rank closes while others would still put to it. */
static void closes_early(void)
{
	struct mesh mesh = { 0 };

	mesh_open(&mesh, BYTES);
	if (rank == ranks - 1) {
		CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	} else {
		puts_fail(&mesh);
		CHECK(warnings == 1);
		CHECK(strstr(warned, "it has closed") || strstr(warned, "failed"));
		CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	}
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* Memory that can't be: an error with a line on every rank, and the mesh goes on. */
static void bad_memory(void)
{
	struct mesh one = { 0 }, *mesh = &one;
	void *mhandle, *handle;

	mesh_open(mesh, BYTES);
	REFUSED(table->regMrSym(mesh->coll, mesh->data.at, 0, NCCL_PTR_HOST, 0, &mhandle, &handle),
		"memory can't be registered");
	REFUSED(table->regMrSym(mesh->coll, mesh->data.at, SIZE_MAX, NCCL_PTR_HOST, 0, &mhandle,
				&handle),
		"memory can't be registered");
	CHECK(table->regMrSym(mesh->coll, mesh->data.at, BYTES, 77, 0, &mhandle, &handle) ==
	      ncclInvalidArgument);
	for (int k = 0; k < 4; k++) {
		struct window more;

		CHECK(window_open(mesh, &more, 4096, 0) == ncclSuccess);
		window_close(mesh, &more);
	}
	await(mesh, put_signal(mesh, (rank + 1) % ranks, 0, BYTES, 0, 1));
	await_signal(mesh, 0, 1);
	mesh_close(mesh);
}

/* More contexts, or requests of each, than can be; of the tables that are asked for them. */
static void bad_contexts(void)
{
	struct mesh one = { 0 }, *mesh = &one;
	void *ctx = NULL;

	mesh_open(mesh, BYTES);
	REFUSED(table_contexts(mesh->coll, 0, &ctx), "0 contexts of");
	REFUSED(table_contexts(mesh->coll, -1, &ctx), "-1 contexts of");
	REFUSED(table_contexts(mesh->coll, 1025, &ctx), "1025 contexts of");
	REFUSED(table_contexts(mesh->coll, INT32_MAX, &ctx), "contexts of");
	mesh_close(mesh);
}

/* The last rank dies before it connects: the others fail, soon, each with a line. */
static void dies_in_set_up(void)
{
	struct mesh mesh = { 0 };
	uint64_t begin = clock_ms();

	table_init(&mesh);
	mesh_listen(&mesh);
	if (rank == ranks - 1)
		(void)kill(getpid(), SIGKILL);
	CHECK(mesh_connect(&mesh) == ncclRemoteError);
	CHECK(warnings == 1);
	CHECK(clock_ms() - begin < 20000);
	CHECK(table->closeListen(mesh.listener) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* A rank that listens and never connects: a time-out that names it. */
static void absent(void)
{
	struct mesh mesh = { 0 };

	(void)setenv("MPIB_CONNECT_TIMEOUT_SEC", "2", 1);
	table_init(&mesh);
	mesh_listen(&mesh);
	if (rank != ranks - 1) {
		CHECK(mesh_connect(&mesh) == ncclRemoteError);
		CHECK(warnings >= 1);
	}
	barrier();
	CHECK(table->closeListen(mesh.listener) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* The last rank dies in use: puts to it fail with one line, and so does every later call; a put
 * that was under way is never done. */
static void dies_in_use(void)
{
	struct mesh mesh = { 0 };
	ncclResult_t result = ncclSuccess;
	uint64_t end;
	void *request = NULL;
	int done = 0;

	mesh_open(&mesh, BYTES);
	if (rank == ranks - 1) {
		atomic_store(shared_word(rank), (uint64_t)getpid());
		barrier();
		for (;;)
			(void)pause();
	}
	barrier();
	if (rank == 0)
		(void)kill((pid_t)atomic_load(shared_word(ranks - 1)), SIGKILL);
	end = clock_ms() + 20000;
	while (result == ncclSuccess && clock_ms() < end) {
		int over = 0;

		CHECK(!request || table->test(mesh.coll, request, &over) == ncclSuccess);
		if (over)
			request = NULL;
		if (!request)
			result = table->iput(mesh.coll, 0, mesh.data.handle, BYTES, 0,
					     mesh.data.handle, (uint32_t)(ranks - 1), &request);
		else
			result = try_put(&mesh, 0, 8, 0, 0);
		(void)usleep(1000);
	}
	CHECK(result == ncclRemoteError);
	CHECK(warnings == 1);
	CHECK(try_put(&mesh, 0, 8, 0, 0) == ncclRemoteError);
	if (request)
		CHECK(table->test(mesh.coll, request, &done) == ncclSuccess && !done);
	CHECK(warnings == 1);
	CHECK(table->deregMrSym(mesh.coll, mesh.data.mhandle) == ncclSuccess);
	CHECK(table->closeColl(mesh.coll) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* A handle of another version, and one that is none. */
static void wrong_handles(void)
{
	struct mesh mesh = { 0 };
	static char handle[2][NCCL_NET_HANDLE_MAXSIZE];
	void *handles[2] = { handle[0], handle[1] };

	table_init(&mesh);
	CHECK(table->listen(mesh.ctx, 0, handle[0], &mesh.listener) == ncclSuccess);
	memcpy(handle[1], handle[0], sizeof(handle[1]));
	handle[1][4] ^= 1; /* its version stands behind four bytes of magic */
	CHECK(table->connect(mesh.ctx, handles, 2, 0, mesh.listener, &mesh.coll) ==
	      ncclInvalidUsage);
	CHECK(warnings == 1 && strstr(warned, "version differs"));
	memset(handle[1], 0x5a, sizeof(handle[1]));
	warnings = 0;
	CHECK(table->connect(mesh.ctx, handles, 2, 0, mesh.listener, &mesh.coll) ==
	      ncclInvalidUsage);
	CHECK(warnings == 1 && strstr(warned, "isn't MPIB's"));
	for (int k = 0; k < 4; k++) {
		static const int of[][2] = { { 2, 2 }, { 2, -1 }, { 0, 0 }, { -1, 0 } };

		warnings = 0;
		CHECK(table->connect(mesh.ctx, handles, of[k][0], of[k][1], mesh.listener,
				     &mesh.coll) == ncclInvalidArgument);
		CHECK(warnings == 1 && !mesh.coll);
	}
	CHECK(table->closeListen(mesh.listener) == ncclSuccess);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

/* One rank can't register: all fail, none waits. */
static void cannot_register(void)
{
	struct mesh mesh = { 0 };
	void *mhandle = NULL, *gin_handle;
	ncclResult_t result;

	mesh_open(&mesh, BYTES);
	/* A hole is in nobody's memory. */
	result = table->regMrSym(mesh.coll, rank ? mesh.data.at : (void *)4096, 4096, NCCL_PTR_HOST,
				 0, &mhandle, &gin_handle);
	CHECK(result == (rank ? ncclRemoteError : ncclSystemError) && !mhandle && warnings == 1);
	warnings = 0;
	barrier();
	await(&mesh, put_signal(&mesh, (rank + 1) % ranks, 0, BYTES, 0, 1));
	await_signal(&mesh, 0, 1);
	mesh_close(&mesh);
}

/* finalize gives back what nobody closed, with requests under way. */
static void dropped(void)
{
	struct mesh mesh = { 0 };

	mesh_open(&mesh, BYTES);
	for (int k = 0; k < 8; k++)
		(void)put_signal(&mesh, (rank + 1) % ranks, 0, BYTES, 0, 1);
	barrier();
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
	barrier();
	CHECK(table->closeColl(mesh.coll) == ncclSuccess); /* too late, and harmless */
	CHECK(table->deregMrSym(mesh.coll, mesh.data.mhandle) == ncclSuccess);
}

/* A process may end with all of it in use. */
static void exits(void)
{
	struct mesh mesh = { 0 };

	mesh_open(&mesh, BYTES);
	(void)put_signal(&mesh, (rank + 1) % ranks, 0, BYTES, 0, 1);
	barrier();
}

/* A child has no part in its parent's mesh, and takes nothing away from it. */
static void forks(void)
{
	struct mesh mesh = { 0 };
	int status = -1;
	void *request;
	pid_t child;

	mesh_open(&mesh, BYTES);
	child = fork();
	if (child == 0) {
		if (table->iput(mesh.coll, 0, mesh.data.handle, 8, 0, mesh.data.handle, 0,
				&request) == ncclSuccess ||
		    table->deregMrSym(mesh.coll, mesh.data.mhandle) != ncclSuccess ||
		    table->closeColl(mesh.coll) != ncclSuccess)
			_exit(1);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	await(&mesh, put_signal(&mesh, (rank + 1) % ranks, 0, BYTES, 0, 1));
	await_signal(&mesh, 0, 1);
	mesh_close(&mesh);
}

/* No devices where none can take part, so that NCCL does without; the rest of the table isn't
 * called. */
static void no_devices(void)
{
	struct mesh mesh = { 0 };
	int n = -1;

	table_load();
	CHECK(table->init(&mesh.ctx, 0x1234, NULL) == ncclSuccess);
	CHECK(table->devices(&n) == ncclSuccess && n == 0);
	CHECK(table->finalize(mesh.ctx) == ncclSuccess);
}

const struct gin_case bad_cases[] = {
	{ .name = "no-devices", .run = no_devices },
	{ .name = "dropped", .run = dropped },
	{ .name = "exits", .run = exits },
	{ .name = "forks", .run = forks },
	{ .name = "edges", .run = edges },
	{ .name = "unequal-windows", .run = unequal_windows },
	{ .name = "too-many", .run = too_many },
	{ .name = "dies-in-set-up", .run = dies_in_set_up, .dies = true },
	{ .name = "absent", .run = absent },
	{ .name = "dies-in-use", .run = dies_in_use, .dies = true },
	{ .name = "dies-while-connecting", .run = dies_while_connecting },
	{ .name = "dies-in-registration", .run = dies_in_registration, .dies = true },
	{ .name = "closes-early", .run = closes_early },
	{ .name = "version-differs", .run = version_differs },
	{ .name = "ranks-differ", .run = ranks_differ },
	{ .name = "settings-differ", .run = settings_differ },
	{ .name = "bad-memory", .run = bad_memory },
	{ .name = "bad-contexts", .run = bad_contexts },
	{ .name = "wrong-handles", .run = wrong_handles },
	{ .name = "cannot-register", .run = cannot_register },
	{ 0 },
};
