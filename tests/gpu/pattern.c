/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of known content. Made and compared on the host, so that no kernel of ours is trusted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/rank.h"

#define PERIOD	    13
#define BLOCK	    ((size_t)PERIOD * 80000) /* elements copied at once */
#define TYPE_WIDEST 8

size_t type_size(enum rank_type type)
{
	return type == TYPE_FLOAT ? 4 : type == TYPE_BF16 ? 2 : 8;
}

ncclDataType_t type_nccl(enum rank_type type)
{
	return type == TYPE_FLOAT ? ncclFloat32 : type == TYPE_BF16 ? ncclBfloat16 : ncclInt64;
}

const char *type_name(enum rank_type type)
{
	return type == TYPE_FLOAT ? "fp32" : type == TYPE_BF16 ? "bf16" : "int64";
}

static void put(void *at, enum rank_type type, size_t n, int value)
{
	float real = (float)value;
	uint32_t bits;

	memcpy(&bits, &real, sizeof(bits));
	if (type == TYPE_FLOAT)
		((float *)at)[n] = real;
	else if (type == TYPE_BF16)
		((uint16_t *)at)[n] = (uint16_t)(bits >> 16); /* exact: 8 bits of mantissa */
	else
		((int64_t *)at)[n] = value;
}

static void *block(enum rank_type type, size_t count, int factor, int plus)
{
	size_t len = count < BLOCK ? count : BLOCK;
	void *host = malloc(len * type_size(type) + 1);

	if (!host) {
		perror("malloc");
		exit(1);
	}
	for (size_t n = 0; n < len; n++)
		put(host, type, n, factor * (int)(n % PERIOD) + plus);
	return host;
}

void pattern_fill(void *device, enum rank_type type, size_t count, int factor, int plus)
{
	void *host = block(type, count, factor, plus);

	for (size_t at = 0; at < count; at += BLOCK) {
		size_t len = count - at < BLOCK ? count - at : BLOCK;

		CUDA(cudaMemcpy((char *)device + at * type_size(type), host, len * type_size(type),
				cudaMemcpyHostToDevice));
	}
	CUDA(cudaDeviceSynchronize());
	free(host);
}

bool pattern_check(const char *what, const void *device, enum rank_type type, size_t count,
		   int factor, int plus)
{
	void *want = block(type, count, factor, plus);
	void *got = malloc(BLOCK * TYPE_WIDEST);
	bool ok = true;

	if (!got) {
		perror("malloc");
		exit(1);
	}
	for (size_t at = 0; ok && at < count; at += BLOCK) {
		size_t len = count - at < BLOCK ? count - at : BLOCK;

		CUDA(cudaMemcpy(got, (const char *)device + at * type_size(type),
				len * type_size(type), cudaMemcpyDeviceToHost));
		ok = memcmp(got, want, len * type_size(type)) == 0;
		if (!ok)
			printf("WRONG %s %s, %zu elements: among those from %zu on\n", what,
			       type_name(type), count, at);
	}
	free(want);
	free(got);
	return ok;
}
