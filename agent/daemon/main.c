/* SPDX-License-Identifier: Apache-2.0 */
/* mpib-agentd: arguments, --check, and run. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/base/standard_fds.h"
#include "agent/policy/config.h"
#include "agent/journal/journal.h"
#include "agent/daemon/manager.h"
#include "common/cleanup.h"
#include "common/macros.h"
#include "common/mpib_agent_iface.h"
#include "common/versions.h"

MPIB_DEFINE_CLEANUP(struct mpib_policy *, mpib_policy_free);

static const struct {
	struct option option;
	const char *argument;
	const char *help;
} options[] = {
	{ { "config", required_argument, NULL, 'c' },
	  "FILE",
	  "policy file (default " MPIB_CONFIG_PATH ", which may be missing)" },
	{ { "dir", required_argument, NULL, 'd' },
	  "DIR",
	  "directory of hints and socket (default $" MPIB_AGENT_DIR_ENV
	  " or " MPIB_AGENT_DIR_DEFAULT ")" },
	{ { "check", required_argument, NULL, 'k' },
	  "FILE",
	  "check a policy file, print what it means, and exit" },
	{ { "version", no_argument, NULL, 'V' }, "", "print the version and exit" },
	{ { "help", no_argument, NULL, 'h' }, "", "print this and exit" },
};

static void print_help(void)
{
	(void)printf(
		"Usage: mpib-agentd [OPTION]...\n"
		"Policy daemon of MPIB: gives each flow of this host its share of both rails.\n"
		"\n");
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		(void)printf("  --%-8s %-5s %s\n", options[n].option.name, options[n].argument,
			     options[n].help);
	(void)printf(
		"\nSIGHUP reloads the policy file. Exit codes: 0 stopped, 1 failure, 2 bad use,"
		"\n75 another instance serves DIR, 78 policy file or DIR needs a person.\n"
		"See mpib-agentd(8), mpib-agent.ini(5), mpibctl(1).\n");
}

static int check(const char *path)
{
	mpib_cleanup(mpib_policy_freep) struct mpib_policy *policy = NULL;
	struct mpib_cause cause;

	if (mpib_config_load(path, &policy, &cause) < 0) {
		(void)fprintf(stderr, "%s\n", cause.text);
		return MPIB_AGENT_EXIT_CONFIG;
	}

	(void)printf("; %s is good; the effective policy:\n", path);
	mpib_config_print(policy, stdout);
	return fflush(stdout) ? MPIB_AGENT_EXIT_FAILURE : MPIB_AGENT_EXIT_OK;
}

static uint64_t no_time(void)
{
	return 0;
}

/* The cause of a failed start, in the same form as any other entry. */
static void say_failure(const char *text)
{
	struct mpib_journal *journal;

	if (mpib_journal_new(no_time, &journal) < 0) {
		(void)fprintf(stderr, "mpib-agentd: %s\n", text);
		return;
	}

	mpib_journal_failure(journal, text);
	(void)mpib_journal_free(journal);
}

static int run(const struct mpib_manager_args *args)
{
	struct mpib_manager *manager;
	enum mpib_agent_exit code;
	struct mpib_cause cause;
	int r;

	if (mpib_manager_new(args, &manager, &code, &cause) < 0) {
		say_failure(cause.text);
		return code;
	}

	r = mpib_manager_run(manager, &cause);
	(void)mpib_manager_free(manager);
	if (r < 0) {
		say_failure(cause.text);
		return MPIB_AGENT_EXIT_FAILURE;
	}
	return MPIB_AGENT_EXIT_OK;
}

int main(int argc, char *argv[])
{
	struct option longs[MPIB_ARRAY_SIZE(options) + 1] = { 0 };
	struct mpib_manager_args args = { .config = MPIB_CONFIG_PATH };
	const char *check_path = NULL;
	const char *dir = getenv(MPIB_AGENT_DIR_ENV);
	int c;

	if (mpib_standard_fds_open() < 0)
		return MPIB_AGENT_EXIT_FAILURE;
	args.dir = dir && *dir ? dir : MPIB_AGENT_DIR_DEFAULT;
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(options); n++)
		longs[n] = options[n].option;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			args.config = optarg;
			args.config_named = true;
			break;
		case 'd':
			args.dir = optarg;
			break;
		case 'k':
			check_path = optarg;
			break;
		case 'V':
			(void)puts("mpib-agentd " MPIB_VERSION_LINE);
			return MPIB_AGENT_EXIT_OK;
		case 'h':
			print_help();
			return MPIB_AGENT_EXIT_OK;
		default:
			return MPIB_AGENT_EXIT_USAGE;
		}
	}

	if (optind < argc) {
		(void)fprintf(stderr, "mpib-agentd: unexpected argument \"%s\"; see --help\n",
			      argv[optind]);
		return MPIB_AGENT_EXIT_USAGE;
	}

	return check_path ? check(check_path) : run(&args);
}
