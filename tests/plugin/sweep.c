/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep GROUP: two processes on two nodes, listen to close, again and again; each time one call of
 * one end fails: the first of its kind, the second, and so on. What has to hold is in judge().
 *
 * The accepting process leads; the connecting one, its child, does what it is sent.
 */
#include "tests/plugin/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/macros.h"
#include "tests/plugin/sweep.h"

#define MESSAGE	     20000 /* bytes, both rails */
#define RUN_MS	     8000  /* longer than any bound that is tried here */
#define PEER_MS	     1000  /* the other end ends within */
#define TEXT_BYTES   4096
#define AT_MAX	     24 /* of a kind of call that is made without end */
#define AT_MAX_SHORT 8

struct mpib_nccl_net_v12 *net;
void *library;

enum end { ACCEPTOR, CONNECTOR };

struct fault {
	enum end end;
	enum hooked which;
	unsigned int at;
	int error; /* 0: none */
};

struct order {
	bool go; /* false: the end */
	struct fault fault;
	char handle[HANDLE_BYTES];
};

struct lines {
	unsigned int count;
	char text[TEXT_BYTES];
};

/* What came of it on one end. */
struct outcome {
	ncclResult_t result; /* of the call that failed first */
	const char *call;    /* its name; NULL: none failed */
	ncclResult_t again;  /* the same call once more */
	uint64_t end_ms;     /* when it failed, or was done */
	bool hit, hung;
	bool recovered; /* the first call failed, the next one made the connection */
	bool unserved;	/* advanced mode: it was made without the agent's share */
	unsigned int calls[HOOK_MAX];
	int files, memory, verbs;
	struct lines first, repeated; /* what the plugin warned of, up to and after the failure */
};

static struct outcome now; /* of this process */
static struct lines *_Atomic log_into = &now.first;
static void *context;

__attribute__((format(printf, 5, 6))) static void logger(int level, unsigned long flags,
							 const char *file, int line,
							 const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct lines *lines = log_into;
	va_list args;
	size_t used;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN) {
		char text[512];

		va_start(args, fmt);
		(void)vsnprintf(text, sizeof(text), fmt, args);
		va_end(args);
		now.unserved |= strstr(text, "no hint yet") != NULL;
		return;
	}
	(void)pthread_mutex_lock(&lock);
	lines->count++;
	used = strnlen(lines->text, sizeof(lines->text));
	va_start(args, fmt);
	(void)vsnprintf(lines->text + used, sizeof(lines->text) - used - 2, fmt, args);
	va_end(args);
	used = strnlen(lines->text, sizeof(lines->text));
	lines->text[used] = '\n';
	lines->text[used + 1] = '\0';
	(void)pthread_mutex_unlock(&lock);
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
	if (r == ncclSuccess || now.call)
		return now.call != NULL;
	now.result = r;
	now.call = call;
	now.end_ms = clock_ms();
	return true;
}

static void rest(unsigned int round)
{
	const struct timespec t = { .tv_nsec = round < 40 ? 50000 : 1000000 };

	(void)nanosleep(&t, NULL);
}

/* ---- the two ends ---------------------------------------------------------------------------- */

/* The message, and its test to the end. */
static void transfer(void *comm, enum end end)
{
	static char buffer[MESSAGE + 64];
	void *mr = NULL, *request = NULL, *at = buffer;
	size_t room = MESSAGE;
	uint64_t until = clock_ms() + RUN_MS;
	int tag = 3, done = 0, size = 0;
	ncclResult_t r;

	for (size_t k = 0; k < MESSAGE; k++)
		buffer[k] = end == CONNECTOR ? (char)(k * 11 + 1) : 0;
	if (failed(net->regMr(comm, buffer, MESSAGE, NCCL_PTR_HOST, &mr), "regMr"))
		return;
	for (unsigned int k = 0; !done; k++) {
		if (!request)
			r = end == CONNECTOR
				    ? net->isend(comm, buffer, MESSAGE, tag, mr, NULL, &request)
				    : net->irecv(comm, 1, &at, &room, &tag, &mr, NULL, &request);
		else
			r = net->test(request, &done, &size);
		if (failed(r, request ? "test" : end == CONNECTOR ? "isend" : "irecv"))
			break;
		if (clock_ms() > until) {
			now.hung = true;
			break;
		}
		rest(k);
	}
	if (done && end == ACCEPTOR)
		for (size_t k = 0; k < MESSAGE; k++)
			CHECK(buffer[k] == (char)(k * 11 + 1));
	(void)net->deregMr(comm, mr); /* nobody can do anything about an error */
}

/* connect or accept until it gives a connection, fails, or the time is over. */
static ncclResult_t until_made(enum end end, void *listener, char *handle, void **ret)
{
	struct mpib_nccl_device_handle *device = NULL;
	uint64_t until = clock_ms() + RUN_MS;
	ncclResult_t r = ncclSuccess;

	*ret = NULL;
	for (unsigned int k = 0; !*ret && r == ncclSuccess; k++) {
		r = end == CONNECTOR ? net->connect(context, 0, handle, ret, &device)
				     : net->accept(listener, ret, &device);
		if (clock_ms() > until)
			return ncclInProgress;
		if (!*ret)
			rest(k);
	}
	return r;
}

static void run(enum end end, void *listener, char *handle)
{
	ncclResult_t r;
	void *comm;

	r = until_made(end, listener, handle, &comm);
	if (r == ncclInProgress) {
		now.hung = true;
	} else if (failed(r, end == CONNECTOR ? "connect" : "accept")) {
		now.hit = hook_hit();
		hook_arm(0, 0, 0);
		log_into = &now.repeated;
		now.again = until_made(end, listener, handle, &comm);
		now.recovered = comm != NULL;
		if (comm)
			now.call = NULL;
	}
	if (comm) {
		transfer(comm, end);
		(void)failed(end == CONNECTOR ? net->closeSend(comm) : net->closeRecv(comm),
			     "close");
	}
	if (!now.call)
		now.end_ms = clock_ms();
}

static void begin(enum end end, const struct fault *fault)
{
	memset(&now, 0, sizeof(now));
	log_into = &now.first;
	hook_arm(fault->which, fault->at, fault->end == end ? fault->error : 0);
}

static void end_run(void)
{
	now.hit |= hook_hit();
	for (unsigned int k = 0; k < HOOK_MAX; k++)
		now.calls[k] = hook_calls(k);
	hook_arm(0, 0, 0);
	now.files = count_open();
	now.memory = hook_live_memory();
	now.verbs = hook_live_verbs();
}

static void open_net(enum end end)
{
	struct mpib_nccl_config config = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };
	const char *path = getenv("PLUGIN"), *node = end == CONNECTOR ? "2" : "1";
	const char *agents = getenv("SWEEP_AGENTS"); /* each node has one of its own */
	char dir[256];

	CHECK(path && setenv("MPIB_FABRIC_NODE", node, 1) == 0);
	if (agents) {
		CHECK(snprintf(dir, sizeof(dir), "%s%s", agents, node) < (int)sizeof(dir));
		CHECK(setenv("MPIB_MODE", "1", 1) == 0 && setenv("MPIB_AGENT_DIR", dir, 1) == 0);
	}
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	hook_library(library);
	net = dlsym(library, "ncclNetPlugin_v12");
	CHECK(net);
	CHECK(net->init(&context, 1, &config, logger, NULL) == ncclSuccess);
}

static void close_net(void)
{
	CHECK(net->finalize(context) == ncclSuccess);
	CHECK(dlclose(library) == 0);
	CHECK(hook_live_memory() == 0);
}

static void put(int fd, const void *data, size_t len)
{
	CHECK(write(fd, data, len) == (ssize_t)len);
}

static bool get(int fd, void *data, size_t len)
{
	for (size_t had = 0; had < len;) {
		ssize_t n = read(fd, (char *)data + had, len - had);

		if (n <= 0)
			return false;
		had += (size_t)n;
	}
	return true;
}

static int connector(int fd)
{
	struct order order;

	open_net(CONNECTOR);
	while (get(fd, &order, sizeof(order)) && order.go) {
		begin(CONNECTOR, &order.fault);
		run(CONNECTOR, NULL, order.handle);
		end_run();
		put(fd, &now, sizeof(now));
	}
	close_net();
	return 0;
}

/* ---- the leading end ------------------------------------------------------------------------- */

static int peer_fd;
static struct outcome of[2];
static unsigned int tried, errors;
static uint64_t longest_ms;

static void one(const struct fault *fault)
{
	struct order order = { .go = true, .fault = *fault };
	void *listener = NULL;

	begin(ACCEPTOR, fault);
	memset(of, 0, sizeof(of));
	if (!failed(net->listen(context, 0, order.handle, &listener), "listen")) {
		put(peer_fd, &order, sizeof(order));
		run(ACCEPTOR, listener, NULL);
		CHECK(get(peer_fd, &of[CONNECTOR], sizeof(of[CONNECTOR])));
		CHECK(net->closeListen(listener) == ncclSuccess);
	}
	end_run();
	of[ACCEPTOR] = now;
}

__attribute__((format(printf, 2, 3))) static void complain(const struct fault *fault,
							   const char *fmt, ...)
{
	va_list args;

	(void)printf("%s, call %u of %s fails with %s: ",
		     fault->end == CONNECTOR ? "connecting end" : "accepting end", fault->at,
		     hook_name(fault->which), strerrorname_np(fault->error));
	va_start(args, fmt);
	(void)vprintf(fmt, args);
	va_end(args);
	(void)printf("\n");
	for (enum end end = ACCEPTOR; end <= CONNECTOR; end++)
		(void)printf("  %s: %s %d, again %d\n%s  again:\n%s",
			     end ? "connector" : "acceptor",
			     of[end].call ? of[end].call : "no error", of[end].result,
			     of[end].again, of[end].first.text, of[end].repeated.text);
	(void)fflush(stdout);
	errors++;
}

/* Errors that go by. */
static bool passes(int error)
{
	return error == EINTR || error == EAGAIN || error == EMFILE || error == ENFILE ||
	       error == ECONNABORTED || error == ENOBUFS || error == ENOMEM;
}

static void judge(const struct fault *fault, const struct outcome *clean)
{
	const struct outcome *mine = &of[fault->end], *peer = &of[!fault->end];
	/* ibv_poll_cq has no errno. */
	const char *cause =
		fault->which == HOOK_POLL_CQ ? "ibv_poll_cq failed" : strerror(fault->error);
	bool call = fault->which >= HOOK_SOCKET && fault->which <= HOOK_GETRANDOM;

	if (of[0].hung || of[1].hung)
		complain(fault, "nothing ever ended");
	for (enum end end = ACCEPTOR; end <= CONNECTOR; end++) {
		if (of[ACCEPTOR].call && strcmp(of[ACCEPTOR].call, "listen") == 0 &&
		    end == CONNECTOR)
			break; /* it was never asked */
		if (of[end].memory != clean[end].memory)
			complain(fault, "memory: %d pieces, not %d", of[end].memory,
				 clean[end].memory);
		if (of[end].verbs != clean[end].verbs)
			complain(fault, "verbs: %d objects, not %d", of[end].verbs,
				 clean[end].verbs);
		if (of[end].files != clean[end].files)
			complain(fault, "files: %d open, not %d", of[end].files, clean[end].files);
	}
	if (call && passes(fault->error) && (mine->unserved || peer->unserved))
		complain(fault, "the agent wasn't asked again");
	if (mine->recovered && (mine->first.count != 1 || !strstr(mine->first.text, cause)))
		complain(fault, "not one line with the cause");
	if (mine->recovered && call && passes(fault->error))
		complain(fault, "it wasn't tried again");
	if (!mine->call && !peer->call)
		return;
	if (call && passes(fault->error))
		complain(fault, "it wasn't tried again");
	if (!mine->call) {
		complain(fault, "the peer alone has an error");
		return;
	}
	if (strcmp(mine->call, "listen") == 0) {
		if (mine->first.count != 1 || !strstr(mine->first.text, cause))
			complain(fault, "not one line with the cause");
		return;
	}
	/* It may fail with all that the peer had to do done. */
	if (fault->which == HOOK_POLL_CQ && !peer->call)
		return;
	if (!peer->call && !peer->hung)
		complain(fault, "the peer has no error");
	if (mine->first.count != 1 || !strstr(mine->first.text, cause))
		complain(fault, "not one line with the cause");
	/* A buffer that can't be registered ends no connection: the peer sees it closed. */
	if (!strstr(peer->first.text, cause) && strcmp(mine->call, "regMr") != 0)
		complain(fault, "the peer wasn't told the cause");
	if (peer->first.count != 1)
		complain(fault, "the peer says it in %u lines", peer->first.count);
	if (mine->result != ncclSystemError &&
	    (mine->result != ncclRemoteError || fault->which >= HOOK_QUERY_PORT))
		complain(fault, "result %d", mine->result);
	if (peer->call && peer->result != ncclRemoteError)
		complain(fault, "the peer's result is %d", peer->result);
	if (peer->end_ms > mine->end_ms + PEER_MS)
		complain(fault, "the peer ended %u ms later",
			 (unsigned int)(peer->end_ms - mine->end_ms));
	if (peer->end_ms > mine->end_ms && peer->end_ms - mine->end_ms > longest_ms)
		longest_ms = peer->end_ms - mine->end_ms;
	for (enum end end = ACCEPTOR; end <= CONNECTOR; end++) {
		const char *name = of[end].call ? of[end].call : "";

		if (strcmp(name, "connect") != 0 && strcmp(name, "accept") != 0)
			continue;
		if (of[end].again == ncclSuccess || of[end].again == ncclInProgress ||
		    !strstr(of[end].repeated.text, cause))
			complain(fault, "asked again, %s doesn't say the cause", name);
	}
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static const struct row {
	const char *group;
	enum hooked which;
	int errors[8];
} rows[] = {
	{ "memory", HOOK_ALLOC, { ENOMEM } },
	{ "memory", HOOK_MMAP, { ENOMEM } },
	{ "calls", HOOK_SOCKET, { EACCES, EMFILE, ENFILE, ENOBUFS, ENOMEM } },
	{ "calls", HOOK_BIND, { EACCES } },
	{ "calls", HOOK_LISTEN, { EOPNOTSUPP } },
	{ "calls", HOOK_GETSOCKNAME, { ENOBUFS, EPERM } },
	{ "calls", HOOK_CONNECT, { EINTR, EAGAIN, ENOBUFS } },
	{ "calls", HOOK_ACCEPT4, { EINTR, EAGAIN, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM } },
	{ "calls", HOOK_GETSOCKOPT, { ENOBUFS } },
	{ "calls", HOOK_SEND, { EINTR, EAGAIN, ENOBUFS, ENOMEM } },
	{ "calls", HOOK_RECV, { EINTR, EAGAIN, ENOBUFS, ENOMEM } },
	{ "calls", HOOK_POLL, { EINTR, ENOMEM } },
	{ "calls", HOOK_EPOLL_CTL, { ENOMEM, ENOSPC } },
	{ "calls", HOOK_EPOLL_WAIT, { EINTR, ENOMEM } },
	{ "calls", HOOK_MEMFD, { EMFILE, ENOSYS } },
	{ "calls", HOOK_IOCTL, { ENOMEM } },
	{ "calls", HOOK_GETRANDOM, { EINTR } },
	{ "verbs", HOOK_QUERY_PORT, { EIO, EINVAL } },
	{ "verbs", HOOK_REG_MR, { ENOMEM, EREMOTEIO } },
	{ "verbs", HOOK_CREATE_CQ, { ENOMEM, EINVAL } },
	{ "verbs", HOOK_CREATE_SRQ, { ENOMEM, EINVAL } },
	{ "verbs", HOOK_CREATE_QP, { ENOMEM, ETIMEDOUT } },
	{ "verbs", HOOK_MODIFY_QP, { EIO, EINVAL } },
	{ "verbs", HOOK_POST_SEND, { EIO } },
	{ "verbs", HOOK_POLL_CQ, { EIO } },
	{ "verbs", HOOK_DEREG_MR, { EIO } },
	{ "verbs", HOOK_DESTROY_CQ, { EIO } },
	{ "verbs", HOOK_DESTROY_QP, { EIO } },
};

static void sweep_row(const struct row *row, enum end end, unsigned int at_max,
		      const struct outcome *clean)
{
	unsigned int most = clean[end].calls[row->which];

	for (unsigned int k = 0; k < MPIB_ARRAY_SIZE(row->errors) && row->errors[k]; k++) {
		for (unsigned int at = 0; at < most && at < at_max; at++) {
			struct fault fault = { end, row->which, at, row->errors[k] };

			one(&fault);
			if (!of[end].hit)
				break; /* made without end, and this time in fewer rounds */
			tried++;
			judge(&fault, clean);
			if (errors > 40)
				return;
		}
	}
}

int main(int argc, char **argv)
{
	const char *full = getenv("MPIB_TEST_SWEEP");
	struct outcome clean[2];
	int ends[2], status = 0;
	pid_t child;

	CHECK(argc == 2 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		exit(connector(ends[1]));
	CHECK(close(ends[1]) == 0);
	peer_fd = ends[0];
	open_net(ACCEPTOR);

	/* Twice: the first one makes what stays until finalize. */
	for (unsigned int k = 0; k < 2; k++)
		one(&(struct fault){ .error = 0 });
	memcpy(clean, of, sizeof(clean));
	CHECK(!of[0].call && !of[1].call && !of[0].first.count && !of[1].first.count);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rows) && errors <= 40; k++) {
		if (strcmp(rows[k].group, argv[1]) != 0)
			continue;
		for (enum end end = ACCEPTOR; end <= CONNECTOR; end++)
			sweep_row(&rows[k], end, full ? AT_MAX : AT_MAX_SHORT, clean);
	}
	one(&(struct fault){ .error = 0 });
	CHECK(!of[0].call && !of[1].call);

	put(peer_fd, &(struct order){ .go = false }, sizeof(struct order));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close_net();
	(void)printf(
		"%u failures tried, %u not as they have to be; a peer ended after %u ms at most\n",
		tried, errors, (unsigned int)longest_ms);
	return tried > 10 && errors == 0 ? 0 : 1;
}
