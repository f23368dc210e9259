/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection ends: closed with work in flight, with a peer that is dead, by an error of one
 * message; and where its control connection runs. */
#include "tests/plugin/driver.h"
#include "tests/plugin/driver_lost.h"
#include "tests/plugin/driver_lost.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLOSE_MS 2000 /* no close takes longer */

static void close_both(struct ends *ends)
{
	uint64_t before = clock_ms();

	ends_close(ends);
	(void)printf("closed in %llu ms\n", (unsigned long long)(clock_ms() - before));
	CHECK(clock_ms() - before < CLOSE_MS);
}

/* Posts receives and sends until @count of each are under way; nobody tests them. */
static void load(struct ends *ends, unsigned int count, size_t size)
{
	uint64_t end = clock_ms() + 60000;
	int tag = 1;

	for (unsigned int receives = 0, sends = 0; receives < count || sends < count;) {
		void *request = NULL, *in = ends->in;
		size_t room = size;

		CHECK(clock_ms() < end);
		if (receives < count) {
			CHECK(net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL,
					 &request) == ncclSuccess);
			receives += request != NULL;
		}
		request = NULL;
		if (sends < count) {
			CHECK(net->isend(ends->send, ends->out, size, tag, ends->send_mr, NULL,
					 &request) == ncclSuccess);
			sends += request != NULL;
		}
	}
}

/* More than NCCL's 32 requests, untested, on both ends; a new connection is as good as ever. */
static void close_in_flight(void)
{
	struct ends ends;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	for (unsigned int round = 0; round < 4; round++) {
		ends_open(&ends, ctx);
		load(&ends, 40, round & 1 ? BUFFER_BYTES : 8);
		close_both(&ends);
	}
	ends_open(&ends, ctx);
	ends_transfer(&ends, 100000);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	CHECK(warnings == 0);
	library_close();
}

/* A process of its own that listens, accepts, posts a receive and waits for its end. */
static void be_the_peer(int handle_fd, int ready_fd)
{
	struct mpib_nccl_device_handle *device = NULL;
	struct ends ends;
	void *ctx = NULL, *in, *request = NULL;
	size_t room = BUFFER_BYTES;
	int tag = 1;

	memset(&ends, 0, sizeof(ends));
	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	CHECK(net->listen(ctx, 0, ends.handle, &ends.listener) == ncclSuccess);
	CHECK(write(handle_fd, ends.handle, HANDLE_BYTES) == HANDLE_BYTES);
	while (!ends.recv)
		CHECK(net->accept(ends.listener, &ends.recv, &device) == ncclSuccess);
	ends.in = aligned_alloc(4096, BUFFER_BYTES);
	CHECK(ends.in);
	in = ends.in;
	CHECK(net->regMr(ends.recv, ends.in, BUFFER_BYTES, NCCL_PTR_HOST, &ends.recv_mr) ==
	      ncclSuccess);
	while (!request)
		CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &request) ==
		      ncclSuccess);
	CHECK(write(ready_fd, "r", 1) == 1);
	for (;;)
		(void)pause();
}

/* The peer is killed with a message on its way; the close comes at once, before or after the error
 * was seen. */
static void dead_peer_round(bool see_error)
{
	struct mpib_nccl_device_handle *device = NULL;
	void *ctx = NULL, *send = NULL, *mr = NULL, *request = NULL;
	int handle_pipe[2], ready_pipe[2], done = 0, status;
	char handle[HANDLE_BYTES], byte;
	uint64_t before;
	char *out;
	pid_t pid;

	CHECK(pipe(handle_pipe) == 0 && pipe(ready_pipe) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		be_the_peer(handle_pipe[1], ready_pipe[1]);
	CHECK(read(handle_pipe[0], handle, sizeof(handle)) == HANDLE_BYTES);
	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	out = aligned_alloc(4096, BUFFER_BYTES);
	CHECK(out);
	while (!send)
		CHECK(net->connect(ctx, 0, handle, &send, &device) == ncclSuccess);
	CHECK(net->regMr(send, out, BUFFER_BYTES, NCCL_PTR_HOST, &mr) == ncclSuccess);
	CHECK(read(ready_pipe[0], &byte, 1) == 1);
	/* It answers nothing any more, once all of its threads have stopped. */
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	while (!request)
		CHECK(net->isend(send, out, BUFFER_BYTES, 1, mr, NULL, &request) == ncclSuccess);
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
	before = clock_ms();
	while (see_error && net->test(request, &done, NULL) == ncclSuccess)
		CHECK(!done && clock_ms() - before < 30000);
	before = clock_ms();
	CHECK(net->deregMr(send, mr) == ncclSuccess);
	CHECK(net->closeSend(send) == ncclSuccess);
	(void)printf("closed in %llu ms\n", (unsigned long long)(clock_ms() - before));
	CHECK(clock_ms() - before < CLOSE_MS);
	CHECK(net->finalize(ctx) == ncclSuccess);
	CHECK(clock_ms() - before < 2 * CLOSE_MS);
	library_close();
	free(out);
	for (unsigned int k = 0; k < 2; k++) {
		(void)close(handle_pipe[k]);
		(void)close(ready_pipe[k]);
	}
}

static void close_with_dead_peer(void)
{
	dead_peer_round(false);
	dead_peer_round(true);
}

/* Tests both requests until each has failed; the bound is the case's. */
static void both_fail(void *send, void *recv, unsigned int bound_ms)
{
	ncclResult_t sent = ncclSuccess, received = ncclSuccess;
	uint64_t end = clock_ms() + bound_ms;

	while ((send && sent == ncclSuccess) || received == ncclSuccess) {
		int done = 0;

		if (send && sent == ncclSuccess)
			sent = net->test(send, &done, NULL);
		CHECK(!done);
		if (received == ncclSuccess)
			received = net->test(recv, &done, NULL);
		CHECK(!done);
		CHECK(clock_ms() < end);
	}
	CHECK(!send || sent == ncclRemoteError);
	CHECK(received == ncclRemoteError);
}

/* C12: the receiver's memory is gone. No retry helps, so the error is there at once (the rail's
 * retries would last 7.5 s), on both ends; the process can connect anew. */
static void remote_access_error(void)
{
	void *ctx = NULL, *send = NULL, *recv = NULL, *in;
	size_t room = BUFFER_BYTES;
	uint64_t before;
	struct ends ends;
	int tag = 1;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	in = ends.in;
	CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &recv) ==
	      ncclSuccess);
	CHECK(recv);
	CHECK(net->deregMr(ends.recv, ends.recv_mr) == ncclSuccess);
	while (!send)
		CHECK(net->isend(ends.send, ends.out, 5000, tag, ends.send_mr, NULL, &send) ==
		      ncclSuccess);
	before = clock_ms();
	both_fail(send, recv, 5000);
	(void)printf("both ends know after %llu ms\n", (unsigned long long)(clock_ms() - before));
	CHECK(warnings == 2); /* one an end */
	CHECK(net->regMr(ends.recv, ends.in, BUFFER_BYTES, NCCL_PTR_HOST, &ends.recv_mr) ==
	      ncclSuccess);
	close_both(&ends);
	ends_open(&ends, ctx);
	ends_transfer(&ends, 5000);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* C09: more than the receive has room for is an error on both ends, and no byte is written: neither
 * behind the buffer nor in it. */
static void receive_too_small(void)
{
	struct ends ends;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	for (unsigned int round = 0; round < 3; round++) {
		static const size_t sizes[] = { 8192, 4097, BUFFER_BYTES };
		void *recv = NULL, *request = NULL, *in;
		ncclResult_t result = ncclSuccess;
		size_t room = 4096;
		int tag = 1;

		ends_open(&ends, ctx);
		ends_transfer(&ends, 10000);
		memset(ends.in, 0x2a, BUFFER_BYTES);
		in = ends.in;
		CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &recv) ==
		      ncclSuccess);
		CHECK(recv);
		for (uint64_t end = clock_ms() + 5000; result == ncclSuccess;) {
			result = net->isend(ends.send, ends.out, sizes[round], tag, ends.send_mr,
					    NULL, &request);
			CHECK(!request && clock_ms() < end);
		}
		CHECK(result == ncclRemoteError);
		both_fail(NULL, recv, 5000);
		for (size_t k = 0; k < BUFFER_BYTES; k++)
			CHECK(ends.in[k] == 0x2a);
		close_both(&ends);
	}
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

#define LATE_MESSAGES 20

/* Twenty messages whose last acknowledgements are a second away; then one of a group. */
static void fill_late(struct ends *ends, void **sends, void **recvs)
{
	for (unsigned int k = 0; k < LATE_MESSAGES; k++) {
		bool group = k == LATE_MESSAGES - 1;
		void *in[2] = { ends->in + k * 5000, ends->in + k * 5000 + 2000 };
		void *mrs[2] = { ends->recv_mr, ends->recv_mr };
		size_t room[2] = { group ? 2000 : 5000, 2000 };
		int tags[2] = { 1, 2 };

		recvs[k] = NULL;
		CHECK(net->irecv(ends->recv, group ? 2 : 1, in, room, tags, mrs, NULL, &recvs[k]) ==
		      ncclSuccess);
		CHECK(recvs[k]);
	}
	for (unsigned int k = 0; k <= LATE_MESSAGES; k++)
		for (sends[k] = NULL; !sends[k];)
			CHECK(net->isend(ends->send, ends->out + k * 5000,
					 k < LATE_MESSAGES - 1 ? 5000 - k : 2000,
					 k < LATE_MESSAGES ? 1 : 2, ends->send_mr, NULL,
					 &sends[k]) == ncclSuccess);
}

static void latency_ms(unsigned int ms)
{
	const char *tool = getenv("FABRICCTL");
	char command[512];

	for (unsigned int rail = 0; rail < 2; rail++) {
		CHECK(tool && snprintf(command, sizeof(command), "%s latency 1/%s %u", tool,
				       rail ? "sup" : "sout", ms * 1000) < (int)sizeof(command));
		CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the test's own tool */
	}
}

/* P15: all data is there, and its receiver closes before the last acknowledgements arrive, if ever
 * they do. BYE says what has arrived: each send is done, and nothing is an error until the next one
 * is tried. */
static void close_before_last_ack(void)
{
	void *ctx = NULL, *sends[LATE_MESSAGES + 1], *recvs[LATE_MESSAGES], *more = NULL;
	ncclResult_t r = ncclSuccess;
	struct ends ends;
	uint64_t closed;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	ends_transfer(&ends, 10000);
	latency_ms(1000);
	fill_late(&ends, sends, recvs);
	for (unsigned int k = 0; k < LATE_MESSAGES; k++)
		for (int done = 0; !done;)
			CHECK(net->test(recvs[k], &done, NULL) == ncclSuccess);
	CHECK(net->deregMr(ends.recv, ends.recv_mr) == ncclSuccess);
	CHECK(net->closeRecv(ends.recv) == ncclSuccess);
	closed = clock_ms();
	for (unsigned int k = 0; k <= LATE_MESSAGES; k++)
		for (int done = 0; !done;) {
			int size = 0;

			CHECK(net->test(sends[k], &done, &size) == ncclSuccess);
			CHECK(clock_ms() < closed + 900); /* not by the acknowledgement */
			CHECK(!done || size == (k < LATE_MESSAGES - 1 ? 5000 - (int)k : 2000));
		}
	CHECK(warnings == 0);
	while (r == ncclSuccess && clock_ms() < closed + 3000) {
		r = net->isend(ends.send, ends.out, 8, 1, ends.send_mr, NULL, &more);
		CHECK(!more);
	}
	CHECK(r == ncclRemoteError && warnings == 1);
	latency_ms(0);
	CHECK(net->deregMr(ends.send, ends.send_mr) == ncclSuccess);
	CHECK(net->closeSend(ends.send) == ncclSuccess);
	CHECK(net->finalize(ctx) == ncclSuccess);
	free(ends.out);
	free(ends.in);
	library_close();
}

/* A connection, a message and their end; the family of the control connection, 4 or 6. */
static int control_family(void)
{
	struct ends ends;
	void *ctx = NULL;
	int family;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	memset(&ends, 0, sizeof(ends));
	CHECK(net->listen(ctx, 0, ends.handle, &ends.listener) == ncclSuccess);
	family = (unsigned char)ends.handle[6]; /* docs/wire.md */
	ends_shake(&ends, ctx);
	CHECK(net->closeListen(ends.listener) == ncclSuccess);
	ends_transfer(&ends, 100000);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
	return family;
}

/* The only interface has an IPv6 address alone; see ends.sh. */
static void ipv6_control(void)
{
	CHECK(control_family() == 6);
}

/* For takes.sh, where the environment names the family. */
static void print_control_family(void)
{
	(void)printf("%s\n", control_family() == 6 ? "AF_INET6" : "AF_INET");
}

const struct trap end_traps[] = {
	{ "device-lost-before-set-up", lost_before_set_up },
	{ "device-lost-in-set-up", lost_in_set_up },
	{ "device-lost-in-data", lost_in_data },
	{ "device-lost-at-close", lost_at_close },
	{ "device-lost-on-the-idle-rail", lost_idle_rail },
	{ "device-lost-receiver", lost_receiver },
	{ "close-in-flight", close_in_flight },
	{ "close-with-dead-peer", close_with_dead_peer },
	{ "remote-access-error", remote_access_error },
	{ "receive-too-small", receive_too_small },
	{ "close-before-last-ack", close_before_last_ack },
	{ "ipv6-control", ipv6_control },
	{ "device-lost-before-set-up", lost_before_set_up },
	{ "device-lost-in-set-up", lost_in_set_up },
	{ "device-lost-in-data", lost_in_data },
	{ "device-lost-at-close", lost_at_close },
	{ "device-lost-on-the-idle-rail", lost_idle_rail },
	{ "device-lost-receiver", lost_receiver },
	{ "control-family", print_control_family },
	{ NULL, NULL },
};
