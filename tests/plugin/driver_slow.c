/* SPDX-License-Identifier: Apache-2.0 */
/* A rail is lost and comes back while verbs on its device take long: messages don't wait for them,
 * and whatever is closed, forked or unloaded meanwhile leaves nothing behind. Both ends are in this
 * process, on node 1. */
#include "tests/plugin/driver.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BOUND_MS 60000
#define SLOW_MS	 2000
#define SIZE	 20000

static atomic_uint lost, back; /* lines of both ends */

__attribute__((format(printf, 5, 6))) static void listen_to(int level, unsigned long flags,
							    const char *file, int line,
							    const char *fmt, ...)
{
	char text[512];
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN)
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)fprintf(stderr, "%s\n", text);
	if (strstr(text, " is lost "))
		atomic_fetch_add(&lost, 1);
	if (strstr(text, " is back "))
		atomic_fetch_add(&back, 1);
}

static void ctl(const char *what, const char *more, unsigned int number)
{
	const char *tool = getenv("FABRICCTL");
	char command[512];

	CHECK(tool && snprintf(command, sizeof(command), more ? "%s %s 1/sup %s %u" : "%s %s", tool,
			       what, more ? more : "", number) < (int)sizeof(command));
	CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the test's own tool */
}

static void port(bool up)
{
	ctl(up ? "port 1/sup up" : "port 1/sup down", NULL, 0);
}

static void slow(const char *verb, unsigned int ms)
{
	ctl("slow", verb, 1000 * ms);
}

static void *start(struct ends *ends)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	void *ctx = NULL;

	atomic_store(&lost, 0);
	atomic_store(&back, 0);
	library_open();
	CHECK(net->init(&ctx, 0x1234, &config, listen_to, NULL) == ncclSuccess);
	ends_open(ends, ctx);
	return ctx;
}

static void stop(struct ends *ends, void *ctx)
{
	ends_close(ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* One message, every byte of it looked at, as a progress thread that leaves others the processor;
 * returns the milliseconds that it took. */
static uint64_t move(struct ends *ends)
{
	void *in = ends->in, *send = NULL, *recv = NULL;
	uint64_t begin = clock_ms();
	bool sent = false, got = false;
	size_t room = SIZE;
	int tag = 3;

	memset(ends->in, 0x2a, SIZE);
	while (!sent || !got) {
		const struct timespec t = { .tv_nsec = 20000 };
		int done = 0;

		(void)nanosleep(&t, NULL);
		CHECK(clock_ms() - begin < BOUND_MS);
		if (!recv && !got)
			CHECK(net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL,
					 &recv) == ncclSuccess);
		if (!send && !sent)
			CHECK(net->isend(ends->send, ends->out, SIZE, tag, ends->send_mr, NULL,
					 &send) == ncclSuccess);
		if (send) {
			CHECK(net->test(send, &done, NULL) == ncclSuccess);
			sent = done;
			send = done ? NULL : send;
		}
		if (recv) {
			CHECK(net->test(recv, &done, NULL) == ncclSuccess);
			got = done;
			recv = done ? NULL : recv;
		}
	}
	CHECK(memcmp(ends->in, ends->out, SIZE) == 0);
	return clock_ms() - begin;
}

/* Messages until both ends have told so many lines; the longest that one took. */
static uint64_t move_until(struct ends *ends, atomic_uint *lines, unsigned int want)
{
	uint64_t until = clock_ms() + BOUND_MS, longest = 0;

	do {
		uint64_t ms = move(ends);

		longest = ms > longest ? ms : longest;
		CHECK(clock_ms() < until);
	} while (atomic_load(lines) < want);
	return longest;
}

/* The longest gap between messages is shorter than any of the verbs. */
static void lose_and_return(const char *const *verbs)
{
	struct ends ends;
	void *ctx = start(&ends);
	uint64_t gap, more;

	for (unsigned int k = 0; k < 10; k++)
		(void)move(&ends);
	for (const char *const *verb = verbs; *verb; verb++)
		slow(*verb, SLOW_MS);
	port(false);
	gap = move_until(&ends, &lost, 2);
	port(true);
	more = move_until(&ends, &back, 2);
	for (const char *const *verb = verbs; *verb; verb++)
		slow(*verb, 0);
	(void)printf("verbs of %u ms: the longest message took %u ms at the loss, %u ms until the "
		     "rail was back\n",
		     SLOW_MS, (unsigned int)gap, (unsigned int)more);
	CHECK(gap < SLOW_MS && more < SLOW_MS);
	for (unsigned int k = 0; k < 10; k++)
		(void)move(&ends);
	stop(&ends, ctx);
}

static void slow_make(void)
{
	static const char *const verbs[] = { "destroy_qp", "create_qp", NULL };

	lose_and_return(verbs);
}

/* Messages that take the other rail alone don't wait for the queue pairs to go to ERR. */
static void slow_modify(void)
{
	static const char *const verbs[] = { "modify_qp", NULL };

	lose_and_return(verbs);
}

/* A child takes no part: what it closes is at once over, and it ends. */
static void fork_meanwhile(struct ends *ends, void *ctx)
{
	pid_t pid = fork();
	int status = -1;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(net->closeSend(ends->send) == ncclSuccess);
		CHECK(net->closeRecv(ends->recv) == ncclSuccess);
		CHECK(net->finalize(ctx) == ncclSuccess);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Closed, finalized and unloaded at each moment of loss and return. */
static void slow_close(void)
{
	static const char *const verbs[] = { "destroy_qp", "create_qp", "modify_qp", NULL };

	for (unsigned int ms = 0; ms < 600; ms += 100) {
		struct ends ends;
		void *ctx = start(&ends);

		(void)move(&ends);
		for (const char *const *verb = verbs; *verb; verb++)
			slow(*verb, 50);
		port(false);
		if (ms % 200 == 0) /* else a return is under way that follows the loss at once */
			(void)move_until(&ends, &lost, 2);
		port(true);
		for (uint64_t until = clock_ms() + ms; clock_ms() < until;)
			(void)move(&ends);
		fork_meanwhile(&ends, ctx);
		stop(&ends, ctx);
		CHECK(count_threads("mpib-rail") == 0);
		ctl("reset", NULL, 0);
	}
	await_end_of_watch();
}

const struct trap slow_traps[] = {
	{ "slow-make", slow_make },
	{ "slow-modify", slow_modify },
	{ "slow-close", slow_close },
	{ NULL, NULL },
};
