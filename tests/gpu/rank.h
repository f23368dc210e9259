/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of an NCCL job: a process with one GPU. `tests/gpu/run` starts the ranks. */
#ifndef MPIB_GPU_RANK_H
#define MPIB_GPU_RANK_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* A call that must work; otherwise a line that names it, and exit status 1. */
#define CUDA(call) cuda_check(call, #call)
#define NCCL(call) nccl_check(call, #call)

/* Exit status of a rank that saw its communicator fail, as tests of faults want it. */
#define EXIT_COMM_FAILED 3

struct rank {
	int rank, world;
	const char *folder; /* where the ranks of a job meet */
	ncclComm_t comm;
	cudaStream_t stream;
};

enum rank_type { TYPE_FLOAT, TYPE_BF16, TYPE_INT64, TYPES };

void cuda_check(cudaError_t r, const char *what);
void nccl_check(ncclResult_t r, const char *what);
double now_us(void);

/* A communicator of all ranks; @name tells those of one job apart. */
ncclComm_t rank_comm(const struct rank *self, const char *name);
/* Prints the plugin's live counters as one JSON line, if it publishes any. */
void rank_counters(const struct rank *self);

size_t type_size(enum rank_type type);
ncclDataType_t type_nccl(enum rank_type type);
const char *type_name(enum rank_type type);
/* Element i becomes factor * (i % PERIOD) + plus: exact in every type while below 256. */
void pattern_fill(void *device, enum rank_type type, size_t count, int factor, int plus);
/* False, with a line, where an element differs. */
bool pattern_check(const char *what, const void *device, enum rank_type type, size_t count,
		   int factor, int plus);

/* Each returns the number of wrong results. */
int collectives_run(struct rank *self, size_t max_bytes);
int cases_run(struct rank *self, const char *name, int argc, char **argv);
int bench_run(struct rank *self, const char *op, size_t from, size_t to);

#endif
