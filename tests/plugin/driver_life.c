/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, init, finalize and unloading. */
#include "tests/plugin/driver.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

static bool is_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "libnccl-net-mpib") != NULL;
	(void)fclose(maps);
	return found;
}

/* Newer releases compare the name before they call init, so it stands in every table. What a host
 * plugin doesn't have is NULL: NCCL takes a function that refuses for an error. */
static void name_before_init(void)
{
	static const char *const tables[] = { "ncclNetPlugin_v7",  "ncclNetPlugin_v8",
					      "ncclNetPlugin_v9",  "ncclNetPlugin_v10",
					      "ncclNetPlugin_v11", "ncclNetPlugin_v12" };
	struct mpib_nccl_net_v9 *v9;
	struct mpib_nccl_net_v10 *v10;

	library_open();
	for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]); k++) {
		const char *const *table = library_symbol(tables[k]); /* the name comes first */

		CHECK(*table && strcmp(*table, "MPIB") == 0);
	}
	v9 = library_symbol("ncclNetPlugin_v9");
	v10 = library_symbol("ncclNetPlugin_v10");
	CHECK(!v9->makeVDevice && !v10->makeVDevice && !net->makeVDevice);
	CHECK(!net->getDeviceMr && !net->irecvConsumed);
	CHECK(net->finalize);
	library_close();
}

static void finalize_null(void)
{
	void *ctx = NULL;
	struct ends ends;

	library_open();
	CHECK(net->finalize(NULL) == ncclSuccess);
	CHECK(net_init(&ctx) == ncclSuccess);
	CHECK(net->finalize(NULL) == ncclSuccess); /* takes nobody's reference away */
	ends_open(&ends, ctx);
	ends_transfer(&ends, 1000);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	CHECK(net->finalize(NULL) == ncclSuccess);
	library_close();
}

static void finalize_after_failed_init(void)
{
	int anything = 0;
	void *ctx = &anything, *good = NULL;
	struct ends ends;

	library_open();
	CHECK(setenv("MPIB_HCA_SUP", "nothing", 1) == 0);
	CHECK(net_init(&ctx) != ncclSuccess);
	CHECK(warnings == 1);
	CHECK(net->finalize(ctx) == ncclSuccess);
	CHECK(net->finalize(NULL) == ncclSuccess);
	await_end_of_watch();
	/* And the process is as good as before. */
	CHECK(setenv("MPIB_HCA_SUP", "sup", 1) == 0);
	CHECK(net_init(&good) == ncclSuccess);
	ends_open(&ends, good);
	ends_transfer(&ends, 1000);
	ends_close(&ends);
	CHECK(net->finalize(good) == ncclSuccess);
	library_close();
}

static void one_round(void)
{
	void *ctx = NULL;
	struct ends ends;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	ends_transfer(&ends, 5000);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
	CHECK(!is_mapped());
}

/* The library comes and goes with each communicator from 2.28 on. */
static void unload_and_load_again(void)
{
	unsigned int files, threads;

	one_round(); /* what libibverbs keeps, it keeps from here on */
	files = count_files();
	threads = count_threads(NULL);
	for (unsigned int round = 0; round < 50; round++) {
		one_round();
		await_end_of_watch();
		CHECK(count_files() == files);
	}
	for (unsigned int k = 0; k < 30000 && count_threads(NULL) > threads; k++)
		sleep_ms(1);
	CHECK(count_threads(NULL) <= threads);
}

/* Tables before v11 have no finalize: nothing is told before the library goes. */
static void unload_without_finalize(void)
{
	struct mpib_nccl_net_v8 *v8;
	unsigned int files = 0;

	for (unsigned int round = 0; round < 10; round++) {
		int ndev = 0;

		library_open();
		v8 = library_symbol("ncclNetPlugin_v8");
		CHECK(v8->init(NULL) == ncclSuccess);
		CHECK(v8->init(NULL) == ncclSuccess);
		CHECK(v8->devices(&ndev) == ncclSuccess && ndev == 1);
		library_close();
		await_end_of_watch();
		if (round == 0)
			files = count_files();
		CHECK(count_files() == files);
	}
}

/* An aborted set-up: NCCL drops listeners and half-made connections without closing them. */
static void dropped_set_up(void)
{
	struct mpib_nccl_device_handle *device = NULL;
	unsigned int files = 0;

	library_open();
	for (unsigned int round = 0; round < 5; round++) {
		char handle[8][HANDLE_BYTES];
		void *ctx = NULL, *listener, *comm = NULL;
		struct ends ends;

		CHECK(net_init(&ctx) == ncclSuccess);
		for (unsigned int k = 0; k < 8; k++) {
			CHECK(net->listen(ctx, 0, handle[k], &listener) == ncclSuccess);
			for (unsigned int n = 0; n < k; n++)
				CHECK(net->connect(ctx, 0, handle[k], &comm, &device) ==
				      ncclSuccess);
			if (k & 1)
				CHECK(net->accept(listener, &comm, &device) == ncclSuccess);
		}
		memset(&ends, 0, sizeof(ends));
		ends_open(&ends, ctx); /* neither is this one closed */
		CHECK(net->deregMr(ends.send, ends.send_mr) == ncclSuccess);
		CHECK(net->deregMr(ends.recv, ends.recv_mr) == ncclSuccess);
		free(ends.out);
		free(ends.in);
		CHECK(net->finalize(ctx) == ncclSuccess);
		await_end_of_watch();
		if (round == 0)
			files = count_files();
		CHECK(count_files() == files);
	}
	library_close();
}

static void two_contexts(void)
{
	void *first = NULL, *second = NULL;
	struct ends a, b;

	library_open();
	CHECK(net_init(&first) == ncclSuccess);
	CHECK(net_init(&second) == ncclSuccess);
	CHECK(first != second);
	ends_open(&a, first);
	ends_open(&b, second);
	ends_transfer(&a, 1000);
	ends_transfer(&b, 1000);
	ends_close(&a);
	CHECK(net->finalize(first) == ncclSuccess);
	ends_transfer(&b, 100000); /* the other's connection doesn't notice */
	ends_open(&a, second);
	ends_transfer(&a, 1000);
	ends_close(&a);
	ends_close(&b);
	CHECK(net->finalize(second) == ncclSuccess);
	await_end_of_watch();
	library_close();
}

/* Of the whole process, in microseconds. */
static uint64_t cpu_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void connection_open(struct ends *ends, void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;

	CHECK(net->listen(ctx, 0, ends->handle, &ends->listener) == ncclSuccess);
	while (!ends->send || !ends->recv) {
		if (!ends->send)
			CHECK(net->connect(ctx, 0, ends->handle, &ends->send, &device) ==
			      ncclSuccess);
		if (!ends->recv)
			CHECK(net->accept(ends->listener, &ends->recv, &device) == ncclSuccess);
	}
	CHECK(net->closeListen(ends->listener) == ncclSuccess);
}

static void connection_close(struct ends *ends)
{
	CHECK(net->closeSend(ends->send) == ncclSuccess);
	CHECK(net->closeRecv(ends->recv) == ncclSuccess);
	memset(ends, 0, sizeof(*ends));
}

/* What one more connection takes, from listen to close. A busy machine can only add to that: the
 * least of all tries so far, @least, is what it is. */
static uint64_t least_cost_us(void *ctx, uint64_t least)
{
	enum { TRIES = 20, BATCH = 5 };
	struct ends ends[BATCH] = { 0 };

	for (unsigned int try = 0; try < TRIES; try++) {
		uint64_t start = cpu_us(), took;

		for (unsigned int k = 0; k < BATCH; k++)
			connection_open(&ends[k], ctx);
		for (unsigned int k = 0; k < BATCH; k++)
			connection_close(&ends[k]);
		took = (cpu_us() - start) / BATCH;
		if (took < least)
			least = took;
	}
	return least;
}

static void allow_files(rlim_t count)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < count) {
		(void)printf("skipped: only %llu descriptors are allowed here\n",
			     (unsigned long long)limit.rlim_max);
		exit(77);
	}
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* X6. One more connection takes no more where there are 2000 than where there is none, and each has
 * two sockets. Noise is measured away, in further rounds if need be; work that grows with the
 * others stays above the bound in each. */
static void many_connections(void)
{
	enum { COUNT = 2000, PERCENT = 180, ROUNDS = 6 };
	struct ends *ends = calloc(COUNT, sizeof(*ends));
	uint64_t alone = UINT64_MAX, among = UINT64_MAX;
	unsigned int files, round = 0;
	void *ctx = NULL;

	allow_files(3 * COUNT);
	CHECK(setenv("MPIB_SOUT_QP", "1", 1) == 0 && setenv("MPIB_SUP_QP", "1", 1) == 0);
	CHECK(ends);
	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	alone = least_cost_us(ctx, alone);
	do {
		files = count_files();
		for (unsigned int k = 0; k < COUNT; k++)
			connection_open(&ends[k], ctx);
		CHECK(count_files() - files <= 2 * COUNT + 8);
		among = least_cost_us(ctx, among);
		for (unsigned int k = 0; k < COUNT; k++)
			connection_close(&ends[k]);
		CHECK(count_files() <= files + 8);
		alone = least_cost_us(ctx, alone);
		(void)printf("one more connection: %llu us of CPU alone, %llu among %u\n",
			     (unsigned long long)alone, (unsigned long long)among, COUNT);
	} while (100 * among > PERCENT * alone && ++round < ROUNDS);
	CHECK(100 * among <= PERCENT * alone);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
	free(ends);
}

const struct trap life_traps[] = {
	{ "name-before-init", name_before_init },
	{ "finalize-null", finalize_null },
	{ "finalize-after-failed-init", finalize_after_failed_init },
	{ "unload-and-load-again", unload_and_load_again },
	{ "unload-without-finalize", unload_without_finalize },
	{ "dropped-set-up", dropped_set_up },
	{ "two-contexts", two_contexts },
	{ "two-thousand-connections", many_connections },
	{ NULL, NULL },
};
