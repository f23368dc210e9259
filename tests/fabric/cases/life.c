/* SPDX-License-Identifier: Apache-2.0 */
/* Long lives, idle ones, reach, and the odd kinds of memory. */
#include "tests/fabric/cases/faults.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		(void)closedir(dir);
	return count;
}

/* Every 100th with data; the program's files and memory must not grow with the count. */
static void thousand_connects(struct side *s)
{
	struct pair_options options = { .send_wr = 16, .recv_wr = 16, .cqe = 64, .bytes = 65536 };
	size_t memory = 0;
	int files = 0;

	for (int k = 0; k < 1000; k++) {
		struct pair p;

		pair_open(s, &p, &options);
		require(write_once(&p, k % 100 ? 64 : 60000) == IBV_WC_SUCCESS, "a write");
		sync_ends(s);
		pair_close(&p);
		if (k == 100) {
			files = open_files();
			memory = mallinfo2().uordblks;
		}
	}
	(void)printf("files %d -> %d, heap %zu -> %zu\n", files, open_files(), memory,
		     (size_t)mallinfo2().uordblks);
	require(open_files() <= files, "no more open files than after 100");
	require(mallinfo2().uordblks <= memory + 65536, "no more memory than after 100");
	sync_ends(s); /* until here neither end has closed its device */
}

static uint64_t cpu_us(void)
{
	struct rusage use;

	(void)getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Connected, used, and then left alone: no thread of the library runs. */
static void idle(struct side *s)
{
	struct pair_options options = { 0 };
	uint64_t before;
	struct pair p;

	pair_open(s, &p, &options);
	require(write_once(&p, 1 << 20) == IBV_WC_SUCCESS, "a write");
	sync_ends(s);
	(void)usleep(100000);
	before = cpu_us();
	(void)usleep(1000000);
	(void)printf("CPU in an idle second: %lu us\n", (unsigned long)(cpu_us() - before));
	require(cpu_us() - before < 5000, "under 5 ms of CPU in an idle second");
	sync_ends(s);
	pair_close(&p);
}

/* A QP that is its own peer, as flushes of device memory use it. */
static void loopback(struct side *s)
{
	struct pair_options options = { .no_connect = true };
	struct pair p;

	if (s->client)
		return;
	pair_open(s, &p, &options);
	p.peer = p.mine;
	require(!to_init(&p, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) && !to_rtr(&p) &&
			!to_rts(&p, &options),
		"a QP connected to itself");
	fill_pattern(p.buf + ARENA, 100000, 5);
	require(!post(&p, IBV_WR_RDMA_READ, 1, 1 << 20, 100000, IBV_SEND_SIGNALED) &&
			await(p.send_cq).status == IBV_WC_SUCCESS &&
			pattern_holds(p.buf + (1 << 20), 100000, 5),
		"a loopback READ");
	require(write_once(&p, 100000) == IBV_WC_SUCCESS, "a loopback write");
	pair_close(&p);
}

/* A rail with island scope ends at the island's edge: its address can't be resolved beyond, as a
 * kernel says. An address that nobody has is silence. */
static void islands(struct side *s)
{
	struct pair_options options = { .no_connect = true, .timeout = 12, .retry = 1 };
	struct pair p;

	pair_open(s, &p, &options);
	swap_bytes(s, &p.mine, &p.peer, sizeof(p.mine));
	require(to_init(&p, 0) == 0, "INIT");
	require(to_rtr(&p) == ENETUNREACH, "no way between islands");
	p.peer.gid[15] ^= 0x40;
	require(to_rtr(&p) == 0 && to_rts(&p, &options) == 0, "a QP to an unknown address");
	require(write_once(&p, 64) == IBV_WC_RETRY_EXC_ERR, "silence from there");
	sync_ends(s);
	pair_close(&p);
}

static const char islands_config[] = "[fabric]\nname = islands\n"
				     "[device sout]\n[device sup]\nscope = island\n"
				     "[node a]\nisland = 1\n"
				     "sout.address = 10.0.1.1\nsup.address = 10.9.1.1\n"
				     "[node b]\nisland = 2\n"
				     "sout.address = 10.0.2.1\nsup.address = 10.9.2.1\n";

/* Writes there and reads back, of lengths that a crew divides and of lengths that it doesn't. */
static void there_and_back(struct pair *p, uint32_t len, unsigned int seed)
{
	uint8_t *mine = p->buf, *back = p->buf + BUF_BYTES / 2;

	fill_pattern(mine, len, seed);
	memset(back, 0, len);
	require(write_once(p, len) == IBV_WC_SUCCESS, "a write");
	require(post(p, IBV_WR_RDMA_READ, 2, BUF_BYTES / 2, len, IBV_SEND_SIGNALED) == 0 &&
			await(p->send_cq).status == IBV_WC_SUCCESS,
		"a read");
	require(pattern_holds(back, len, seed), "all bytes there and back");
}

static void copiers(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;
	int status;

	pair_open(s, &p, &options);
	if (!s->client) {
		for (uint32_t len = 1; len < BUF_BYTES / 2; len = len * 3 + 1)
			there_and_back(&p, len, len);
		(void)usleep(50000); /* the crew sleeps */
		there_and_back(&p, BUF_BYTES / 2, 7);
	} else {
		pid_t child = fork();

		if (child == 0) {
			(void)usleep(100000);
			_exit(0);
		}
		require(waitpid(child, &status, 0) == child && status == 0, "a child without crew");
	}
	sync_ends(s);
	pair_close(&p);
}

static const char copiers_config[] = "[fabric]\nname = copiers\ncopiers = 3\n"
				     "[device sup]\n[node 1]\nsup.address = 10.9.1.1\n"
				     "[node 2]\nsup.address = 10.9.1.2\n";

/* The GID table of the field: the wanted entry at index 5. */
static void odd_gids(struct side *s)
{
	struct ibv_gid_entry table[16];

	require(ibv_query_gid_table(s->ctx, table, 16, 0) == 3, "three entries");
	require(table[2].gid_index == 5 && table[2].gid_type == IBV_GID_TYPE_ROCE_V2,
		"RoCE v2 at index 5");
}

static const char gids_config[] = "[fabric]\nname = gids\n[device sup]\n"
				  "gids = fe80::1/v1 - - 10.9.1.9/v1 - 10.9.1.9/v2\n"
				  "[node 1]\n[node 2]\n";

static int to_rtr_by_lid(struct pair *p, uint16_t lid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = p->side->mtu,
				    .dest_qp_num = p->peer.qpn,
				    .rq_psn = p->peer.psn,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12,
				    .ah_attr = { .dlid = lid, .port_num = 1 } };

	return ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

/* InfiniBand ports: a LID is enough, and the only way is the one that it names. */
static void lids(struct side *s)
{
	struct pair_options options = { .no_connect = true, .timeout = 12, .retry = 1 };
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct pair p, lost;
	uint16_t peer_lid = 0;

	require(!ibv_query_port(s->ctx, 1, &port) && port.lid &&
			port.link_layer == IBV_LINK_LAYER_INFINIBAND,
		"a LID and the link layer");
	require(!ibv_query_gid_ex(s->ctx, 1, 0, &entry, 0) && entry.gid_type == IBV_GID_TYPE_IB &&
			entry.gid.raw[0] == 0xfe && entry.gid.global.interface_id,
		"an InfiniBand GID");
	require(ibv_query_gid_ex(s->ctx, 1, 1, &entry, 0) == ENODATA, "no other GID");
	swap_bytes(s, &port.lid, &peer_lid, sizeof(peer_lid));
	require(peer_lid && peer_lid != port.lid, "another LID at the other end");

	pair_open(s, &p, &options);
	pair_open(s, &lost, &options);
	swap_bytes(s, &p.mine, &p.peer, sizeof(p.mine));
	lost.peer = p.peer;
	require(!to_init(&p, IBV_ACCESS_REMOTE_WRITE) && !to_init(&lost, IBV_ACCESS_REMOTE_WRITE),
		"INIT");
	require(to_rtr_by_lid(&p, 0) == EINVAL && to_rtr_by_lid(&p, 0xc000) == EINVAL,
		"no LID and a multicast LID refused");
	require(!to_rtr_by_lid(&p, peer_lid) && !to_rts(&p, &options), "RTR by LID");
	require(!to_rtr_by_lid(&lost, 999) && !to_rts(&lost, &options), "RTR by LID of nobody");
	sync_ends(s);
	require(write_once(&p, 100000) == IBV_WC_SUCCESS, "a write");
	require(write_once(&lost, 64) == IBV_WC_RETRY_EXC_ERR, "no way to a LID of nobody");
	sync_ends(s);
	pair_close(&lost);
	pair_close(&p);
}

static const char lids_config[] = "[fabric]\nname = lids\n"
				  "[device sup]\nlink_layer = infiniband\n[node 1]\n[node 2]\n";

/* The device's place in sysfs, as its `device` link tells it. */
static void pci(struct side *s)
{
	char path[PATH_MAX], target[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/device", s->ctx->device->ibdev_path);
	require(realpath(path, target) && strcmp(target, s->client ? "/proc/tty" : "/proc/fs") == 0,
		"the folder that the INI names");
}

static const char pci_config[] = "[fabric]\nname = pci\n[device sup]\npci = /proc/tty\n"
				 "[node 1]\nsup.address = 10.9.1.1\nsup.pci = /proc/fs\n"
				 "[node 2]\nsup.address = 10.9.1.2\n";

static void null_mode(struct side *s)
{
	struct pair_options options = { .no_connect = true };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct pair p;

	if (s->client)
		return;
	pair_open(s, &p, &options);
	p.peer = p.mine;
	require(!to_init(&p, IBV_ACCESS_REMOTE_WRITE) && !to_rtr(&p) && !to_rts(&p, &options),
		"a connected QP");
	fill_pattern(p.buf, 4096, 1);
	require(write_once(&p, 4096) == IBV_WC_SUCCESS, "success at once");
	require(!pattern_holds(p.buf + ARENA, 4096, 1), "no byte moved");
	require(post(&p, IBV_WR_RDMA_WRITE, 2, 0, 64, 0) == 0, "an unsignalled post");
	require(!ibv_modify_qp(p.qp, &error, IBV_QP_STATE) && is_quiet(p.send_cq),
		"nothing left to flush");
	pair_close(&p);
}

static const char null_config[] = "[fabric]\nnull = yes\n[device sup]\n"
				  "[node 1]\nsup.address = 10.9.1.1\n"
				  "[node 2]\nsup.address = 10.9.1.2\n";

static void memlock(struct side *s)
{
	struct rlimit limit = { .rlim_cur = 65536, .rlim_max = 65536 };
	char *buf = malloc(1 << 17);
	struct ibv_mr *mr;

	require(buf && setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "a limit of 64 KiB");
	errno = 0;
	require(!ibv_reg_mr(s->pd, buf, 1 << 17, 0) && errno == ENOMEM, "ENOMEM over the limit");
	mr = ibv_reg_mr(s->pd, buf, 60000, 0);
	require(mr && !ibv_reg_mr(s->pd, buf, 60000, 0) && !ibv_dereg_mr(mr), "the sum to count");
	mr = ibv_reg_mr(s->pd, buf, 60000, 0);
	require(mr && !ibv_dereg_mr(mr), "deregistered memory not to count");
	free(buf);
}

static const char memlock_config[] = "[fabric]\nmemlock = yes\n[device sup]\n"
				     "[node 1]\nsup.address = 10.9.1.1\n"
				     "[node 2]\nsup.address = 10.9.1.2\n";

/* A mappable DMA-BUF (any file stands for one) with an address of its own choosing. */
static void dmabuf(struct side *s)
{
	struct pair_options options = { 0 };
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	struct ibv_mr *mr;
	struct pair p;
	char byte = 0;

	require(fd >= 0 && ftruncate(fd, 65536) == 0, "a file");
	mr = ibv_reg_dmabuf_mr(s->pd, 100, 8192, 0x70000000, fd,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require(mr != NULL, "reg_dmabuf_mr");
	pair_open(s, &p, &options);
	p.mine.rkey = mr->rkey;
	p.mine.addr = 0x70000000 - ARENA; /* post() adds it again */
	swap_bytes(s, &p.mine, &p.peer, sizeof(p.mine));
	p.buf[4095] = 'x';
	require(write_once(&p, 4096) == IBV_WC_SUCCESS, "a write to it");
	sync_ends(s);
	require(pread(fd, &byte, 1, 100 + 4095) == 1 && byte == 'x', "the byte in the file");
	pair_close(&p);
	require(ibv_dereg_mr(mr) == 0 && close(fd) == 0, "deregistration");
}

/* --- threads --- */

struct worker {
	struct pair pair;
	bool good;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->good = true;
	for (int k = 0; k < 200 && w->good; k++) {
		struct ibv_mr *mr = ibv_reg_mr(w->pair.side->pd, w->pair.buf, 4096, 0);

		w->good = mr && write_once(&w->pair, 1U << (k % 18)) == IBV_WC_SUCCESS &&
			  ibv_dereg_mr(mr) == 0;
	}
	return NULL;
}

/* Several threads, a QP each, both directions: for ThreadSanitizer above all. */
static void threads(struct side *s)
{
	struct pair_options options = { 0 };
	struct worker workers[4];
	pthread_t ids[4];

	for (int k = 0; k < 4; k++)
		pair_open(s, &workers[k].pair, &options);
	for (int k = 0; k < 4; k++)
		require(pthread_create(&ids[k], NULL, work, &workers[k]) == 0, "a thread");
	for (int k = 0; k < 4; k++) {
		(void)pthread_join(ids[k], NULL);
		require(workers[k].good, "every write of every thread");
	}
	sync_ends(s);
	for (int k = 0; k < 4; k++)
		pair_close(&workers[k].pair);
}

const struct fault_case life_cases[] = {
	{ .name = "thousand-connects", .run = thousand_connects },
	{ .name = "idle", .run = idle },
	{ .name = "loopback", .run = loopback },
	{ .name = "islands", .run = islands, .nodes = { "a", "b" }, .config = islands_config },
	{ .name = "lids", .run = lids, .config = lids_config },
	{ .name = "pci", .run = pci, .config = pci_config },
	{ .name = "copiers", .run = copiers, .config = copiers_config },
	{ .name = "odd-gids", .run = odd_gids, .config = gids_config },
	{ .name = "null-mode", .run = null_mode, .config = null_config },
	{ .name = "memlock", .run = memlock, .config = memlock_config },
	{ .name = "dmabuf", .run = dmabuf },
	{ .name = "threads", .run = threads },
	{ 0 },
};
