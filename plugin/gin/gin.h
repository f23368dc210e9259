/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts, signals and gets between all ranks of a communicator: what NCCL's tables for
 * device-initiated communication are adapters of. A struct mpib_gin is a full mesh, NCCL's
 * collComm: a QP to each rank on SOUT, and one on SUP to each rank of the island.
 * docs/architecture.md has why a signal is never seen before its data.
 *
 * connect, the registrations and close are a service thread's, and block for a bounded time; put,
 * get, flush, test and progress are those of one progress thread, and never do. Negative errno,
 * with one warning.
 */
#ifndef MPIB_PLUGIN_GIN_H
#define MPIB_PLUGIN_GIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/verbs/hca.h"

struct mpib_gin;
struct mpib_gin_context; /* requests of a mesh; NCCL's ginCtx */
struct mpib_gin_window;	 /* memory that all ranks have registered together */
struct mpib_gin_request; /* of one put, get or flush, until test says that it is done */
struct mpib_listener;

/* Requests to one rank that may be under way, a context; NCCL's queue is as long for maxRecvs 1. */
#define MPIB_GIN_DEPTH 32u

/* Whether the device can take part: 0, or -EOPNOTSUPP with one line where SOUT has no atomics, or
 * GPU memory can't be registered. */
int mpib_gin_supported(struct mpib_device *dev);

/* By all ranks, each with the handles of all of them, in the order of ranks. */
int mpib_gin_connect(struct mpib_listener *listener, void *const *handles, int nranks, int rank,
		     int queues, struct mpib_gin **ret);
/* A context with requests for @queues queues of MPIB_GIN_DEPTH to each rank; the mesh has one from
 * its start. Of one context only one thread at a time may use requests, of one mesh only one in
 * all. */
int mpib_gin_context_new(struct mpib_gin *gin, int queues, struct mpib_gin_context **ret);
struct mpib_gin_context *mpib_gin_own_context(struct mpib_gin *gin);
struct mpib_gin *mpib_gin_of(const struct mpib_gin_context *context);
/* Where requests are under way it stays until the mesh closes. */
void mpib_gin_context_free(struct mpib_gin_context *context);
/* Waits up to a second for the others to close too; NULL is fine. Windows that are left go, too. */
void mpib_gin_close(struct mpib_gin *gin);
/* Those that NCCL dropped. */
void mpib_gin_close_all(void);
bool mpib_gin_any(void); /* whether there are meshes */
/* In a forked child: closes its copies of the sockets, and every call fails. */
void mpib_gin_fork_child(void);

/* What is registered: host or device memory; with @fd >= 0 a DMA-BUF, of which @addr is only the
 * name of its first byte. */
struct mpib_gin_memory {
	void *addr;
	size_t size;
	bool strict; /* strictly ordered: signals are in it */
	bool device;
	uint64_t offset;
	int fd;
};

/* By all ranks, in the same order; each rank's memory may be of another size. */
int mpib_gin_register(struct mpib_gin *gin, const struct mpib_gin_memory *memory,
		      struct mpib_gin_window **ret);
int mpib_gin_deregister(struct mpib_gin *gin, struct mpib_gin_window *window);

/* Bytes of a window: of this rank's memory, or of another one's. */
struct mpib_gin_at {
	struct mpib_gin_window *window;
	uint64_t offset;
};

/* A put of @size bytes to @rank; 0 bytes need no windows. */
int mpib_gin_put(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
		 struct mpib_gin_at to, uint32_t rank, struct mpib_gin_request **ret);
/* The same, and then @value is added to the 8 bytes at @signal of @rank: whoever sees that sees all
 * bytes of this put, and of all earlier ones to the same rank. */
int mpib_gin_put_signal(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
			struct mpib_gin_at to, uint32_t rank, struct mpib_gin_at signal,
			uint64_t value, struct mpib_gin_request **ret);
int mpib_gin_get(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
		 struct mpib_gin_at to, uint32_t rank, struct mpib_gin_request **ret);
/* Done once all that this rank has put into @window of @rank can be seen there; with the own rank,
 * all that its gets have brought. */
int mpib_gin_flush(struct mpib_gin_context *context, struct mpib_gin_window *window, uint32_t rank,
		   struct mpib_gin_request **ret);

/* True: done, and the request is given back. A request that failed is never done. */
bool mpib_gin_test(struct mpib_gin *gin, struct mpib_gin_request *request);
void mpib_gin_progress(struct mpib_gin *gin);
/* Whether nothing works any more. */
bool mpib_gin_failed(const struct mpib_gin *gin);

#endif
