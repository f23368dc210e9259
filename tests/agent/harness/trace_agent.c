/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in the place of mpib-agentd in a test: runs the real one and lets one of its system calls
 * fail, be cut short, or be its last (trace.h). */
#include "tests/agent/harness/trace.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* sys/ptrace.h has another struct of this name in other versions of the C library. */
struct call_info {
	uint8_t op; /* 1: entry, 2: exit */
	uint8_t pad[3];
	uint32_t arch;
	uint64_t instruction_pointer;
	uint64_t stack_pointer;
	uint64_t nr;
	uint64_t args[6];
};

#define GET_SYSCALL_INFO 0x420e

static struct trace_page *page;

static bool is_sync(uint64_t nr)
{
	return nr == SYS_fsync || nr == SYS_fdatasync || nr == SYS_msync || nr == SYS_syncfs ||
	       nr == SYS_sync_file_range;
}

static bool is_write(uint64_t nr)
{
	return nr == SYS_write || nr == SYS_pwrite64;
}

/* What a disk can't make fail. */
static bool sends(uint64_t nr)
{
	return nr == SYS_sendto || nr == SYS_sendmsg || nr == SYS_listen;
}

static bool changes_files(uint64_t nr)
{
	static const long numbers[] = {
		SYS_openat,    SYS_mkdirat,  SYS_fchmod, SYS_fchmodat,	SYS_flock,
		SYS_ftruncate, SYS_pwrite64, SYS_write,	 SYS_fallocate, SYS_unlinkat,
		SYS_renameat2, SYS_bind,     SYS_listen, SYS_sendto,	SYS_sendmsg,
#ifdef SYS_open
		SYS_open,      SYS_mkdir,    SYS_chmod,	 SYS_unlink,	SYS_rename,
		SYS_renameat,
#endif
	};

	for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
		if (nr == (uint64_t)numbers[n])
			return true;
	}
	return false;
}

/* ---- registers ------------------------------------------------------------------------------ */

#ifdef __x86_64__
/* At the entry: no call is made. At the exit: what it gave. */
static void skip_call(pid_t pid)
{
	struct user_regs_struct regs;

	(void)ptrace(PTRACE_GETREGS, pid, NULL, &regs);
	regs.orig_rax = (unsigned long long)-1;
	(void)ptrace(PTRACE_SETREGS, pid, NULL, &regs);
}

static void set_result(pid_t pid, long result)
{
	struct user_regs_struct regs;

	(void)ptrace(PTRACE_GETREGS, pid, NULL, &regs);
	regs.rax = (unsigned long long)result;
	(void)ptrace(PTRACE_SETREGS, pid, NULL, &regs);
}

static void halve(pid_t pid)
{
	struct user_regs_struct regs;

	(void)ptrace(PTRACE_GETREGS, pid, NULL, &regs);
	regs.rdx /= 2;
	(void)ptrace(PTRACE_SETREGS, pid, NULL, &regs);
}
#define CAN_FAIL true
#else
static void skip_call(pid_t pid)
{
	(void)pid;
}

static void set_result(pid_t pid, long result)
{
	(void)pid;
	(void)result;
}

static void halve(pid_t pid)
{
	(void)pid;
}
#define CAN_FAIL false
#endif

/* ---- calls ---------------------------------------------------------------------------------- */

static _Noreturn void die(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	/* The agent's descriptors are closed: so ends what stands for it. */
	(void)signal(SIGKILL, SIG_DFL);
	(void)kill(getpid(), SIGKILL);
	for (;;)
		(void)pause();
}

/* True where the call's result is the test's. */
static bool enter(pid_t pid, const struct call_info *info)
{
	int fault = atomic_load(&page->fault);

	if (is_sync(info->nr))
		(void)atomic_fetch_add(&page->syncs, 1);
	if (fault == TRACE_NOTHING || (!atomic_load(&page->all) && !changes_files(info->nr)) ||
	    (fault == TRACE_HALVES && !is_write(info->nr)) ||
	    (fault == TRACE_FAILS && sends(info->nr)))
		return false;
	if (atomic_fetch_add(&page->calls, 1) != atomic_load(&page->skip))
		return false;

	atomic_store(&page->fault, TRACE_NOTHING);
	atomic_store(&page->number, (unsigned int)info->nr);
	atomic_store(&page->hit, 1);
	if (fault == TRACE_KILLS)
		die(pid);
	if (fault == TRACE_HALVES)
		halve(pid);
	if (fault == TRACE_FAILS)
		skip_call(pid);
	return fault == TRACE_FAILS;
}

/* Signals go on as they come; stops that are none of a call are passed over. */
static int follow(pid_t pid)
{
	bool failing = false;
	int signal_due = 0;
	int status;

	for (;;) {
		struct call_info info = { 0 };

		if (ptrace(PTRACE_SYSCALL, pid, NULL, signal_due) < 0 ||
		    waitpid(pid, &status, 0) < 0)
			return 95;
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (WIFSIGNALED(status)) {
			(void)kill(getpid(), WTERMSIG(status));
			return 128 + WTERMSIG(status);
		}
		signal_due = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			if (WSTOPSIG(status) != SIGTRAP)
				signal_due = WSTOPSIG(status);
			continue;
		}
		if (ptrace((enum __ptrace_request)GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
			return TRACE_EXIT_UNABLE;
		if (info.op == 1)
			failing = enter(pid, &info);
		else if (failing)
			set_result(pid, -atomic_load(&page->error));
	}
}

static int run(const char *agentd, char **argv)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* it wants to trace, too */
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		return TRACE_EXIT_UNABLE;
	(void)raise(SIGSTOP);
	(void)execv(agentd, argv);
	return 96;
}

/* Signals for the agent come to the one that the test knows. */
static pid_t agent_pid;

static void pass_on(int number)
{
	(void)kill(agent_pid, number);
}

int main(int argc, char **argv)
{
	const char *agentd = getenv(TRACE_AGENTD_ENV);
	const char *fd = getenv(TRACE_FD_ENV);
	int status;

	(void)argc;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd ? atoi(fd) : -1, 0);
	if (page == MAP_FAILED || !agentd)
		return 97;
	agent_pid = fork();
	if (agent_pid == 0)
		return run(agentd, argv);
	if (agent_pid < 0 || waitpid(agent_pid, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, agent_pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) <
		    0)
		return TRACE_EXIT_UNABLE;
	if (!CAN_FAIL && atomic_load(&page->fault) >= TRACE_FAILS)
		return TRACE_EXIT_UNABLE;
	(void)signal(SIGHUP, pass_on);
	(void)signal(SIGTERM, pass_on);
	return follow(agent_pid);
}
