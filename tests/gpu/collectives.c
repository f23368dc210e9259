/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective, type and size, against results that are known exactly. */
#include <stdio.h>

#include "tests/gpu/rank.h"

struct buffers {
	void *in, *out;
	size_t bytes;
};

/* @count: elements of the larger of the two buffers, a multiple of the ranks. */
typedef bool collective(struct rank *self, const struct buffers *at, enum rank_type type,
			size_t count);

static int ranks_sum(int world)
{
	return world * (world + 1) / 2;
}

static bool all_reduce(struct rank *self, const struct buffers *at, enum rank_type type,
		       size_t count)
{
	pattern_fill(at->in, type, count, self->rank + 1, 0);
	NCCL(ncclAllReduce(at->in, at->out, count, type_nccl(type), ncclSum, self->comm,
			   self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	return pattern_check("all_reduce", at->out, type, count, ranks_sum(self->world), 0);
}

static bool reduce(struct rank *self, const struct buffers *at, enum rank_type type, size_t count)
{
	int root = self->world - 1;

	pattern_fill(at->in, type, count, self->rank + 1, 0);
	NCCL(ncclReduce(at->in, at->out, count, type_nccl(type), ncclSum, root, self->comm,
			self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	return self->rank != root ||
	       pattern_check("reduce", at->out, type, count, ranks_sum(self->world), 0);
}

static bool broadcast(struct rank *self, const struct buffers *at, enum rank_type type,
		      size_t count)
{
	pattern_fill(at->in, type, count, self->rank + 1, 0);
	NCCL(ncclBroadcast(at->in, at->out, count, type_nccl(type), 1, self->comm, self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	return pattern_check("broadcast", at->out, type, count, 2, 0);
}

static void *part(void *base, enum rank_type type, size_t each, int n)
{
	return (char *)base + (size_t)n * each * type_size(type);
}

static bool all_gather(struct rank *self, const struct buffers *at, enum rank_type type,
		       size_t count)
{
	size_t each = count / (size_t)self->world;
	bool ok = true;

	pattern_fill(at->in, type, each, self->rank + 1, 0);
	NCCL(ncclAllGather(at->in, at->out, each, type_nccl(type), self->comm, self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	for (int n = 0; n < self->world; n++)
		ok &= pattern_check("all_gather", part(at->out, type, each, n), type, each, n + 1,
				    0);
	return ok;
}

static bool reduce_scatter(struct rank *self, const struct buffers *at, enum rank_type type,
			   size_t count)
{
	size_t each = count / (size_t)self->world;

	for (int n = 0; n < self->world; n++)
		pattern_fill(part(at->in, type, each, n), type, each, self->rank + 1, n);
	NCCL(ncclReduceScatter(at->in, at->out, each, type_nccl(type), ncclSum, self->comm,
			       self->stream));
	CUDA(cudaStreamSynchronize(self->stream));
	return pattern_check("reduce_scatter", at->out, type, each, ranks_sum(self->world),
			     self->rank * self->world);
}

static bool send_recv(struct rank *self, const struct buffers *at, enum rank_type type,
		      size_t count)
{
	int next = (self->rank + 1) % self->world;
	int before = (self->rank + self->world - 1) % self->world;

	pattern_fill(at->in, type, count, self->rank + 1, 0);
	NCCL(ncclGroupStart());
	NCCL(ncclSend(at->in, count, type_nccl(type), next, self->comm, self->stream));
	NCCL(ncclRecv(at->out, count, type_nccl(type), before, self->comm, self->stream));
	NCCL(ncclGroupEnd());
	CUDA(cudaStreamSynchronize(self->stream));
	return pattern_check("send/recv", at->out, type, count, before + 1, 0);
}

static bool all_to_all(struct rank *self, const struct buffers *at, enum rank_type type,
		       size_t count)
{
	size_t each = count / (size_t)self->world;
	bool ok = true;

	for (int n = 0; n < self->world; n++)
		pattern_fill(part(at->in, type, each, n), type, each, self->rank + 1, n);
	NCCL(ncclGroupStart());
	for (int n = 0; n < self->world; n++) {
		NCCL(ncclSend(part(at->in, type, each, n), each, type_nccl(type), n, self->comm,
			      self->stream));
		NCCL(ncclRecv(part(at->out, type, each, n), each, type_nccl(type), n, self->comm,
			      self->stream));
	}
	NCCL(ncclGroupEnd());
	CUDA(cudaStreamSynchronize(self->stream));
	for (int n = 0; n < self->world; n++)
		ok &= pattern_check("all_to_all", part(at->out, type, each, n), type, each, n + 1,
				    self->rank);
	return ok;
}

int collectives_run(struct rank *self, size_t max_bytes)
{
	static collective *const all[] = { all_reduce, all_gather, reduce_scatter, broadcast,
					   reduce,     send_recv,  all_to_all };
	static const size_t sizes[] = { 8, 1000, 8192, 65536, 1000008, 1 << 22, 67108872, 1 << 30 };
	struct buffers at = { .bytes = max_bytes + 4096 };
	int wrong = 0, done = 0;

	CUDA(cudaMalloc(&at.in, at.bytes));
	CUDA(cudaMalloc(&at.out, at.bytes));
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (enum rank_type type = 0; sizes[s] <= max_bytes && type < TYPES; type++) {
			size_t world = (size_t)self->world;
			size_t count = (sizes[s] / type_size(type) + world - 1) / world * world;

			for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
				CUDA(cudaMemset(at.out, 0xa5, at.bytes));
				CUDA(cudaDeviceSynchronize());
				wrong += !all[k](self, &at, type, count);
				done++;
			}
		}
	}
	printf("rank %d: %d collectives up to %zu bytes\n", self->rank, done, max_bytes);
	CUDA(cudaFree(at.in));
	CUDA(cudaFree(at.out));
	return wrong;
}
