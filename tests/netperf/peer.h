/* SPDX-License-Identifier: Apache-2.0 */
/* How the two drivers meet, before either opens a device. What is waited for is said, with the
 * bound and with each new reason. */
#ifndef MPIB_NETPERF_PEER_H
#define MPIB_NETPERF_PEER_H

#include "tests/netperf/ctl.h"
#include "tests/netperf/net.h"
#include "tests/netperf/options.h"

/* Connecting side: finds the listener, hands the options over, and waits until it has time for
 * this run. 0, or an exit code after np_error. */
int np_peer_connect(const struct np_options *opts, const struct np_net *net, struct np_ctl *ctl);

/* Listener: reads a caller's options on top of @opts, takes the table that it names, and says that
 * the run begins. 0, or a negative errno after a line; a caller that is a driver hears why. */
int np_peer_accept(struct np_options *opts, struct np_net *net, struct np_ctl *ctl);

/* For np_ctl_accept: ends the wait at a signal. */
int np_peer_idle(void *arg);

#endif
