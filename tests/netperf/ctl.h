/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connection between the two drivers: what NCCL's bootstrap is to NCCL. Carries options,
 * handles and agreement, never data. Main thread only. */
#ifndef MPIB_NETPERF_CTL_H
#define MPIB_NETPERF_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2: START. */
#define NP_CTL_VERSION	   2u
#define NP_CTL_PAYLOAD_MAX (256u << 10)

enum np_ctl_type {
	NP_CTL_HELLO = 1, /* options, as text */
	NP_CTL_WELCOME,	  /* struct np_welcome */
	NP_CTL_HANDLES,	  /* one handle a connection that the sender accepts */
	NP_CTL_READY,	  /* all connected; also the barrier between stages */
	NP_CTL_FREEZE,	  /* post nothing new and tell your counts */
	NP_CTL_COUNTS,	  /* u64 a channel */
	NP_CTL_TARGETS,	  /* u64 a channel: go on up to here */
	NP_CTL_VERDICT,	  /* u32 errors, then text */
	NP_CTL_ABORT,	  /* text: this side failed, give up */
	NP_CTL_START,	  /* the listener has time for this peer: both open their devices */
	NP_CTL_TYPE_MAX,
};

struct np_ctl {
	int fd;
	char peer[64];	       /* for messages */
	char reason[128];      /* why the latest attempt to connect failed */
	char abort_text[1024]; /* of the peer's NP_CTL_ABORT */
	unsigned char head[16];
	size_t head_got, body_got;
	uint32_t type, len;
	unsigned char *body; /* one byte longer than len, and NUL-ended */
};

/* Called while something is waited for; a negative result ends the wait and is returned. */
typedef int (*np_ctl_idle)(void *arg);

/* Listens on @addr (NULL: all) and @port, which may be 0. A descriptor, *ret_port the real port.
 * Waits up to 5 s for a port in use, after a line. */
int np_ctl_listen(const char *addr, uint16_t port, uint16_t *ret_port);

/* Waits for one peer; other callers' nonsense is found out later by np_ctl_wait. */
int np_ctl_accept(struct np_ctl *ctl, int listen_fd, np_ctl_idle idle, void *arg);

/* Keeps trying every address of the host for @timeout_s, as the listener may start later;
 * ctl->reason says what the latest attempt met, also while @idle is called. -EADDRNOTAVAIL at once
 * where the name has no address. */
int np_ctl_connect(struct np_ctl *ctl, const char *host_port, double timeout_s, np_ctl_idle idle,
		   void *arg);
/* Before a close: lets the peer read what was sent last, for a second at most. True where the
 * peer's ABORT came meanwhile (abort_text). */
bool np_ctl_linger(struct np_ctl *ctl);
void np_ctl_close(struct np_ctl *ctl);

/* Sends one message; 0 or negative errno. Bounded by 10 s. */
int np_ctl_send(struct np_ctl *ctl, enum np_ctl_type type, const void *body, size_t len);

/* Looks for a whole message: 1 and ctl->type, ctl->len, ctl->body (good until the next call), 0
 * where there is none yet, -ECONNRESET where the peer closed, -EBADMSG for anything that is not
 * ours, -EPROTONOSUPPORT for another version's, -ECONNABORTED for its ABORT. */
int np_ctl_poll(struct np_ctl *ctl);

/* Waits for a message of @type; -EPROTO for another one, else as np_ctl_poll; @idle sets the
 * bound. */
int np_ctl_wait(struct np_ctl *ctl, enum np_ctl_type type, np_ctl_idle idle, void *arg);

#endif
