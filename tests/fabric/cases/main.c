/* SPDX-License-Identifier: Apache-2.0 */
/* fabric-cases NAME: runs one case in a meeting directory of its own. Exit: 0 held, 1 didn't. */
#include "tests/fabric/cases/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pid_t fault_peer;
static const char *case_name = "?";

void give_up(const char *what)
{
	(void)fprintf(stderr, "%s (%s): expected: %s\n", case_name,
		      fault_peer ? "node 1" : "node 2", what);
	if (fault_peer)
		(void)kill(fault_peer, SIGKILL);
	exit(1);
}

void ctl(const char *words)
{
	const char *tool = getenv("FABRICCTL");
	char line[512];

	require(tool && snprintf(line, sizeof(line), "%s %s", tool, words) < (int)sizeof(line),
		"FABRICCTL names the tool");
	require(system(line) == 0, words);
}

uint64_t clock_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

enum ibv_wc_status write_once(struct pair *p, uint32_t len)
{
	require(post(p, IBV_WR_RDMA_WRITE, 1, 0, len, IBV_SEND_SIGNALED) == 0, "a post");
	return await(p->send_cq).status;
}

/* --- running one case --- */

static void open_side(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port = { 0 };

	for (int k = 0; list && list[k]; k++)
		if (strcmp(ibv_get_device_name(list[k]), "sup") == 0)
			s->ctx = ibv_open_device(list[k]);
	if (list)
		ibv_free_device_list(list);
	require(s->ctx != NULL, "the device sup");
	s->pd = ibv_alloc_pd(s->ctx);
	require(s->pd && !ibv_query_port(s->ctx, 1, &port) &&
			!ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid),
		"answers of the device");
	s->mtu = port.active_mtu;
}

static void run_side(const struct fault_case *c, int sock, bool client)
{
	struct side side = { .sock = sock, .client = client, .gid_index = 3 };
	const char *node = c->nodes[client] ? c->nodes[client] : client ? "2" : "1";

	(void)setenv("MPIB_FABRIC_NODE", node, 1);
	open_side(&side);
	c->run(&side);
	require(side.failed == 0, "no difference above");
	require(ibv_dealloc_pd(side.pd) == 0 && ibv_close_device(side.ctx) == 0,
		"everything taken down");
}

static int run_both(const struct fault_case *c)
{
	int socks[2], status = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) < 0)
		return 1;
	fault_peer = fork();
	if (fault_peer == 0) {
		(void)close(socks[0]);
		run_side(c, socks[1], true);
		exit(0);
	}
	(void)close(socks[1]);
	(void)fcntl(socks[0], F_SETFD, FD_CLOEXEC);
	run_side(c, socks[0], false);
	if (waitpid(fault_peer, &status, 0) < 0)
		return 1;
	if (c->child_dies)
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
	return status ? 1 : 0;
}

static int write_config(const char *dir, const char *text)
{
	char path[512];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/fabric.ini", dir);
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file))
		return -1;
	return setenv("MPIB_FABRIC", path, 1);
}

static int run_case(const struct fault_case *c)
{
	char dir[] = "/tmp/mpib-fabric-case-XXXXXX", line[128];
	int r;

	if (!mkdtemp(dir) || setenv("MPIB_FABRIC_DIR", dir, 1) ||
	    (c->config && write_config(dir, c->config)))
		return 1;
	case_name = c->name;
	r = run_both(c);
	(void)snprintf(line, sizeof(line), "rm -rf %s", dir);
	if (system(line))
		r = 1;
	(void)printf("%s: %s\n", c->name, r ? "FAILED" : "ok");
	return r;
}

int main(int argc, char **argv)
{
	const struct fault_case *const lists[] = { death_cases,	  control_cases, late_cases,
						   life_cases,	  rule_cases,	 gpu_cases,
						   feature_cases, page_cases,	 judge_cases,
						   wire_cases };
	int found = 0, failed = 0;

	(void)unsetenv("MPIB_FABRIC");
	(void)unsetenv("MPIB_FABRIC_NULL");
	for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
		for (const struct fault_case *c = lists[k]; c->name; c++) {
			if (argc == 2 && strcmp(argv[1], c->name) == 0) {
				failed = run_case(c);
				found++;
			} else if (argc == 1) {
				(void)printf("%s\n", c->name);
			}
		}
	}
	return argc == 1 ? 0 : !found || failed;
}
