/* SPDX-License-Identifier: Apache-2.0 *
 * limits refused TEXT: the device is refused, in one line with the text.
 */
/*
 * limits FIT TEXT: the device of node 1 has room for FIT connections, and TEXT is what has to be
 * said of the next one. Node 1 (this process) accepts, then connects; node 2 has room for all.
 *
 * limits buffers TEXT: the same of buffers: a connection stays as it is where one can't be
 * registered.
 */
#include <string.h>

#include "tests/plugin/far.h"

#define TOLD_MS 1000 /* the peer knows within */
#define ROUNDS	3    /* whatever leaks fills the device */

static struct far peer;
static const char *text;
static bool accepts; /* node 1 */

static void all_well(const struct answer *answer)
{
	if (answer->result != ncclSuccess || answer->hung || answer->warnings)
		(void)fprintf(stderr, "result %d, %s: %s\n", answer->result,
			      answer->hung ? "nothing came of it" : "ended", answer->said);
	CHECK(answer->result == ncclSuccess && !answer->hung && !answer->warnings);
}

/* A connection at @at of both ends, or what each end has to say. */
static void make(unsigned int at, struct answer *ret_near, struct answer *ret_far)
{
	struct order there = { .task = accepts ? TASK_CONNECT : TASK_ACCEPT, .at = at };
	struct order here = { .task = accepts ? TASK_ACCEPT : TASK_CONNECT, .at = at };
	struct order listen = { .task = TASK_LISTEN };
	struct answer listens = accepts ? near_do(&listen) : far_do(&peer, &listen);

	all_well(&listens);
	memcpy(accepts ? there.handle : here.handle, listens.handle, HANDLE_BYTES);
	far_tell(&peer, &there);
	*ret_near = near_do(&here);
	*ret_far = far_answer(&peer);
	listen.task = TASK_CLOSE_LISTENER;
	listens = accepts ? near_do(&listen) : far_do(&peer, &listen);
	all_well(&listens);
}

static void make_well(unsigned int at)
{
	struct answer near, far;

	make(at, &near, &far);
	all_well(&near);
	all_well(&far);
}

static void move(unsigned int at)
{
	struct order there = { .task = accepts ? TASK_SEND : TASK_RECEIVE, .at = at };
	struct order here = { .task = accepts ? TASK_RECEIVE : TASK_SEND, .at = at };
	struct answer near, far;

	far_tell(&peer, &there);
	near = near_do(&here);
	far = far_answer(&peer);
	all_well(&near);
	all_well(&far);
}

static void close_both(unsigned int at)
{
	struct order close = { .task = TASK_CLOSE, .at = at };
	struct answer near = near_do(&close), far = far_do(&peer, &close);

	all_well(&near);
	all_well(&far);
}

/* One line on each end with the cause, the right results, and the peer soon. */
static void told(const struct answer *near, const struct answer *far)
{
	(void)printf("%s%s", near->said, far->said);
	(void)fflush(stdout);
	CHECK(!near->hung && near->result == ncclSystemError && near->warnings == 1);
	CHECK(strstr(near->said, text));
	CHECK(!far->hung && far->result == ncclRemoteError && far->warnings == 1);
	CHECK(strstr(far->said, text));
	CHECK(far->end_ms < near->end_ms + TOLD_MS);
}

static void one_too_many(unsigned int at)
{
	struct answer near, far;

	make(at, &near, &far);
	told(&near, &far);
}

static void round_of(unsigned int fit)
{
	for (unsigned int k = 0; k < fit; k++) {
		make_well(k);
		move(k);
	}
	one_too_many(fit);
	one_too_many(fit);
	for (unsigned int k = 0; k < fit; k++)
		move(k); /* nothing of theirs was taken */
	close_both(0);
	make_well(0);
	move(0);
	one_too_many(fit);
	for (unsigned int k = 0; k < fit; k++)
		close_both(k);
}

/* Room for three registrations: two rings and one buffer. */
static void round_of_buffers(void)
{
	struct order mine = { .task = TASK_REGISTER, .at = 1 };
	struct answer near;

	make_well(0);
	make_well(1);
	move(0);
	near = near_do(&mine);
	(void)printf("%s", near.said);
	CHECK(near.result == ncclSystemError && near.warnings == 1 && strstr(near.said, text));
	move(0);
	close_both(0);
	move(1);
	close_both(1);
}

int main(int argc, char **argv)
{
	struct order end = { .task = TASK_END };
	bool buffers = argc == 3 && strcmp(argv[1], "buffers") == 0;

	far_main(argc, argv);
	CHECK(argc == 3);
	text = argv[2];
	if (strcmp(argv[1], "refused") == 0) {
		struct answer init = near_init("1");

		(void)printf("%s", init.said);
		CHECK(init.result == ncclInvalidUsage && init.warnings == 1);
		CHECK(strstr(init.said, text));
		return 0;
	}
	far_start(&peer, "2");
	near_open("1");
	for (unsigned int k = 0; k < 2 * ROUNDS; k++) {
		accepts = k < ROUNDS;
		if (buffers)
			round_of_buffers();
		else
			round_of((unsigned int)strtoul(argv[1], NULL, 10));
	}
	CHECK(near_do(&end).result == ncclSuccess);
	far_stop(&peer);
	return 0;
}
