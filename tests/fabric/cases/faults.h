/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that only the fabric can run: two processes on two nodes, and faults made on purpose. They
 * stand on the conformance program's helpers; the parent is node 1, its child node 2. */
#ifndef MPIB_FABRIC_FAULTS_H
#define MPIB_FABRIC_FAULTS_H

#include "tests/fabric/conform/conform.h"

#include <sys/types.h>

struct fault_case {
	const char *name;
	void (*run)(struct side *s);
	bool child_dies;      /* the child is meant to be killed */
	const char *nodes[2]; /* NULL: "1" and "2" */
	const char *config;   /* INI text; NULL: the built-in fabric */
};

extern pid_t fault_peer; /* the parent's child */

/* Ends the program, telling what was expected. */
__attribute__((noreturn)) void give_up(const char *what);

static inline void require(bool holds, const char *what)
{
	if (!holds)
		give_up(what);
}

/* Runs fabricctl with these words; it must succeed. */
void ctl(const char *words);
uint64_t clock_ms(void);
/* A write of @len bytes and its completion. */
enum ibv_wc_status write_once(struct pair *p, uint32_t len);

extern const struct fault_case death_cases[], control_cases[], life_cases[], rule_cases[],
	late_cases[], gpu_cases[], feature_cases[], page_cases[], judge_cases[], wire_cases[];

#endif
