/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl: options, the table of commands, exit codes. */
#include "agent/ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/standard_fds.h"
#include "agent/ctl/screen.h"
#include "common/cleanup.h"
#include "common/macros.h"
#include "common/number.h"
#include "common/printable.h"
#include "common/versions.h"

MPIB_DEFINE_CLEANUP(struct mpib_output *, mpib_output_free);

static const struct {
	const char *name;
	const char *argument; /* what it takes, each word one, in [] what may be missing; "" for
			       * none */
	enum mpib_ctl_exit (*run)(struct mpib_ctl *ctl);
	const char *help;
} commands[] = {
	{ "status", "", mpib_ctl_status, "the agent's health and counts" },
	{ "flows", "", mpib_ctl_flows, "flows of this host, their shares and rules" },
	{ "top", "", mpib_ctl_top, "the same each second, see --count" },
	{ "hints", "", mpib_ctl_hints, "the hint table as plugins read it (no agent needed)" },
	{ "explain", "FLOW", mpib_ctl_explain,
	  "what each rule gives a flow, and which is in force" },
	{ "policy", "", mpib_ctl_policy, "the policy in force, defaults included; see --freeze" },
	{ "monitor", "", mpib_ctl_monitor, "events as they happen, see --count" },
	{ "metrics", "", mpib_ctl_metrics, "OpenMetrics text, see --output" },
	{ "doctor", "", mpib_ctl_doctor, "what to mend before a job runs; for prologs, too" },
	{ "set", "FLOW SHARE [BOUNDS]", mpib_ctl_set,
	  "give a flow a share above the policy, see --for" },
	{ "unset", "FLOW", mpib_ctl_unset, "end that: the policy holds again" },
	{ "check", "FILE", mpib_ctl_check, "check a policy file (no agent needed)" },
	{ "reload", "", mpib_ctl_reload, "reload the policy, wait, say what changed" },
};

#define FLAG(name)	  KIND_FLAG, offsetof(struct mpib_ctl, name), 0
#define TEXT(name)	  KIND_TEXT, offsetof(struct mpib_ctl, name), 0
#define NUMBER(name, max) KIND_NUMBER, offsetof(struct mpib_ctl, name), max

#define COUNT_MAX 1000000000

/* An option with an @argument wants one. */
static const struct {
	const char *name;
	const char *argument; /* "" where it has none */
	const char *only;     /* the commands that know it, NULL: all */
	const char *help;
	char letter;
	enum { KIND_NONE, KIND_FLAG, KIND_TEXT, KIND_NUMBER } kind;
	size_t field; /* of struct mpib_ctl, where its value goes */
	long max;     /* of a number, from 1 */
} options[] = {
	{ "json", "", NULL, "JSON, exactly when the exit code is 0 (doctor: 0, 1, 5)", 'j',
	  FLAG(json) },
	{ "dir", "DIR", NULL,
	  "the agent's directory (default $" MPIB_AGENT_DIR_ENV " or " MPIB_AGENT_DIR_DEFAULT ")",
	  'd', TEXT(dir) },
	{ "sort", "COLUMN", "flows top", "flows, top: by a column; -COLUMN: the greatest first",
	  's', TEXT(sort) },
	{ "peer", "ADDR", "flows top", "flows, top: from or to a SOUT address or subnet", 'P',
	  TEXT(peer) },
	{ "island", "NAME", "flows top", "flows, top: from or to an island", 'i', TEXT(island) },
	{ "pid", "PID", "flows top doctor",
	  "flows, top: of a process; doctor: look at a running job", 'p', NUMBER(pid, INT_MAX) },
	{ "for", "TIME", "set", "set: for 90s, 10m, 2h or 7d; otherwise to unset or boot", 'f',
	  TEXT(time) },
	{ "freeze", "", "policy", "policy: what shares found themselves, as lines for the file",
	  'F', FLAG(freeze) },
	{ "all", "", "hints", "hints: free slots too", 'a', FLAG(all) },
	{ "root", "DIR", "doctor", "doctor: look at sysfs and devices below DIR", 'r', TEXT(root) },
	{ "env", "", "doctor", "doctor: every setting, and where it is from", 'e', FLAG(job_env) },
	{ "count", "N", "monitor top", "monitor, top: end after N events, or looks", 'n',
	  NUMBER(count, COUNT_MAX) },
	{ "output", "FILE", "metrics", "metrics: put FILE in place, whole, instead of printing",
	  'o', TEXT(file) },
	{ "version", "", NULL, "print the version and exit", 'V', KIND_NONE, 0, 0 },
	{ "help", "", NULL, "print this and exit", 'h', KIND_NONE, 0, 0 },
};

static void print_help(void)
{
	(void)printf("Usage: mpibctl [OPTION]... COMMAND [ARGUMENT]\n"
		     "Looks at MPIB's agent on this host and asks it to reload.\n\nCommands:\n");
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(commands); n++)
		(void)printf("  %-8s %-19s  %s\n", commands[n].name, commands[n].argument,
			     commands[n].help);
	(void)printf("\nOptions:\n");
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		(void)printf("  --%-8s %-6s %s\n", options[n].name, options[n].argument,
			     options[n].help);
	(void)printf("\nExit codes: 0 good, 1 failure, 2 bad use, 3 no agent, 4 forbidden,\n"
		     "5 doctor warns. See mpibctl(1).\n");
}

enum mpib_ctl_exit mpib_ctl_fail_output(struct mpib_ctl *ctl, int error)
{
	ctl->cause.text[0] = '\0';
	if (error != -EPIPE)
		(void)mpib_cause_set(&ctl->cause, error, "%scan't write the answer: %s",
				     ctl->changed ? "what was asked is done, but " : "",
				     strerror(-error));
	return MPIB_CTL_FAILURE;
}

/* For what is printed without an agent. */
static int finish_stdout(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return MPIB_CTL_OK;
	if (errno != EPIPE)
		(void)fprintf(stderr, "mpibctl: can't write: %s\n", strerror(errno));
	return MPIB_CTL_FAILURE;
}

static int run(struct mpib_ctl *ctl, enum mpib_ctl_exit (*command)(struct mpib_ctl *ctl))
{
	mpib_cleanup(mpib_output_freep) struct mpib_output *output = NULL;
	enum mpib_ctl_exit code;
	int r;

	if (mpib_output_new(&output) < 0) {
		(void)fprintf(stderr, "mpibctl: out of memory\n");
		return MPIB_CTL_FAILURE;
	}

	ctl->output = output;
	code = command(ctl);
	if (code != MPIB_CTL_OK && ctl->cause.text[0])
		(void)fprintf(stderr, "mpibctl: %s\n", ctl->cause.text);
	if ((code != MPIB_CTL_OK && !ctl->answered) || ctl->printed)
		return code;

	mpib_output_fit(output, mpib_screen_get().columns, 0);
	r = mpib_output_print(output, ctl->json, stdout);
	if (r < 0) {
		code = mpib_ctl_fail_output(ctl, r);
		if (ctl->cause.text[0])
			(void)fprintf(stderr, "mpibctl: %s\n", ctl->cause.text);
	}
	return code;
}

/* Those in [] only where @all. */
static int count_words(const char *text, bool all)
{
	int words = *text != '\0' && (all || *text != '[');

	for (; *text; text++)
		words += *text == ' ' && (all || text[1] != '[');
	return words;
}

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = words; (p = strstr(p, word)); p += len) {
		if ((p == words || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	}
	return false;
}

/* True where each option given is one that @command knows: a filter that is only passed over would
 * tell something that isn't so. */
static bool options_fit(const bool given[], const char *command)
{
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++) {
		if (!given[n] || !options[n].only || has_word(options[n].only, command))
			continue;
		(void)fprintf(stderr, "mpibctl: --%s is not for %s, but for: %s\n", options[n].name,
			      command, options[n].only);
		return false;
	}
	return true;
}

static int dispatch(struct mpib_ctl *ctl, const bool given[], int argc, char *argv[])
{
	if (argc == 0) {
		(void)fprintf(stderr, "mpibctl: no command; see mpibctl --help\n");
		return MPIB_CTL_USAGE;
	}

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(commands); n++) {
		int least = 1 + count_words(commands[n].argument, false);
		int most = 1 + count_words(commands[n].argument, true);

		if (strcmp(argv[0], commands[n].name) != 0)
			continue;
		if (argc < least || argc > most) {
			(void)fprintf(stderr, "mpibctl: use: mpibctl %s %s\n", commands[n].name,
				      commands[n].argument);
			return MPIB_CTL_USAGE;
		}
		if (!options_fit(given, commands[n].name))
			return MPIB_CTL_USAGE;
		for (int arg = 1; arg < argc; arg++)
			ctl->arguments[arg - 1] = argv[arg];
		return run(ctl, commands[n].run);
	}

	(void)fprintf(stderr, "mpibctl: unknown command \"%s\"; see mpibctl --help\n", argv[0]);
	return MPIB_CTL_USAGE;
}

/* 1..@max; 0 and a line where @text is none. */
static unsigned long parse_number(const char *option, const char *text, long max)
{
	long number;
	char value[MPIB_PRINTABLE_MAX];

	if (mpib_number_parse(text, strlen(text), 1, max, &number) == 0)
		return (unsigned long)number;

	(void)fprintf(stderr, "mpibctl: --%s %s: must be a number from 1 to %ld\n", option,
		      mpib_printable(text, value, sizeof(value)), max);
	return 0;
}

/* The value of option @n; MPIB_CTL_USAGE where it is none. */
static enum mpib_ctl_exit read_option(struct mpib_ctl *ctl, size_t n)
{
	void *field = (char *)ctl + options[n].field;
	unsigned long number;

	switch (options[n].kind) {
	case KIND_FLAG:
		*(bool *)field = true;
		break;
	case KIND_TEXT:
		*(const char **)field = optarg;
		break;
	case KIND_NUMBER:
		number = parse_number(options[n].name, optarg, options[n].max);
		if (!number)
			return MPIB_CTL_USAGE;
		*(unsigned long *)field = number;
		break;
	case KIND_NONE:
		break;
	}
	return MPIB_CTL_OK;
}

int main(int argc, char *argv[])
{
	struct option longs[MPIB_ARRAY_SIZE(options) + 1] = { 0 };
	bool given[MPIB_ARRAY_SIZE(options)] = { 0 };
	const char *dir = getenv(MPIB_AGENT_DIR_ENV);
	struct mpib_ctl ctl = { .dir = dir && *dir ? dir : MPIB_AGENT_DIR_DEFAULT };
	int place = 0;
	int c;

	if (mpib_standard_fds_open() < 0)
		return MPIB_CTL_FAILURE;
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		longs[n] = (struct option){
			.name = options[n].name,
			.has_arg = *options[n].argument ? required_argument : no_argument,
			.val = options[n].letter,
		};

	while ((c = getopt_long(argc, argv, "h", longs, &place)) != -1) {
		if (c == 'V')
			(void)puts("mpibctl " MPIB_VERSION_LINE);
		if (c == 'h')
			print_help();
		if (c == 'V' || c == 'h')
			return finish_stdout();
		if (c == '?' || read_option(&ctl, (size_t)place) != MPIB_CTL_OK)
			return MPIB_CTL_USAGE;
		given[place] = true;
	}

	return dispatch(&ctl, given, argc - optind, argv + optind);
}
