/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager is told. Every call does nothing where there is none, and none
 * waits longer than a second. */
#ifndef MPIB_AGENT_NOTIFY_H
#define MPIB_AGENT_NOTIFY_H

#include <stdint.h>

void mpib_notify_ready(const char *status);
void mpib_notify_reloading(void);
void mpib_notify_stopping(void);
void mpib_notify_status(const char *status);
/* A sign of life, due each mpib_notify_watchdog_usec(). */
void mpib_notify_watchdog(void);

/* A third of the time within which the service manager wants signs of life, or 0 where it wants
 * none. */
uint64_t mpib_notify_watchdog_usec(void);

#endif
