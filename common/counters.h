/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plugin counts, per connection and rail, and where a reader finds it: a memfd named
 * MPIB_COUNTERS_NAME in the process (look for "/memfd:mpib-counters" among /proc/PID/fd), a header
 * and an array of entries. Each number has one writer, the thread that drives the connection, and
 * only grows while the entry is live; readers load it relaxed and may see one message's numbers
 * half way. An entry is reused after its connection closed.
 */
#ifndef MPIB_COMMON_COUNTERS_H
#define MPIB_COMMON_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#define MPIB_COUNTERS_NAME    "mpib-counters"
#define MPIB_COUNTERS_MAGIC   0x4D504943u
#define MPIB_COUNTERS_VERSION 1u
#define MPIB_COUNTERS_ENTRIES 4096u

/* Numbers that came later stand in what used to be padding, always zero: a reader shows them only
 * where the header's features say that the writer keeps them. */
#define MPIB_COUNTERS_HAVE_FAILOVER 1u /* rails_up, losses, returns, parts_again */
#define MPIB_COUNTERS_HAVE_BUSY	    4u /* speed, chained, timed, latest, busy, apart; 2 isn't used */

enum mpib_counter_state {
	MPIB_COUNTER_FREE = 0,
	MPIB_COUNTER_LIVE = 1,
};

enum mpib_counter_kind {
	MPIB_COUNTER_SEND = 1,
	MPIB_COUNTER_RECV = 2,
	/* Puts, signals and gets between two ranks of a mesh (device-initiated communication). Its
	 * entry counts what this end begins, since the other end's memory is written and read
	 * without this plugin there: `bytes` and `requests` of puts, in `cts` the bytes that gets
	 * asked for, `messages` puts with and without data. Its times are a sender's, and its
	 * `completions` are kept with them, of puts, and late rather than early. */
	MPIB_COUNTER_GIN = 3,
};

struct mpib_counters_header {
	uint32_t magic;	       /* MPIB_COUNTERS_MAGIC, written last */
	uint32_t version;      /* MPIB_COUNTERS_VERSION */
	uint32_t entries;      /* entries that follow */
	uint32_t entry_size;   /* bytes of each: step by this, not by your own sizeof */
	uint32_t pid;	       /* of the writer, in its own pid namespace */
	uint32_t features;     /* MPIB_COUNTERS_HAVE_*: numbers that it keeps */
	uint32_t ticks_per_ms; /* of busy times; written before any entry is timed */
	uint32_t pad[9];
};

/* Index 0 is SOUT, 1 is SUP. */
struct mpib_counter_rail {
	uint64_t bytes;	      /* payload: posted by a sender, arrived at a receiver */
	uint64_t requests;    /* data work requests posted (sender), immediates seen (receiver) */
	uint64_t completions; /* completions polled, of any kind */
	uint64_t cts; /* receiver: clear-to-send writes posted; mesh: bytes gets asked for */
};

struct mpib_counter_entry {
	uint32_t state;	     /* enum mpib_counter_state; written last, with release */
	uint32_t kind;	     /* enum mpib_counter_kind */
	uint32_t conn_id;    /* as registered with the agent; 0 in vanilla mode */
	uint32_t mode;	     /* 0 vanilla, 1 advanced */
	uint32_t path;	     /* 0 intra-island, 1 inter-island */
	uint32_t sout_local; /* addresses, network order */
	uint32_t sout_remote;
	uint32_t qps[2]; /* QPs that exist on each rail */
	uint32_t share;	 /* the share of the latest message, 0..1024 (sender) */
	/* Rails in use, a bit each: 1 SOUT, 2 SUP. A lost rail has none until it is back. */
	uint32_t rails_up;
	/* Sender: how often it began to keep `latest`, `busy` and `apart`, 0: it doesn't. It does
	 * while the flow's hint says so (common/hint.h). Written last, with release. */
	uint32_t timed;
	uint32_t speed[2]; /* of each rail's port, Mbit/s; 0: not known */
	/* Sender, modulo 2^32: by how many `requests` are more than completions that were or will
	 * be polled. */
	uint32_t chained[2];
	struct mpib_counter_rail rail[2];
	uint64_t messages;   /* sends posted, or receives completed (each entry of a group) */
	uint64_t stalls;     /* sender: calls answered "not now" for want of a CTS */
	uint64_t flushes;    /* receiver: flushes posted, one or two reads each */
	uint64_t losses[2];  /* times that each rail was lost */
	uint64_t returns[2]; /* times that it came back */
	/* Sender: parts of messages that went again on the other rail, by the lost rail. */
	uint64_t parts_again[2];
	/* Timed sender, by rail, in spans: one begins with a message that takes both rails, and
	 * ends when nothing is under way on the rail. */
	uint64_t latest[2]; /* the clock when the latest span began, or at a completion since */
	/* Twice the ticks of all spans. While one goes on they are short of `latest`, and bit 0 is
	 * set: see mpib_counter_busy(). Written after `latest`, with release. */
	uint64_t busy[2];
	uint64_t apart[2]; /* of `bytes`, those posted while no span went on; written before them */
	uint64_t pad1[1];
};

/* Ticks that a rail was busy, up to the latest completion, as `busy` and then `latest` were read.
 */
static inline uint64_t mpib_counter_busy(uint64_t busy, uint64_t latest)
{
	return (busy & 1 ? busy - 1 + 2 * latest : busy) >> 1;
}

_Static_assert(sizeof(struct mpib_counters_header) == 64, "one cache line");
_Static_assert(sizeof(struct mpib_counter_rail) == 32, "half a cache line");
_Static_assert(offsetof(struct mpib_counter_entry, rail) == 64, "data in the second line");
_Static_assert(sizeof(struct mpib_counter_entry) == 256, "four cache lines");

#define MPIB_COUNTERS_SIZE                                                                         \
	(sizeof(struct mpib_counters_header) +                                                     \
	 (size_t)MPIB_COUNTERS_ENTRIES * sizeof(struct mpib_counter_entry))

#endif
