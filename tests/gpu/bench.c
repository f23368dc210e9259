/* SPDX-License-Identifier: Apache-2.0 */
/* Time and bus bandwidth of one operation by size: the median of BATCHES batches. Bus bandwidth is
 * as nccl-tests define it: bytes a second of one direction of a rank's link. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/rank.h"

#define BATCHES		 7
#define BATCH_US	 60000.0 /* aim of one batch */
#define BATCH_MOST	 200
#define PROFILED_BATCHES 40

static void once(struct rank *self, const char *op, const void *in, void *out, size_t count)
{
	int next = (self->rank + 1) % self->world;
	int before = (self->rank + self->world - 1) % self->world;

	if (!strcmp(op, "all_reduce")) {
		NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, self->comm, self->stream));
		return;
	}
	NCCL(ncclGroupStart());
	NCCL(ncclSend(in, count, ncclFloat, next, self->comm, self->stream));
	NCCL(ncclRecv(out, count, ncclFloat, before, self->comm, self->stream));
	NCCL(ncclGroupEnd());
}

static double batch(struct rank *self, const char *op, const void *in, void *out, size_t count,
		    int times)
{
	double start;

	CUDA(cudaStreamSynchronize(self->stream));
	start = now_us();
	for (int k = 0; k < times; k++)
		once(self, op, in, out, count);
	CUDA(cudaStreamSynchronize(self->stream));
	return (now_us() - start) / times;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* All ranks must do the same number: rank 0's. */
static int agreed(struct rank *self, double us, int *word)
{
	int times = (int)(BATCH_US / us);

	times = times < 1 ? 1 : times > BATCH_MOST ? BATCH_MOST : times;
	CUDA(cudaMemcpy(word, &times, sizeof(times), cudaMemcpyHostToDevice));
	NCCL(ncclBroadcast(word, word, 1, ncclInt, 0, self->comm, self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	CUDA(cudaMemcpy(&times, word, sizeof(times), cudaMemcpyDeviceToHost));
	return times;
}

/* Tells the preloaded sampler, if there is one, to note where the time goes, for long enough. */
static void profile(struct rank *self, const char *op, const void *in, void *out, size_t count,
		    int times)
{
	void (*sample)(int) = NULL;

	*(void **)&sample = dlsym(RTLD_DEFAULT, "mpib_sample");
	if (!sample)
		return;
	sample(1);
	for (int k = 0; k < PROFILED_BATCHES; k++)
		(void)batch(self, op, in, out, count, times);
	sample(0);
}

int bench_run(struct rank *self, const char *op, size_t from, size_t to)
{
	static const size_t sizes[] = { 8,	 512,	  4096,	   8192,    65536,   1 << 18,
					1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30 };
	double bus = !strcmp(op, "all_reduce") ? 2.0 * (self->world - 1) / self->world : 1.0;
	int wrong = 0, *word;
	void *in, *out;

	CUDA(cudaMalloc(&in, to));
	CUDA(cudaMalloc(&out, to));
	CUDA(cudaMalloc((void **)&word, sizeof(*word)));
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		size_t count = sizes[s] / sizeof(float);
		double us[BATCHES];
		int times;

		if (sizes[s] < from || sizes[s] > to)
			continue;
		pattern_fill(in, TYPE_FLOAT, count, self->rank + 1, 0);
		(void)batch(self, op, in, out, count, 1);
		times = agreed(self, batch(self, op, in, out, count, 2), word);
		for (int k = 0; k < BATCHES; k++)
			us[k] = batch(self, op, in, out, count, times);
		profile(self, op, in, out, count, times);
		qsort(us, BATCHES, sizeof(us[0]), by_value);
		if (self->rank == 0)
			printf("{\"op\":\"%s\",\"bytes\":%zu,\"us\":%.2f,\"min_us\":%.2f,"
			       "\"max_us\":%.2f,\"busbw\":%.4f}\n",
			       op, sizes[s], us[BATCHES / 2], us[0], us[BATCHES - 1],
			       (double)sizes[s] * bus / us[BATCHES / 2] / 1e3);
		wrong += !pattern_check(op, out, TYPE_FLOAT, count,
					!strcmp(op, "all_reduce")
						? self->world * (self->world + 1) / 2
						: (self->rank + self->world - 1) % self->world + 1,
					0);
	}
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	CUDA(cudaFree(word));
	return wrong;
}
