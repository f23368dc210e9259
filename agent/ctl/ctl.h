/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl: what its commands share. */
#ifndef MPIB_AGENT_CTL_H
#define MPIB_AGENT_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/admin/admin.h"
#include "agent/base/cause.h"
#include "agent/ctl/output.h"

/* Stable: scripts rely on them. */
enum mpib_ctl_exit {
	MPIB_CTL_OK = 0,
	MPIB_CTL_FAILURE = 1,
	MPIB_CTL_USAGE = 2,
	MPIB_CTL_NO_AGENT = 3,	/* it isn't running */
	MPIB_CTL_FORBIDDEN = 4, /* not for this user */
	MPIB_CTL_WARNING = 5,	/* doctor: nothing worse than a warning */
};

/* What a command gets; it fills the output or the cause. */
struct mpib_ctl {
	const char *dir;
	const char *arguments[3]; /* NULL where there are fewer */
	const char *root;	  /* of --root, or NULL */
	unsigned long pid;	  /* of --pid, or 0 */
	const char *sort;	  /* of --sort, --peer and --island, or NULL */
	const char *peer;
	const char *island;
	bool job_env;	  /* --env */
	const char *time; /* of --for, or NULL */
	bool all;
	bool freeze; /* --freeze */
	bool json;
	FILE *memory; /* where a command collects a text */
	struct mpib_output *output;
	struct mpib_cause cause;
	struct mpib_admin_status status; /* where a command needs it for more than to print it */
	const char *file;		 /* of --output, or NULL */
	unsigned long count;		 /* of --count, 0: no end */
	void *collected;		 /* what a command's on_ functions fill */
	bool stop;			 /* enough records */
	bool changed;			 /* the agent did what it was asked to change */
	int write_error;		 /* why standard output took no more, or 0 */
	bool printed;			 /* the command wrote by itself what there is to write */
	bool answered;			 /* the output is to be printed whatever the exit code */
};

/* One command a file; each returns an exit code. */
enum mpib_ctl_exit mpib_ctl_status(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_flows(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_top(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_hints(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_check(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_reload(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_explain(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_policy(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_doctor(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_metrics(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_monitor(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_set(struct mpib_ctl *ctl);
enum mpib_ctl_exit mpib_ctl_unset(struct mpib_ctl *ctl);

/* What the agent says of its policy file (enum mpib_config_file), or -1 where it doesn't. */
static inline int mpib_ctl_config_file(const struct mpib_admin_status *status)
{
	return (int)status->config_file - 1;
}

/* Reads the flow that arguments[0] names into @ret. MPIB_CTL_USAGE where it names none. */
enum mpib_ctl_exit mpib_ctl_flow_argument(struct mpib_ctl *ctl,
					  struct mpib_admin_flow_request *ret);

/* How long an agent may take to answer, and to read and apply a policy. */
#define MPIB_CTL_SECONDS	5
#define MPIB_CTL_RELOAD_SECONDS 30

/* Sends one request of a header alone, or @about a flow where that is not NULL, and calls
 * @on_record for each record of the answer, copied into @record of @size bytes (what an older agent
 * doesn't send is 0). Fills ctl->cause on failure. */
enum mpib_ctl_exit mpib_ctl_ask(struct mpib_ctl *ctl, enum mpib_admin_type request,
				const struct mpib_admin_flow_request *about, void *record,
				size_t size,
				void (*on_record)(struct mpib_ctl *ctl, const void *record),
				unsigned int timeout_sec);

/* Maps the hint table for reading: header and whole size, checked against each other. -EBADMSG
 * where it is no hint table, or the errno of the file. */
int mpib_ctl_map_hints(const struct mpib_ctl *ctl, const struct mpib_hint_header **ret_header,
		       size_t *ret_size);
void mpib_ctl_unmap_hints(const struct mpib_hint_header *header, size_t size);

/* Exit code and cause for an errno met on the way to the agent. */
enum mpib_ctl_exit mpib_ctl_fail(struct mpib_ctl *ctl, int error, const char *what);

/* The same where standard output takes no more: a full disk is told, a reader that left is not. */
enum mpib_ctl_exit mpib_ctl_fail_output(struct mpib_ctl *ctl, int error);

#endif
