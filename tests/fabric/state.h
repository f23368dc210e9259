/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric's shared state: one file in the meeting directory, mapped by every process of the
 * fabric and by fabricctl. It holds the live state of all devices, the table of processes, and a
 * log of one-time events. Everything in it is 32- or 64-bit atomics, so that a process which dies
 * at any instruction leaves nothing locked or torn. */
#ifndef MPIB_FABRIC_STATE_H
#define MPIB_FABRIC_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/fabric/config.h"

#define FAB_PROCS_MAX 256 /* slot 0 is never used, so that no QP number is 0 or 1 */
#define FAB_QPN_BITS  16  /* QP number = slot << 16 | index in the process */
#define FAB_LOG_MAX   256

/* Verbs that can be told to fail or to be slow, by index in fab_state_dev.fail and slow_ns. */
enum fab_verb {
	FAB_VERB_OPEN_DEVICE,
	FAB_VERB_QUERY_DEVICE,
	FAB_VERB_QUERY_PORT,
	FAB_VERB_QUERY_GID,
	FAB_VERB_ALLOC_PD,
	FAB_VERB_DEALLOC_PD,
	FAB_VERB_REG_MR,
	FAB_VERB_DEREG_MR,
	FAB_VERB_CREATE_CQ,
	FAB_VERB_DESTROY_CQ,
	FAB_VERB_CREATE_SRQ,
	FAB_VERB_DESTROY_SRQ,
	FAB_VERB_CREATE_QP,
	FAB_VERB_QUERY_QP,
	FAB_VERB_MODIFY_QP,
	FAB_VERB_DESTROY_QP,
	FAB_VERB_POST_SEND,
	FAB_VERB_POST_RECV,
	FAB_VERB_POST_SRQ_RECV,
	FAB_VERB_POLL_CQ,
	FAB_VERB_REQ_NOTIFY,
	FAB_VERB_MAX,
};

/* "Skip the next @skip calls, then fail @count calls with @error", packed in one atomic word so
 * that claiming a call is one compare-and-swap: skip << 40 | count << 16 | error. */
typedef _Atomic uint64_t fab_fail_word;

struct fab_state_gid {
	_Atomic uint64_t half[2]; /* the 16 bytes, as they lie in memory */
	_Atomic uint32_t type;	  /* enum fab_gid_type */
	uint32_t pad;
};

/* How a device has failed for good. */
enum fab_death {
	FAB_ALIVE,
	FAB_KILLED,  /* a fatal event; what was under way is flushed */
	FAB_REMOVED, /* unplugged: nothing completes any more, and events end after a fatal one */
	FAB_VANISHED /* the same without that event */
};

/* Live state of one device; index as in fab_config.dev. fabricctl writes, processes read, but for
 * the two clocks, which every sender moves on. */
struct fab_state_dev {
	_Atomic uint32_t port_up;
	_Atomic uint32_t dead;	       /* enum fab_death */
	_Atomic uint32_t silent;       /* what it sends is lost, and nobody is told */
	_Atomic uint64_t rate;	       /* bytes a second, 0 = no limit */
	_Atomic uint64_t latency_ns;   /* one way */
	_Atomic uint64_t tx_free_ns;   /* when the wire out is free again, CLOCK_MONOTONIC */
	_Atomic uint64_t rx_free_ns;   /* the wire in */
	_Atomic uint64_t delay_min_ns; /* completions of each QP are held back by a */
	_Atomic uint64_t delay_max_ns; /* random time from this range */
	_Atomic uint32_t delay_seed;   /* start of each QP's random sequence */
	_Atomic uint32_t delay_order;  /* raised by each delay command: sequences start anew */
	_Atomic uint64_t delays;       /* completions held back since that command */
	_Atomic uint64_t delay_digest; /* of their times, whatever order the QPs had */
	_Atomic uint64_t late_ns; /* what is under way when a port goes down comes so much later */
	_Atomic uint64_t late_parts;	     /* parts that came late */
	_Atomic uint64_t unseen_ns;	     /* acknowledged writes become visible so much later */
	_Atomic uint64_t unseen_parts;	     /* parts that did */
	_Atomic uint64_t mistakes;	     /* of programs, see judge.c */
	_Atomic uint64_t cut_left;	     /* requests until the port goes down; 0: it doesn't */
	_Atomic uint64_t down_ns;	     /* when the port went down last, CLOCK_MONOTONIC */
	_Atomic uint64_t tx_bytes, rx_bytes; /* payload moved, all processes of the node */
	_Atomic uint64_t spread_bytes;	     /* of rx_bytes: came by any path */
	fab_fail_word fail[FAB_VERB_MAX];
	_Atomic uint64_t slow_ns[FAB_VERB_MAX]; /* each call takes so much longer */
	struct fab_state_gid gid[FAB_GIDS_MAX];
};

/* A process of the fabric. Its slot is alive while it holds the file lock on byte `slot`. */
struct fab_state_proc {
	_Atomic uint32_t node;	     /* index + 1; 0: the slot was never used */
	_Atomic uint32_t pid;	     /* for people who look */
	_Atomic uint32_t generation; /* raised by each process that takes the slot */
	_Atomic uint32_t armed;	     /* 1: asleep, the next sender must ring */
	_Atomic uint64_t activity;   /* raised by each sender after it has published something */
	uint64_t pad[5];
};

enum fab_log_kind {
	FAB_LOG_NONE,
	FAB_LOG_PORT,	  /* port_up of the device has changed */
	FAB_LOG_GID,	  /* GID table of the device has changed */
	FAB_LOG_DEAD,	  /* the device has died: arg is an enum fab_death */
	FAB_LOG_DROP_QP,  /* arg: QP number that goes to the error state */
	FAB_LOG_SETTINGS, /* a time or rate has changed: look at the timers again */
};

struct fab_state_log {
	_Atomic uint64_t seq; /* 1 + position in the endless log; written last */
	_Atomic uint32_t kind, dev, arg, pad;
};

struct fab_state {
	_Atomic uint32_t magic, version;
	_Atomic uint64_t log_end; /* entries ever added */
	struct fab_config conf;	  /* written once, by the process that made the file */
	struct fab_state_dev dev[FAB_DEVS_MAX];
	struct fab_state_proc proc[FAB_PROCS_MAX];
	struct fab_state_log log[FAB_LOG_MAX];
};

/* An open meeting directory. The descriptor of the state file is never closed while the process
 * takes part: closing any descriptor of it would drop the process's lock. */
struct fab_meeting {
	int dir_fd, state_fd;
	struct fab_state *state;
	uint32_t slot; /* own slot; 0 for an onlooker */
};

/* Reads the configuration that the environment names (MPIB_FABRIC, else the built-in one). */
int fab_env_config(struct fab_config *ret_conf, char *err, size_t err_len);

/* Opens the meeting directory for @conf, makes it if it isn't there. Negative errno. */
int fab_meeting_open(const struct fab_config *conf, struct fab_meeting *ret_meeting);

/* Says why fab_meeting_open() failed with @r, naming the directory; fills and returns @ret_text. */
const char *fab_meeting_error(int r, char *ret_text, size_t size);

/* Takes a free process slot for @node and listens; the listener comes in @ret_listen_fd. */
int fab_meeting_join(struct fab_meeting *meeting, uint32_t node, int *ret_listen_fd);

/* Gives the slot back; the meeting stays open. */
void fab_meeting_leave(struct fab_meeting *meeting);

/* Closes everything. */
void fab_meeting_close(struct fab_meeting *meeting);

/* True while the process of @slot lives. Never call it for one's own slot. */
bool fab_meeting_alive(const struct fab_meeting *meeting, uint32_t slot);

/* Connects to the process of @slot without blocking; the descriptor, or a negative errno. */
int fab_meeting_connect(const struct fab_meeting *meeting, uint32_t slot);

/* Makes the threads of all other processes look at the log, by a visit that wants nothing else. */
void fab_meeting_wake(const struct fab_meeting *meeting);

/* The fabric's clock, in nanoseconds: the same for all its processes. */
uint64_t fab_now(void);

/* Takes a device's port up or down and tells everybody; false where it was so already. */
bool fab_meeting_port(const struct fab_meeting *meeting, uint32_t dev, bool up);

/* Adds to the log; the caller wakes the processes. */
void fab_state_log_add(struct fab_state *state, enum fab_log_kind kind, uint32_t dev, uint32_t arg);

/* Reads and writes one GID entry of the live table. */
void fab_state_gid_get(struct fab_state_dev *dev, unsigned int index, struct fab_gid *ret_gid);
void fab_state_gid_set(struct fab_state_dev *dev, unsigned int index, const struct fab_gid *gid);

/* Name of a verb as fabricctl takes it, or NULL past the end. */
const char *fab_verb_name(unsigned int verb);

#endif
