/* SPDX-License-Identifier: Apache-2.0 */
/* One connection as the progress thread sees it: what is posted, what came back, and whether every
 * byte of it is right. Functions run on the progress thread unless they say otherwise. */
#ifndef MPIB_NETPERF_CHAN_H
#define MPIB_NETPERF_CHAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/netperf/call_time.h"
#include "tests/netperf/net.h"
#include "tests/netperf/plan.h"
#include "tests/netperf/pool.h"

#define NP_LATENCIES_MAX 65536u
#define NP_HANDLE_GUARD	 64
#define NP_CHAN_NAME	 48

/* One request that the plugin holds: a send, or a receive of up to NP_RECVS_MAX messages. */
struct np_req {
	void *request;
	unsigned int n;
	struct np_message message[NP_RECVS_MAX];
	unsigned int slot[NP_RECVS_MAX];
	bool no_sizes; /* test gets NULL */
	bool optional; /* posted as one whose completion isn't needed */
	bool returned; /* the plugin has handed it back; its bytes are still awaited (optional) */
	double posted_at;
};

struct np_chan {
	unsigned int id; /* equal on both ends: 2 * comm + (1 where the listener sends) */
	bool send;
	void *listen_comm; /* service thread */
	void *comm;	   /* NULL until connected */
	/* NCCL's handle buffer with a guard band on either side */
	unsigned char handle[NP_HANDLE_GUARD + NCCL_NET_HANDLE_MAXSIZE + NP_HANDLE_GUARD];

	/* the stage; set by the service thread while the progress thread is idle */
	const struct np_stage *stage;
	uint64_t seed;
	struct np_pool pool;
	struct np_req *reqs; /* req_count of them */
	unsigned int req_count;
	unsigned int *order; /* indices of those in use, oldest first, then of the free ones */
	unsigned int used;
	uint64_t *slot_message; /* light: the latest message of each slot */
	bool prepared;		/* a request is filled in but not taken by the plugin yet */
	struct np_req next;
	struct np_group group;
	unsigned int group_pos; /* sender: sends of the group that are posted */
	uint64_t group_number;
	uint64_t planned; /* messages in groups up to and with this one */

	/* written by the progress thread, read by the main one */
	_Atomic uint64_t posted; /* messages */
	_Atomic uint64_t done;
	_Atomic uint64_t bytes;
	_Atomic uint64_t target; /* written by the main thread */

	double *latencies; /* seconds from isend to done; NULL: not asked for */
	uint64_t latency_count;

	bool time_calls; /* set by the service thread before the stage */
	struct np_call_time calls[NP_CALL_MAX];
};

/* Service thread: buffers and registration for @stage; 0, -ENOMEM, or -EIO after np_error. */
int np_chan_open(struct np_chan *chan, struct np_net *net, const struct np_stage *stage,
		 uint64_t seed, bool latencies);

/* Service thread: the reverse; also takes a half-open one. */
void np_chan_close(struct np_chan *chan, struct np_net *net);

/* Posts what fits and tests what is out. 1: something moved, 0: nothing did, -EIO: the plugin
 * failed or lied, told by np_error. *ret_call names the failing call, *ret_result what it
 * returned (ncclSuccess: it returned well, but what it did was wrong). */
int np_chan_progress(struct np_chan *chan, struct np_net *net, bool post, const char **ret_call,
		     ncclResult_t *ret_result);

/* After both ends are done: every band whole, nothing written late. False after np_error. */
bool np_chan_check_end(struct np_chan *chan);

/* "comm 0 connector's send", for messages; @buf holds NP_CHAN_NAME bytes. */
const char *np_chan_name(const struct np_chan *chan, char *buf);

/* Tells on stderr what is out; the progress thread must be idle. */
void np_chan_dump(const struct np_chan *chan);

#endif
