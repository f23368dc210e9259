/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the loopback plugin. The wire: on one TCP connection, the receiver sends one 32-bit word a
 * posted group (how many messages it may take), the sender sends headers and bytes. A send waits
 * for such credit, as it does for a clear-to-send on RDMA. */
#ifndef MPIB_NETPERF_LOOPBACK_IMPL_H
#define MPIB_NETPERF_LOOPBACK_IMPL_H

#include <stdbool.h>

#include "tests/netperf/loopback.h"

#define LB_MAGIC    0x6c6f6f70u
#define LB_REQUESTS 256

struct header {
	uint32_t magic;
	int32_t tag;
	uint64_t size;
};

struct conn;

struct entry {
	char *data;
	size_t room, size, got;
	int tag;
	bool matched;
};

struct request {
	struct conn *conn;
	bool used, done, zombie, faulty;
	unsigned int n, matched, finished;
	size_t head_sent; /* sender: bytes of the header that are out */
	struct entry entry[LB_MAX_RECVS];
};

struct conn {
	int fd;
	bool send;
	ncclResult_t broken;
	struct request request[LB_REQUESTS];
	struct request *queue[LB_REQUESTS]; /* posted and not finished, oldest first */
	unsigned int queued;
	uint64_t messages; /* finished, for the faults */
	/* sender */
	uint64_t credit;
	/* receiver */
	unsigned char head[sizeof(struct header)];
	size_t head_got;
	struct request *into;
	struct entry *into_entry;
	uint32_t owed[LB_REQUESTS]; /* credit words that aren't out yet */
	unsigned int owed_count;
	size_t owed_sent;
	char *late; /* where LB_LATE strikes */
	/* both, credit or hello words in pieces */
	unsigned char word[8];
	size_t word_got;
};

struct region {
	char *data;
	size_t size;
};

/* NCCL's logger, as given to init. */
extern ncclDebugLogger_t lb_logger;

#define LB_WARN(...)                                                                               \
	lb_logger(NCCL_LOG_WARN, NCCL_ALL, __FILE__, __LINE__, "Loopback: " __VA_ARGS__)

#endif
