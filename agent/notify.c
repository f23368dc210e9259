/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/notify.h"

#include <inttypes.h>
#include <systemd/sd-daemon.h>
#include <time.h>

void mpib_notify_ready(const char *status)
{
	(void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void mpib_notify_reloading(void)
{
	struct timespec now = { 0 };

	/* The stamp lets a service manager that knows Type=notify-reload tell this reload from an
	 * older one; others ignore it. */
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	(void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
			 (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
}

void mpib_notify_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1\nSTATUS=Stopping; jobs keep their last shares");
}

void mpib_notify_status(const char *status)
{
	(void)sd_notifyf(0, "STATUS=%s", status);
}

void mpib_notify_watchdog(void)
{
	(void)sd_notify(0, "WATCHDOG=1");
}

uint64_t mpib_notify_watchdog_usec(void)
{
	uint64_t usec = 0;

	return sd_watchdog_enabled(0, &usec) > 0 ? usec / 2 : 0;
}
