/* SPDX-License-Identifier: Apache-2.0 */
/* driver TRAP: one test of how the plugin is loaded and called; exit 0 where it holds. */
#include "tests/plugin/driver.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

struct mpib_nccl_net_v12 *net;
void *library;
unsigned int warnings;
char warned[4096];

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	static pthread_mutex_t lock =
		PTHREAD_MUTEX_INITIALIZER; /* the helper thread has news, too */
	va_list args;
	size_t used;

	(void)file;
	(void)line;
	/* NCCL filters by subsystem: a warning must pass whatever the user chose, and information
	 * is one of our own subsystems. */
	if (level == NCCL_LOG_INFO)
		CHECK(flags & NCCL_NET);
	if (level != NCCL_LOG_WARN)
		return;
	CHECK(flags == ~0ul);
	CHECK(pthread_mutex_lock(&lock) == 0);
	used = strlen(warned);
	warnings++;
	va_start(args, fmt);
	(void)vsnprintf(warned + used, sizeof(warned) - used, fmt, args);
	va_end(args);
	(void)fprintf(stderr, "%s\n", warned + used);
	used = strlen(warned);
	(void)snprintf(warned + used, sizeof(warned) - used, "\n");
	CHECK(pthread_mutex_unlock(&lock) == 0);
}

void library_open(void)
{
	const char *path = getenv("PLUGIN");

	CHECK(path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		(void)fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	net = library_symbol("ncclNetPlugin_v12");
}

void *library_symbol(const char *name)
{
	void *symbol = dlsym(library, name);

	CHECK(symbol);
	return symbol;
}

void library_close(void)
{
	CHECK(dlclose(library) == 0);
	library = NULL;
	net = NULL;
}

ncclResult_t net_init(void **ctx)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };

	return net->init(ctx, 0x1234, &config, logger, NULL);
}

void ends_shake(struct ends *ends, void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	uint64_t end = clock_ms() + 60000;

	while (!ends->send || !ends->recv) {
		if (!ends->send)
			CHECK(net->connect(ctx, 0, ends->handle, &ends->send, &device) ==
			      ncclSuccess);
		if (!ends->recv)
			CHECK(net->accept(ends->listener, &ends->recv, &device) == ncclSuccess);
		CHECK(clock_ms() < end);
	}
	ends->out = aligned_alloc(4096, BUFFER_BYTES);
	ends->in = aligned_alloc(4096, BUFFER_BYTES);
	CHECK(ends->out && ends->in);
	for (size_t k = 0; k < BUFFER_BYTES; k++)
		ends->out[k] = (char)(k * 13 + (k >> 8));
	CHECK(net->regMr(ends->send, ends->out, BUFFER_BYTES, NCCL_PTR_HOST, &ends->send_mr) ==
	      ncclSuccess);
	CHECK(net->regMr(ends->recv, ends->in, BUFFER_BYTES, NCCL_PTR_HOST, &ends->recv_mr) ==
	      ncclSuccess);
}

void ends_open(struct ends *ends, void *ctx)
{
	memset(ends, 0, sizeof(*ends));
	CHECK(net->listen(ctx, 0, ends->handle, &ends->listener) == ncclSuccess);
	ends_shake(ends, ctx);
	CHECK(net->closeListen(ends->listener) == ncclSuccess);
	ends->listener = NULL;
}

void ends_close(struct ends *ends)
{
	CHECK(net->deregMr(ends->send, ends->send_mr) == ncclSuccess);
	CHECK(net->deregMr(ends->recv, ends->recv_mr) == ncclSuccess);
	CHECK(net->closeSend(ends->send) == ncclSuccess);
	CHECK(net->closeRecv(ends->recv) == ncclSuccess);
	free(ends->out);
	free(ends->in);
	memset(ends, 0, sizeof(*ends));
}

/* Tests @request until it is done. */
static void finish(void *request, int *size, uint64_t end)
{
	int done = 0;

	while (!done) {
		CHECK(net->test(request, &done, size) == ncclSuccess);
		CHECK(clock_ms() < end);
	}
}

void ends_transfer(struct ends *ends, size_t size)
{
	ends_move(ends, size, BUFFER_BYTES);
}

void ends_move(struct ends *ends, size_t size, size_t room)
{
	void *in = ends->in, *send = NULL, *recv = NULL;
	uint64_t end = clock_ms() + 60000;
	int tag = 7, got = -1, done = 0;

	memset(ends->in, 0x2a, room);
	while (!recv) {
		CHECK(net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL, &recv) ==
		      ncclSuccess);
		CHECK(clock_ms() < end);
	}
	while (!send) {
		CHECK(net->isend(ends->send, ends->out, size, tag, ends->send_mr, NULL, &send) ==
		      ncclSuccess);
		CHECK(clock_ms() < end);
	}
	/* Both progress, as one of them may need the other's. */
	while (!done) {
		CHECK(net->test(recv, &done, &got) == ncclSuccess);
		if (send && !done) {
			int sent = 0;

			CHECK(net->test(send, &sent, NULL) == ncclSuccess);
			if (sent)
				send = NULL;
		}
		CHECK(clock_ms() < end);
	}
	if (send)
		finish(send, NULL, end);
	CHECK((size_t)got == size);
	CHECK(memcmp(ends->in, ends->out, size) == 0);
	CHECK(size == room || ends->in[size] == 0x2a);
}

unsigned int count_files(void)
{
	unsigned int n = 0;
	DIR *dir = opendir("/proc/self/fd");

	CHECK(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 3; /* . and .. and this folder itself */
}

unsigned int count_threads(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned int n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char path[300], comm[64] = "";
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue; /* it has ended */
		if (!fgets(comm, sizeof(comm), file))
			comm[0] = '\0';
		(void)fclose(file);
		comm[strcspn(comm, "\n")] = '\0';
		n += !name || strcmp(comm, name) == 0;
	}
	(void)closedir(dir);
	return n;
}

void await_end_of_watch(void)
{
	for (unsigned int k = 0; k < 30000 && count_threads("mpib-watch"); k++)
		sleep_ms(1);
	CHECK(count_threads("mpib-watch") == 0);
}

void sleep_ms(unsigned int ms)
{
	(void)poll(NULL, 0, (int)ms);
}

uint64_t clock_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	const struct trap *const groups[] = { life_traps, call_traps,	end_traps,
					      fork_traps, memory_traps, queue_traps,
					      flap_traps, slow_traps,	control_traps };

	if (argc == 2 && strcmp(argv[1], "count-files") == 0) {
		(void)printf("%u\n", count_files());
		return 0;
	}
	for (size_t g = 0; argc == 2 && g < sizeof(groups) / sizeof(groups[0]); g++)
		for (const struct trap *trap = groups[g]; trap->name; trap++)
			if (strcmp(trap->name, argv[1]) == 0) {
				trap->run();
				return 0;
			}
	(void)fprintf(stderr, "usage: driver TRAP\n");
	return 2;
}
