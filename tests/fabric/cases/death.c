/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that die, stop, or have children. */
#include "tests/fabric/cases/faults.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer can't start threads in a child of a program that has some. */
#ifdef __SANITIZE_THREAD__
#define FORK_ROUNDS 2
#else
#define FORK_ROUNDS 3
#endif

/* Three timers of 67 ms make 201 ms; the upper bound only says "not for ever". */
static void expect_silence(struct pair *p)
{
	uint64_t start = clock_ms(), ms;

	require(write_once(p, 1 << 20) == IBV_WC_RETRY_EXC_ERR, "retry exceeded");
	ms = clock_ms() - start;
	require(ms >= 195 && ms < 15000, "the time of three retransmission timers");
	require(state_of(p) == IBV_QPS_ERR, "the QP in the error state");
}

static void peer_killed(struct side *s)
{
	struct pair_options options = { .timeout = 14, .retry = 2 };
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client)
		(void)pause();
	require(write_once(&p, 4096) == IBV_WC_SUCCESS, "a first write");
	(void)kill(fault_peer, SIGKILL);
	expect_silence(&p);
	pair_close(&p);
}

static void peer_killed_in_transfer(struct side *s)
{
	struct pair_options options = { .timeout = 14, .retry = 2 };
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client)
		(void)pause();
	/* Each write would take tens of seconds: the first is under way when the peer dies. */
	ctl("rate 1/sup 100000");
	for (uint64_t k = 0; k < 10; k++)
		require(post(&p, IBV_WR_RDMA_WRITE, k, 0, BUF_BYTES - ARENA, IBV_SEND_SIGNALED) ==
				0,
			"a post");
	(void)usleep(50000);
	(void)kill(fault_peer, SIGKILL);
	require(await(p.send_cq).status == IBV_WC_RETRY_EXC_ERR, "retry exceeded");
	for (int k = 1; k < 10; k++)
		require(await(p.send_cq).status == IBV_WC_WR_FLUSH_ERR, "the rest flushed");
	pair_close(&p);
}

/* A child that outlives the peer holds copies of what the peer had open. */
static void peer_killed_leaves_child(struct side *s)
{
	struct pair_options options = { .timeout = 14, .retry = 2 };
	char byte = 0;
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client) {
		(void)write_once(&p, 64);
		if (fork() == 0) {
			(void)!read(s->sock, &byte, 1); /* until node 1 has gone */
			_exit(0);
		}
		require(write(s->sock, &byte, 1) == 1, "a word to the parent");
		(void)pause();
	}
	require(read(s->sock, &byte, 1) == 1, "a word from the child");
	require(write_once(&p, 4096) == IBV_WC_SUCCESS, "a first write");
	(void)kill(fault_peer, SIGKILL);
	expect_silence(&p);
	pair_close(&p);
}

/* A NIC goes on while its program is stopped; here the bytes wait, and nothing fails. */
static void peer_stopped(struct side *s)
{
	struct pair_options options = { .timeout = 12, .retry = 1 };
	struct pair p;
	int status;

	pair_open(s, &p, &options);
	if (!s->client) {
		(void)kill(fault_peer, SIGSTOP);
		require(waitpid(fault_peer, &status, WUNTRACED) == fault_peer && WIFSTOPPED(status),
			"the peer stopped"); /* not only told to */
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, IBV_SEND_SIGNALED) == 0,
			"a post");
		require(is_quiet(p.send_cq), "no completion while the peer is stopped");
		(void)kill(fault_peer, SIGCONT);
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "success once it goes on");
	}
	sync_ends(s);
	pair_close(&p);
}

static int open_sockets(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300], target[64] = "";

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		count += readlink(path, target, sizeof(target) - 1) > 0 && target[0] == 's';
	}
	if (dir)
		(void)closedir(dir);
	return count;
}

/* Children that exit, exec, and open devices of their own, while the parent's transfers go on. */
static void forks(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;
	int status;

	pair_open(s, &p, &options);
	require(write_once(&p, 65536) == IBV_WC_SUCCESS, "a first write");
	for (int round = 0; round < FORK_ROUNDS; round++) {
		pid_t pid = fork();

		if (pid == 0 && round == 0)
			exit(open_sockets() > 1); /* only the one to the other end */
		if (pid == 0 && round == 1) {
			execl("/bin/sh", "sh", "-c", "! ls -l /proc/$$/fd | grep -q memfd", NULL);
			_exit(127);
		}
		if (pid == 0) {
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_context *ctx = list ? ibv_open_device(list[0]) : NULL;

			_exit(!ctx || ibv_close_device(ctx));
		}
		require(write_once(&p, 1 << 20) == IBV_WC_SUCCESS, "a write beside a child");
		require(waitpid(pid, &status, 0) == pid && status == 0, "a child that is content");
		require(write_once(&p, 1 << 20) == IBV_WC_SUCCESS, "a write after a child");
	}
	sync_ends(s);
	pair_close(&p);
}

const struct fault_case death_cases[] = {
	{ .name = "peer-killed", .run = peer_killed, .child_dies = true },
	{ .name = "peer-killed-in-transfer", .run = peer_killed_in_transfer, .child_dies = true },
	{ .name = "peer-killed-leaves-child", .run = peer_killed_leaves_child, .child_dies = true },
	{ .name = "peer-stopped", .run = peer_stopped },
	{ .name = "forks", .run = forks },
	{ 0 },
};
