/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager is told. No call waits: false where the manager takes nothing at
 * present, so that what matters is said again later; true where it was told, or there is none. */
#ifndef MPIB_AGENT_NOTIFY_H
#define MPIB_AGENT_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

bool mpib_notify_ready(const char *status);
/* Lost where it can't be sent: the READY that follows is what matters. */
void mpib_notify_reloading(void);
void mpib_notify_stopping(void);
bool mpib_notify_status(const char *status);
/* A sign of life, due each mpib_notify_watchdog_usec(). */
bool mpib_notify_watchdog(void);

/* A third of the time within which the service manager wants signs of life, or 0 where it wants
 * none. */
uint64_t mpib_notify_watchdog_usec(void);

#endif
