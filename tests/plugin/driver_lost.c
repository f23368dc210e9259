/* SPDX-License-Identifier: Apache-2.0 */
/* A device is lost to one of two processes: during set-up, with data under way, before a close; on
 * the rail that carries the data (SUP) and on the other one. The sender is this process, on node 1;
 * the receiver is its child, on node 2, and does what single letters tell it. */
#include "tests/plugin/driver_lost.h"

#include "tests/plugin/driver.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS	    10000
#define KNOWN_MS    2000 /* both ends know by then */
#define CLOSE_MS    2000
#define MESSAGE	    1000
#define UNDER_WAY   8
#define RECEIVER_FD 100 /* the receiver's end of the socket */

static struct {
	pid_t pid;
	int socket;
} child;

/* What the receiver says after each order. */
struct answer {
	ncclResult_t result;
	unsigned int warnings;
	uint64_t ms; /* that it took */
	char handle[HANDLE_BYTES];
	char said[sizeof(warned)];
};

static const struct fault {
	const char *words, *event;
} faults[] = {
	{ "kill", "IBV_EVENT_DEVICE_FATAL" },
	{ "remove", "IBV_EVENT_DEVICE_FATAL" },
	{ "remove quiet", "taken away" },
};

#define FAULTS (sizeof(faults) / sizeof(faults[0]))

/* ---- what either end does -------------------------------------------------------------------- */

static ncclResult_t accept_all(struct ends *ends)
{
	struct mpib_nccl_device_handle *device = NULL;
	ncclResult_t r = ncclSuccess;

	for (uint64_t end = clock_ms() + WAIT_MS; r == ncclSuccess && !ends->recv;) {
		r = net->accept(ends->listener, &ends->recv, &device);
		CHECK(clock_ms() < end);
	}
	if (r == ncclSuccess)
		CHECK(net->regMr(ends->recv, ends->in, BUFFER_BYTES, NCCL_PTR_HOST,
				 &ends->recv_mr) == ncclSuccess);
	return r;
}

static ncclResult_t connect_all(struct ends *ends, void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	ncclResult_t r = ncclSuccess;

	for (uint64_t end = clock_ms() + WAIT_MS; r == ncclSuccess && !ends->send;) {
		r = net->connect(ctx, 0, ends->handle, &ends->send, &device);
		CHECK(clock_ms() < end);
	}
	if (r == ncclSuccess)
		CHECK(net->regMr(ends->send, ends->out, BUFFER_BYTES, NCCL_PTR_HOST,
				 &ends->send_mr) == ncclSuccess);
	return r;
}

/* Tests the requests until all are done or one says why not. */
static ncclResult_t test_all(void **requests)
{
	uint64_t end = clock_ms() + WAIT_MS;
	ncclResult_t r = ncclSuccess;

	for (unsigned int k = 0; k < UNDER_WAY && r == ncclSuccess; k++)
		while (requests[k] && r == ncclSuccess) {
			int done = 0;

			r = net->test(requests[k], &done, NULL);
			if (done)
				requests[k] = NULL;
			CHECK(clock_ms() < end);
		}
	return r;
}

static ncclResult_t receive_all(struct ends *ends, void **requests)
{
	ncclResult_t r = ncclSuccess;

	for (unsigned int k = 0; k < UNDER_WAY && r == ncclSuccess; k++) {
		void *in = ends->in + k * MESSAGE;
		size_t room = MESSAGE;
		int tag = 1;

		for (requests[k] = NULL; r == ncclSuccess && !requests[k];)
			r = net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL,
				       &requests[k]);
	}
	return r;
}

/* Messages, all of them or until an error. */
static ncclResult_t send_all(struct ends *ends, void **requests)
{
	uint64_t end = clock_ms() + WAIT_MS;
	ncclResult_t r = ncclSuccess;

	for (unsigned int k = 0; k < UNDER_WAY && r == ncclSuccess; k++)
		for (requests[k] = NULL; r == ncclSuccess && !requests[k];) {
			r = net->isend(ends->send, ends->out + k * MESSAGE, MESSAGE, 1,
				       ends->send_mr, NULL, &requests[k]);
			CHECK(clock_ms() < end);
		}
	return r == ncclSuccess ? test_all(requests) : r;
}

static void close_all(struct ends *ends)
{
	uint64_t before = clock_ms();

	if (ends->send_mr)
		CHECK(net->deregMr(ends->send, ends->send_mr) == ncclSuccess);
	if (ends->recv_mr)
		CHECK(net->deregMr(ends->recv, ends->recv_mr) == ncclSuccess);
	if (ends->send)
		CHECK(net->closeSend(ends->send) == ncclSuccess);
	if (ends->recv)
		CHECK(net->closeRecv(ends->recv) == ncclSuccess);
	if (ends->listener)
		CHECK(net->closeListen(ends->listener) == ncclSuccess);
	CHECK(clock_ms() - before < CLOSE_MS);
	ends->send = ends->recv = ends->listener = ends->send_mr = ends->recv_mr = NULL;
}

static void begin(struct ends *ends, void **ctx)
{
	memset(ends, 0, sizeof(*ends));
	warned[0] = '\0';
	warnings = 0;
	library_open();
	*ctx = NULL;
	CHECK(net_init(ctx) == ncclSuccess);
	ends->in = calloc(1, BUFFER_BYTES);
	ends->out = calloc(1, BUFFER_BYTES);
	CHECK(ends->in && ends->out);
}

static void end(struct ends *ends, void *ctx)
{
	close_all(ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
	free(ends->in);
	free(ends->out);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static ncclResult_t obey(char order, struct ends *ends, void *ctx, void **requests)
{
	switch (order) {
	case 'l':
		return net->listen(ctx, 0, ends->handle, &ends->listener);
	case 'a':
		return accept_all(ends);
	case 'r':
		return receive_all(ends, requests);
	case 't':
		return test_all(requests);
	default:
		close_all(ends);
		return ncclSuccess;
	}
}

void lost_receiver(void)
{
	const int socket = RECEIVER_FD;
	void *ctx, *requests[UNDER_WAY] = { NULL };
	static struct answer answer;
	struct ends ends;
	char order;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin(&ends, &ctx);
	while (read(socket, &order, 1) == 1 && order != 'q') {
		uint64_t before = clock_ms();

		answer.result = obey(order, &ends, ctx, requests);
		answer.ms = clock_ms() - before;
		answer.warnings = warnings;
		memcpy(answer.handle, ends.handle, HANDLE_BYTES);
		memcpy(answer.said, warned, sizeof(warned));
		CHECK(write(socket, &answer, sizeof(answer)) == (ssize_t)sizeof(answer));
	}
	end(&ends, ctx);
}

static void order(char letter)
{
	CHECK(write(child.socket, &letter, 1) == 1);
}

static const struct answer *answered(void)
{
	static struct answer answer;

	CHECK(recv(child.socket, &answer, sizeof(answer), MSG_WAITALL) == (ssize_t)sizeof(answer));
	return &answer;
}

static ncclResult_t tell(char letter)
{
	order(letter);
	return answered()->result;
}

/* Starts both processes on a fabric without faults. */
static void ends_start(struct ends *ends, void **ctx)
{
	int sockets[2];

	(void)fflush(stdout);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	child.pid = fork();
	CHECK(child.pid >= 0);
	if (child.pid == 0) {
		/* Anew: the fabric's library, once loaded, stays on its node. */
		CHECK(dup2(sockets[1], RECEIVER_FD) == RECEIVER_FD && close(sockets[0]) == 0);
		CHECK(setenv("MPIB_FABRIC_NODE", "2", 1) == 0);
		(void)execl("/proc/self/exe", "driver", "device-lost-receiver", (char *)NULL);
		CHECK(!"execl");
	}
	CHECK(close(sockets[1]) == 0);
	child.socket = sockets[0];
	begin(ends, ctx);
}

static void run_ctl(const char *words)
{
	char command[1024];

	(void)snprintf(command, sizeof(command), "%s %s", getenv("FABRICCTL"), words);
	CHECK(system(command) == 0); /* NOLINT(cert-env33-c): the tests' own tool */
}

/* Both ends close what they have and finalize, each in time; then the device is back. */
static void ends_stop(struct ends *ends, void *ctx)
{
	int status = -1;

	order('q');
	end(ends, ctx);
	CHECK(waitpid(child.pid, &status, 0) == child.pid && status == 0);
	CHECK(close(child.socket) == 0);
	run_ctl("reset");
}

/* Loses the rail's device on the node; the words may have a second part, as in "remove quiet". */
static void lose(const struct fault *fault, unsigned int node, const char *device)
{
	const char *more = strchr(fault->words, ' ');
	int len = more ? (int)(more - fault->words) : (int)strlen(fault->words);
	char words[128];

	(void)snprintf(words, sizeof(words), "%.*s %u/%s%s", len, fault->words, node, device,
		       more ? more : "");
	(void)printf("%s\n", words);
	run_ctl(words);
}

/* The lines name rail, device and event. */
static void names(const char *said, const char *device, const char *event)
{
	char rail[64];

	(void)snprintf(rail, sizeof(rail), "%s rail %s:1",
		       strcmp(device, "sup") == 0 ? "SUP" : "SOUT", device);
	if (!strstr(said, rail) || !strstr(said, event))
		(void)fprintf(stderr, "neither '%s' nor '%s' in: %s\n", rail, event, said);
	CHECK(strstr(said, rail) && strstr(said, event));
}

/* ---- the cases ------------------------------------------------------------------------------- */

/* Before anybody listens: whoever has lost the device is told so, whichever rail it is. */
static void round_before(const struct fault *fault, unsigned int node, const char *device)
{
	const struct answer *answer;
	struct ends ends;
	ncclResult_t r;
	void *ctx;

	ends_start(&ends, &ctx);
	order(node == 1 ? 'l' : 'c'); /* 'c': nothing to close, but it is up */
	memcpy(ends.handle, answered()->handle, HANDLE_BYTES);
	lose(fault, node, device);
	if (node == 1) {
		r = connect_all(&ends, ctx);
		names(warned, device, fault->event);
	} else {
		uint64_t end = clock_ms() + WAIT_MS;

		/* Until the news is there SUP isn't asked for anything. */
		do {
			CHECK(tell('c') == ncclSuccess && clock_ms() < end);
			order('l');
			answer = answered();
			r = answer->result;
		} while (r == ncclSuccess);
		names(answer->said, device, fault->event);
	}
	CHECK(r == ncclSystemError);
	ends_stop(&ends, ctx);
}

/* Between listen and accept, with the connector under way. */
static void round_in_set_up(const struct fault *fault, unsigned int node, const char *device)
{
	struct mpib_nccl_device_handle *handle = NULL;
	const struct answer *answer;
	ncclResult_t r = ncclSuccess;
	struct ends ends;
	void *ctx;

	ends_start(&ends, &ctx);
	order('l');
	answer = answered();
	CHECK(answer->result == ncclSuccess);
	memcpy(ends.handle, answer->handle, HANDLE_BYTES);
	for (unsigned int k = 0; k < 20; k++) { /* HELLO is out and waits for its answer */
		CHECK(net->connect(ctx, 0, ends.handle, &ends.send, &handle) == ncclSuccess);
		CHECK(!ends.send);
		sleep_ms(5);
	}
	lose(fault, node, device);
	order('a');
	r = connect_all(&ends, ctx);
	answer = answered();
	CHECK(r == (node == 1 ? ncclSystemError : ncclRemoteError));
	CHECK(answer->result == (node == 2 ? ncclSystemError : ncclRemoteError));
	names(warned, device, fault->event);
	names(answer->said, device, fault->event);
	ends_stop(&ends, ctx);
}

/* A connection that has carried messages. */
static void connection(struct ends *ends, void **ctx)
{
	void *requests[UNDER_WAY];

	ends_start(ends, ctx);
	order('l');
	memcpy(ends->handle, answered()->handle, HANDLE_BYTES);
	order('a');
	CHECK(connect_all(ends, *ctx) == ncclSuccess);
	CHECK(answered()->result == ncclSuccess);
	CHECK(tell('r') == ncclSuccess);
	order('t');
	CHECK(send_all(ends, requests) == ncclSuccess);
	CHECK(answered()->result == ncclSuccess);
}

/* Receives are posted and messages go; both ends say what was lost, and where. */
static void round_in_data(const struct fault *fault, unsigned int node)
{
	const struct answer *answer;
	void *requests[UNDER_WAY];
	struct ends ends;
	uint64_t before;
	ncclResult_t r;
	void *ctx;

	connection(&ends, &ctx);
	CHECK(tell('r') == ncclSuccess);
	lose(fault, node, "sup");
	before = clock_ms();
	order('t');
	r = send_all(&ends, requests);
	CHECK(clock_ms() - before < KNOWN_MS);
	answer = answered();
	CHECK(answer->ms < KNOWN_MS);
	(void)printf("sender %d, receiver %d: %s", r, answer->result, answer->said);
	CHECK(r == ncclSystemError && answer->result == ncclSystemError);
	names(warned, "sup", fault->event);
	names(answer->said, "sup", fault->event);
	/* For good, and without another line. */
	r = (ncclResult_t)warnings;
	CHECK(net->isend(ends.send, ends.out, MESSAGE, 1, ends.send_mr, NULL, &requests[0]) ==
	      ncclSystemError);
	CHECK(warnings == (unsigned int)r);
	ends_stop(&ends, ctx);
}

/* With receives posted and nobody testing: closing takes no time, and leaves nothing. */
static void round_at_close(const struct fault *fault, unsigned int node, const char *device)
{
	struct ends ends;
	void *ctx;

	connection(&ends, &ctx);
	CHECK(tell('r') == ncclSuccess);
	lose(fault, node, device);
	CHECK(tell('c') == ncclSuccess);
	close_all(&ends);
	ends_stop(&ends, ctx);
}

/* SOUT carries nothing of a vanilla connection within an island: it goes on. A new one needs both
 * rails. */
static void round_idle_rail(const struct fault *fault, unsigned int node)
{
	void *requests[UNDER_WAY];
	struct ends ends, other;
	void *ctx;

	connection(&ends, &ctx);
	lose(fault, node, "sout");
	sleep_ms(500); /* longer than a connection that is to end is given */
	for (unsigned int k = 0; k < 4; k++) {
		CHECK(tell('r') == ncclSuccess);
		order('t');
		CHECK(send_all(&ends, requests) == ncclSuccess);
		CHECK(answered()->result == ncclSuccess);
	}
	memset(&other, 0, sizeof(other));
	if (node == 1)
		CHECK(net->listen(ctx, 0, other.handle, &other.listener) == ncclSystemError);
	ends_stop(&ends, ctx);
}

void lost_before_set_up(void)
{
	for (size_t k = 0; k < FAULTS; k++)
		for (unsigned int node = 1; node <= 2; node++) {
			round_before(&faults[k], node, "sup");
			round_before(&faults[k], node, "sout");
		}
}

void lost_in_set_up(void)
{
	for (size_t k = 0; k < FAULTS; k++)
		for (unsigned int node = 1; node <= 2; node++) {
			round_in_set_up(&faults[k], node, "sup");
			round_in_set_up(&faults[k], node, "sout");
		}
}

void lost_in_data(void)
{
	for (unsigned int n = 0; n < 2; n++) /* who sees it first differs */
		for (size_t k = 0; k < FAULTS; k++)
			for (unsigned int node = 1; node <= 2; node++)
				round_in_data(&faults[k], node);
}

void lost_at_close(void)
{
	for (size_t k = 0; k < FAULTS; k++)
		for (unsigned int node = 1; node <= 2; node++) {
			round_at_close(&faults[k], node, "sup");
			round_at_close(&faults[k], node, "sout");
		}
}

void lost_idle_rail(void)
{
	for (size_t k = 0; k < FAULTS; k++)
		for (unsigned int node = 1; node <= 2; node++)
			round_idle_rail(&faults[k], node);
}
