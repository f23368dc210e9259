/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl monitor: the journal's entries as they happen, also where there is no journal to read. */
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "agent/ctl/ctl.h"

static void print_people(const struct mpib_admin_event *event)
{
	time_t seconds = (time_t)(event->usec / 1000000u);
	struct tm parts;
	char text[32] = "";

	if (localtime_r(&seconds, &parts))
		(void)strftime(text, sizeof(text), "%H:%M:%S", &parts);
	(void)printf("%s.%03u %-14s %s\n", text, (unsigned int)(event->usec / 1000u % 1000u),
		     event->name, event->text);
}

static void print_json(const struct mpib_admin_event *event)
{
	(void)printf("{\"usec\": %" PRIu64 ", \"priority\": %u, \"event\": ", event->usec,
		     event->priority);
	mpib_output_json_string(event->name, stdout);
	(void)printf(", \"flow\": ");
	mpib_output_json_string(event->flow, stdout);
	(void)printf(", \"text\": ");
	mpib_output_json_string(event->text, stdout);
	(void)printf("}\n");
}

static void on_event(struct mpib_ctl *ctl, const void *record)
{
	struct mpib_admin_event event = *(const struct mpib_admin_event *)record;

	if (ctl->stop)
		return;

	event.name[sizeof(event.name) - 1] = '\0';
	event.flow[sizeof(event.flow) - 1] = '\0';
	event.text[sizeof(event.text) - 1] = '\0';
	errno = 0;
	if (ctl->json)
		print_json(&event);
	else
		print_people(&event);
	/* A reader that left, or a full disk, ends it; so does the wanted count. */
	if (fflush(stdout) != 0 || ferror(stdout))
		ctl->write_error = errno ? -errno : -EIO;
	ctl->stop = ctl->write_error || (ctl->count && --ctl->count == 0);
}

enum mpib_ctl_exit mpib_ctl_monitor(struct mpib_ctl *ctl)
{
	struct mpib_admin_event record;
	enum mpib_ctl_exit code;

	ctl->printed = true;
	code = mpib_ctl_ask(ctl, MPIB_ADMIN_MONITOR, NULL, &record, sizeof(record), on_event, 0);
	return ctl->write_error ? mpib_ctl_fail_output(ctl, ctl->write_error) : code;
}
