/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that go down and come up at any moment of set-up, data and close. Whatever is tried works
 * or fails within its bounds; once the ports stay up, everything works. */
#include "tests/plugin/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define BOUND_MS 60000 /* of one step: far beyond any set-up or rail, so it hangs */
#define SIZE	 50000

static atomic_bool over, moving;
static atomic_uint flaps;

static void port(unsigned int rail, const char *what)
{
	const char *tool = getenv("FABRICCTL");
	char command[512];

	CHECK(tool && snprintf(command, sizeof(command), "%s port 1/%s %s", tool,
			       rail ? "sup" : "sout", what) < (int)sizeof(command));
	CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the test's own tool */
}

static void *flap(void *arg)
{
	unsigned int seed = *(unsigned int *)arg;

	while (!atomic_load(&over)) {
		unsigned int rail;

		seed = seed * 1103515245u + 12345u;
		rail = seed >> 16 & 1;
		port(rail, "down");
		sleep_ms(seed >> 17 & 15);
		port(rail, "up");
		sleep_ms(seed >> 21 & 31);
		atomic_fetch_add(&flaps, 1);
	}
	return NULL;
}

/* As ends_shake, but it may fail: true where both ends are there. */
static bool shake(struct ends *ends, void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	ncclResult_t connected = ncclSuccess, accepted = ncclSuccess;
	uint64_t until = clock_ms() + BOUND_MS;

	while (!ends->send || !ends->recv) {
		if (!ends->send && connected == ncclSuccess)
			connected = net->connect(ctx, 0, ends->handle, &ends->send, &device);
		if (!ends->recv && accepted == ncclSuccess)
			accepted = net->accept(ends->listener, &ends->recv, &device);
		CHECK(clock_ms() < until);
		if (connected != ncclSuccess && (ends->recv || accepted != ncclSuccess))
			break;
		if (accepted != ncclSuccess && (ends->send || connected != ncclSuccess))
			break;
	}
	return ends->send && ends->recv;
}

/* The progress thread: messages until it is told to stop or one end fails. */
static void *move(void *arg)
{
	struct ends *ends = arg;
	uint64_t until = clock_ms() + BOUND_MS;
	void *send = NULL, *recv = NULL, *in = ends->in;
	ncclResult_t r = ncclSuccess;
	size_t room = SIZE;
	int tag = 1, done;

	while (r == ncclSuccess && (atomic_load(&moving) || send || recv)) {
		/* The fabric's lock isn't fair: who never sleeps keeps the others from it. */
		const struct timespec t = { .tv_nsec = 20000 };

		(void)nanosleep(&t, NULL);
		CHECK(clock_ms() < until);
		if (!recv && !send) {
			r = net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL,
				       &recv);
			continue;
		}
		if (!send && recv)
			r = net->isend(ends->send, ends->out, SIZE, tag, ends->send_mr, NULL,
				       &send);
		/* Both, as NCCL does, whatever has become of the other: so an end with something
		 * under way does its part where a rail is lost. */
		if (r == ncclSuccess && recv) {
			r = net->test(recv, &done, NULL);
			recv = done ? NULL : recv;
		}
		if (r == ncclSuccess && send) {
			r = net->test(send, &done, NULL);
			send = done ? NULL : send;
		}
	}
	return NULL;
}

static bool buffers(struct ends *ends)
{
	ends->out = calloc(1, SIZE);
	ends->in = calloc(1, SIZE);
	CHECK(ends->out && ends->in);
	return net->regMr(ends->send, ends->out, SIZE, NCCL_PTR_HOST, &ends->send_mr) ==
		       ncclSuccess &&
	       net->regMr(ends->recv, ends->in, SIZE, NCCL_PTR_HOST, &ends->recv_mr) == ncclSuccess;
}

/* Data on one thread, as NCCL's; another sets up, registers and closes meanwhile. */
static bool one_round(void *ctx, unsigned int n)
{
	struct ends ends, other;
	pthread_t progress;
	bool good = false;

	memset(&ends, 0, sizeof(ends));
	memset(&other, 0, sizeof(other));
	if (net->listen(ctx, 0, ends.handle, &ends.listener) != ncclSuccess)
		return false;
	if (shake(&ends, ctx) && buffers(&ends)) {
		good = true;
		atomic_store(&moving, true);
		CHECK(pthread_create(&progress, NULL, move, &ends) == 0);
		if (net->listen(ctx, 0, other.handle, &other.listener) == ncclSuccess)
			(void)shake(&other, ctx);
		sleep_ms(n % 4 * 10);
		atomic_store(&moving, false);
		CHECK(pthread_join(progress, NULL) == 0);
	}
	if (ends.send_mr)
		CHECK(net->deregMr(ends.send, ends.send_mr) == ncclSuccess);
	if (ends.recv_mr)
		CHECK(net->deregMr(ends.recv, ends.recv_mr) == ncclSuccess);
	for (struct ends *e = &ends; e; e = e == &ends ? &other : NULL) {
		if (e->send)
			CHECK(net->closeSend(e->send) == ncclSuccess);
		if (e->recv)
			CHECK(net->closeRecv(e->recv) == ncclSuccess);
		if (e->listener)
			CHECK(net->closeListen(e->listener) == ncclSuccess);
		free(e->out);
		free(e->in);
	}
	return good;
}

static void ports_flap(void)
{
	unsigned int seed = (unsigned int)clock_ms(), rounds = 0, good = 0;
	const char *seconds = getenv("MPIB_TEST_SECONDS");
	uint64_t until;
	struct ends ends;
	pthread_t thread;
	void *ctx = NULL;

	(void)printf("seed %u\n", seed);
	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	until = clock_ms() + 1000 * (seconds ? strtoul(seconds, NULL, 10) : 3);
	CHECK(pthread_create(&thread, NULL, flap, &seed) == 0);
	while (clock_ms() < until || atomic_load(&flaps) < 4)
		good += one_round(ctx, rounds++);
	atomic_store(&over, true);
	CHECK(pthread_join(thread, NULL) == 0);
	(void)printf("%u flaps, %u of %u rounds connected\n", atomic_load(&flaps), good, rounds);
	CHECK(good > 0);
	for (unsigned int k = 0; k < 3; k++) {
		ends_open(&ends, ctx);
		ends_transfer(&ends, 100000);
		ends_close(&ends);
	}
	CHECK(net->finalize(ctx) == ncclSuccess);
	await_end_of_watch();
	library_close();
}

const struct trap flap_traps[] = {
	{ "ports-flap", ports_flap },
	{ NULL, NULL },
};
