/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP ports on which this process, the plugin included, listens. */
#ifndef MPIB_NETPERF_PORTS_H
#define MPIB_NETPERF_PORTS_H

#include <stddef.h>
#include <stdint.h>

/* Fills up to @max ports, each once; the count. */
size_t np_ports_listening(uint16_t *ports, size_t max);

#endif
