/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl: options, the table of commands, exit codes. */
#include "agent/ctl.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/macros.h"

MPIB_DEFINE_CLEANUP(struct mpib_output *, mpib_output_free);

static const struct {
	const char *name;
	const char *argument; /* what it takes, each word one; "" for none */
	enum mpib_ctl_exit (*run)(struct mpib_ctl *ctl);
	const char *help;
} commands[] = {
	{ "status", "", mpib_ctl_status, "the agent's health and counts" },
	{ "flows", "", mpib_ctl_flows, "flows of this host, their shares and rules" },
	{ "top", "", mpib_ctl_top, "the same each second, see --count" },
	{ "hints", "", mpib_ctl_hints, "the hint table as plugins read it (no agent needed)" },
	{ "explain", "FLOW", mpib_ctl_explain,
	  "what each rule gives a flow, and which is in force" },
	{ "policy", "", mpib_ctl_policy, "the policy in force, defaults included" },
	{ "monitor", "", mpib_ctl_monitor, "events as they happen, see --count" },
	{ "metrics", "", mpib_ctl_metrics, "OpenMetrics text, see --output" },
	{ "doctor", "", mpib_ctl_doctor, "what to mend before a job runs; for prologs, too" },
	{ "set", "FLOW SHARE", mpib_ctl_set, "give a flow a share above the policy, see --for" },
	{ "unset", "FLOW", mpib_ctl_unset, "end that: the policy holds again" },
	{ "check", "FILE", mpib_ctl_check, "check a policy file (no agent needed)" },
	{ "reload", "", mpib_ctl_reload, "reload the policy, wait, say what changed" },
};

static const struct {
	struct option option;
	const char *argument;
	const char *help;
} options[] = {
	{ { "json", no_argument, NULL, 'j' },
	  "",
	  "JSON on stdout, exactly when the exit code is 0 (doctor: a verdict, 0, 1 or 5)" },
	{ { "dir", required_argument, NULL, 'd' },
	  "DIR",
	  "the agent's directory (default $" MPIB_AGENT_DIR_ENV " or " MPIB_AGENT_DIR_DEFAULT ")" },
	{ { "for", required_argument, NULL, 'f' },
	  "TIME",
	  "set: for 90s, 10m, 2h or 7d; without it until unset or the end of the boot" },
	{ { "all", no_argument, NULL, 'a' }, "", "hints: free slots too" },
	{ { "root", required_argument, NULL, 'r' },
	  "DIR",
	  "doctor: look at sysfs and devices below DIR instead of /" },
	{ { "count", required_argument, NULL, 'n' },
	  "N",
	  "monitor, top: end after N events, or looks" },
	{ { "output", required_argument, NULL, 'o' },
	  "FILE",
	  "metrics: put FILE in place, whole, instead of printing" },
	{ { "version", no_argument, NULL, 'V' }, "", "print the version and exit" },
	{ { "help", no_argument, NULL, 'h' }, "", "print this and exit" },
};

static void print_help(void)
{
	(void)printf("Usage: mpibctl [OPTION]... COMMAND [ARGUMENT]\n"
		     "Looks at MPIB's agent on this host and asks it to reload.\n\nCommands:\n");
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(commands); n++)
		(void)printf("  %-8s %-10s  %s\n", commands[n].name, commands[n].argument,
			     commands[n].help);
	(void)printf("\nOptions:\n");
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		(void)printf("  --%-8s %-4s %s\n", options[n].option.name, options[n].argument,
			     options[n].help);
	(void)printf("\nExit codes: 0 good, 1 failure, 2 bad use, 3 no agent, 4 forbidden, 5 "
		     "doctor warns.\n"
		     "See mpibctl(1).\n");
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

	r = mpib_output_print(output, ctl->json, stdout);
	if (r < 0) {
		(void)fprintf(stderr, "mpibctl: can't write the answer: %s\n", strerror(-r));
		return MPIB_CTL_FAILURE;
	}
	return code;
}

static int count_words(const char *text)
{
	int words = *text != '\0';

	for (; *text; text++)
		words += *text == ' ';
	return words;
}

static int dispatch(struct mpib_ctl *ctl, int argc, char *argv[])
{
	if (argc == 0) {
		(void)fprintf(stderr, "mpibctl: no command; see mpibctl --help\n");
		return MPIB_CTL_USAGE;
	}

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(commands); n++) {
		int wanted = 1 + count_words(commands[n].argument);

		if (strcmp(argv[0], commands[n].name) != 0)
			continue;
		if (argc != wanted) {
			(void)fprintf(stderr, "mpibctl: use: mpibctl %s %s\n", commands[n].name,
				      commands[n].argument);
			return MPIB_CTL_USAGE;
		}
		for (int arg = 1; arg < wanted; arg++)
			ctl->arguments[arg - 1] = argv[arg];
		return run(ctl, commands[n].run);
	}

	(void)fprintf(stderr, "mpibctl: unknown command \"%s\"; see mpibctl --help\n", argv[0]);
	return MPIB_CTL_USAGE;
}

/* 1..1000000000; 0 and a line where it is none. */
static unsigned long parse_count(const char *text)
{
	char *end;
	unsigned long count = strtoul(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && count >= 1 && count <= 1000000000)
		return count;

	(void)fprintf(stderr, "mpibctl: --count %s is no count, write 1 or more\n", text);
	return 0;
}

int main(int argc, char *argv[])
{
	struct option longs[MPIB_ARRAY_SIZE(options) + 1] = { 0 };
	const char *dir = getenv(MPIB_AGENT_DIR_ENV);
	struct mpib_ctl ctl = { .dir = dir && *dir ? dir : MPIB_AGENT_DIR_DEFAULT };
	int c;

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		longs[n] = options[n].option;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			ctl.json = true;
			break;
		case 'd':
			ctl.dir = optarg;
			break;
		case 'f':
			ctl.time = optarg;
			break;
		case 'a':
			ctl.all = true;
			break;
		case 'r':
			ctl.root = optarg;
			break;
		case 'n':
			ctl.count = parse_count(optarg);
			if (!ctl.count)
				return MPIB_CTL_USAGE;
			break;
		case 'o':
			ctl.file = optarg;
			break;
		case 'V':
			(void)puts("mpibctl " MPIB_VERSION);
			return MPIB_CTL_OK;
		case 'h':
			print_help();
			return MPIB_CTL_OK;
		default:
			return MPIB_CTL_USAGE;
		}
	}

	return dispatch(&ctl, argc - optind, argv + optind);
}
