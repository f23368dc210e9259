/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves the program as text: lines on stderr, the plugin's logger, JSON objects on stdout,
 * and the list of errors that decides the verdict. Any thread. */
#ifndef MPIB_NETPERF_LOG_H
#define MPIB_NETPERF_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "plugin/base/nccl_abi.h"

#define np_format(fmt, args) __attribute__((format(printf, fmt, args)))

/* @level: "warn", "info" or "trace"; @json: objects on stdout instead of sentences. */
void np_log_init(const char *level, bool json);
bool np_log_json(void);

/* The logger that the plugin gets. */
void np_log_plugin(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	np_format(5, 6);

/* The program's own lines, on stderr; np_say on stdout, and only without --json. */
void np_warn(const char *fmt, ...) np_format(1, 2);
void np_info(const char *fmt, ...) np_format(1, 2);
void np_say(const char *fmt, ...) np_format(1, 2);

/* ---- errors of the run --------------------------------------------------------------------- */

#define NP_ERRORS_KEPT 16
#define NP_ERROR_TEXT  640

/* Counts an error, keeps the text of the first ones, and prints it. */
void np_error(const char *fmt, ...) np_format(1, 2);
unsigned int np_error_count(void);
/* What the peer is told: the first error, and the plugin's latest warning where it gave one; ""
 * where there is no error. */
void np_error_reason(char *buf, size_t len);
/* Forgets them, before another run. */
void np_error_reset(void);

/* ---- JSON ---------------------------------------------------------------------------------- */

/* One object being written; np_json_end prints it as one line and frees. Keys are plain words. */
struct np_json {
	FILE *out;
	char *text;
	size_t len;
	bool comma;
};

void np_json_begin(struct np_json *json, const char *event);
void np_json_str(struct np_json *json, const char *key, const char *value); /* NULL: null */
void np_json_u64(struct np_json *json, const char *key, uint64_t value);
void np_json_num(struct np_json *json, const char *key, double value, int decimals);
void np_json_bool(struct np_json *json, const char *key, bool value);
/* @key NULL inside an array. */
void np_json_open(struct np_json *json, const char *key, char bracket);
void np_json_close(struct np_json *json, char bracket);
/* An array whose inside is JSON already. */
void np_json_raw(struct np_json *json, const char *key, const char *inside);
/* The errors as an array of strings. */
void np_json_errors(struct np_json *json, const char *key);
void np_json_end(struct np_json *json);

#endif
