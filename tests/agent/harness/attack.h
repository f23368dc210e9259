/* SPDX-License-Identifier: Apache-2.0 */
/* What a user can do with descriptors, and a watch on how others fare meanwhile. */
#ifndef MPIB_TESTS_AGENT_ATTACK_H
#define MPIB_TESTS_AGENT_ATTACK_H

#include "tests/agent/harness/badfs.h"
#include "tests/agent/harness/harness.h"

/* Descriptors of one message, at most. */
#define ATTACK_FDS 253

/* Sends one message of @type with @n copies of @fd. */
void attack_pass(int socket, uint8_t type, int fd, unsigned int n, int flags);

/* A TCP socket with data that its peer doesn't read, and which waits for that when it is closed. */
int attack_lingering_socket(void);

/* For @ms a client registers every five milliseconds or so, and the heartbeat is watched. */
void attack_others_are_served(const struct agent *agent, const char *attack, unsigned int ms);

/* A process with a file system of its own. */
struct attacker {
	pid_t pid;
	pid_t server;
	int said; /* what it says */
	int life; /* it ends with this descriptor, so with the test program */
	enum badfs_kind kind;
	void (*send)(int fd);
};

/* Returns when it has passed its file by @send, and done its worst; skips the test where it can't.
 */
void attack_start(struct attacker *attacker, enum badfs_kind kind, void (*send)(int fd));
void attack_end(const struct attacker *attacker);

/* Has strace write down what the agent's process alone calls, with what each descriptor is beside
 * its number; the process of strace, to wait for when the agent has ended, or 0 where there is
 * none. */
pid_t attack_trace(const struct agent *agent, const char *log);

#endif
