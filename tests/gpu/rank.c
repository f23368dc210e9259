/* SPDX-License-Identifier: Apache-2.0 */
/* Start of a rank: `rank RANK WORLD FOLDER TEST [ARGUMENT…]`. Exit status 0: all results right. */
#include "tests/gpu/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/netperf/counters.h"

#define MEET_SECONDS 60

void cuda_check(cudaError_t r, const char *what)
{
	if (r == cudaSuccess)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(r));
	_exit(1);
}

void nccl_check(ncclResult_t r, const char *what)
{
	if (r == ncclSuccess)
		return;
	(void)fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(r), ncclGetLastError(NULL));
	_exit(1);
}

double now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void share_id(const char *path, const ncclUniqueId *id)
{
	char part[600];
	FILE *file;

	(void)snprintf(part, sizeof(part), "%s.part", path);
	file = fopen(part, "wb");
	if (!file || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) || rename(part, path)) {
		perror(path);
		_exit(1);
	}
}

static void find_id(const char *path, ncclUniqueId *ret)
{
	double until = now_us() + MEET_SECONDS * 1e6;
	FILE *file;

	while (!(file = fopen(path, "rb"))) {
		if (now_us() > until) {
			(void)fprintf(stderr, "%s: rank 0 didn't come\n", path);
			_exit(1);
		}
		(void)usleep(2000);
	}
	if (fread(ret, sizeof(*ret), 1, file) != 1) {
		(void)fprintf(stderr, "%s: short\n", path);
		_exit(1);
	}
	(void)fclose(file);
}

ncclComm_t rank_comm(const struct rank *self, const char *name)
{
	char path[512];
	ncclUniqueId id;
	ncclComm_t comm;

	(void)snprintf(path, sizeof(path), "%s/id.%s", self->folder, name);
	if (self->rank == 0) {
		NCCL(ncclGetUniqueId(&id));
		share_id(path, &id);
	} else {
		find_id(path, &id);
	}
	NCCL(ncclCommInitRank(&comm, self->world, id, self->rank));
	return comm;
}

void rank_counters(const struct rank *self)
{
	struct np_counters counters;
	char *text;

	if (!np_counters_open(&counters))
		return;
	text = np_counters_text(&counters);
	if (text)
		printf("{\"rank\":%d,\"connections\":[%s]}\n", self->rank, text);
	free(text);
	np_counters_close(&counters);
}

static int run(struct rank *self, int argc, char **argv)
{
	const char *test = argv[0];

	if (!strcmp(test, "collectives"))
		return collectives_run(self, argc > 1 ? strtoull(argv[1], NULL, 0) : 1 << 20);
	if (!strcmp(test, "bench") && argc == 4)
		return bench_run(self, argv[1], strtoull(argv[2], NULL, 0),
				 strtoull(argv[3], NULL, 0));
	return cases_run(self, test, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	struct rank self;
	int gpus, version, wrong;

	if (argc < 5) {
		(void)fprintf(stderr, "usage: %s RANK WORLD FOLDER TEST [ARGUMENT...]\n", argv[0]);
		return 2;
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	self.rank = atoi(argv[1]);
	self.world = atoi(argv[2]);
	self.folder = argv[3];
	CUDA(cudaGetDeviceCount(&gpus));
	CUDA(cudaSetDevice(self.rank % gpus));
	CUDA(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
	NCCL(ncclGetVersion(&version));
	if (self.rank == 0)
		printf("NCCL version %d\n", version);
	self.comm = rank_comm(&self, "world");
	wrong = run(&self, argc - 4, argv + 4);
	CUDA(cudaStreamSynchronize(self.stream));
	rank_counters(&self);
	NCCL(ncclCommDestroy(self.comm));
	CUDA(cudaStreamDestroy(self.stream));
	printf("rank %d: %d wrong\n", self.rank, wrong);
	return wrong ? 1 : 0;
}
