/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory, with a driver that stands in for CUDA's (fakecuda/). */
#include "tests/fabric/cases/faults.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_BYTES (1U << 20)

struct device_memory {
	uint8_t *ptr;	/* not to be touched */
	uint8_t *bytes; /* what is behind it */
	struct ibv_mr *mr;
};

static void device_memory_new(struct side *s, struct device_memory *m)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
	void *(*alloc)(size_t len);
	void *(*bytes)(void);

	require(lib != NULL, "the driver");
	symbol = dlsym(lib, "fake_alloc");
	require(symbol != NULL, "the stand-in, not a real driver");
	memcpy(&alloc, &symbol, sizeof(symbol));
	symbol = dlsym(lib, "fake_bytes");
	memcpy(&bytes, &symbol, sizeof(symbol));
	m->ptr = alloc(DEVICE_BYTES);
	m->bytes = bytes();
	require(m->ptr && m->bytes, "device memory");
	m->mr = ibv_reg_mr(s->pd, m->ptr, DEVICE_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	require(m->mr != NULL, "device memory registered");
}

static void post_device(struct pair *p, const struct device_memory *m, enum ibv_wr_opcode op,
			uint64_t offset, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)m->ptr + offset,
			       .length = len,
			       .lkey = m->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED
	};

	wr.wr.rdma.remote_addr = p->peer.addr + offset;
	wr.wr.rdma.rkey = p->peer.rkey;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = p->peer.addr;
		wr.wr.atomic.rkey = p->peer.rkey;
		wr.wr.atomic.compare_add = 5;
	}
	require(post_wr(p, &wr) == 0, "a post");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
}

/* What the driver can't copy is told, once. */
static void broken_copies(struct pair *p, const struct device_memory *m)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *symbol = dlsym(lib, "fake_break");
	int before = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
	void (*fake_break)(void);
	char text[512] = "";

	require(symbol && before >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0, "a place");
	memcpy(&fake_break, &symbol, sizeof(symbol));
	fake_break();
	post_device(p, m, IBV_WR_RDMA_READ, 4096, 64);
	post_device(p, m, IBV_WR_RDMA_READ, 4096, 64);
	require(dup2(before, STDERR_FILENO) >= 0 && pread(file, text, sizeof(text) - 1, 0) > 0,
		"a line");
	require(strstr(text, "64 bytes to device memory") &&
			strchr(text, '\n') == strrchr(text, '\n'),
		"one line that names the copy");
	(void)close(before);
	(void)close(file);
}

/* Write, READ and add, from device memory to the other end's. */
static void gpu(struct side *s)
{
	struct pair_options options = { 0 };
	struct device_memory m;
	uint64_t value = 37;
	struct pair p;

	device_memory_new(s, &m);
	pair_open(s, &p, &options);
	p.mine.addr = (uintptr_t)m.ptr;
	p.mine.rkey = m.mr->rkey;
	swap_bytes(s, &p.mine, &p.peer, sizeof(p.mine));
	if (s->client) {
		fill_pattern(m.bytes + 4096, 500000, 3);
		post_device(&p, &m, IBV_WR_RDMA_WRITE, 4096, 500000);
		memset(m.bytes + 4096, 0, 500000);
		post_device(&p, &m, IBV_WR_RDMA_READ, 4096, 500000);
		require(pattern_holds(m.bytes + 4096, 500000, 3), "the bytes read back");
	} else {
		memcpy(m.bytes, &value, sizeof(value));
	}
	sync_ends(s);
	if (s->client) {
		post_device(&p, &m, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
		memcpy(&value, m.bytes, sizeof(value));
		require(value == 37, "the old value");
	}
	sync_ends(s);
	if (!s->client) {
		memcpy(&value, m.bytes, sizeof(value));
		require(value == 42, "the sum in the server's device memory");
		require(pattern_holds(m.bytes + 4096, 500000, 3), "the bytes written");
	}
	sync_ends(s);
	if (s->client)
		broken_copies(&p, &m);
	sync_ends(s);
	pair_close(&p);
	require(ibv_dereg_mr(m.mr) == 0, "deregistration");
}

static const char gpu_config[] = "[fabric]\ngpu = yes\n[device sup]\n"
				 "[node 1]\nsup.address = 10.9.1.1\n"
				 "[node 2]\nsup.address = 10.9.1.2\n";

const struct fault_case gpu_cases[] = {
	{ .name = "gpu", .run = gpu, .config = gpu_config },
	{ 0 },
};
