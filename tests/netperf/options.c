/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/macros.h"

enum np_type {
	NP_FLAG,
	NP_COUNT, /* min..max, with k, M, G as powers of 1024 */
	NP_SECONDS,
	NP_TEXT,
	NP_SIZES,
};

struct np_row {
	const char *name;
	size_t offset;
	enum np_type type;
	bool shared; /* handed to the listener */
	double min, max;
	const char *help;
};

#define AT(field)	offsetof(struct np_options, field)
#define MAX_SIZE	(1024.0 * 1024 * 1024)
#define HOUR24		86400.0
#define COMMS_MAX	256
#define OUTSTANDING_MAX 32

static const struct np_row rows[] = {
	{ "plugin", AT(plugin), NP_TEXT, false, 0, 0,
	  "NAME (of libnccl-net-NAME.so) or PATH of the plugin" },
	{ "api", AT(api), NP_COUNT, false, 6, 12, "N: table version (newest found)" },
	{ "dev", AT(dev), NP_COUNT, false, 0, 65535, "K: device of this side (0)" },
	{ "listen", AT(listen_port), NP_COUNT, false, 0, 65535, "PORT to wait on; 0: any" },
	{ "bind", AT(bind), NP_TEXT, false, 0, 0, "ADDR to wait on (all)" },
	{ "connect", AT(connect), NP_TEXT, false, 0, 0, "HOST:PORT of the waiting side" },
	{ "once", AT(once), NP_FLAG, false, 0, 0, "serve one run, then exit (default)" },
	{ "loop", AT(loop), NP_FLAG, false, 0, 0, "serve run after run" },
	{ "json", AT(json), NP_FLAG, false, 0, 0, "one JSON object a line on stdout" },
	{ "log", AT(log), NP_TEXT, false, 0, 0,
	  "warn|info|trace: plugin's lines on stderr (warn)" },
	{ "print-ports", AT(print_ports), NP_FLAG, false, 0, 0,
	  "tell the TCP ports of this process after listen" },
	{ "connect-delay", AT(connect_delay), NP_SECONDS, false, 0, HOUR24,
	  "S to wait between the peer's handles and connect (0)" },
	{ "handle-override", AT(handle_override), NP_TEXT, false, 0, 0,
	  "HEX@OFFSET: bytes to put into each handle received" },
	{ "expect-error", AT(expect_error), NP_SECONDS, false, 0, HOUR24,
	  "S: success is an error within S of the last progress" },
	{ "timeout", AT(timeout), NP_SECONDS, true, 0.1, HOUR24,
	  "S to wait for the listener, or for progress (60)" },
	{ "hold", AT(hold), NP_SECONDS, true, 0, HOUR24,
	  "S to stay connected, idle, at the end (0)" },
	{ "seed", AT(seed), NP_COUNT, true, 0, 9e15, "N of the pattern and of the plan (1)" },
	{ "comms", AT(comms), NP_COUNT, true, 1, COMMS_MAX,
	  "N connections each way (verify 2, bw 1)" },
	{ "both", AT(both), NP_FLAG, true, 0, 0, "both directions at once (verify: default)" },
	{ "no-both", AT(no_both), NP_FLAG, true, 0, 0, "verify: connecting side sends only" },
	{ "groups", AT(groups), NP_FLAG, true, 0, 0, "verify: grouped receives (default)" },
	{ "no-groups", AT(no_groups), NP_FLAG, true, 0, 0, "verify: no grouped receives" },
	{ "outstanding", AT(outstanding), NP_COUNT, true, 1, OUTSTANDING_MAX,
	  "verify: N requests in flight each way (32)" },
	{ "rounds", AT(rounds), NP_COUNT, true, 1, 1e9, "verify: N times the whole plan (1)" },
	{ "messages", AT(messages), NP_COUNT, true, 1, 1e15,
	  "N a connection (verify: by size; bw: by time)" },
	{ "sizes", 0, NP_SIZES, true, 0, MAX_SIZE, "verify: B,B,… (0 to 16M, around the borders)" },
	{ "max-size", AT(max_size), NP_COUNT, true, 0, MAX_SIZE, "verify: leave larger ones out" },
	{ "memory", AT(memory), NP_COUNT, true, 1 << 20, 64.0 * MAX_SIZE,
	  "B of buffers a process, about (128M)" },
	{ "size", AT(size), NP_COUNT, true, 0, MAX_SIZE, "bw: B a message (1M)" },
	{ "window", AT(window), NP_COUNT, true, 1, OUTSTANDING_MAX,
	  "bw: N messages in flight (8); 1 gives latencies" },
	{ "seconds", AT(seconds), NP_SECONDS, true, 0.05, HOUR24, "bw: S to run (5)" },
	{ "end-file", AT(end_file), NP_TEXT, false, 0, 0,
	  "PATH: bw ends once it exists, or by --seconds" },
	{ "interval", AT(interval), NP_SECONDS, true, 0, HOUR24,
	  "bw: S between progress lines (0: none)" },
	{ "warmup", AT(warmup), NP_SECONDS, true, 0, HOUR24,
	  "bw: S not measured (a quarter of the run, at most 1)" },
	{ "rest", AT(rest), NP_SECONDS, true, 0, 1,
	  "S to sleep where nothing moved (0: look again at once)" },
	{ "check", AT(check), NP_FLAG, true, 0, 0, "bw: verify every byte of every message" },
	{ "call-times", AT(call_times), NP_FLAG, true, 0, 0,
	  "tell the longest isend, irecv and test of each side" },
};

static const size_t default_sizes[] = { 0,    1,    127,   128,	    129,     4095,
					4096, 4097, 65536, 1 << 20, 16 << 20 };

static void *field_of(const struct np_options *opts, const struct np_row *row)
{
	return (char *)(uintptr_t)opts + row->offset;
}

/* "12", "4k", "16M", "1G", whole numbers only. */
static int parse_count(const char *text, double min, double max, uint64_t *ret)
{
	uint64_t value, factor = 1;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end == 'k' || *end == 'K')
		factor = 1 << 10;
	else if (*end == 'm' || *end == 'M')
		factor = 1 << 20;
	else if (*end == 'g' || *end == 'G')
		factor = 1 << 30;
	if (factor > 1)
		end++;
	if (*end)
		return -EINVAL;
	if (__builtin_mul_overflow(value, factor, &value))
		return -ERANGE;
	if ((double)value < min || (double)value > max)
		return -ERANGE;

	*ret = value;
	return 0;
}

static int parse_sizes(struct np_options *opts, const char *text, double max)
{
	size_t count = 0;
	char word[32];

	while (*text) {
		size_t len = strcspn(text, ",");
		uint64_t value;
		int r;

		if (count == NP_SIZES_MAX || len >= sizeof(word))
			return -ERANGE;
		memcpy(word, text, len);
		word[len] = '\0';
		r = parse_count(word, 0, max, &value);
		if (r < 0)
			return r;
		opts->sizes[count++] = value;
		text += len;
		if (*text)
			text++;
	}
	if (!count)
		return -EINVAL;

	opts->size_count = count;
	return 0;
}

static int set_value(struct np_options *opts, const struct np_row *row, const char *text)
{
	double seconds;
	char *end;

	switch (row->type) {
	case NP_FLAG:
		*(bool *)field_of(opts, row) = true;
		return 0;
	case NP_COUNT:
		return parse_count(text, row->min, row->max, field_of(opts, row));
	case NP_SECONDS:
		errno = 0;
		seconds = strtod(text, &end);
		if (end == text || *end || errno || isnan(seconds))
			return -EINVAL;
		if (seconds < row->min || seconds > row->max)
			return -ERANGE;
		*(double *)field_of(opts, row) = seconds;
		return 0;
	case NP_TEXT:
		*(const char **)field_of(opts, row) = text;
		return 0;
	case NP_SIZES:
		return parse_sizes(opts, text, row->max);
	}
	return -EINVAL;
}

static int set_mode(struct np_options *opts, const char *text)
{
	if (!strcmp(text, "verify"))
		opts->mode = NP_MODE_VERIFY;
	else if (!strcmp(text, "bw"))
		opts->mode = NP_MODE_BW;
	else
		return -EINVAL;
	return 0;
}

const char *np_mode_name(enum np_mode mode)
{
	switch (mode) {
	case NP_MODE_NONE:
		return "none";
	case NP_MODE_VERIFY:
		return "verify";
	case NP_MODE_BW:
		return "bw";
	}
	return "none";
}

static void set_defaults(struct np_options *opts)
{
	*opts = (struct np_options){
		.log = "warn",
		.timeout = 60,
		.seed = 1,
		.outstanding = OUTSTANDING_MAX,
		.rounds = 1,
		.max_size = UINT64_MAX,
		.memory = 128 << 20,
		.size = 1 << 20,
		.window = 8,
		.seconds = 5,
		.warmup = -1,
	};
	memcpy(opts->sizes, default_sizes, sizeof(default_sizes));
	opts->size_count = MPIB_ARRAY_SIZE(default_sizes);
}

static int bad_use(const char *what, const char *which)
{
	(void)fprintf(stderr, "mpib-netperf: %s%s%s (--help lists the options)\n", what,
		      which ? ": " : "", which ? which : "");
	return -EINVAL;
}

static int check_whole(const struct np_options *opts, bool listening)
{
	if (!opts->plugin)
		return bad_use("--plugin NAME or PATH is missing", NULL);
	if (listening == (opts->connect != NULL))
		return bad_use("give either --listen PORT or --connect HOST:PORT", NULL);
	if (opts->connect && opts->mode == NP_MODE_NONE)
		return bad_use("the connecting side needs a mode, verify or bw", NULL);
	if (opts->connect && !strrchr(opts->connect, ':'))
		return bad_use("--connect needs HOST:PORT", opts->connect);
	if (strcmp(opts->log, "warn") != 0 && strcmp(opts->log, "info") != 0 &&
	    strcmp(opts->log, "trace") != 0)
		return bad_use("--log knows warn, info and trace", opts->log);
	if ((opts->both && opts->no_both) || (opts->groups && opts->no_groups))
		return bad_use("an option and its --no- form exclude each other", NULL);
	return 0;
}

int np_options_parse(struct np_options *opts, int argc, char **argv)
{
	struct option longs[MPIB_ARRAY_SIZE(rows) + 3] = { 0 };
	bool listening = false;
	size_t n;
	int index, c;

	set_defaults(opts);
	for (n = 0; n < MPIB_ARRAY_SIZE(rows); n++)
		longs[n] = (struct option){ rows[n].name, rows[n].type != NP_FLAG, NULL, 1 };
	longs[n] = (struct option){ "help", no_argument, NULL, 'h' };
	longs[n + 1] = (struct option){ "version", no_argument, NULL, 'V' };

	optind = 0; /* a fresh start, for callers that parse twice */
	while ((c = getopt_long(argc, argv, "hV", longs, &index)) != -1) {
		if (c == 'h') {
			np_options_help(stdout);
			return 1;
		}
		if (c == 'V') {
			(void)printf("mpib-netperf %s\n", MPIB_VERSION);
			return 1;
		}
		if (c != 1)
			return -EINVAL;
		if (set_value(opts, &rows[index], optarg) < 0)
			return bad_use(rows[index].name, optarg);
		listening |= !strcmp(rows[index].name, "listen");
	}
	if (optind < argc && set_mode(opts, argv[optind++]) < 0)
		return bad_use("no such mode", argv[optind - 1]);
	if (optind < argc)
		return bad_use("one mode only", argv[optind]);
	if (!opts->comms)
		opts->comms = opts->mode == NP_MODE_VERIFY ? 2 : 1;

	return check_whole(opts, listening);
}

char *np_options_encode(const struct np_options *opts)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	(void)fprintf(out, "mode=%s\n", np_mode_name(opts->mode));
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(rows); n++) {
		const struct np_row *row = &rows[n];
		const void *field = field_of(opts, row);

		if (!row->shared)
			continue;
		if (row->type == NP_FLAG && *(const bool *)field)
			(void)fprintf(out, "%s=1\n", row->name);
		if (row->type == NP_COUNT && (double)*(const uint64_t *)field >= row->min &&
		    (double)*(const uint64_t *)field <= row->max)
			(void)fprintf(out, "%s=%llu\n", row->name,
				      (unsigned long long)*(const uint64_t *)field);
		if (row->type == NP_SECONDS && *(const double *)field >= row->min)
			(void)fprintf(out, "%s=%.9g\n", row->name, *(const double *)field);
		if (row->type != NP_SIZES)
			continue;
		(void)fprintf(out, "%s=", row->name);
		for (size_t k = 0; k < opts->size_count; k++)
			(void)fprintf(out, "%s%zu", k ? "," : "", opts->sizes[k]);
		(void)fputc('\n', out);
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int decode_line(struct np_options *opts, const char *name, const char *value)
{
	if (!strcmp(name, "mode"))
		return set_mode(opts, value) < 0 ? -EBADMSG : 0;
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(rows); n++)
		if (rows[n].shared && !strcmp(rows[n].name, name))
			return set_value(opts, &rows[n], value) < 0 ? -EBADMSG : 0;
	return -EBADMSG;
}

int np_options_decode(struct np_options *opts, char *text)
{
	struct np_options fresh;
	char *line, *rest = text;
	int r;

	/* shared ones start from the defaults, whatever this side's command line said */
	set_defaults(&fresh);
	fresh.plugin = opts->plugin;
	fresh.api = opts->api;
	fresh.dev = opts->dev;
	fresh.listen_port = opts->listen_port;
	fresh.bind = opts->bind;
	fresh.once = opts->once;
	fresh.loop = opts->loop;
	fresh.json = opts->json;
	fresh.log = opts->log;
	fresh.print_ports = opts->print_ports;
	fresh.connect_delay = opts->connect_delay;
	fresh.handle_override = opts->handle_override;
	fresh.end_file = opts->end_file;
	fresh.expect_error = opts->expect_error;

	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, '=');

		if (!*line)
			continue;
		if (!value)
			return -EBADMSG;
		*value++ = '\0';
		r = decode_line(&fresh, line, value);
		if (r < 0)
			return r;
	}
	if (fresh.mode == NP_MODE_NONE || !fresh.comms)
		return -EBADMSG;

	*opts = fresh;
	return 0;
}

void np_options_help(FILE *out)
{
	(void)fputs(
		"usage: mpib-netperf --plugin PLUGIN --listen PORT [options]\n"
		"       mpib-netperf --plugin PLUGIN --connect HOST:PORT verify|bw [options]\n"
		"       mpib-netperf stranger --target HOST:PORT --kind KIND\n"
		"                    [--count N] [--hold S]\n"
		"       mpib-netperf fakelisten --port P --kind KIND\n\n"
		"Drives an NCCL network plugin as NCCL's proxy does, without a GPU. The listener\n"
		"takes mode and options from the side that connects.\n\n",
		out);
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(rows); n++)
		(void)fprintf(out, "  --%-16s %s\n", rows[n].name, rows[n].help);
	(void)fputs(
		"\nKIND: silent, close, garbage, http (stranger only).\n"
		"Exit: 0 all bytes right, 1 wrong data or plugin error, 2 bad use, 3 time-out.\n",
		out);
}
