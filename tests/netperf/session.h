/* SPDX-License-Identifier: Apache-2.0 */
/* One run between two drivers, from the first byte of the control connection to the verdict. The
 * main thread owns it; workers do the plugin's calls. */
#ifndef MPIB_NETPERF_SESSION_H
#define MPIB_NETPERF_SESSION_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "chan.h"
#include "ctl.h"
#include "engine.h"
#include "net.h"
#include "options.h"
#include "plan.h"
#include "worker.h"

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
	bool listener;
	bool ctl_gone; /* expected: the peer may be the fault */

	struct np_worker init, service, progress;
	bool init_done; /* finalize is due */
	int devices;
	struct np_props props;
	unsigned int max_recvs; /* the smaller of both ends */

	struct np_chan *chans;
	unsigned int count;
	struct np_engine engine;
	struct np_stage stages[NP_STAGES_MAX];
	unsigned int stage_count;
	struct np_stage stage; /* the current one */

	/* of the service thread's jobs */
	_Atomic bool service_stop;
	_Atomic uint64_t service_ticks; /* moves while connections come up */
	int job_result;
	double connect_max_s, accept_max_s; /* longest single call */

	/* watchdog, main thread */
	uint64_t tick_seen;
	double tick_at;
	bool watch; /* a standstill counts */

	/* messages of the peer, by type: how many wait, and the body of the latest */
	struct {
		unsigned int waiting;
		unsigned char *body;
		uint32_t len;
	} inbox[NP_CTL_TYPE_MAX];

	bool expected_seen; /* --expect-error: it came */
	double expected_after_s, expected_since_progress_s;
	double data_at; /* the data phase began */
	int result;	/* 0 or the first negative errno */

	/* bw figures for the result */
	double seconds, cpu_s;
	uint64_t tx_bytes, rx_bytes, messages;
	double lat_p50_us, lat_p99_us; /* 0: none */
	char *counters;		       /* JSON array sampled before close, or NULL */
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
