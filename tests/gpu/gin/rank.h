// SPDX-License-Identifier: Apache-2.0
// What programs of one process a rank have in common: checks, and the id that the first rank gives
// to all.
#ifndef MPIB_TESTS_GPU_GIN_RANK_H
#define MPIB_TESTS_GPU_GIN_RANK_H

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "cuda_runtime.h"
#include "nccl.h"

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

// The rank's communicator and GPU.
static ncclComm_t join(const char *folder, int world)
{
	int devices = 0;
	ncclComm_t comm;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(cudaGetDeviceCount(&devices));
	CHECK(devices < 1);
	CHECK(cudaSetDevice(rank % devices));
	CHECK(ncclCommInitRank(&comm, world, unique_id(folder), rank));
	return comm;
}

// Memory that all ranks have registered, zeroed.
struct window {
	void *at;
	ncclWindow_t handle;
};

static struct window window_new(ncclComm_t comm, size_t bytes)
{
	struct window window;

	CHECK(ncclMemAlloc(&window.at, bytes));
	CHECK(cudaMemset(window.at, 0, bytes));
	CHECK(ncclCommWindowRegister(comm, window.at, bytes, &window.handle,
				     NCCL_WIN_COLL_SYMMETRIC));
	return window;
}

static void window_free(ncclComm_t comm, struct window window)
{
	CHECK(ncclCommWindowDeregister(comm, window.handle));
	CHECK(ncclMemFree(window.at));
}

static void leave(ncclComm_t comm)
{
	CHECK(ncclCommFinalize(comm));
	CHECK(ncclCommDestroy(comm));
}

#endif
