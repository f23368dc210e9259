// SPDX-License-Identifier: Apache-2.0
// kernel RANK WORLD FOLDER BYTES ROUNDS: kernels put and signal by NCCL's device API (2.28.7 and later), and look at
// the data of each put as soon as its signal is seen. One process a rank. Exit 0: nothing was wrong on this rank.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "cuda_runtime.h"
#include "nccl.h"
#include "nccl_device.h"

#define CTA 512
// Bytes of a put that have no signal of their own: the signal comes with the one behind them.
#define BARE 2

#define CHECK(call)                                                                                \
	do {                                                                                       \
		int r_ = (int)(call);                                                              \
		if (r_) {                                                                          \
			fprintf(stderr, "rank %d: %s:%d: %s gives %d\n", rank, __FILE__, __LINE__, \
				#call, r_);                                                        \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int rank;

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

// By a file that the first rank moves to its place.
static ncclUniqueId unique_id(const char *folder)
{
	std::string path = std::string(folder) + "/id", half = path + ".half";
	ncclUniqueId id;
	FILE *file;

	if (rank == 0) {
		CHECK(ncclGetUniqueId(&id));
		file = fopen(half.c_str(), "wb");
		CHECK(!file || fwrite(&id, sizeof(id), 1, file) != 1 || fclose(file));
		CHECK(rename(half.c_str(), path.c_str()));
		return id;
	}
	for (int k = 0; k < 600; k++, usleep(50000)) {
		file = fopen(path.c_str(), "rb");
		if (!file)
			continue;
		CHECK(fread(&id, sizeof(id), 1, file) != 1);
		fclose(file);
		return id;
	}
	fprintf(stderr, "rank %d: no id from rank 0\n", rank);
	exit(1);
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
	ncclDevCommRequirements need;
	ncclWindow_t send, recv;
	ncclDevComm device;
	ncclComm_t comm;
	void *out, *in;
	int devices = 0;

	CHECK(cudaGetDeviceCount(&devices));
	CHECK(devices < 1);
	CHECK(cudaSetDevice(rank % devices));
	CHECK(ncclCommInitRank(&comm, world, unique_id(argv[3]), rank));
	CHECK(ncclMemAlloc(&out, bytes));
	CHECK(ncclMemAlloc(&in, bytes));
	CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
	CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
	CHECK(cudaMemset(in, 0, bytes));
	CHECK(ncclCommWindowRegister(comm, out, bytes, &send, NCCL_WIN_COLL_SYMMETRIC));
	CHECK(ncclCommWindowRegister(comm, in, bytes, &recv, NCCL_WIN_COLL_SYMMETRIC));
	memset(&need, 0, sizeof(need));
	need.railGinBarrierCount = 1;
	need.ginSignalCount = world;
	CHECK(ncclDevCommCreate(comm, &need, &device));
	rounds<<<1, CTA>>>(send, recv, (uint32_t *)out, (const uint32_t *)in, words, count, device, wrong);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
	printf("rank %d: %llu words of %d rounds were wrong when their signal was seen\n", rank, found, count);
	CHECK(ncclDevCommDestroy(comm, &device));
	CHECK(ncclCommWindowDeregister(comm, send));
	CHECK(ncclCommWindowDeregister(comm, recv));
	CHECK(ncclMemFree(out));
	CHECK(ncclMemFree(in));
	CHECK(ncclCommFinalize(comm));
	CHECK(ncclCommDestroy(comm));
	return found ? 1 : 0;
}
