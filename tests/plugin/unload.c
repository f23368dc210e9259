/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unload any-order|exit [ROUNDS [SEED]]: contexts, listeners, half-made and live connections,
 * registrations and messages under way, any number of each; some of them are given back, in any
 * order, and then the library is unloaded or the process exits. Nothing may stay: no memory, no
 * verbs object, no file, no thread.
 */
#include "tests/plugin/driver.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/plugin/sweep.h"

#define CONTEXTS  3
#define LISTENERS 3
#define HALVES	  3
#define PAIRS	  3
#define MRS	  4
#define BYTES	  65536
#define MAX_ENDS  (CONTEXTS + LISTENERS + 3 * HALVES + PAIRS * (3 + MRS))
#define MAKE_MS	  60000

struct mpib_nccl_net_v12 *net;
void *library;

/* One thing that can be given back. */
struct end {
	enum { CONTEXT, LISTENER, SEND, RECV, MR } kind;
	void *what, *of;
};

struct pair {
	void *send, *recv, *mr[MRS];
	char *buffer;
};

static struct world {
	void *ctx;
	struct pair pair[PAIRS];
	unsigned int pairs, count;
	struct end end[MAX_ENDS];
} world;

static uint64_t seed;

static unsigned int below(unsigned int n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(seed >> 33) % n;
}

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

uint64_t clock_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void open_library(void)
{
	const char *path = getenv("PLUGIN");

	CHECK(path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	hook_library(library);
	net = dlsym(library, "ncclNetPlugin_v12");
	CHECK(net);
}

static void to_end(int kind, void *what, void *of)
{
	CHECK(world.count < MAX_ENDS);
	world.end[world.count].kind = kind;
	world.end[world.count].what = what;
	world.end[world.count].of = of;
	world.count++;
}

static void *listen_on(char *handle)
{
	void *listener = NULL;

	CHECK(net->listen(world.ctx, 0, handle, &listener) == ncclSuccess);
	to_end(LISTENER, listener, NULL);
	return listener;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void make_contexts(void)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	struct mpib_nccl_net_v8 *old = dlsym(library, "ncclNetPlugin_v8");

	CHECK(old);
	if (below(3) == 0)
		CHECK(old->init(logger) == ncclSuccess); /* a table without finalize */
	for (unsigned int k = 0, n = 1 + below(CONTEXTS); k < n; k++) {
		CHECK(net->init(&world.ctx, k, &config, logger, NULL) == ncclSuccess);
		to_end(CONTEXT, world.ctx, NULL);
	}
}

/* The handle's second half is where the connecting side keeps its state: it stays. */
static void make_half(char *handle)
{
	struct mpib_nccl_device_handle *device = NULL;
	void *listener = listen_on(handle), *comm = NULL;

	for (unsigned int k = below(4); k > 0; k--)
		CHECK(net->connect(world.ctx, 0, handle, &comm, &device) == ncclSuccess);
	if (comm)
		to_end(SEND, comm, NULL);
	comm = NULL;
	for (unsigned int k = below(3); k > 0; k--)
		CHECK(net->accept(listener, &comm, &device) == ncclSuccess);
	if (comm)
		to_end(RECV, comm, NULL);
}

static void make_pair(struct pair *pair)
{
	struct mpib_nccl_device_handle *device = NULL;
	uint64_t until = clock_ms() + MAKE_MS;
	char handle[HANDLE_BYTES];
	void *listener = listen_on(handle);

	while (!pair->send || !pair->recv) {
		if (!pair->send)
			CHECK(net->connect(world.ctx, 0, handle, &pair->send, &device) ==
			      ncclSuccess);
		if (!pair->recv)
			CHECK(net->accept(listener, &pair->recv, &device) == ncclSuccess);
		CHECK(clock_ms() < until);
	}
	to_end(SEND, pair->send, NULL);
	to_end(RECV, pair->recv, NULL);
	pair->buffer = aligned_alloc(4096, 2 * (size_t)BYTES);
	CHECK(pair->buffer);
	memset(pair->buffer, 1, 2 * (size_t)BYTES);
	for (unsigned int k = 0; k < MRS; k++) {
		void *comm = k & 1 ? pair->recv : pair->send;

		CHECK(net->regMr(comm, pair->buffer + (k & 1) * (size_t)BYTES,
				 BYTES - 4096 * (size_t)(k / 2), NCCL_PTR_HOST,
				 &pair->mr[k]) == ncclSuccess);
		to_end(MR, pair->mr[k], comm);
	}
}

/* A few messages whose fate nobody asks for. */
static void make_traffic(struct pair *pair)
{
	void *into = pair->buffer + BYTES, *request;
	size_t room = 8192;
	int tag = 1;

	for (unsigned int k = below(8); k > 0; k--)
		CHECK(net->irecv(pair->recv, 1, &into, &room, &tag, &pair->mr[1], NULL, &request) ==
		      ncclSuccess);
	for (unsigned int k = below(8); k > 0; k--)
		CHECK(net->isend(pair->send, pair->buffer, 8000, tag, pair->mr[0], NULL,
				 &request) == ncclSuccess);
}

static void make_world(void)
{
	static char handles[HALVES + LISTENERS][HANDLE_BYTES];

	memset(&world, 0, sizeof(world));
	make_contexts();
	for (unsigned int k = 0, n = below(LISTENERS); k < n; k++)
		(void)listen_on(handles[HALVES + k]);
	for (unsigned int k = 0, n = below(HALVES); k < n; k++)
		make_half(handles[k]);
	world.pairs = below(PAIRS + 1);
	for (unsigned int k = 0; k < world.pairs; k++) {
		make_pair(&world.pair[k]);
		make_traffic(&world.pair[k]);
	}
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void give_back(const struct end *end)
{
	ncclResult_t r = ncclInternalError;

	switch (end->kind) {
	case CONTEXT:
		r = net->finalize(end->what);
		break;
	case LISTENER:
		r = net->closeListen(end->what);
		break;
	case SEND:
		r = net->closeSend(end->what);
		break;
	case RECV:
		r = net->closeRecv(end->what);
		break;
	case MR:
		r = net->deregMr(end->of, end->what);
		break;
	}
	CHECK(r == ncclSuccess);
}

static bool is_pair(const struct end *end, const struct pair *pair)
{
	if (end->what == pair->send || end->what == pair->recv)
		return true;
	for (unsigned int k = 0; k < MRS; k++)
		if (end->what == pair->mr[k])
			return true;
	return false;
}

/* Some of them, in any order; nothing of @but, and not the contexts, where it is given. */
static void give_some_back(const struct pair *but)
{
	for (unsigned int k = world.count; k > 1; k--) {
		unsigned int other = below(k);
		struct end end = world.end[k - 1];

		world.end[k - 1] = world.end[other];
		world.end[other] = end;
	}
	for (unsigned int k = 0, n = below(world.count + 1); k < n; k++)
		if (!but || (world.end[k].kind != CONTEXT && !is_pair(&world.end[k], but)))
			give_back(&world.end[k]);
}

static void free_buffers(void)
{
	for (unsigned int k = 0; k < world.pairs; k++)
		free(world.pair[k].buffer);
}

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool has_helper(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	bool found = false;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char path[300], name[32] = "";
		int fd;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (read(fd, name, sizeof(name) - 1) > 0)
			found |= strncmp(name, "mpib-watch", 10) == 0;
		(void)close(fd);
	}
	(void)closedir(dir);
	return found;
}

/* A connection, all of it given back before the context; the files that are open afterwards. */
static int in_good_order(void)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };

	open_library();
	memset(&world, 0, sizeof(world));
	CHECK(net->init(&world.ctx, 1, &config, logger, NULL) == ncclSuccess);
	world.pairs = 1;
	make_pair(&world.pair[0]);
	while (world.count)
		give_back(&world.end[--world.count]);
	CHECK(net->finalize(world.ctx) == ncclSuccess);
	CHECK(dlclose(library) == 0);
	free_buffers();
	return count_open();
}

static void any_order(unsigned int rounds)
{
	int files = in_good_order(); /* what libibverbs keeps, it keeps from here on */

	for (unsigned int round = 0; round < rounds; round++) {
		uint64_t began = seed;

		open_library();
		make_world();
		give_some_back(NULL);
		CHECK(dlclose(library) == 0);
		free_buffers();
		if (hook_live_memory() || hook_live_verbs() || count_open() != files ||
		    has_helper()) {
			(void)fprintf(stderr,
				      "round %u, seed %llu: %d pieces of memory, %d verbs objects, "
				      "%d files and not %d, helper thread %d\n",
				      round, (unsigned long long)began, hook_live_memory(),
				      hook_live_verbs(), count_open(), files, has_helper());
			exit(1);
		}
		CHECK(!dlopen(getenv("PLUGIN"), RTLD_NOW | RTLD_NOLOAD));
	}
}

/* A progress thread that nobody stops. */
static void *progress(void *arg)
{
	struct pair *pair = arg;
	void *into = pair->buffer + BYTES, *sent = NULL, *received = NULL;
	size_t room = 8192;
	int tag = 9, done;

	for (;;) {
		if (!received)
			CHECK(net->irecv(pair->recv, 1, &into, &room, &tag, &pair->mr[1], NULL,
					 &received) == ncclSuccess);
		if (!sent)
			CHECK(net->isend(pair->send, pair->buffer, 8000, tag, pair->mr[0], NULL,
					 &sent) == ncclSuccess);
		if (sent && net->test(sent, &done, NULL) == ncclSuccess && done)
			sent = NULL;
		if (received && net->test(received, &done, NULL) == ncclSuccess && done)
			received = NULL;
	}
	return NULL;
}

/* exit() runs the library's destructors while other threads are in it. */
static void exits(unsigned int rounds)
{
	for (unsigned int round = 0; round < rounds; round++) {
		int status = 0;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			pthread_t thread;

			seed += round;
			(void)alarm(100); /* a thread that waits for ever at exit */
			open_library();
			make_world();
			if (world.pairs) {
				CHECK(pthread_create(&thread, NULL, progress, &world.pair[0]) == 0);
				CHECK(pthread_detach(thread) == 0);
			}
			give_some_back(world.pairs ? &world.pair[0] : NULL);
			exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			(void)fprintf(stderr, "round %u, seed %llu: status 0x%x\n", round,
				      (unsigned long long)seed, (unsigned int)status);
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 24;

	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
	(void)printf("seed %llu\n", (unsigned long long)seed);
	(void)fflush(stdout);
	if (argc > 1 && strcmp(argv[1], "any-order") == 0)
		any_order(rounds);
	else if (argc > 1 && strcmp(argv[1], "exit") == 0)
		exits(rounds);
	else
		return 2;
	return 0;
}
