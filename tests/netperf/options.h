/* SPDX-License-Identifier: Apache-2.0 */
/* What the user asked for: one table of options serves the command line, the help text and the
 * text form in which the connecting side hands its options to the listener. */
#ifndef MPIB_NETPERF_OPTIONS_H
#define MPIB_NETPERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NP_SIZES_MAX 64

enum np_mode {
	NP_MODE_NONE, /* a listener that takes whatever its peer asks for */
	NP_MODE_VERIFY,
	NP_MODE_BW,
};

/* Seconds are doubles; sizes are bytes. Strings are owned by the command line. */
struct np_options {
	enum np_mode mode;
	/* of this process only */
	const char *plugin;
	uint64_t api; /* 0: newest that the plugin has, or the peer's */
	uint64_t dev;
	uint64_t listen_port;
	const char *bind;
	const char *connect; /* HOST:PORT */
	bool once, loop;
	bool json;
	const char *log;
	bool print_ports;
	double connect_delay;
	const char *handle_override; /* HEX@OFFSET */
	const char *end_file;	     /* bw ends once it exists; NULL: by time alone */
	double expect_error;	     /* 0: none expected */
	/* of both; the connecting side's count */
	double timeout;
	double hold;
	uint64_t seed;
	uint64_t comms;
	bool both, no_both;
	bool groups, no_groups;
	uint64_t outstanding;
	uint64_t rounds;
	uint64_t messages; /* 0: by size (verify) or by time (bw) */
	size_t sizes[NP_SIZES_MAX];
	size_t size_count;
	uint64_t max_size;
	uint64_t memory; /* buffers of one process, bytes, about */
	uint64_t size;
	uint64_t window;
	double seconds;
	double interval;
	double warmup; /* negative: a quarter of the run, at most a second */
	double rest;   /* of the progress thread where nothing moved; 0: none */
	bool check;
	bool call_times;
};

/* Reads the command line; 0, or -EINVAL after a line on stderr. 1: --help or --version was
 * answered. */
int np_options_parse(struct np_options *opts, int argc, char **argv);

/* The options that both ends share as "name=value" lines; the caller frees. NULL: no memory. */
char *np_options_encode(const struct np_options *opts);

/* The reverse, on top of what @opts has. The text comes from the network: -EBADMSG for anything
 * that the table doesn't know or the ranges don't allow. @text is cut up. */
int np_options_decode(struct np_options *opts, char *text);

/* "verify" or "bw". */
const char *np_mode_name(enum np_mode mode);

void np_options_help(FILE *out);

#endif
