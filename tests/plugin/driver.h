/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the plugin from its file, as NCCL does: both ends of a connection in one process. */
#ifndef MPIB_TESTS_PLUGIN_DRIVER_H
#define MPIB_TESTS_PLUGIN_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin/base/nccl_abi.h"

/* An assertion that every build keeps; the process ends with the place. */
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #cond);  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define HANDLE_BYTES 128
#define BUFFER_BYTES (1 << 20)

struct ends {
	void *listener, *send, *recv, *send_mr, *recv_mr;
	char handle[HANDLE_BYTES];
	char *out, *in;
};

extern struct mpib_nccl_net_v12 *net; /* of the library that is open */
extern void *library;
extern unsigned int warnings; /* lines that the plugin logged as such */
extern char warned[4096];     /* the first of them, a line each */

/* Opens the file that PLUGIN names. */
void library_open(void);
void library_close(void);
void *library_symbol(const char *name);

/* The plugin's init with the driver's logger. */
ncclResult_t net_init(void **ctx);

/* Listens, and connects to itself on device 0; CHECKs that it works within ten seconds. */
void ends_open(struct ends *ends, void *ctx);
/* As above on a listener and a handle that exist. */
void ends_shake(struct ends *ends, void *ctx);
void ends_close(struct ends *ends);
/* One message, every byte of it looked at. */
void ends_transfer(struct ends *ends, size_t size);
/* As above into a receive buffer of @room bytes. */
void ends_move(struct ends *ends, size_t size, size_t room);

unsigned int count_files(void);
unsigned int count_threads(const char *name); /* with that name; NULL: all */
/* A thread that was joined may be listed for a moment longer. */
void await_end_of_watch(void);
void sleep_ms(unsigned int ms);
uint64_t clock_ms(void);

struct trap {
	const char *name;
	void (*run)(void);
};

extern const struct trap life_traps[], call_traps[], end_traps[], fork_traps[], memory_traps[],
	queue_traps[], flap_traps[], slow_traps[], control_traps[];

#endif
