/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: what its parts share. Each finding has a check, a subject, what was found, and,
 * where something is wrong, the cure. */
#ifndef MPIB_AGENT_DOCTOR_H
#define MPIB_AGENT_DOCTOR_H

#include "agent/ctl.h"

enum mpib_doctor_level {
	MPIB_DOCTOR_OK,
	MPIB_DOCTOR_WARN, /* a job runs, perhaps not as well as it could or not as meant */
	MPIB_DOCTOR_FAIL, /* a job doesn't run, or not over MPIB */
};

#define MPIB_DOCTOR_TEXT_MAX 512

struct mpib_doctor {
	struct mpib_ctl *ctl;
	const char *root; /* in front of each path of the system, "" for the real one */
	enum mpib_doctor_level worst;
	unsigned int n_warn;
	unsigned int n_fail;
};

/* One finding; @cure is "" where nothing is to do. */
__attribute__((format(printf, 5, 6))) void mpib_doctor_say(struct mpib_doctor *doctor,
							   enum mpib_doctor_level level,
							   const char *check, const char *cure,
							   const char *format, ...);

/* A small file below the root as text, without the newline at its end. Negative errno. */
__attribute__((format(printf, 4, 5))) int mpib_doctor_read(const struct mpib_doctor *doctor,
							   char *buf, size_t size,
							   const char *format, ...);

/* Devices, ports, addresses, MTU, PCI, /dev/infiniband of both rails. */
void mpib_doctor_rails(struct mpib_doctor *doctor);
/* Limits of this shell, the plugin's file, NCCL's variables. */
void mpib_doctor_environment(struct mpib_doctor *doctor);
/* Agent and hint table. */
void mpib_doctor_agent(struct mpib_doctor *doctor);

#endif
