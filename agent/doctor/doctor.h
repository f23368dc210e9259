/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: what its parts share. Each finding has a check, a subject, what was found, and,
 * where something is wrong, the cure. */
#ifndef MPIB_AGENT_DOCTOR_H
#define MPIB_AGENT_DOCTOR_H

#include "agent/ctl/ctl.h"
#include "agent/doctor/job.h"
#include "common/env.h"
#include "common/hca_list.h"

enum mpib_doctor_level {
	MPIB_DOCTOR_OK,
	MPIB_DOCTOR_WARN, /* a job runs, perhaps not as well as it could or not as meant */
	MPIB_DOCTOR_FAIL, /* a job doesn't run, or not over MPIB */
};

#define MPIB_DOCTOR_TEXT_MAX 512

/* The two ports of a fused device: index 0 is SOUT, 1 is SUP. */
struct mpib_doctor_pair {
	char name[2 * MPIB_HCA_DEVICE_MAX + 16]; /* "mlx5_0:1+mlx5_1:1" */
	uint32_t ipv4_be[2];			 /* 0 where the port has none */
	char netdev[2][32];
};

struct mpib_doctor {
	struct mpib_ctl *ctl;
	const char *root; /* in front of each path of the system, "" for the real one */
	enum mpib_doctor_level worst;
	struct mpib_job job; /* whose environment it is */
	struct mpib_env env; /* its settings; a refused one is 0 or empty */
	bool hcas_refused;   /* so is one of the lists of HCAs */
	bool prefix_refused; /* so is MPIB_ISLAND_PREFIX_LEN */
	struct mpib_doctor_pair pairs[MPIB_DEVICES_MAX]; /* that rails looked at */
	unsigned int n_pairs;
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

/* Every setting; fills doctor->env. */
void mpib_doctor_settings(struct mpib_doctor *doctor);
/* Whether the job sees the agent's directory. */
void mpib_doctor_directory(struct mpib_doctor *doctor);
/* Devices, ports, addresses, MTU, PCI, /dev/infiniband of both rails. */
void mpib_doctor_rails(struct mpib_doctor *doctor);
/* Networks of both rails against the islands of the job and of the agent; after the rails. */
void mpib_doctor_islands(struct mpib_doctor *doctor);
/* Limits of the job, the plugin's file, NCCL's variables. */
void mpib_doctor_environment(struct mpib_doctor *doctor);
/* Rails that connections of the job, or of all jobs, have lost; where an agent answers. */
void mpib_doctor_flows(struct mpib_doctor *doctor);
/* Agent and hint table. */
void mpib_doctor_agent(struct mpib_doctor *doctor);

#endif
