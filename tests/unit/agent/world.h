/* SPDX-License-Identifier: Apache-2.0 */
/* A host of the model: processes that hold flows, agents that come and go on one directory, and
 * what each process was told. The state layer is the real one (table, state file, overrides,
 * registry, flows, peers), on real files under disk.h; processes are made up, and so is the server
 * between them and the agent. */
#ifndef MPIB_TESTS_UNIT_AGENT_WORLD_H
#define MPIB_TESTS_UNIT_AGENT_WORLD_H

#include "agent/flows/flows.h"
#include "tests/unit/agent/tempdir.h"

#define WORLD_PROCS  6
#define WORLD_CONNS  4
#define WORLD_FLOWS  14
#define WORLD_SHARES 8 /* different ones */
#define WORLD_SLOTS  20

enum hold {
	HOLD_NONE,
	HOLD_MAYBE, /* the agent died over it: it may be registered or not */
	HOLD_TOLD,  /* registered, and told so */
};

struct world_reg {
	enum hold hold;
	bool refused; /* by an agent of after it was told: it is kept, but not as this one's */
	uint32_t flow;
	uint32_t slot;
};

struct world_proc {
	bool alive;
	bool named; /* false: of another pid namespace, so that the agent sees pid 0 */
	pid_t pid;
	uint64_t start_time;
	uid_t uid;
	int exit_fd;		/* stands for a pidfd: readable once the process is gone */
	struct mpib_peer *peer; /* its connection to the agent, or NULL */
	struct world_reg regs[WORLD_CONNS];
};

/* A choice whose outcome may be unknown: a bit for each share that is possible. */
typedef uint16_t share_set;
#define SHARE_NONE (1u << WORLD_SHARES) /* no override */

struct world {
	char dir[TEMPDIR_MAX];
	bool verbose; /* MPIB_TEST_VERBOSE */
	bool up;
	struct mpib_hints *hints;
	struct mpib_flows flows;
	struct world_proc procs[WORLD_PROCS];
	uint64_t n_started; /* processes so far */

	/* the reference */
	unsigned int ini_share; /* of the policy file */
	uint32_t ini_slots;
	unsigned int policy_share;	 /* in force */
	share_set override[WORLD_FLOWS]; /* set by a person */
	share_set shown[WORLD_FLOWS];	 /* what a job may read */
	bool table_due;			 /* the table was deleted, and isn't made anew yet */
	bool sure;  /* all that the agents know is true and whole, so that nothing may leak */
	bool whole; /* the state file lacks nothing: the table can be made anew from it */
	bool no_descriptors; /* no process can be looked at */
};

extern struct world world;

/* An empty directory and no process. */
void world_open(void);
void world_close(void);
/* The same once more, for a new life. */
void world_reset(void);

/* Starts an agent; false where it doesn't start, or was killed at it. */
bool world_start(void);
/* Ends it: SIGTERM, or what is left of one that was killed (disk.frozen). */
void world_stop(void);
/* What the agent does once a second. */
void world_tick(void);
/* Takes the policy file into force. */
void world_reload(void);
void world_override(unsigned int flow, bool set, unsigned int share);

void world_birth(struct world_proc *proc, bool named, uid_t uid);
void world_death(struct world_proc *proc);
void world_connect(struct world_proc *proc);
void world_disconnect(struct world_proc *proc);
/* @certain: no fault is on, so that it can't be refused. */
void world_register(struct world_proc *proc, unsigned int conn, unsigned int flow, bool certain);
void world_deregister(struct world_proc *proc, unsigned int conn);

/* Deletes a file of the directory. */
bool world_remove(const char *name);
/* Called before each thing that an agent does: whether its state file lacks something. */
void world_note(void);

/* Between the parts of the model: the agent's processes; ends of processes that it hasn't seen yet;
 * shares that a flow may have under the policy's @share. */
struct mpib_peers *world_peers(void);
void world_serve(void);
share_set world_possible(unsigned int flow, unsigned int share);

uint32_t world_src(unsigned int flow);
uint32_t world_dst(unsigned int flow);
uint32_t world_share(unsigned int n);

/* Holds the table and all that was told against each other. */
void world_check(void);

#endif
