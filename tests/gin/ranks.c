/* SPDX-License-Identifier: Apache-2.0 */
/* gin-driver CASE RANKS [NODES [HOSTS HOST ADDRESS PORT]]: runs one case; exit 0 where it holds.
 * PLUGIN names the library, TABLE the table; node N's agent is at the path GIN_AGENTS with the
 * number behind it. With HOSTS it is run on each of them, for the ranks whose number is HOST modulo
 * HOSTS; ADDRESS and PORT are the first one's. */
#include "tests/gin/ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gin/meet.h"

#define WAIT_MS 60000

int rank, ranks;
const struct mpib_nccl_gin_v11 *table;
atomic_uint warnings;
char warned[4096];
static pthread_mutex_t warned_lock = PTHREAD_MUTEX_INITIALIZER; /* the plugin has threads */

/* What the processes of a run share. */
struct shared {
	pthread_barrier_t barrier; /* of this host */
	struct told {
		char handle[NCCL_NET_HANDLE_MAXSIZE];
		_Atomic uint64_t word;
	} told[RANKS_MAX];
};

static struct shared *shared;
static int hosts = 1, host;

/* With several hosts the first rank of each tells the others what is new. */
void barrier(void)
{
	(void)pthread_barrier_wait(&shared->barrier);
	if (hosts == 1)
		return;
	if (rank == host)
		meet_exchange(shared->told, (size_t)ranks, sizeof(shared->told[0]));
	(void)pthread_barrier_wait(&shared->barrier);
}

_Atomic uint64_t *shared_word(int of_rank)
{
	return &shared->told[of_rank].word;
}

uint64_t clock_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	char text[1024];
	size_t used;
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN)
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)fprintf(stderr, "rank %d: %s\n", rank, text);
	(void)pthread_mutex_lock(&warned_lock);
	warnings++;
	used = strlen(warned);
	(void)snprintf(warned + used, sizeof(warned) - used, "%s\n", text);
	(void)pthread_mutex_unlock(&warned_lock);
}

const char *warned_text(void)
{
	static char copy[sizeof(warned)];

	(void)pthread_mutex_lock(&warned_lock);
	memcpy(copy, warned, sizeof(copy));
	(void)pthread_mutex_unlock(&warned_lock);
	return copy;
}

/* ---- a mesh ---------------------------------------------------------------------------------- */

void table_load(void)
{
	const char *path = getenv("PLUGIN");
	void *library;

	if (table)
		return;
	library = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		(void)fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	table = table_find(library);
	CHECK(table && strstr(table->name, "MPIB"));
}

void table_init(struct mesh *mesh)
{
	struct mpib_nccl_properties_v11 props;
	int n = 0;

	table_load();
	CHECK(table->init(&mesh->ctx, 0x1234, logger) == ncclSuccess);
	CHECK(table->devices(&n) == ncclSuccess && n >= 1);
	CHECK(table->getProperties(0, &props) == ncclSuccess);
	CHECK(props.netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && props.maxRecvs == 1);
	CHECK(props.vProps.ndevs == 1 && props.vProps.devs[0] == 0);
}

void mesh_listen(struct mesh *mesh)
{
	CHECK(table->listen(mesh->ctx, 0, shared->told[rank].handle, &mesh->listener) ==
	      ncclSuccess);
	barrier();
}

ncclResult_t mesh_connect(struct mesh *mesh)
{
	void *handles[RANKS_MAX];

	for (int k = 0; k < ranks; k++)
		handles[k] = shared->told[k].handle;
	return table->connect(mesh->ctx, handles, ranks, rank, mesh->listener, &mesh->coll);
}

static bool guards_hold(const struct window *window)
{
	for (size_t k = 0; k < GUARD; k++)
		if (window->at[-1 - (ptrdiff_t)k] != 0xa5 || window->at[window->size + k] != 0xa5)
			return false;
	return true;
}

ncclResult_t window_open(struct mesh *mesh, struct window *window, size_t size, uint64_t flags)
{
	ncclResult_t result;

	window->size = size;
	window->pages_size = size + 2 * 4096;
	window->pages = mmap(NULL, window->pages_size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(window->pages != MAP_FAILED);
	window->at = window->pages + 1024;
	memset(window->at - GUARD, 0xa5, GUARD);
	memset(window->at + size, 0xa5, GUARD);
	result = table->regMrSym(mesh->coll, window->at, size, NCCL_PTR_HOST, flags,
				 &window->mhandle, &window->handle);
	CHECK(result != ncclSuccess || (window->mhandle && window->handle));
	return result;
}

void window_close(struct mesh *mesh, struct window *window)
{
	CHECK(guards_hold(window));
	CHECK(table->deregMrSym(mesh->coll, window->mhandle) == ncclSuccess);
	CHECK(munmap(window->pages, window->pages_size) == 0);
}

void mesh_open(struct mesh *mesh, size_t data_size)
{
	table_init(mesh);
	mesh_listen(mesh);
	CHECK(mesh_connect(mesh) == ncclSuccess);
	CHECK(table->closeListen(mesh->listener) == ncclSuccess);
	CHECK(window_open(mesh, &mesh->data, data_size, 0) == ncclSuccess);
	CHECK(window_open(mesh, &mesh->signals, SIGNALS * 8, NCCL_NET_MR_FLAG_FORCE_SO) ==
	      ncclSuccess);
	barrier();
}

void mesh_close(struct mesh *mesh)
{
	barrier();
	window_close(mesh, &mesh->signals);
	window_close(mesh, &mesh->data);
	CHECK(table->closeColl(mesh->coll) == ncclSuccess);
	CHECK(table->finalize(mesh->ctx) == ncclSuccess);
	CHECK(warnings == 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Nothing more will be done then. */
static bool has_failed(const struct mesh *mesh)
{
	bool failed = true;

	CHECK(table->queryLastError(mesh->coll, &failed) == ncclSuccess);
	return failed;
}

bool await_for(struct mesh *mesh, void *request, unsigned int ms)
{
	uint64_t end = clock_ms() + ms;
	int done = 0;

	for (;;) {
		CHECK(table->test(mesh->coll, request, &done) == ncclSuccess);
		if (done || clock_ms() >= end)
			return done;
		CHECK(!has_failed(mesh));
		(void)usleep(10);
	}
}

void await(struct mesh *mesh, void *request)
{
	CHECK(await_for(mesh, request, WAIT_MS));
}

uint64_t signal_value(const struct mesh *mesh, size_t index)
{
	return __atomic_load_n((uint64_t *)(void *)mesh->signals.at + index, __ATOMIC_ACQUIRE);
}

void await_signal(struct mesh *mesh, size_t index, uint64_t value)
{
	uint64_t end = clock_ms() + WAIT_MS;

	while (signal_value(mesh, index) < value) {
		CHECK(clock_ms() < end);
		CHECK(table->ginProgress(mesh->coll) == ncclSuccess);
		CHECK(!has_failed(mesh));
		(void)usleep(10);
	}
}

void *put(struct mesh *mesh, int to, uint64_t offset, size_t size)
{
	void *request = NULL;

	CHECK(table->iput(mesh->coll, offset, mesh->data.handle, size, offset, mesh->data.handle,
			  (uint32_t)to, &request) == ncclSuccess);
	CHECK(request);
	return request;
}

void *put_signal(struct mesh *mesh, int to, uint64_t offset, size_t size, size_t index,
		 uint64_t value)
{
	void *request = NULL, *handle = size ? mesh->data.handle : NULL;

	CHECK(table->iputSignal(mesh->coll, offset, handle, size, offset, handle, (uint32_t)to,
				index * 8, mesh->signals.handle, value, NCCL_NET_SIGNAL_OP_ADD,
				&request) == ncclSuccess);
	CHECK(request);
	return request;
}

void fill(uint8_t *at, size_t size, uint64_t seed)
{
	uint64_t word = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t k = 0; k < size; k++) {
		if (k % 8 == 0)
			word = word * 6364136223846793005ull + 1442695040888963407ull;
		at[k] = (uint8_t)(word >> (8 * (k % 8)));
	}
}

bool holds(const uint8_t *at, size_t size, uint64_t seed)
{
	uint64_t word = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t k = 0; k < size; k++) {
		if (k % 8 == 0)
			word = word * 6364136223846793005ull + 1442695040888963407ull;
		if (((const volatile uint8_t *)at)[k] != (uint8_t)(word >> (8 * (k % 8))))
			return false;
	}
	return true;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void run_rank(const struct gin_case *c, int nodes, char **where)
{
	const char *agents = getenv("GIN_AGENTS");
	char node[16], agent[512];

	(void)snprintf(node, sizeof(node), "%d", rank % nodes + 1);
	(void)setenv("MPIB_FABRIC_NODE", node, 1);
	(void)snprintf(agent, sizeof(agent), "%s%s", agents ? agents : "", node);
	if (agents)
		(void)setenv("MPIB_AGENT_DIR", agent, 1);
	if (hosts > 1 && rank == host)
		meet_open(hosts, host, where[0], atoi(where[1]));
	c->run();
	exit(0);
}

/* Reaps the ranks; the first that fails ends the others, which would wait for it. */
static int reap(const struct gin_case *c, const pid_t *pids)
{
	int failed = 0, status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (c->dies && pid != pids[0] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			continue;
		for (int k = host; k < ranks && !failed; k += hosts)
			(void)kill(pids[k], SIGKILL);
		failed = 1;
	}
	return failed;
}

static int run(const struct gin_case *c, int nodes, char **where)
{
	pthread_barrierattr_t attr;
	pid_t pids[RANKS_MAX] = { 0 };

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	(void)pthread_barrierattr_init(&attr);
	(void)pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_barrier_init(&shared->barrier, &attr,
				   (unsigned int)((ranks - host + hosts - 1) / hosts));
	if (ranks == 1)
		run_rank(c, nodes, where);
	for (rank = host; rank < ranks; rank += hosts) {
		pids[rank] = fork();
		if (pids[rank] == 0)
			run_rank(c, nodes, where);
		if (pids[rank] < 0)
			return 1;
	}
	return reap(c, pids);
}

int main(int argc, char **argv)
{
	const struct gin_case *const lists[] = { data_cases, bad_cases, get_cases, cost_cases,
						 lost_cases };
	int nodes = argc > 3 ? atoi(argv[3]) : 2;

	ranks = argc > 2 ? atoi(argv[2]) : 0;
	if (argc == 8) {
		hosts = atoi(argv[4]);
		host = atoi(argv[5]);
	}
	if (ranks < 1 || ranks > RANKS_MAX || nodes < 1 || hosts < 1 || host < 0 || host >= hosts ||
	    hosts > ranks) {
		(void)fprintf(stderr, "usage: %s CASE RANKS [NODES [HOSTS HOST ADDRESS PORT]]\n",
			      argv[0]);
		return 2;
	}
	for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
		for (const struct gin_case *c = lists[k]; c->name; c++)
			if (strcmp(c->name, argv[1]) == 0)
				return run(c, nodes, argv + 6);
	(void)fprintf(stderr, "no case '%s'\n", argv[1]);
	return 2;
}
