// SPDX-License-Identifier: Apache-2.0
// kernel RANK WORLD FOLDER BYTES ROUNDS: kernels put and signal by NCCL's device API (2.28.7 and later), and look at
// the data of each put as soon as its signal is seen. One process a rank. Exit 0: nothing was wrong on this rank.
#include <cstdint>

#include "device.h"

#define CTA 512
// Bytes of a put that have no signal of their own: the signal comes with the one behind them.
#define BARE 2

__device__ static uint32_t word_of(int from, int to, int round, size_t index)
{
	return (uint32_t)(index * 2654435761u) ^ (uint32_t)(from * 7919 + to * 104729 + round * 1299709);
}

// In each round every rank puts BARE + 1 slots to each rank, its own too, the last one with a signal. The two
// halves of the buffers take turns, and a round begins once all have looked at the one before.
__global__ void rounds(ncclWindow_t send, ncclWindow_t recv, uint32_t *out, const uint32_t *in, size_t words,
		       int count, ncclDevComm comm, unsigned long long *wrong)
{
	ncclGin gin{ comm, 0 };
	const size_t slot = words * sizeof(uint32_t), all = slot * (BARE + 1), half = all * comm.nRanks;

	for (int round = 1; round <= count; round++) {
		const size_t base = (round & 1) * half;

		for (int to = 0; to < comm.nRanks; to++)
			for (size_t k = threadIdx.x; k < words * (BARE + 1); k += blockDim.x)
				out[(base + to * all) / 4 + k] = word_of(comm.rank, to, round, k);
		__threadfence_system();
		ncclGinBarrierSession<ncclCoopCta> bar{ ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier,
							blockIdx.x };
		bar.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
		for (int to = threadIdx.x; to < comm.nRanks; to += blockDim.x) {
			for (int k = 0; k < BARE; k++)
				gin.put(ncclTeamWorld(comm), to, recv, base + comm.rank * all + k * slot, send,
					base + to * all + k * slot, slot);
			gin.put(ncclTeamWorld(comm), to, recv, base + comm.rank * all + BARE * slot, send,
				base + to * all + BARE * slot, slot, ncclGin_SignalInc{ (unsigned int)comm.rank });
		}
		for (int from = 0; from < comm.nRanks; from++) {
			gin.waitSignal(ncclCoopCta(), from, round);
			for (size_t k = threadIdx.x; k < words * (BARE + 1); k += blockDim.x)
				if (*(const volatile uint32_t *)&in[(base + from * all) / 4 + k] !=
				    word_of(from, comm.rank, round, k))
					atomicAdd(wrong, 1ull);
		}
		gin.flush(ncclCoopCta());
		__syncthreads();
	}
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: %s RANK WORLD FOLDER BYTES ROUNDS\n", argv[0]);
		return 2;
	}
	rank = atoi(argv[1]);
	const int world = atoi(argv[2]), count = atoi(argv[5]);
	const size_t words = strtoull(argv[4], NULL, 0) / sizeof(uint32_t);
	const size_t bytes = 2 * words * sizeof(uint32_t) * (BARE + 1) * world;
	unsigned long long *wrong, found = 0;
	ncclComm_t comm = join(argv[3], world);
	struct window out = window_new(comm, bytes), in = window_new(comm, bytes);
	ncclDevComm device = device_new(comm, world);

	CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
	CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
	rounds<<<1, CTA>>>(out.handle, in.handle, (uint32_t *)out.at, (const uint32_t *)in.at, words, count, device,
			   wrong);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
	printf("rank %d: %llu words of %d rounds were wrong when their signal was seen\n", rank, found, count);
	CHECK(ncclDevCommDestroy(comm, &device));
	window_free(comm, out);
	window_free(comm, in);
	leave(comm);
	return found ? 1 : 0;
}
