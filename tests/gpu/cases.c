/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do with NCCL beside plain collectives: several communicators, graphs, registered
 * buffers, many lives, and long streams under which a test changes or breaks something. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/rank.h"

#define COUNT	    ((size_t)1 << 18)
#define GRAPH_STEPS 10
#define GRAPH_RUNS  20

static int sum_check(const char *what, const struct rank *self, ncclComm_t comm, int sum)
{
	void *in, *out;
	int wrong;

	CUDA(cudaMalloc(&in, COUNT * 4));
	CUDA(cudaMalloc(&out, COUNT * 4));
	pattern_fill(in, TYPE_FLOAT, COUNT, self->rank + 1, 0);
	NCCL(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	wrong = !pattern_check(what, out, TYPE_FLOAT, COUNT, sum, 0);
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	return wrong;
}

static int whole_sum(const struct rank *self)
{
	return self->world * (self->world + 1) / 2;
}

/* Three communicators of all ranks, one split from the first in halves, one in neighbours: used in
 * turn, ended in another order than made. */
static int comms(struct rank *self, int argc, char **argv)
{
	ncclComm_t second = rank_comm(self, "second"), third = rank_comm(self, "third");
	ncclComm_t odd = NULL, half = NULL;
	int wrong = 0, odd_sum = 0, half_sum = 0, halves = (self->world + 1) / 2;

	(void)argc, (void)argv;
	NCCL(ncclCommSplit(self->comm, self->rank % 2, self->rank, &odd, NULL));
	NCCL(ncclCommSplit(second, self->rank / halves, -self->rank, &half, NULL));
	for (int n = 0; n < self->world; n++) {
		odd_sum += n % 2 == self->rank % 2 ? n + 1 : 0;
		half_sum += n / halves == self->rank / halves ? n + 1 : 0;
	}
	for (int k = 0; k < 3; k++) {
		wrong += sum_check("first", self, self->comm, whole_sum(self));
		wrong += sum_check("odd and even", self, odd, odd_sum);
		wrong += sum_check("third", self, third, whole_sum(self));
		wrong += sum_check("halves", self, half, half_sum);
		wrong += sum_check("second", self, second, whole_sum(self));
	}
	NCCL(ncclCommDestroy(second));
	wrong += sum_check("halves, parent gone", self, half, half_sum);
	NCCL(ncclCommDestroy(half));
	NCCL(ncclCommDestroy(third));
	wrong += sum_check("first again", self, self->comm, whole_sum(self));
	NCCL(ncclCommDestroy(odd));
	return wrong;
}

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int count = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		count++;
	(void)closedir(dir);
	return count;
}

static long resident_kb(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (file && fscanf(file, "%*d %ld", &pages) != 1)
		pages = 0;
	if (file)
		(void)fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* rounds N [KB]: N communicators, one after the other. The first rounds fill caches; after them no
 * descriptor and no thread may stay, and at most KB a round of memory. */
static int rounds(struct rank *self, int argc, char **argv)
{
	int count = argc > 0 ? atoi(argv[0]) : 50, settled = count / 5, fds = 0, threads = 0;
	long limit = argc > 1 ? atol(argv[1]) : 256, kb = 0, grown;
	int wrong = 0;

	for (int k = 0; k < count; k++) {
		char name[32];
		ncclComm_t comm;

		(void)snprintf(name, sizeof(name), "round%d", k);
		comm = rank_comm(self, name);
		wrong += sum_check(name, self, comm, whole_sum(self));
		NCCL(ncclCommDestroy(comm));
		if (k == settled) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
			kb = resident_kb();
		}
	}
	grown = (resident_kb() - kb) / (count - settled);
	printf("rank %d: descriptors %d to %d, threads %d to %d, %ld KiB a round\n", self->rank,
	       fds, entries("/proc/self/fd"), threads, entries("/proc/self/task"), grown);
	wrong += entries("/proc/self/fd") > fds;
	wrong += entries("/proc/self/task") > threads;
	wrong += grown > limit;
	return wrong;
}

static int graph(struct rank *self, int argc, char **argv)
{
	cudaGraph_t captured;
	cudaGraphExec_t ready;
	void *in, *out;
	int wrong = 0;

	(void)argc, (void)argv;
	CUDA(cudaMalloc(&in, COUNT * 4));
	CUDA(cudaMalloc(&out, COUNT * 4));
	CUDA(cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal));
	for (int k = 0; k < GRAPH_STEPS; k++)
		NCCL(ncclAllReduce(in, out, COUNT >> k, ncclFloat, ncclSum, self->comm,
				   self->stream));
	NCCL(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, self->comm, self->stream));
	CUDA(cudaStreamEndCapture(self->stream, &captured));
	CUDA(cudaGraphInstantiate(&ready, captured, 0));
	for (int k = 0; k < GRAPH_RUNS; k++) {
		pattern_fill(in, TYPE_FLOAT, COUNT, self->rank + 1, k);
		CUDA(cudaMemset(out, 0xa5, COUNT * 4));
		CUDA(cudaDeviceSynchronize());
		CUDA(cudaGraphLaunch(ready, self->stream));
		CUDA(cudaStreamSynchronize(self->stream));
		wrong += !pattern_check("graph", out, TYPE_FLOAT, COUNT, whole_sum(self),
					k * self->world);
	}
	CUDA(cudaGraphExecDestroy(ready));
	CUDA(cudaGraphDestroy(captured));
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	return wrong;
}

/* Buffers from NCCL's allocator, registered by the user: these NCCL may hand to the network as they
 * are. */
static int registered(struct rank *self, int argc, char **argv)
{
	int next = (self->rank + 1) % self->world;
	int before = (self->rank + self->world - 1) % self->world;
	size_t count = COUNT * 16;
	void *in, *out, *in_handle, *out_handle;
	int wrong = 0;

	(void)argc, (void)argv;
	NCCL(ncclMemAlloc(&in, count * 4));
	NCCL(ncclMemAlloc(&out, count * 4));
	NCCL(ncclCommRegister(self->comm, in, count * 4, &in_handle));
	NCCL(ncclCommRegister(self->comm, out, count * 4, &out_handle));
	for (int k = 0; k < 5; k++) {
		pattern_fill(in, TYPE_FLOAT, count, self->rank + 1, k);
		NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, self->comm, self->stream));
		CUDA(cudaStreamSynchronize(self->stream));
		wrong += !pattern_check("registered all_reduce", out, TYPE_FLOAT, count,
					whole_sum(self), k * self->world);
		NCCL(ncclGroupStart());
		NCCL(ncclSend(in, count, ncclFloat, next, self->comm, self->stream));
		NCCL(ncclRecv(out, count, ncclFloat, before, self->comm, self->stream));
		NCCL(ncclGroupEnd());
		CUDA(cudaStreamSynchronize(self->stream));
		wrong += !pattern_check("registered send/recv", out, TYPE_FLOAT, count, before + 1,
					k);
	}
	NCCL(ncclCommDeregister(self->comm, in_handle));
	NCCL(ncclCommDeregister(self->comm, out_handle));
	NCCL(ncclMemFree(in));
	NCCL(ncclMemFree(out));
	return wrong;
}

/* Waits for the stream, and ends the process where the communicator failed, saying after how long.
 */
static void wait_or_fail(struct rank *self)
{
	double start = now_us();
	ncclResult_t state;
	cudaError_t r;

	while ((r = cudaStreamQuery(self->stream)) == cudaErrorNotReady) {
		NCCL(ncclCommGetAsyncError(self->comm, &state));
		if (state != ncclSuccess && state != ncclInProgress) {
			printf("rank %d: communicator failed: %s, %.1f s after the call\n",
			       self->rank, ncclGetErrorString(state), (now_us() - start) / 1e6);
			(void)ncclCommAbort(self->comm);
			exit(EXIT_COMM_FAILED);
		}
		(void)usleep(100);
	}
	CUDA(r);
}

/* stream SECONDS [BYTES]: all_reduce after all_reduce, each checked. Rank 0 decides when it ends,
 * so that all do the same number. Prints its progress ten times a second. */
static int stream(struct rank *self, int argc, char **argv)
{
	double seconds = argc > 0 ? atof(argv[0]) : 5, end = now_us() + seconds * 1e6, told = 0;
	size_t count = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1 << 20) / 4;
	int wrong = 0, done = 0, stop;
	void *in, *out, *word;

	CUDA(cudaMalloc(&in, count * 4));
	CUDA(cudaMalloc(&out, count * 4));
	CUDA(cudaMalloc(&word, sizeof(stop)));
	pattern_fill(in, TYPE_FLOAT, count, self->rank + 1, 0);
	do {
		stop = now_us() > end;
		CUDA(cudaMemcpy(word, &stop, sizeof(stop), cudaMemcpyHostToDevice));
		NCCL(ncclBroadcast(word, word, 1, ncclInt, 0, self->comm, self->stream));
		NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, self->comm, self->stream));
		wait_or_fail(self);
		wrong += !pattern_check("stream", out, TYPE_FLOAT, count, whole_sum(self), 0);
		CUDA(cudaMemcpy(&stop, word, sizeof(stop), cudaMemcpyDeviceToHost));
		CUDA(cudaMemset(out, 0xa5, count * 4));
		CUDA(cudaDeviceSynchronize());
		done++;
		if (now_us() - told > 1e5) {
			told = now_us();
			printf("rank %d: %d done\n", self->rank, done);
		}
	} while (!stop);
	printf("rank %d: stream of %d\n", self->rank, done);
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	CUDA(cudaFree(word));
	return wrong;
}

int cases_run(struct rank *self, const char *name, int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct rank *self, int argc, char **argv);
	} all[] = {
		{ "comms", comms },	      { "rounds", rounds }, { "graph", graph },
		{ "registered", registered }, { "stream", stream },
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		if (!strcmp(name, all[k].name))
			return all[k].run(self, argc, argv);
	(void)fprintf(stderr, "no test %s\n", name);
	exit(2);
}
