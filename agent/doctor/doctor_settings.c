/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: the settings of a job, read by the plugin's own table and parser, and whether the
 * job sees the agent's directory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/doctor/doctor.h"
#include "common/printable.h"

#define UNKNOWN_MAX 16 /* findings of names that are no settings */

static void say_value(struct mpib_doctor *doctor, const struct mpib_env_row *row)
{
	char value[PATH_MAX], shown[MPIB_PRINTABLE_MAX];
	const char *text = mpib_printable(mpib_env_format(row, &doctor->env, value, sizeof(value)),
					  shown, sizeof(shown));

	if (!*text)
		text = "empty";
	switch (mpib_env_origin_of(&doctor->env, row)) {
	case MPIB_ENV_DEFAULT:
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, row->name, "", "%s, by default", text);
		return;
	case MPIB_ENV_OWN:
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, row->name, "", "%s, set", text);
		return;
	case MPIB_ENV_NCCL:
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, row->name, "", "%s, from %s", text,
				row->nccl);
		return;
	}
}

static void check_names(struct mpib_doctor *doctor)
{
	unsigned int unknown = 0;
	char why[MPIB_ENV_WHY_MAX];

	for (const char *entry = NULL; (entry = mpib_job_next(&doctor->job, entry));) {
		const struct mpib_env_unused *unused = mpib_env_find_unused(entry);
		char value[MPIB_PRINTABLE_MAX];

		if (unused)
			mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "settings",
					"unset it, where NCCL's own transport doesn't need it",
					"%s says nothing to MPIB: %s",
					mpib_printable(entry, value, sizeof(value)), unused->why);
		else if (mpib_env_is_unknown(entry, why) && unknown++ < UNKNOWN_MAX)
			mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "settings", "correct the name",
					"%s", why);
	}
	if (unknown > UNKNOWN_MAX)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "settings", "correct the names",
				"%u more variables begin with MPIB_ and are no settings",
				unknown - UNKNOWN_MAX);
}

void mpib_doctor_settings(struct mpib_doctor *doctor)
{
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		char why[MPIB_ENV_WHY_MAX];

		if (mpib_env_read_row(row, mpib_job_get, &doctor->job, &doctor->env, why) < 0) {
			doctor->hcas_refused |= row->kind == MPIB_ENV_HCAS;
			doctor->prefix_refused |=
				row->offset == offsetof(struct mpib_env, prefix_len);
			mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, row->name, "correct it: mpib(7)",
					"%s", why);
		} else if (doctor->ctl->job_env || doctor->job.pid) {
			say_value(doctor, row);
		}
	}
	check_names(doctor);
}

/* A job with a /tmp of its own (PrivateTmp=, pam_namespace, a container) has another directory of
 * the same name: no hints and no agent. */
void mpib_doctor_directory(struct mpib_doctor *doctor)
{
	const char *seen = doctor->env.agent_dir;
	enum mpib_doctor_level level = MPIB_DOCTOR_FAIL;
	struct stat ours, theirs;
	char path[PATH_MAX + 64];

	if (!doctor->job.pid || doctor->env.mode != MPIB_MODE_ADVANCED)
		return;
	if (stat(doctor->ctl->dir, &ours) < 0)
		return; /* the finding is that there is no agent */
	if (doctor->env.agent_optional)
		level = MPIB_DOCTOR_WARN;

	(void)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)doctor->job.pid, seen);
	if (stat(path, &theirs) < 0)
		mpib_doctor_say(doctor, level, "directory",
				"let the job see the host's directory: no private /tmp, or mount "
				"it into the container",
				"process %d can't see the agent's directory %s as %s: %s",
				(int)doctor->job.pid, doctor->ctl->dir, seen, strerror(errno));
	else if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino)
		mpib_doctor_say(doctor, level, "directory",
				"let the job see the host's directory: no private /tmp, or mount "
				"it into the container",
				"%s of process %d is not the agent's %s: it has a private /tmp, or "
				"another MPIB_AGENT_DIR",
				seen, (int)doctor->job.pid, doctor->ctl->dir);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "directory", "",
				"process %d sees the agent's %s", (int)doctor->job.pid,
				doctor->ctl->dir);
}
