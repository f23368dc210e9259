/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/harness.h"

#include <sys/wait.h>

#include "tests/agent/harness/harness_impl.h"

static void run_ctl(const struct agent *agent, uid_t uid, const char *const args[], int out_fd)
{
	const char *argv[12] = { harness_program("MPIBCTL"), "--dir", agent->dir };
	unsigned int n = 3;
	/* Opened before the user changes: the build may lie where others can't look. */
	int fd = open(argv[0] ? argv[0] : "", O_RDONLY);

	while (*args && n < 11)
		argv[n++] = *args++;
	harness_redirect(agent);
	if (dup2(out_fd, STDOUT_FILENO) < 0)
		_exit(99);
	if (uid != geteuid() && setresuid(uid, uid, uid) < 0)
		_exit(99);
	(void)fexecve(fd, (char **)(uintptr_t)argv, environ);
	_exit(96);
}

int agent_ctl(const struct agent *agent, uid_t uid, const char *const args[], char **ret_out)
{
	FILE *out = tmpfile();
	char *text = NULL;
	size_t size = 0;
	int status;
	pid_t pid;

	assert_non_null(out);
	(void)harness_program("MPIBCTL"); /* likewise */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_ctl(agent, uid, args, fileno(out));
	status = harness_reap(pid);

	if (ret_out) {
		(void)fseek(out, 0, SEEK_SET);
		if (getdelim(&text, &size, '\0', out) < 0) {
			free(text);
			text = strdup("");
		}
		assert_non_null(text);
		*ret_out = text;
	}
	(void)fclose(out);
	return status;
}

char *agent_ctl_words(const struct agent *agent, int wanted, ...)
{
	const char *args[9] = { NULL };
	char line[512] = "";
	char *out = NULL;
	va_list words;
	int code;

	va_start(words, wanted);
	for (unsigned int n = 0; n < 8; n++) {
		args[n] = va_arg(words, const char *);
		if (!args[n])
			break;
		(void)strncat(line, " ", sizeof(line) - strlen(line) - 1);
		(void)strncat(line, args[n], sizeof(line) - strlen(line) - 1);
	}
	va_end(words);

	code = agent_ctl(agent, geteuid(), args, &out);
	if (code != wanted)
		fail_msg("mpibctl%s: exit %d, not %d", line, code, wanted);
	return out;
}

void harness_expect(char *out, const char *part)
{
	if (!strstr(out, part))
		fail_msg("no \"%s\" in: %s", part, out);
	free(out);
}
