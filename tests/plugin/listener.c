/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listener CASE: one listener, on node 1, and several peers on node 2, one after the other or at
 * once. Whatever became of one, the next one that connects to the same handle gets its connection.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/wire/handshake.h"
#include "tests/plugin/far.h"

#define STAGES 10 /* calls of both ends until any connection is made */

static struct order listens = { .task = TASK_LISTEN };

static void all_well(const struct answer *answer)
{
	if (answer->result != ncclSuccess || answer->hung)
		(void)fprintf(stderr, "result %d, %s: %s\n", answer->result,
			      answer->hung ? "nothing came of it" : "ended", answer->said);
	CHECK(answer->result == ncclSuccess && !answer->hung);
}

static struct answer near(enum task task, unsigned int at)
{
	const struct order order = { .task = task, .at = at };

	return near_do(&order);
}

static struct order to_listener(enum task task)
{
	struct order order = { .task = task };

	memcpy(order.handle, listens.handle, HANDLE_BYTES);
	return order;
}

static void listen_now(void)
{
	struct answer answer = near(TASK_LISTEN, 0);

	all_well(&answer);
	memcpy(listens.handle, answer.handle, HANDLE_BYTES);
}

static void move(struct far *peer, unsigned int at)
{
	const struct order send = { .task = TASK_SEND };
	struct answer here, there;

	far_tell(peer, &send);
	here = near(TASK_RECEIVE, at);
	there = far_answer(peer);
	all_well(&here);
	all_well(&there);
}

/* The peer's connection becomes this end's @at, and carries a message. */
static void serve(struct far *peer, unsigned int at)
{
	const struct order order = to_listener(TASK_CONNECT);
	struct answer here, there;

	far_tell(peer, &order);
	here = near(TASK_ACCEPT_NEXT, at);
	there = far_answer(peer);
	all_well(&here);
	all_well(&there);
	move(peer, at);
}

static void serve_next(void)
{
	struct far peer;
	struct answer closed;

	far_start(&peer, "2");
	serve(&peer, 0);
	far_stop(&peer);
	closed = near(TASK_CLOSE, 0);
	all_well(&closed);
}

/* ---- peers that come to something ------------------------------------------------------------ */

static void in_turn(void)
{
	struct far peer[3];

	for (unsigned int k = 0; k < 3; k++) {
		far_start(&peer[k], "2");
		serve(&peer[k], k);
	}
	for (unsigned int k = 0; k < 3; k++)
		move(&peer[k], k);
	for (unsigned int k = 0; k < 3; k++)
		far_stop(&peer[k]);
}

/* All connect before the first accept. Which is which shows in what it does. */
static void at_once(void)
{
	const struct order order = to_listener(TASK_CONNECT), send = { .task = TASK_SEND };
	struct far peer[3];
	struct answer answer;

	for (unsigned int k = 0; k < 3; k++) {
		far_start(&peer[k], "2");
		far_tell(&peer[k], &order);
	}
	sleep_ms(500);
	for (unsigned int k = 0; k < 3; k++) {
		answer = near(TASK_ACCEPT, k);
		all_well(&answer);
	}
	for (unsigned int k = 0; k < 3; k++) {
		answer = far_answer(&peer[k]);
		all_well(&answer);
		far_tell(&peer[k], &send);
	}
	for (unsigned int k = 0; k < 3; k++) {
		answer = near(TASK_RECEIVE, k);
		all_well(&answer);
	}
	for (unsigned int k = 0; k < 3; k++) {
		answer = far_answer(&peer[k]);
		all_well(&answer);
		far_stop(&peer[k]);
	}
}

/* ---- peers that don't ------------------------------------------------------------------------ */

/* Killed after any number of calls of both ends. */
static void killed(void)
{
	const struct order step = to_listener(TASK_CONNECT_ONCE);
	struct order more = { .task = TASK_CONNECT_ONCE };

	for (unsigned int stage = 0; stage <= STAGES; stage++) {
		struct answer here = { .result = ncclSuccess };
		struct far peer;

		far_start(&peer, "2");
		for (unsigned int k = 0; k < stage; k++) {
			(void)far_do(&peer, k ? &more : &step);
			sleep_ms(5);
			if (k % 2)
				here = near(TASK_ACCEPT_ONCE, 0);
		}
		far_kill(&peer);
		/* It may have said all that it had to. */
		for (unsigned int k = 0; k < 60 && !here.made && here.result == ncclSuccess; k++) {
			here = near(TASK_ACCEPT_ONCE, 0);
			sleep_ms(5);
		}
		(void)printf("killed after %u calls: %s\n", stage,
			     here.made ? "accepted" : "not accepted");
		if (here.made)
			CHECK(near(TASK_CLOSE, 0).result == ncclSuccess);
		serve_next();
	}
}

/* One that is refused, and one that refuses: each end says the cause, and says it again. */
static void refuses(const char *variable, const char *value)
{
	const struct order order = to_listener(TASK_CONNECT);
	struct answer here, there;
	struct far peer;

	CHECK(setenv(variable, value, 1) == 0);
	far_start(&peer, "2");
	CHECK(unsetenv(variable) == 0);
	for (unsigned int k = 0; k < 2; k++) {
		far_tell(&peer, &order);
		here = near(TASK_ACCEPT, 0);
		there = far_answer(&peer);
		(void)printf("%s%s", here.said, there.said);
		CHECK(here.result == ncclInvalidUsage && there.result == ncclInvalidUsage);
		CHECK(strstr(here.said, variable) && strstr(there.said, variable));
		CHECK(here.warnings == 1 && there.warnings == 1);
	}
	CHECK(near(TASK_ACCEPT, 0).result == ncclInvalidUsage);
	far_stop(&peer);
	serve_next();
}

static void refused(void)
{
	refuses("MPIB_SUP_QP", "3");
	refuses("MPIB_ISLAND_PREFIX_LEN", "16");
}

/* Nobody calls accept any more: a peer is told the cause of the last failure. */
static void abandoned(void)
{
	const struct order order = to_listener(TASK_CONNECT);
	struct answer here, there;
	struct far peer;
	uint64_t before;

	CHECK(setenv("MPIB_SUP_QP", "3", 1) == 0);
	far_start(&peer, "2");
	CHECK(unsetenv("MPIB_SUP_QP") == 0);
	far_tell(&peer, &order);
	here = near(TASK_ACCEPT, 0);
	there = far_answer(&peer);
	CHECK(here.result == ncclInvalidUsage && there.result == ncclInvalidUsage);
	before = clock_ms();
	there = far_do(&peer, &order);
	(void)printf("%s", there.said);
	CHECK(there.result == ncclInvalidUsage && strstr(there.said, "MPIB_SUP_QP differs"));
	CHECK(clock_ms() - before < 2000);
	far_stop(&peer);
	serve_next();
}

/* @len bytes by somebody else, who waits for an answer where @stays, and leaves. */
static void says(const void *data, size_t len, bool stays)
{
	struct mpib_handle wire;
	char answer[64];
	socklen_t size;
	int fd;

	CHECK(mpib_handle_decode((const uint8_t *)listens.handle, MPIB_HANDLE_SIZE, &wire) == 0);
	size = wire.addr.ss_family == AF_INET ? 16 : 28;
	fd = socket(wire.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&wire.addr, size) == 0);
	CHECK(send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len);
	while (stays && recv(fd, answer, sizeof(answer), 0) > 0)
		;
	CHECK(close(fd) == 0);
}

static void garbage(void)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX] = { 0 }, frame[MPIB_FRAME_MAX];
	struct mpib_handle wire;
	size_t len;

	CHECK(mpib_handle_decode((const uint8_t *)listens.handle, MPIB_HANDLE_SIZE, &wire) == 0);
	for (unsigned int k = 0; k < 8; k++)
		payload[k] = (uint8_t)(wire.nonce >> (8 * k));
	says("GET / HTTP/1.0\r\n\r\n", 18, true);
	serve_next();
	/* It has the nonce, and nothing else that is right. */
	len = mpib_frame_encode(frame, MPIB_FRAME_HELLO, payload, 64);
	says(frame, len, true);
	CHECK(near(TASK_ACCEPT, 0).result == ncclInvalidUsage);
	serve_next();
	says(frame, len, false);
	serve_next();
	len = mpib_frame_encode(frame, MPIB_FRAME_FAIL, payload, 8);
	says(frame, len, false);
	says(frame, len, false);
	serve_next();
	len = mpib_frame_encode(frame, MPIB_FRAME_CONNECT, payload, 64);
	says(frame, len, true);
	serve_next();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "in-turn", in_turn }, { "at-once", at_once },	  { "killed", killed },
		      { "refused", refused }, { "abandoned", abandoned }, { "garbage", garbage } };

	far_main(argc, argv);
	CHECK(argc == 2);
	near_open("1");
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		if (strcmp(cases[k].name, argv[1]) != 0)
			continue;
		listen_now();
		cases[k].run();
		CHECK(near(TASK_END, 0).result == ncclSuccess);
		return 0;
	}
	return 2;
}
