/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: what a person must mend before a job runs over MPIB. It looks at this shell's
 * environment, which must be that of the job, or at that of a running job, and changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/doctor/doctor.h"
#include "agent/policy/config.h"
#include "common/cleanup.h"
#include "common/hint.h"

void mpib_doctor_say(struct mpib_doctor *doctor, enum mpib_doctor_level level, const char *check,
		     const char *cure, const char *format, ...)
{
	static const char *const names[] = { "OK", "WARN", "FAIL" };
	struct mpib_output *out = doctor->ctl->output;
	char text[MPIB_DOCTOR_TEXT_MAX];
	char people[2 * MPIB_DOCTOR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)snprintf(people, sizeof(people), "%s%s%s", text, *cure ? "; cure: " : "", cure);

	if (level > doctor->worst)
		doctor->worst = level;
	doctor->n_warn += level == MPIB_DOCTOR_WARN;
	doctor->n_fail += level == MPIB_DOCTOR_FAIL;
	mpib_output_row(out);
	mpib_output_text(out, "level", "LEVEL", names[level]);
	mpib_output_text(out, "check", "CHECK", check);
	mpib_output_text(out, "found", NULL, text);
	mpib_output_text(out, "cure", NULL, cure);
	mpib_output_note(out, "FOUND", people);
}

int mpib_doctor_read(const struct mpib_doctor *doctor, char *buf, size_t size, const char *format,
		     ...)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	char name[512];
	char path[1024];
	va_list args;
	ssize_t n;

	*buf = '\0';
	va_start(args, format);
	(void)vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, name);

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		n--;
	buf[n] = '\0';
	return 0;
}

/* ---- agent ---------------------------------------------------------------------------------- */

/* How long the heartbeat may take to move: it does so once a second. */
#define BEAT_PATIENCE_MS 3000
#define BEAT_LOOK_MS	 20

static bool advanced_mode(const struct mpib_doctor *doctor)
{
	return doctor->env.mode == MPIB_MODE_ADVANCED;
}

/* What an agent that is missing means for a job of this environment. */
static enum mpib_doctor_level without_agent(const struct mpib_doctor *doctor)
{
	if (!advanced_mode(doctor))
		return MPIB_DOCTOR_OK;
	return doctor->env.agent_optional ? MPIB_DOCTOR_WARN : MPIB_DOCTOR_FAIL;
}

static void check_heartbeat(struct mpib_doctor *doctor, const struct mpib_hint_header *header)
{
	const struct timespec pause = { .tv_nsec = BEAT_LOOK_MS * 1000000 };
	uint32_t before = mpib_hint_load(&header->heartbeat);

	/* Shared memory has no event: look until it moves. */
	for (unsigned int ms = 0; ms < BEAT_PATIENCE_MS; ms += BEAT_LOOK_MS) {
		if (mpib_hint_load(&header->heartbeat) != before) {
			mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "hints", "",
					"%s/" MPIB_HINTS_NAME ": %u slots, generation %u, the "
					"heartbeat moves",
					doctor->ctl->dir, mpib_hint_load(&header->max_entries),
					mpib_hint_load(&header->generation));
			return;
		}
		(void)nanosleep(&pause, NULL);
	}

	mpib_doctor_say(doctor, advanced_mode(doctor) ? MPIB_DOCTOR_FAIL : MPIB_DOCTOR_WARN,
			"hints", "systemctl restart mpib-agentd",
			"the heartbeat of %s/" MPIB_HINTS_NAME " stands still: plugins take the "
			"vanilla policy",
			doctor->ctl->dir);
}

static void on_status(struct mpib_ctl *ctl, const void *record)
{
	ctl->status = *(const struct mpib_admin_status *)record;
}

static void check_policy(struct mpib_doctor *doctor, const struct mpib_admin_status *status)
{
	int file = mpib_ctl_config_file(status);

	if (status->policy_refused)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "policy",
				"correct the file, mpibctl check, mpibctl reload",
				"the latest reload was refused, an older policy is in force: %.*s",
				(int)sizeof(status->error) - 1, status->error);
	else if (status->policy_missing && file <= MPIB_CONFIG_FILE_SAME)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "policy",
				"write the file, mpibctl reload; an empty one means the defaults",
				"there is no %.*s, the built-in defaults are in force",
				(int)sizeof(status->config) - 1, status->config);
	else if (file > MPIB_CONFIG_FILE_SAME)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "policy",
				"mpibctl check the file, then mpibctl reload",
				"%.*s is %s since it was loaded: what it said then is in force",
				(int)sizeof(status->config) - 1, status->config,
				mpib_config_file_name((enum mpib_config_file)file));
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "policy", "", "%.*s is in force",
				(int)sizeof(status->config) - 1, status->config);

	if (status->flows == status->slots)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "slots",
				"raise slots in [agent], mpibctl reload", "all %u slots are in use",
				status->slots);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "slots", "", "%u of %u in use",
				status->flows, status->slots);
}

static void check_state(struct mpib_doctor *doctor, const struct mpib_admin_status *status)
{
	if (status->unsaved)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "state",
				"make space in the agent's directory; it tries again each second",
				"the agent can't save its state, a restart keeps slots whose "
				"holders it can't tell: %.*s",
				(int)sizeof(status->unsaved_error) - 1, status->unsaved_error);
	else if (status->unclaimed)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "state",
				"when no earlier job runs any more, stop the agent, remove its "
				"directory, start it",
				"%u earlier registrations have no process that can be told; "
				"their slots are kept",
				status->unclaimed);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "state", "", "saved");
}

void mpib_doctor_agent(struct mpib_doctor *doctor)
{
	struct mpib_ctl *ctl = doctor->ctl;
	const struct mpib_hint_header *header = NULL;
	struct mpib_admin_status record;
	enum mpib_ctl_exit code;
	size_t size = 0;

	code = mpib_ctl_ask(ctl, MPIB_ADMIN_STATUS, NULL, &record, sizeof(record), on_status,
			    MPIB_CTL_SECONDS);
	if (code == MPIB_CTL_NO_AGENT && without_agent(doctor) == MPIB_DOCTOR_OK) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "agent", "",
				"none runs; MPIB_MODE is not 1, so none is needed");
		return;
	}
	if (code == MPIB_CTL_NO_AGENT) {
		mpib_doctor_say(doctor, without_agent(doctor), "agent",
				"systemctl start mpib-agentd", "none serves %s", ctl->dir);
		return;
	}
	if (code != MPIB_CTL_OK) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "agent",
				code == MPIB_CTL_FORBIDDEN ? "chmod 0666 its socket, or restart it"
							   : "systemctl restart mpib-agentd",
				"%s", ctl->cause.text);
		return;
	}

	mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "agent", "", "pid %u serves %s, version %.15s",
			ctl->status.pid, ctl->dir, ctl->status.version);
	check_policy(doctor, &ctl->status);
	check_state(doctor, &ctl->status);
	mpib_doctor_flows(doctor);
	if (mpib_ctl_map_hints(ctl, &header, &size) < 0) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "hints", "systemctl restart mpib-agentd",
				"%s/" MPIB_HINTS_NAME " can't be read, or is no hint table",
				ctl->dir);
		return;
	}
	check_heartbeat(doctor, header);
	mpib_ctl_unmap_hints(header, size);
}

/* Which environment, and which root: a running job's, or this shell's. */
static enum mpib_ctl_exit open_job(struct mpib_ctl *ctl, struct mpib_doctor *doctor, char *root,
				   size_t root_size)
{
	int r;

	doctor->root = ctl->root ? ctl->root : "";
	if (ctl->pid && !ctl->root) {
		(void)snprintf(root, root_size, "/proc/%lu/root", ctl->pid);
		doctor->root = root;
	}
	r = mpib_job_open((pid_t)ctl->pid, doctor->root, &doctor->job, &ctl->cause);
	if (r == -EACCES)
		return MPIB_CTL_FORBIDDEN;
	return r < 0 ? MPIB_CTL_FAILURE : MPIB_CTL_OK;
}

enum mpib_ctl_exit mpib_ctl_doctor(struct mpib_ctl *ctl)
{
	struct mpib_doctor doctor = { .ctl = ctl };
	char root[48];
	enum mpib_ctl_exit code = open_job(ctl, &doctor, root, sizeof(root));

	if (code != MPIB_CTL_OK)
		return code;
	mpib_output_list(ctl->output, "findings", "nothing was looked at");
	mpib_doctor_settings(&doctor);
	mpib_doctor_rails(&doctor);
	mpib_doctor_islands(&doctor);
	mpib_doctor_environment(&doctor);
	mpib_doctor_agent(&doctor);
	mpib_doctor_directory(&doctor);
	mpib_job_close(&doctor.job);

	ctl->answered = true;
	ctl->cause.text[0] = '\0'; /* of a question that failed: it is a finding */
	return doctor.worst == MPIB_DOCTOR_FAIL	  ? MPIB_CTL_FAILURE
	       : doctor.worst == MPIB_DOCTOR_WARN ? MPIB_CTL_WARNING
						  : MPIB_CTL_OK;
}
