/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the real mpib-agentd in a private directory and talks to it. Starts and stops are awaited
 * (READY over NOTIFY_SOCKET, exits over waitid), each with a bound; nothing sleeps for luck. */
#ifndef MPIB_TESTS_AGENT_HARNESS_H
#define MPIB_TESTS_AGENT_HARNESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/mpib_agent_iface.h"
#include "common/wire.h"
#include "tests/unit/agent/tempdir.h"

#define HARNESS_NOBODY 65534

struct agent {
	char base[TEMPDIR_MAX];	    /* holds all of the following */
	char dir[TEMPDIR_MAX + 16]; /* --dir */
	char ini[TEMPDIR_MAX + 16]; /* --config, where it exists */
	char log[TEMPDIR_MAX + 16]; /* stderr of agents and commands */
	char notify[TEMPDIR_MAX + 16];
	int notify_fd;
	pid_t pid; /* 0: not running */
	/* for the next start */
	mode_t umask;
	unsigned long nofile; /* 0: as it is */
	bool pid_namespace;   /* the agent sees the test's processes as pid 0 */
	bool no_standard_fds; /* 0 to 2 are closed */
	bool default_config;  /* no --config: the installed path */
	bool pass_socket;     /* as the service manager does */
};

/* One request's answer. */
struct answer {
	bool ok; /* false: the connection ended or nothing came in time */
	uint8_t status;
	uint32_t slot;
};

void agent_init(struct agent *agent);
/* Kills what runs and removes everything. */
void agent_fini(struct agent *agent);
void agent_write_ini(struct agent *agent, const char *text);
void agent_write_file(struct agent *agent, const char *name, const char *text);

/* Starts and waits: 0 when READY came, otherwise the exit code. */
int agent_try_start(struct agent *agent);
void agent_start(struct agent *agent);
/* The same, after one in a pid namespace, whose end takes a moment to free the lock. */
void agent_start_when_free(struct agent *agent);
/* Sends @number and waits for the end; the exit code, or -signal. */
int agent_stop(struct agent *agent, int number);
/* Waits for a message with @text on the notify socket. */
void agent_await_notify(struct agent *agent, const char *text);
/* Lines in the log with @part. */
unsigned int agent_log_count(const struct agent *agent, const char *part);
/* Waits for such a line, with a bound. */
void agent_await_log(const struct agent *agent, const char *part);

/* A connection, blocking with a bound of 10 s a call. */
int agent_connect(const struct agent *agent);
struct answer agent_register(int fd, uint32_t conn_id, uint32_t src, uint32_t dst);
struct answer agent_deregister(int fd, uint32_t conn_id);
/* On a connection of its own each. */
struct answer agent_register_once(const struct agent *agent, uint32_t conn_id, uint32_t src,
				  uint32_t dst);
struct answer agent_deregister_once(const struct agent *agent, uint32_t conn_id);
struct answer answer_read(int fd, uint8_t request_type);

/* The table, mapped for reading; false until @want flows are in it, for up to @limit_ms. */
const struct mpib_hint_header *agent_map_hints(const struct agent *agent);
const struct mpib_hint_entry *agent_entry(const struct mpib_hint_header *header, uint32_t slot);
uint32_t agent_count_flows(const struct mpib_hint_header *header);
bool agent_await_flows(const struct mpib_hint_header *header, uint32_t want, unsigned int limit_ms);

/* Runs mpibctl with up to eight arguments as @uid; its exit code. *ret_out (NULL: not wanted) is
 * its stdout, for the caller to free. */
int agent_ctl(const struct agent *agent, uid_t uid, const char *const args[], char **ret_out);

/* The same as this user, with words up to a NULL; fails the test unless it exits with @wanted.
 * Returns stdout, for the caller to free. */
char *agent_ctl_words(const struct agent *agent, int wanted, ...) __attribute__((sentinel));
/* Fails the test unless @out (freed) has @part. */
void harness_expect(char *out, const char *part);

/* A child that runs @body and exits with what it returns; harness_reap() waits for it. */
pid_t harness_fork(int (*body)(void *arg), void *arg);
int harness_reap(pid_t pid);
uint64_t harness_now_ms(void);

/* What the kernel says of a process: nanoseconds on a core, and nanoseconds that it could have run
 * but waited for one. Both 0 where the kernel doesn't keep these figures. */
struct harness_cores {
	uint64_t used;
	uint64_t waited;
};
struct harness_cores harness_cores(pid_t pid);
/* Resident memory of a process. */
unsigned long harness_rss_kib(pid_t pid);

#endif
