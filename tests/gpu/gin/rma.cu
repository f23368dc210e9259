// SPDX-License-Identifier: Apache-2.0
// rma RANK WORLD FOLDER BYTES ROUNDS: puts with signals that the host asks for (ncclPutSignal, NCCL 2.29 and later),
// and a look at the data as soon as the signal is there. One process a rank. Exit 0: nothing was wrong on this rank.
#include <cstdint>

#include "rank.h"

#define CTA 512

__device__ static uint32_t word_of(int from, int to, int round, size_t index)
{
	return (uint32_t)(index * 2654435761u) ^ (uint32_t)(from * 7919 + to * 104729 + round * 1299709);
}

__global__ void fill(uint32_t *out, size_t words, int from, int to, int round)
{
	for (size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < words; k += (size_t)gridDim.x * blockDim.x)
		out[k] = word_of(from, to, round, k);
}

__global__ void look(const uint32_t *in, size_t words, int from, int to, int round, unsigned long long *wrong)
{
	for (size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < words; k += (size_t)gridDim.x * blockDim.x)
		if (*(const volatile uint32_t *)&in[k] != word_of(from, to, round, k))
			atomicAdd(wrong, 1ull);
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: %s RANK WORLD FOLDER BYTES ROUNDS\n", argv[0]);
		return 2;
	}
	rank = atoi(argv[1]);
	const int world = atoi(argv[2]), rounds = atoi(argv[5]);
	const size_t words = strtoull(argv[4], NULL, 0) / sizeof(uint32_t), slot = words * sizeof(uint32_t);
	unsigned long long *wrong, found = 0;
	ncclComm_t comm = join(argv[3], world);
	// Two halves that take turns: a round begins once all have looked at the one before.
	struct window out = window_new(comm, 2 * world * slot), in = window_new(comm, 2 * world * slot);
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
	CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
	for (int round = 1; round <= rounds; round++) {
		const size_t base = (round & 1) * world * words;

		for (int to = 0; to < world; to++)
			fill<<<8, CTA, 0, stream>>>((uint32_t *)out.at + base + to * words, words, rank, to, round);
		for (int k = 1; k < world; k++) {
			const int to = (rank + k) % world;

			CHECK(ncclPutSignal((uint32_t *)out.at + base + to * words, slot, ncclInt8, to, in.handle,
					    (base + rank * words) * sizeof(uint32_t), 0, 0, 0, comm, stream));
		}
		for (int k = 1; k < world; k++) {
			const int from = (rank + k) % world;
			ncclWaitSignalDesc_t desc = { 1, from, 0, 0 };

			CHECK(ncclWaitSignal(1, &desc, comm, stream));
			look<<<8, CTA, 0, stream>>>((const uint32_t *)in.at + base + from * words, words, from, rank, round,
						    wrong);
		}
	}
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
	printf("rank %d: %llu words of %d rounds were wrong when their signal was seen\n", rank, found, rounds);
	window_free(comm, out);
	window_free(comm, in);
	CHECK(cudaStreamDestroy(stream));
	leave(comm);
	return found ? 1 : 0;
}
