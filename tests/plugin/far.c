/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/far.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 8000 /* longer than any bound that is tried */
#define FAR_FD	100  /* the order's end of the socket */

static struct {
	void *library, *context, *listener;
	struct mpib_nccl_net_v12 *net;
	void *conn[FAR_CONNS], *mr[FAR_CONNS];
	char *buffer[FAR_CONNS];
	bool sends[FAR_CONNS];
	char handle[FAR_CONNS][HANDLE_BYTES]; /* what connect keeps its state in */
	struct answer answer;
} self;

uint64_t clock_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct answer *answer = &self.answer;
	va_list args;
	size_t used;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN)
		return;
	(void)pthread_mutex_lock(&lock);
	used = strnlen(answer->said, sizeof(answer->said) - 2);
	va_start(args, fmt);
	(void)vsnprintf(answer->said + used, sizeof(answer->said) - used - 1, fmt, args);
	va_end(args);
	used = strnlen(answer->said, sizeof(answer->said) - 2);
	answer->said[used] = '\n';
	answer->said[used + 1] = '\0';
	answer->warnings++;
	(void)pthread_mutex_unlock(&lock);
}

struct answer near_init(const char *node)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	const char *path = getenv("PLUGIN");

	CHECK(path && setenv("MPIB_FABRIC_NODE", node, 1) == 0);
	self.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(self.library);
	self.net = dlsym(self.library, "ncclNetPlugin_v12");
	CHECK(self.net);
	memset(&self.answer, 0, sizeof(self.answer));
	self.answer.result = self.net->init(&self.context, 1, &config, logger, NULL);
	return self.answer;
}

void near_open(const char *node)
{
	struct answer answer = near_init(node);

	if (answer.result != ncclSuccess)
		(void)fprintf(stderr, "%s", answer.said);
	CHECK(answer.result == ncclSuccess);
}

void sleep_ms(unsigned int ms)
{
	(void)usleep(ms * 1000);
}

static void rest(unsigned int round)
{
	const struct timespec t = { .tv_nsec = round < 40 ? 50000 : 1000000 };

	(void)nanosleep(&t, NULL);
}

static ncclResult_t step(const struct order *order)
{
	struct mpib_nccl_device_handle *device = NULL;

	self.sends[order->at] = order->task == TASK_CONNECT || order->task == TASK_CONNECT_ONCE;
	return self.sends[order->at]
		       ? self.net->connect(self.context, 0, self.handle[order->at],
					   &self.conn[order->at], &device)
		       : self.net->accept(self.listener, &self.conn[order->at], &device);
}

static ncclResult_t make(const struct order *order)
{
	uint64_t end = clock_ms() + WAIT_MS;
	ncclResult_t r = ncclSuccess;

	for (unsigned int k = 0; !self.conn[order->at] && clock_ms() < end; k++) {
		r = step(order);
		if (r != ncclSuccess && order->task != TASK_ACCEPT_NEXT)
			return r;
		rest(k);
	}
	self.answer.hung = !self.conn[order->at];
	return self.conn[order->at] ? ncclSuccess : r;
}

static ncclResult_t register_buffer(unsigned int at)
{
	if (!self.buffer[at]) {
		self.buffer[at] = aligned_alloc(4096, 5L * 4096);
		CHECK(self.buffer[at]);
	}
	return self.net->regMr(self.conn[at], self.buffer[at], FAR_MESSAGE, NCCL_PTR_HOST,
			       &self.mr[at]);
}

static ncclResult_t transfer(unsigned int at)
{
	ncclResult_t r = self.mr[at] ? ncclSuccess : register_buffer(at);
	uint64_t end = clock_ms() + WAIT_MS;
	void *request = NULL, *buffer = self.buffer[at];
	size_t room = FAR_MESSAGE;
	int tag = 3, done = 0, size = 0;

	for (size_t k = 0; r == ncclSuccess && k < FAR_MESSAGE; k++)
		self.buffer[at][k] = self.sends[at] ? (char)(k * 11 + 1) : 0;
	for (unsigned int k = 0; r == ncclSuccess && !done && clock_ms() < end; k++) {
		if (request)
			r = self.net->test(request, &done, &size);
		else if (self.sends[at])
			r = self.net->isend(self.conn[at], buffer, FAR_MESSAGE, tag, self.mr[at],
					    NULL, &request);
		else
			r = self.net->irecv(self.conn[at], 1, &buffer, &room, &tag, &self.mr[at],
					    NULL, &request);
		rest(k);
	}
	self.answer.hung = r == ncclSuccess && !done;
	for (size_t k = 0; done && !self.sends[at] && k < FAR_MESSAGE; k++)
		CHECK(self.buffer[at][k] == (char)(k * 11 + 1));
	return r;
}

static ncclResult_t close_one(unsigned int at)
{
	ncclResult_t r;

	if (!self.conn[at])
		return ncclSuccess;
	if (self.mr[at])
		CHECK(self.net->deregMr(self.conn[at], self.mr[at]) == ncclSuccess);
	r = self.sends[at] ? self.net->closeSend(self.conn[at])
			   : self.net->closeRecv(self.conn[at]);
	free(self.buffer[at]);
	self.buffer[at] = NULL;
	self.conn[at] = self.mr[at] = NULL;
	return r;
}

static ncclResult_t close_listener(void)
{
	ncclResult_t r = self.listener ? self.net->closeListen(self.listener) : ncclSuccess;

	self.listener = NULL;
	return r;
}

static ncclResult_t end(void)
{
	for (unsigned int k = 0; k < FAR_CONNS; k++)
		CHECK(close_one(k) == ncclSuccess);
	CHECK(close_listener() == ncclSuccess);
	CHECK(self.net->finalize(self.context) == ncclSuccess);
	CHECK(dlclose(self.library) == 0);
	return ncclSuccess;
}

static ncclResult_t carry_out(const struct order *order)
{
	switch (order->task) {
	case TASK_LISTEN:
		return self.net->listen(self.context, 0, self.answer.handle, &self.listener);
	case TASK_CONNECT:
	case TASK_ACCEPT:
	case TASK_ACCEPT_NEXT:
		return make(order);
	case TASK_CONNECT_ONCE:
	case TASK_ACCEPT_ONCE:
		return self.conn[order->at] ? ncclSuccess : step(order);
	case TASK_REGISTER:
		return register_buffer(order->at);
	case TASK_SEND:
	case TASK_RECEIVE:
		return transfer(order->at);
	case TASK_CLOSE:
		return close_one(order->at);
	case TASK_CLOSE_LISTENER:
		return close_listener();
	default:
		return end();
	}
}

struct answer near_do(const struct order *order)
{
	static const char none[HANDLE_BYTES];

	memset(&self.answer, 0, sizeof(self.answer));
	CHECK(order->at < FAR_CONNS);
	if (memcmp(order->handle, none, HANDLE_BYTES) != 0)
		memcpy(self.handle[order->at], order->handle, HANDLE_BYTES);
	self.answer.result = carry_out(order);
	self.answer.end_ms = clock_ms();
	self.answer.made = self.conn[order->at] != NULL;
	return self.answer;
}

/* ---- others ---------------------------------------------------------------------------------- */

static bool get(int fd, void *data, size_t len)
{
	return recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

void far_main(int argc, char **argv)
{
	struct order order = { .task = TASK_LISTEN };

	if (argc != 3 || strcmp(argv[1], "far") != 0)
		return;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	near_open(argv[2]);
	while (order.task != TASK_END && get(FAR_FD, &order, sizeof(order))) {
		struct answer answer = near_do(&order);

		CHECK(write(FAR_FD, &answer, sizeof(answer)) == (ssize_t)sizeof(answer));
	}
	exit(0);
}

void far_start(struct far *far, const char *node)
{
	int fds[2];

	(void)fflush(stdout);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	far->pid = fork();
	CHECK(far->pid >= 0);
	if (far->pid == 0) {
		/* Anew: the fabric's library, once loaded, stays on its node. */
		CHECK(dup2(fds[1], FAR_FD) == FAR_FD);
		(void)execl("/proc/self/exe", "far", "far", node, (char *)NULL);
		CHECK(!"execl");
	}
	CHECK(close(fds[1]) == 0);
	far->fd = fds[0];
}

void far_tell(const struct far *far, const struct order *order)
{
	CHECK(write(far->fd, order, sizeof(*order)) == (ssize_t)sizeof(*order));
}

struct answer far_answer(const struct far *far)
{
	struct answer answer;

	CHECK(get(far->fd, &answer, sizeof(answer)));
	return answer;
}

struct answer far_do(const struct far *far, const struct order *order)
{
	far_tell(far, order);
	return far_answer(far);
}

void far_stop(struct far *far)
{
	const struct order order = { .task = TASK_END };
	int status = -1;

	CHECK(far_do(far, &order).result == ncclSuccess);
	CHECK(waitpid(far->pid, &status, 0) == far->pid && status == 0);
	CHECK(close(far->fd) == 0);
}

void far_kill(struct far *far)
{
	CHECK(kill(far->pid, SIGKILL) == 0 && waitpid(far->pid, NULL, 0) == far->pid);
	CHECK(close(far->fd) == 0);
}
