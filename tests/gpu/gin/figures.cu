// SPDX-License-Identifier: Apache-2.0
// figures RANK WORLD FOLDER NAME latency|rate WARM: what a put with its signal takes one way between the first two
// ranks, by size, or what each rank sends while all put to all others, of puts of 1 MiB, after WARM rounds of it. A
// line of JSON a figure, from rank 0.
#include <cstdint>
#include <cstring>

#include "device.h"

#define CTA	  64
#define SIZE_MOST (1u << 20)
#define TRIPS	  200
#define AT_ONCE	  8  // puts to each rank, a round
#define ROUNDS	  40 // that are measured

__device__ static uint64_t now_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

// There and back; signal 0 of each has the number of trips that it has seen.
__global__ void trips(ncclWindow_t send, ncclWindow_t recv, size_t size, uint64_t seen, int count, ncclDevComm comm,
		      uint64_t *took)
{
	ncclGin gin{ comm, 0 };
	uint64_t begin = now_ns();

	if (comm.rank > 1)
		return;
	for (int k = 0; k < count; k++) {
		if (comm.rank == 1)
			gin.waitSignal(ncclCoopCta(), 0, ++seen);
		if (threadIdx.x == 0)
			gin.put(ncclTeamWorld(comm), !comm.rank, recv, 0, send, 0, size, ncclGin_SignalInc{ 0 });
		if (comm.rank == 0)
			gin.waitSignal(ncclCoopCta(), 0, ++seen);
	}
	gin.flush(ncclCoopCta());
	if (threadIdx.x == 0)
		*took = now_ns() - begin;
}

// All put to all others, each a few at once; a round ends when all of it is there.
__global__ void all_to_all(ncclWindow_t send, ncclWindow_t recv, uint64_t seen, int count, ncclDevComm comm,
			   uint64_t *took)
{
	ncclGin gin{ comm, 0 };
	const int others = comm.nRanks - 1;
	uint64_t begin = now_ns();

	for (int round = 0; round < count; round++) {
		for (int k = threadIdx.x; k < others * AT_ONCE; k += blockDim.x) {
			const int to = (comm.rank + 1 + k % others) % comm.nRanks, slot = k / others;

			gin.put(ncclTeamWorld(comm), to, recv, (size_t)(comm.rank * AT_ONCE + slot) * SIZE_MOST, send,
				(size_t)slot * SIZE_MOST, SIZE_MOST, ncclGin_SignalInc{ 1 });
		}
		seen += others * AT_ONCE;
		gin.waitSignal(ncclCoopCta(), 1, seen);
		gin.flush(ncclCoopCta());
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*took = now_ns() - begin;
}

// What a kernel left at @took, once it has ended. A copy that waited for it might keep the fabric's copies waiting.
static uint64_t ns_of(const uint64_t *took)
{
	uint64_t ns;

	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(&ns, took, sizeof(ns), cudaMemcpyDeviceToHost));
	return ns;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: %s RANK WORLD FOLDER NAME latency|rate WARM\n", argv[0]);
		return 2;
	}
	rank = atoi(argv[1]);
	const int world = atoi(argv[2]), warm = atoi(argv[6]);
	ncclComm_t comm = join(argv[3], world);
	struct window out = window_new(comm, (size_t)AT_ONCE * SIZE_MOST);
	struct window in = window_new(comm, (size_t)world * AT_ONCE * SIZE_MOST);
	ncclDevComm device = device_new(comm, 2);
	uint64_t *took, ns = 0, seen = 0;

	CHECK(cudaMalloc(&took, sizeof(*took)));
	if (strcmp(argv[5], "latency") == 0) {
		for (size_t size = 8; size <= 65536; size *= 2) {
			for (int turn = 0; turn < 2; turn++) { // the first one warms up
				trips<<<1, CTA>>>(out.handle, in.handle, size, seen, TRIPS, device, took);
				ns = ns_of(took);
				seen += TRIPS;
			}
			if (rank == 0)
				printf("{\"net\":\"%s\",\"bytes\":%zu,\"us\":%.2f}\n", argv[4], size,
				       (double)ns / TRIPS / 2000);
		}
	} else {
		const int rounds[] = { warm, ROUNDS };

		for (int turn = 0; turn < 2; turn++) {
			all_to_all<<<1, CTA>>>(out.handle, in.handle, seen, rounds[turn], device, took);
			ns = ns_of(took);
			seen += (uint64_t)rounds[turn] * (world - 1) * AT_ONCE;
		}
		if (rank == 0)
			printf("{\"net\":\"%s\",\"all_to_all_mb_s\":%.1f}\n", argv[4],
			       (double)SIZE_MOST * AT_ONCE * (world - 1) * ROUNDS * 1000 / ns);
	}
	CHECK(ncclDevCommDestroy(comm, &device));
	window_free(comm, out);
	window_free(comm, in);
	leave(comm);
	return 0;
}
