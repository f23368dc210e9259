/* SPDX-License-Identifier: Apache-2.0 */
/* Sends to the service manager without ever waiting for it: one that hangs must not hang the
 * agent, and through it a job. (sd_notify() blocks while the manager's queue is full.) */
#include "agent/journal/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "common/cleanup.h"

/* False where the manager's queue is full: the caller says it again later. What can't be sent at
 * all, there being nobody to send to, counts as said. */
static bool send_state(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mpib_cleanup(mpib_closep) int fd = -1;
	socklen_t len;

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(address.sun_path))
		return true;

	memcpy(address.sun_path, path, strlen(path));
	if (*path == '@')
		address.sun_path[0] = '\0'; /* abstract */
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));

	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;

	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		   (const struct sockaddr *)&address, len) >= 0)
		return true;
	return errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && errno != EINTR;
}

bool mpib_notify_ready(const char *status)
{
	char state[1024];

	(void)snprintf(state, sizeof(state), "READY=1\nSTATUS=%s", status);
	return send_state(state);
}

void mpib_notify_reloading(void)
{
	char state[96];

	/* The stamp lets a service manager that knows Type=notify-reload tell this reload from an
	 * older one; others ignore it. */
	(void)snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		       mpib_clock_usec(CLOCK_MONOTONIC));
	(void)send_state(state);
}

void mpib_notify_stopping(void)
{
	(void)send_state("STOPPING=1\nSTATUS=Stopping; jobs keep their last shares");
}

bool mpib_notify_status(const char *status)
{
	char state[1024];

	(void)snprintf(state, sizeof(state), "STATUS=%s", status);
	return send_state(state);
}

bool mpib_notify_watchdog(void)
{
	return send_state("WATCHDOG=1");
}

uint64_t mpib_notify_watchdog_usec(void)
{
	uint64_t usec = 0;

	return sd_watchdog_enabled(0, &usec) > 0 ? usec / 3 : 0;
}
