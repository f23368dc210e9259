/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep-life: one process's life with the plugin, from init over a connection with itself to
 * finalize, again and again; each time one call fails, of all that a life makes. sweep.c has two
 * processes whose init is long over; here is what is called once.
 */
#include "tests/plugin/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "common/macros.h"
#include "tests/plugin/sweep.h"

#define LIFE_MS	    8000
#define COUNTERS_MS 3000 /* the descriptor is handed over at a tick */
#define AT_MAX	    64
#define AT_SHORT    12
#define TEXT_BYTES  4096

struct mpib_nccl_net_v12 *net;
void *library;

static struct {
	const char *call; /* that failed first, or NULL */
	ncclResult_t result;
	unsigned int warnings; /* up to then */
	char said[TEXT_BYTES];
	bool hung;
} life;

static unsigned int tried, errors;
static bool with_agent;

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	size_t used = strlen(life.said);
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN || life.call)
		return;
	life.warnings++;
	va_start(args, fmt);
	(void)vsnprintf(life.said + used, sizeof(life.said) - used - 1, fmt, args);
	va_end(args);
	(void)strncat(life.said, "\n", sizeof(life.said) - strlen(life.said) - 1);
}

uint64_t clock_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool failed(ncclResult_t r, const char *call)
{
	if (r == ncclSuccess)
		return false;
	life.call = call;
	life.result = r;
	return true;
}

/* Both ends. */
static void shake(void *ctx, void *listener, char *handle, void **send, void **recv)
{
	struct mpib_nccl_device_handle *device = NULL;
	uint64_t end = clock_ms() + LIFE_MS;

	while (!*send || !*recv) {
		if (!*send && failed(net->connect(ctx, 0, handle, send, &device), "connect"))
			return;
		if (!*recv && failed(net->accept(listener, recv, &device), "accept"))
			return;
		if (clock_ms() > end) {
			life.hung = true;
			return;
		}
		(void)usleep(100);
	}
}

/* The counter table reaches the agent, with @most calls that try. */
static void hand_over(unsigned int most)
{
	uint64_t end = clock_ms() + COUNTERS_MS;

	while (hook_calls(HOOK_SENDMSG) < most && clock_ms() < end)
		(void)usleep(2000);
	life.hung |= hook_calls(HOOK_SENDMSG) < most;
}

static void live(unsigned int hand_overs)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	void *ctx = NULL, *listener = NULL, *send = NULL, *recv = NULL;
	char handle[HANDLE_BYTES];

	if (failed(net->init(&ctx, 1, &config, logger, NULL), "init"))
		return;
	if (!failed(net->listen(ctx, 0, handle, &listener), "listen"))
		shake(ctx, listener, handle, &send, &recv);
	if (send && recv && hand_overs)
		hand_over(hand_overs);
	if (send)
		CHECK(net->closeSend(send) == ncclSuccess);
	if (recv)
		CHECK(net->closeRecv(recv) == ncclSuccess);
	if (listener)
		CHECK(net->closeListen(listener) == ncclSuccess);
	CHECK(net->finalize(ctx) == ncclSuccess);
}

__attribute__((format(printf, 4, 5))) static void complain(enum hooked which, unsigned int at,
							   int error, const char *fmt, ...)
{
	va_list args;

	(void)printf("call %u of %s fails with %s: ", at, hook_name(which), strerrorname_np(error));
	va_start(args, fmt);
	(void)vprintf(fmt, args);
	va_end(args);
	(void)printf("\n  %s: %d\n%s", life.call ? life.call : "no error", life.result, life.said);
	(void)fflush(stdout);
	errors++;
}

/* What goes by must not end a set-up; an init may end with it. */
static bool passes(int error)
{
	return error == EINTR || error == EAGAIN || error == ENOBUFS;
}

static void judge(enum hooked which, unsigned int at, int error, int files)
{
	if (life.hung)
		complain(which, at, error, "nothing ever ended");
	if (count_open() != files)
		complain(which, at, error, "%d files open, not %d", count_open(), files);
	if (hook_live_memory() || hook_live_verbs())
		complain(which, at, error, "%d pieces of memory and %d verbs objects are left",
			 hook_live_memory(), hook_live_verbs());
	if (!life.call && life.warnings)
		complain(which, at, error, "a line without a failure");
	if (!life.call)
		return;
	if (life.result != ncclSystemError && life.result != ncclRemoteError)
		complain(which, at, error, "result %d", life.result);
	if (strcmp(life.call, "init") == 0 && life.result != ncclSystemError)
		complain(which, at, error, "init's result is %d", life.result);
	if (life.warnings != 1 || !strstr(life.said, strerror(error)))
		complain(which, at, error, "not one line with the cause");
	if (strcmp(life.call, "init") != 0 && which <= HOOK_SENDMSG && passes(error))
		complain(which, at, error, "it wasn't tried again");
}

static void begin(enum hooked which, unsigned int at, int error)
{
	memset(&life, 0, sizeof(life));
	hook_arm(which, at, error);
}

static const struct row {
	enum hooked which;
	int errors[4];
} rows[] = {
	{ HOOK_ALLOC, { ENOMEM } },
	{ HOOK_MMAP, { ENOMEM } },
	{ HOOK_EPOLL_CREATE, { EMFILE } },
	{ HOOK_EVENTFD, { ENFILE } },
	{ HOOK_EPOLL_CTL, { ENOMEM, ENOSPC } },
	{ HOOK_THREAD, { EAGAIN } },
	{ HOOK_OPEN, { EINTR, EMFILE, EACCES } },
	{ HOOK_STAT, { ENOMEM } },
	{ HOOK_FCNTL, { EBADF } },
	{ HOOK_SOCKET, { EMFILE, EAFNOSUPPORT } },
	{ HOOK_CONNECT, { EINTR, EAGAIN, ECONNREFUSED } },
	{ HOOK_GETIFADDRS, { ENOBUFS } },
	{ HOOK_SETSOCKOPT, { ENOBUFS } },
	{ HOOK_IOCTL, { ENOMEM } },
	{ HOOK_GETRANDOM, { EINTR } },
	{ HOOK_MEMFD, { EMFILE } },
	{ HOOK_FTRUNCATE, { ENOMEM } },
	{ HOOK_SEND, { EINTR, EAGAIN } },
	{ HOOK_RECV, { EINTR, EAGAIN } },
	{ HOOK_DEVICE_LIST, { ENOMEM, EINVAL } },
	{ HOOK_OPEN_DEVICE, { EMFILE, EINVAL } },
	{ HOOK_QUERY_DEVICE, { EIO, EINVAL } },
	{ HOOK_QUERY_PORT, { EIO, EINVAL } },
	{ HOOK_QUERY_GID, { EIO } },
	{ HOOK_ALLOC_PD, { ENOMEM, EINVAL } },
	{ HOOK_CREATE_SRQ, { ENOMEM } },
};

/* The agent's socket is full, or the signal of somebody else comes: at the next tick again. */
static void sweep_hand_over(int files)
{
	static const int passing[] = { EINTR, EAGAIN, ENOBUFS, EPIPE };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(passing); k++) {
		begin(HOOK_SENDMSG, 0, passing[k]);
		live(2);
		CHECK(hook_hit());
		hook_arm(0, 0, 0);
		tried++;
		if (life.call)
			complain(HOOK_SENDMSG, 0, passing[k], "a failure");
		judge(HOOK_SENDMSG, 0, passing[k], files);
	}
}

static void sweep_row(const struct row *row, unsigned int at_max, int files)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(row->errors) && row->errors[k]; k++)
		for (unsigned int at = 0; at < at_max; at++) {
			bool hit;

			begin(row->which, at, row->errors[k]);
			live(0);
			hit = hook_hit();
			hook_arm(0, 0, 0);
			if (!hit)
				break;
			tried++;
			judge(row->which, at, row->errors[k], files);
		}
}

int main(void)
{
	const char *path = getenv("PLUGIN"), *agents = getenv("SWEEP_AGENTS");
	unsigned int at_max = getenv("MPIB_TEST_SWEEP") ? AT_MAX : AT_SHORT;
	char dir[256];
	int files;

	if (agents) {
		with_agent = true;
		CHECK(snprintf(dir, sizeof(dir), "%s1", agents) < (int)sizeof(dir));
		CHECK(setenv("MPIB_MODE", "1", 1) == 0 && setenv("MPIB_AGENT_DIR", dir, 1) == 0);
	}
	CHECK(path && setenv("MPIB_FABRIC_NODE", "1", 1) == 0);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	hook_library(library);
	net = dlsym(library, "ncclNetPlugin_v12");
	CHECK(net);
	for (unsigned int k = 0; k < 2; k++) { /* the first one makes what stays */
		begin(0, 0, 0);
		live(with_agent ? 1 : 0);
		CHECK(!life.call && !life.warnings && !life.hung);
	}
	files = count_open();
	CHECK(hook_live_memory() == 0 && hook_live_verbs() == 0);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rows) && errors < 40; k++)
		sweep_row(&rows[k], at_max, files);
	if (with_agent)
		sweep_hand_over(files);
	begin(0, 0, 0);
	live(0);
	CHECK(!life.call && !life.warnings && !life.hung);
	CHECK(dlclose(library) == 0);
	(void)printf("%u failures tried, %u not as they have to be\n", tried, errors);
	return tried > 10 && errors == 0 ? 0 : 1;
}
