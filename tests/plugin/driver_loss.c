/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/driver_loss.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#define SIZE 20000

atomic_uint loss_lost, loss_back, loss_control;

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
		atomic_fetch_add(&loss_lost, 1);
	if (strstr(text, " is back "))
		atomic_fetch_add(&loss_back, 1);
	if (strstr(text, "the control connection with "))
		atomic_fetch_add(&loss_control, 1);
}

void loss_ctl(const char *what, const char *more, unsigned int number)
{
	const char *tool = getenv("FABRICCTL");
	char command[512];

	CHECK(tool && snprintf(command, sizeof(command), more ? "%s %s 1/sup %s %u" : "%s %s", tool,
			       what, more ? more : "", number) < (int)sizeof(command));
	CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the test's own tool */
}

void loss_port(const char *rail, bool up)
{
	char what[32];

	CHECK(snprintf(what, sizeof(what), "port 1/%s %s", rail, up ? "up" : "down") <
	      (int)sizeof(what));
	loss_ctl(what, NULL, 0);
}

void *loss_start(struct ends *ends)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	void *ctx = NULL;

	atomic_store(&loss_lost, 0);
	atomic_store(&loss_back, 0);
	atomic_store(&loss_control, 0);
	library_open();
	CHECK(net->init(&ctx, 0x1234, &config, listen_to, NULL) == ncclSuccess);
	ends_open(ends, ctx);
	return ctx;
}

void loss_stop(struct ends *ends, void *ctx)
{
	ends_close(ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* One message, every byte of it looked at, as a progress thread that leaves others the processor;
 * returns the milliseconds that it took. */
uint64_t loss_move(struct ends *ends)
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
		CHECK(clock_ms() - begin < LOSS_BOUND_MS);
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
uint64_t loss_move_until(struct ends *ends, atomic_uint *lines, unsigned int want)
{
	uint64_t until = clock_ms() + LOSS_BOUND_MS, longest = 0;

	do {
		uint64_t ms = loss_move(ends);

		longest = ms > longest ? ms : longest;
		CHECK(clock_ms() < until);
	} while (atomic_load(lines) < want);
	return longest;
}
