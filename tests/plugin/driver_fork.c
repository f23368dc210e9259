/* SPDX-License-Identifier: Apache-2.0 */
/* C17: children of a process that has connections. */
#include "tests/plugin/driver.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for(pid_t pid)
{
	int status = 0;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void use(struct ends *ends)
{
	for (unsigned int n = 0; n < 20; n++)
		ends_transfer(ends, (size_t)n * 3000);
}

/* In the child: nothing that it inherited works, and giving it back touches nothing of the
 * parent's.
 */
static void misuse(struct ends *ends, void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	char handle[HANDLE_BYTES];
	void *comm = NULL, *request = (void *)1, *in = ends->in, *listener = NULL, *again = NULL;
	size_t room = 64;
	int tag = 1, other[16];

	/* The numbers of the parent's sockets go to files of the child's own. */
	for (unsigned int k = 0; k < 16; k++) {
		other[k] = dup(2);
		CHECK(other[k] >= 0);
	}
	CHECK(net->isend(ends->send, ends->out, 64, tag, ends->send_mr, NULL, &request) !=
	      ncclSuccess);
	CHECK(!request);
	CHECK(net->irecv(ends->recv, 1, &in, &room, &tag, &ends->recv_mr, NULL, &request) !=
	      ncclSuccess);
	CHECK(net_init(&again) != ncclSuccess);
	CHECK(net->listen(ctx, 0, handle, &listener) != ncclSuccess && !listener);
	memset(handle, 0, sizeof(handle));
	CHECK(net->connect(ctx, 0, handle, &comm, &device) != ncclSuccess && !comm);
	ends_close(ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	for (unsigned int k = 0; k < 16; k++)
		CHECK(close(other[k]) == 0);
}

/* A child that ends at once, with and without the handlers of exit, or after a finalize or
 * a misuse of its own: the parent's connections don't notice. */
static void fork_exit(void)
{
	struct ends ends;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	use(&ends);
	for (unsigned int kind = 0; kind < 4; kind++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			if (kind == 2)
				(void)net->finalize(ctx);
			if (kind == 3)
				misuse(&ends, ctx);
			if (kind == 0 || kind == 3)
				_exit(0);
			exit(0);
		}
		use(&ends);
		wait_for(pid);
		use(&ends);
	}
	CHECK(count_threads("mpib-watch") == 1);
	if (getenv("DRIVER_HOOK"))
		CHECK(system(getenv("DRIVER_HOOK")) == 0); /* NOLINT(cert-env33-c): the script's */
	ends_close(&ends);
	ends_open(&ends, ctx);
	use(&ends);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* A child that becomes another program holds nothing of ours. */
static void fork_exec(void)
{
	char text[32] = "";
	struct ends ends;
	void *ctx = NULL;
	unsigned int before;
	int out[2];
	pid_t pid;

	library_open();
	before = count_files();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	use(&ends);
	CHECK(count_files() > before);
	CHECK(pipe(out) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		(void)dup2(out[1], 1);
		(void)close(out[0]);
		(void)close(out[1]);
		(void)execl("/proc/self/exe", "driver", "count-files", NULL);
		_exit(1);
	}
	(void)close(out[1]);
	use(&ends);
	CHECK(read(out[0], text, sizeof(text) - 1) > 0);
	(void)close(out[0]);
	wait_for(pid);
	CHECK((unsigned int)strtoul(text, NULL, 10) == before);
	use(&ends);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

const struct trap fork_traps[] = {
	{ "fork-exit", fork_exit },
	{ "fork-exec", fork_exec },
	{ NULL, NULL },
};
