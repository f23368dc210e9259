/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that don't belong: they need no plugin, only a TCP port. */
#ifndef MPIB_NETPERF_STRANGER_H
#define MPIB_NETPERF_STRANGER_H

/* "stranger" and "fakelisten" with their arguments; an exit code. */
int np_stranger_main(int argc, char **argv);
int np_fakelisten_main(int argc, char **argv);

#endif
