/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor --pid: a running job, looked at with its own settings. */
#include <signal.h>
#include <sys/prctl.h>

#include "tests/agent/harness/node.h"

struct job {
	pid_t pid;
	int hold; /* the job ends when this is closed */
};

/* cat with environment @env, which is in place when this returns. */
static struct job start_job(char *const env[])
{
	char *const argv[] = { (char *)"cat", NULL };
	int hold[2], started[2];
	struct job job;
	char byte;

	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	assert_int_equal(pipe2(started, O_CLOEXEC), 0);
	job.pid = fork();
	assert_true(job.pid >= 0);
	if (job.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(hold[0], STDIN_FILENO);
		(void)execve("/bin/cat", argv, env);
		(void)!write(started[1], "", 1);
		_exit(1);
	}
	(void)close(hold[0]);
	(void)close(started[1]);
	assert_int_equal(read(started[0], &byte, 1), 0); /* closed by the exec */
	(void)close(started[0]);
	job.hold = hold[1];
	return job;
}

static void end_job(const struct job *job)
{
	(void)close(job->hold);
	assert_int_equal(harness_reap(job->pid), 0);
}

/* doctor --pid of @pid; its stdout, for the caller to free. */
static char *doctor_of(pid_t pid, uid_t uid, int wanted)
{
	char number[16];
	const char *args[] = { "--json", "--root", node_root, "--pid", number, "doctor", NULL };
	char *out = NULL;

	(void)snprintf(number, sizeof(number), "%d", (int)pid);
	assert_int_equal(agent_ctl(&agent, uid, args, &out), wanted);
	return out;
}

static void a_job_is_looked_at_with_its_own_settings(void **state)
{
	char dir[TEMPDIR_MAX + 32];
	char *env[] = { (char *)"MPIB_HCA_SOUT=mlx5_1",
			(char *)"MPIB_HCA_SUP=mlx5_11",
			(char *)"MPIB_MODE=1",
			(char *)"MPIB_IB_TIMOUT=20",
			(char *)"MPIB_IB_TC=\001256",
			(char *)"NCCL_IB_SL=3",
			(char *)"NCCL_IB_HCA=mlx5_2",
			dir,
			NULL };
	struct job job;
	char *out;

	(void)state;
	agent_start(&agent);
	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s", agent.dir);
	(void)setenv("MPIB_MODE", "0", 1); /* of this shell: not the job's */
	job = start_job(env);
	out = doctor_of(job.pid, geteuid(), CTL_FAIL);

	assert_non_null(strstr(out, "\"check\": \"MPIB_MODE\", \"found\": \"1, set\""));
	assert_non_null(strstr(out, "MPIB_IB_TIMOUT is no setting of MPIB and has no effect; did "
				    "you mean MPIB_IB_TIMEOUT?"));
	assert_non_null(strstr(out, "\"level\": \"FAIL\", \"check\": \"MPIB_IB_TC\", \"found\": "
				    "\"MPIB_IB_TC=\\\\x01256: must be "));
	assert_non_null(strstr(out, "\"MPIB_IB_SL\", \"found\": \"3, from NCCL_IB_SL\""));
	assert_non_null(strstr(out, "NCCL_IB_HCA=mlx5_2 says nothing to MPIB: "));
	assert_non_null(strstr(out, "\"level\": \"OK\", \"check\": \"directory\""));
	free(out);
	end_job(&job);
}

static void a_job_with_another_directory_fails_in_mode_1(void **state)
{
	char dir[TEMPDIR_MAX + 32];
	char *env[] = { (char *)"MPIB_MODE=1", dir, NULL };
	struct job job;

	(void)state;
	agent_start(&agent);
	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s", agent.base);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL),
		       "it has a private /tmp, or another MPIB_AGENT_DIR");
	end_job(&job);

	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s/none", agent.base);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL), "can't see the agent's directory");
	end_job(&job);
}

static void a_job_that_cannot_be_read_is_told(void **state)
{
	char *const env[] = { (char *)"MPIB_MODE=1", NULL };
	char *const none[] = { NULL };
	struct job job = start_job(env);

	(void)state;
	if (geteuid() == 0) {
		free(doctor_of(job.pid, HARNESS_NOBODY, CTL_FORBIDDEN));
		assert_int_equal(agent_log_count(&agent, "ask as that user, or as root"), 1);
	}
	end_job(&job);
	free(doctor_of(job.pid, geteuid(), CTL_FAIL));
	assert_int_equal(agent_log_count(&agent, "there is no process "), 1);

	job = start_job(none);
	free(doctor_of(job.pid, geteuid(), CTL_FAIL));
	assert_int_equal(agent_log_count(&agent, "has no environment"), 1);
	end_job(&job);

	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "0", "doctor", NULL));
	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "1x", "doctor", NULL));
	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "4294967297", "doctor", NULL));
	assert_int_equal(agent_log_count(&agent, "must be a number from 1 to 2147483647"), 3);
}

/* 17 names of 100 KiB that are no settings: each finding is short, and there are few. */
static void a_huge_environment_is_cut(void **state)
{
	enum { ENTRIES = 17, LEN = 100 << 10 };
	char *env[ENTRIES + 1] = { NULL };
	struct job job;
	char *out;

	(void)state;
	for (size_t k = 0; k < ENTRIES; k++) {
		env[k] = malloc(LEN);
		assert_non_null(env[k]);
		memset(env[k], 'A' + (int)k, LEN - 1);
		memcpy(env[k], "MPIB_", 5);
		env[k][LEN - 1] = '\0';
	}
	job = start_job(env);
	out = doctor_of(job.pid, geteuid(), CTL_FAIL);
	assert_non_null(strstr(out, "1 more variables begin with MPIB_ and are no settings"));
	assert_true(strlen(out) < 32768);
	free(out);
	end_job(&job);
	for (size_t k = 0; k < ENTRIES; k++)
		free(env[k]);
}

/* What a process may make of its environment: it is the process's own memory. */
struct scribble {
	char *start;
	size_t size;
	int ready, hold;
};

static int scribble_and_wait(void *arg)
{
	const struct scribble *s = arg;
	char byte;

	for (size_t k = 0; k < s->size; k++)
		s->start[k] = (char)(k % 255 + 1);
	memcpy(s->start, "MPIB_\377=", 7);
	(void)!write(s->ready, "", 1);
	return read(s->hold, &byte, 1) != 0;
}

static char *first_variable; /* where the kernel put the environment */

static void an_environment_of_garbage_without_end_is_read(void **state)
{
	struct scribble s = { .start = first_variable };
	int ready[2], hold[2];
	FILE *file = fopen("/proc/self/environ", "re");
	char byte;
	char *out;
	pid_t pid;

	(void)state;
	assert_non_null(file);
	while (fgetc(file) != EOF)
		s.size++;
	(void)fclose(file);
	assert_true(s.size > 7);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	s.ready = ready[1];
	s.hold = hold[0];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(hold[1]);
		_exit(scribble_and_wait(&s));
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	out = doctor_of(pid, geteuid(), CTL_FAIL);
	assert_non_null(strstr(out, "MPIB_\\\\xff is no setting of MPIB"));
	free(out);
	(void)close(hold[1]);
	assert_int_equal(harness_reap(pid), 0);
	(void)close(hold[0]);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* The job names the file, so it must not be able to stop the one who looks. */
static void a_pipe_as_the_file_of_nccl_does_not_block(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char *const env[] = { (char *)"MPIB_MODE=1", (char *)"NCCL_CONF_FILE=/pipe", NULL };
	struct job job;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/pipe", node_root);
	assert_int_equal(mkfifo(path, 0600), 0);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL), "\"MPIB_MODE\"");
	end_job(&job);
}

int main(int argc, char *argv[], char *envp[])
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(a_job_is_looked_at_with_its_own_settings),
		NODE_TEST(a_job_with_another_directory_fails_in_mode_1),
		NODE_TEST(a_job_that_cannot_be_read_is_told),
		NODE_TEST(a_huge_environment_is_cut),
		NODE_TEST(an_environment_of_garbage_without_end_is_read),
		NODE_TEST(a_pipe_as_the_file_of_nccl_does_not_block),
	};

	(void)argc;
	(void)argv;
	first_variable = envp[0];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
