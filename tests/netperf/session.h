/* SPDX-License-Identifier: Apache-2.0 */
/* One run between two drivers, from the first byte of the control connection to the verdict. The
 * main thread owns it; workers do the plugin's calls. */
#ifndef MPIB_NETPERF_SESSION_H
#define MPIB_NETPERF_SESSION_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/netperf/chan.h"
#include "tests/netperf/counters.h"
#include "tests/netperf/ctl.h"
#include "tests/netperf/engine.h"
#include "tests/netperf/net.h"
#include "tests/netperf/options.h"
#include "tests/netperf/plan.h"
#include "tests/netperf/worker.h"

/* Exit codes. */
enum np_exit {
	NP_EXIT_OK = 0,
	NP_EXIT_FAILED = 1,
	NP_EXIT_USAGE = 2,
	NP_EXIT_TIMEOUT = 3,
};

struct np_session {
	struct np_options opts;
	struct np_net *net;
	struct np_ctl ctl;

	struct np_worker init, service, progress;
	struct np_props props;

	struct np_chan *chans;
	struct np_engine engine;
	struct np_stage stages[NP_STAGES_MAX];
	struct np_stage stage; /* the current one */

	_Atomic uint64_t service_ticks;	    /* moves while connections come up */
	double connect_max_s, accept_max_s; /* longest single call */

	/* watchdog, main thread */
	uint64_t tick_seen;
	double tick_at;

	/* messages of the peer, by type: how many wait, and the body of the latest */
	struct {
		unsigned char *body;
		uint32_t len;
		unsigned int waiting;
	} inbox[NP_CTL_TYPE_MAX];

	double data_at; /* the data phase began */
	/* --expect-error: how long it took */
	double expected_after_s, expected_since_progress_s;

	/* figures for the result */
	double seconds, cpu_s;
	uint64_t tx_bytes, rx_bytes, messages;
	double lat_p50_us, lat_p99_us; /* 0: none */
	struct np_call_time calls[NP_CALL_MAX];
	char *counters; /* inside of a JSON array, sampled before close, or NULL */
	uint64_t rail_sent[2],
		rail_received[2]; /* bytes by the plugin's counters, where it has some */
	struct np_failover failover;
	bool failover_known; /* the plugin counts losses */

	int devices;
	unsigned int max_recvs;	  /* the smaller of both ends */
	unsigned int count;	  /* of chans */
	unsigned int stage_count; /* ended well */
	int job_result;		  /* of the service or init thread's latest job */
	int result;		  /* 0 or the first negative errno */

	_Atomic bool service_stop; /* ends the service thread's job */
	bool listener;
	bool ctl_gone;	    /* with --expect-error: the peer may be the fault */
	bool init_done;	    /* finalize is due */
	bool watch;	    /* a standstill counts */
	bool expected_seen; /* --expect-error: it came */
};

/* Set by the signal handler. */
extern volatile sig_atomic_t np_signal;

/* Runs a session on @ctl, which it takes over, prints the result, and gives the exit code. */
int np_session_run(const struct np_options *opts, struct np_net *net, struct np_ctl *ctl,
		   bool listener);

/* For the other files of the session: */

/* Looks at signals, the peer and the watchdog; 0, -EINTR, -ETIMEDOUT, -ECONNABORTED (the peer gave
 * up), -ECONNRESET, -EBADMSG. */
int np_session_poll(struct np_session *s);

/* Runs a job on a worker to its end or to an error of np_session_poll. */
int np_session_job(struct np_session *s, struct np_worker *worker, void (*job)(void *arg),
		   void *arg);

/* Waits for a message of @type; the body stays in the inbox until the next of its type. */
int np_session_wait(struct np_session *s, enum np_ctl_type type);

/* Both ends have come this far. */
int np_session_barrier(struct np_session *s);

/* setup.c: welcome, init, listen, connect. 0 or negative errno after np_error. */
int np_session_setup(struct np_session *s);
/* setup.c: closes everything that is open; a worker that hangs ends the process with @code. */
void np_session_teardown(struct np_session *s, int code);

/* stage.c: one stage on all connections. */
int np_session_stage(struct np_session *s, const struct np_stage *stage);

/* report.c */
void np_report_connected(struct np_session *s);
void np_report_interval(struct np_session *s, double since, uint64_t *bytes, uint64_t *rails);
void np_report_result(struct np_session *s, bool ok);
void np_report_outstanding(struct np_session *s);

#endif
