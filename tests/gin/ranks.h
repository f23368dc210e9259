/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the tables of device-initiated communication as NCCL does: ranks in processes of their
 * own, on nodes in turn, with a proxy thread each. The program knows nothing of the fabric. */
#ifndef MPIB_TESTS_GIN_RANKS_H
#define MPIB_TESTS_GIN_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin/base/nccl_gin_abi.h"

#define RANKS_MAX 64
#define SIGNALS	  1024 /* words of the window for signals */
#define DEPTH	  32   /* requests to one rank that NCCL has under way */
#define GUARD	  256  /* bytes on each side of a window that nobody may write to */

/* An assertion that every build keeps; the rank ends with the place, and the run fails. */
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "rank %d: %s:%d: %s is false\n", rank, __FILE__,     \
				      __LINE__, #cond);                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Memory that a rank has registered with a mesh. */
struct window {
	uint8_t *at, *pages;
	size_t size, pages_size;
	void *mhandle; /* ends the registration */
	void *handle;  /* names it in puts, signals, gets and flushes, as code on the device does */
};

struct mesh {
	void *ctx, *listener, *coll;
	char handle[NCCL_NET_HANDLE_MAXSIZE]; /* of a mesh that a case sets up itself */
	struct window data, signals;
};

extern int rank, ranks;
extern const struct mpib_nccl_gin_v11 *table;
extern atomic_uint warnings; /* lines that the plugin logged as such in this rank */
extern char warned[4096];    /* the first of them, a line each */
/* A copy of it, for one thread, while the plugin may log. */
const char *warned_text(void);

/* Of the tables that have gets; NULL where TABLE names another one. */
extern mpib_nccl_gin_iget_v13 *table_get; /* its first two arguments: coll, and any number */
extern mpib_nccl_gin_iflush_v13 *table_flush;
/* tables.c: that of the library which the variable TABLE names, v11 to v13, rma14 or rma15, in the
 * form of v11. */
const struct mpib_nccl_gin_v11 *table_find(void *library);

/* A context of the mesh, of tables after v11. */
ncclResult_t table_contexts(void *coll, int contexts, void **ctx);

/* All ranks have come this far. */
void barrier(void);
/* What all ranks can see: a word each, and one of all. */
_Atomic uint64_t *shared_word(int of_rank);

void table_load(void);
void table_init(struct mesh *mesh);
/* Listens, and tells the handle to all. */
void mesh_listen(struct mesh *mesh);
ncclResult_t mesh_connect(struct mesh *mesh);
/* A window of @size bytes between guards. */
ncclResult_t window_open(struct mesh *mesh, struct window *window, size_t size, uint64_t flags);
void window_close(struct mesh *mesh, struct window *window);
/* init, listen, connect and two windows; CHECKs that it works. */
void mesh_open(struct mesh *mesh, size_t data_size);
void mesh_close(struct mesh *mesh);

/* A request until it is done. */
void await(struct mesh *mesh, void *request);
/* The same within @ms; false: not done. */
bool await_for(struct mesh *mesh, void *request, unsigned int ms);
/* Waits until the signal @index is @value at least. */
void await_signal(struct mesh *mesh, size_t index, uint64_t value);
uint64_t signal_value(const struct mesh *mesh, size_t index);

/* Puts @size bytes, at the same offset on both sides, and adds to a signal; one request. */
void *put(struct mesh *mesh, int to, uint64_t offset, size_t size);
void *put_signal(struct mesh *mesh, int to, uint64_t offset, size_t size, size_t index,
		 uint64_t value);

void fill(uint8_t *at, size_t size, uint64_t seed);
bool holds(const uint8_t *at, size_t size, uint64_t seed);
uint64_t clock_ms(void);

struct gin_case {
	const char *name;
	void (*run)(void);
	bool dies; /* ranks other than 0 may end by a signal */
};

extern const struct gin_case data_cases[], bad_cases[], get_cases[], cost_cases[], lost_cases[];

#endif
