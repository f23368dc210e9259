/* SPDX-License-Identifier: Apache-2.0 */
/* Processes on several nodes of the fabric, each with the plugin: one leads and sends orders, the
 * others carry them out and answer. The leading one carries out orders of its own, too. */
#ifndef MPIB_TESTS_PLUGIN_FAR_H
#define MPIB_TESTS_PLUGIN_FAR_H

#include <sys/types.h>

#include "tests/plugin/driver.h"

#define FAR_CONNS   16
#define FAR_TEXT    2048
#define FAR_MESSAGE 20000 /* bytes */

enum task {
	TASK_LISTEN,	   /* the answer has the handle */
	TASK_CONNECT,	   /* until there is a connection or an error */
	TASK_ACCEPT,	   /* the same */
	TASK_ACCEPT_NEXT,  /* the same, but errors of peers before are passed over */
	TASK_CONNECT_ONCE, /* one call and no more */
	TASK_ACCEPT_ONCE,
	TASK_REGISTER, /* a buffer; kept until the connection is closed */
	TASK_SEND,     /* a message, with its own registration where there is none */
	TASK_RECEIVE,  /* the same; every byte looked at */
	TASK_CLOSE,
	TASK_CLOSE_LISTENER,
	TASK_END, /* finalizes and unloads */
};

struct order {
	enum task task;
	unsigned int at; /* which connection; connections have places of their own on each end */
	char handle[HANDLE_BYTES]; /* for connect */
};

struct answer {
	ncclResult_t result;
	bool hung;	 /* nothing came of it */
	bool made;	 /* there is a connection at that place */
	uint64_t end_ms; /* clock_ms() of its end */
	unsigned int warnings;
	char said[FAR_TEXT]; /* the warnings of this order, a line each */
	char handle[HANDLE_BYTES];
};

struct far {
	pid_t pid;
	int fd;
};

/* What main begins with: doesn't return in a process that far_start made. */
void far_main(int argc, char **argv);

/* Loads the plugin in this process, as @node's. */
void near_open(const char *node);
/* The same, and what its init says. */
struct answer near_init(const char *node);
struct answer near_do(const struct order *order);

/* A process on @node, with the environment of now. It ends with this one, or with TASK_END. */
void far_start(struct far *far, const char *node);
void far_tell(const struct far *far, const struct order *order);
struct answer far_answer(const struct far *far);
/* Both in one. */
struct answer far_do(const struct far *far, const struct order *order);
/* TASK_END, and the process's own end. */
void far_stop(struct far *far);
void far_kill(struct far *far);

#endif
