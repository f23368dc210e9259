/* SPDX-License-Identifier: Apache-2.0 */
/* What fabricctl does to running programs. */
#include "tests/fabric/cases/faults.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DELAYS_OF_SEED_7 0x3dec916a3ef4cd74ULL

static void port_flap(struct side *s)
{
	struct pair_options options = { .timeout = 17, .retry = 7 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		struct ibv_port_attr port;

		require(write_once(&p, 64) == IBV_WC_SUCCESS, "a first write");
		ctl("port 2/sup down");
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, IBV_SEND_SIGNALED) == 0,
			"a post");
		require(is_quiet(p.send_cq), "nothing while the peer's port is down");
		ctl("port 2/sup up");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "success after a short flap");
		ctl("port 1/sup down");
		require(await_event(s, IBV_EVENT_PORT_ERR), "the event for port down");
		require(!ibv_query_port(s->ctx, 1, &port) && port.state == IBV_PORT_DOWN,
			"query_port to tell it");
		ctl("port 1/sup up");
		require(await_event(s, IBV_EVENT_PORT_ACTIVE), "the event for port up");
	}
	sync_ends(s);
	pair_close(&p);
}

/* The port goes down between two messages of which the first hasn't arrived: that one is lost where
 * it was going to, the second where it starts, and both come again. The retries last for 8.6 s:
 * whoever opens the port may wait for a processor meanwhile. */
static void port_flap_in_flight(struct side *s)
{
	struct pair_options options = { .timeout = 18, .retry = 7 };
	struct pair p;

	pair_open(s, &p, &options);
	for (int k = 0; !s->client && k < 4; k++) {
		const char *down = k % 2 ? "port 1/sup down" : "port 2/sup down";
		const char *up = k % 2 ? "port 1/sup up" : "port 2/sup up";

		ctl("latency 1/sup 200000");
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		(void)usleep(20000);
		ctl(down);
		require(post(&p, IBV_WR_RDMA_WRITE, 2, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		(void)usleep(k < 2 ? 300000 : 50000);
		ctl(up);
		ctl("latency 1/sup 0");
		for (uint64_t id = 1; id <= 2; id++) {
			struct ibv_wc wc = await(p.send_cq);

			require(wc.status == IBV_WC_SUCCESS && wc.wr_id == id, "both, in order");
		}
	}
	sync_ends(s);
	pair_close(&p);
}

static void port_dead(struct side *s)
{
	struct pair_options options = { .timeout = 12, .retry = 3 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		uint64_t start = clock_ms();

		ctl("rate 1/sup 1000000");
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, BUF_BYTES - ARENA, IBV_SEND_SIGNALED) ==
				0,
			"a post");
		ctl("port 1/sup down");
		require(await(p.send_cq).status == IBV_WC_RETRY_EXC_ERR, "retry exceeded");
		require(clock_ms() - start >= 60, "four timers of 17 ms");
		ctl("reset");
	}
	sync_ends(s);
	pair_close(&p);
}

/* A READ whose answers can't come. */
static void port_dead_in_read(struct side *s)
{
	struct pair_options options = { .timeout = 12, .retry = 3 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl("rate 2/sup 1000000");
		require(post(&p, IBV_WR_RDMA_READ, 1, 0, BUF_BYTES - ARENA, IBV_SEND_SIGNALED) == 0,
			"a post");
		(void)usleep(30000);
		ctl("port 2/sup down");
		require(await(p.send_cq).status == IBV_WC_RETRY_EXC_ERR, "retry exceeded");
		ctl("reset");
	}
	sync_ends(s);
	pair_close(&p);
}

static void rates(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		uint64_t start, ms;

		ctl("rate 1/sup 40000000");
		start = clock_ms();
		for (int k = 0; k < 4; k++)
			require(write_once(&p, 1 << 20) == IBV_WC_SUCCESS, "a write");
		ms = clock_ms() - start;
		(void)printf("4 MiB at 40 MB/s: %lu ms\n", (unsigned long)ms);
		require(ms >= 98, "no faster than the rate"); /* 104.8 ms less the window */
		ctl("rate 1/sup 0");
		ctl("latency 1/sup 20000");
		start = clock_ms();
		require(write_once(&p, 8) == IBV_WC_SUCCESS, "a write");
		require(clock_ms() - start >= 20, "no earlier than the latency");
		ctl("reset");
	}
	sync_ends(s);
	pair_close(&p);
}

/* A message in the middle of a slow wire goes on at the rate that the wire gets. */
static void sped_up(struct side *s)
{
	static const char *const how[] = { "rate 1/sup 100000000", "rate 1/sup 0", "reset",
					   "reset 1/sup" };
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	for (size_t k = 0; !s->client && k < sizeof(how) / sizeof(how[0]); k++) {
		uint64_t start;

		ctl("rate 1/sup 10000"); /* all of it: 26 s; a packet: 0.4 s */
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 1 << 18, IBV_SEND_SIGNALED) == 0,
			"a post");
		require(is_quiet(p.send_cq), "nothing yet");
		start = clock_ms();
		ctl(how[k]);
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "success");
		(void)printf("%s: %lu ms\n", how[k], (unsigned long)(clock_ms() - start));
		require(clock_ms() - start < 13000, "the rest at the new rate");
	}
	sync_ends(s);
	pair_close(&p);
}

static void drop_qp(struct side *s)
{
	struct pair_options options = { .timeout = 12, .retry = 1 };
	char words[32];
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client) {
		require(post_recv(&p, 1, ARENA, 64) == 0, "a receive");
		sync_ends(s);
		require(await_event(s, IBV_EVENT_QP_FATAL), "the event for a dropped QP");
		require(await(p.recv_cq).status == IBV_WC_WR_FLUSH_ERR, "receives flushed");
		sync_ends(s);
	} else {
		sync_ends(s);
		(void)snprintf(words, sizeof(words), "drop 0x%x", p.peer.qpn);
		ctl(words);
		sync_ends(s);
		require(write_once(&p, 64) == IBV_WC_RETRY_EXC_ERR, "silence from it");
	}
	sync_ends(s);
	pair_close(&p);
}

static void fail_verbs(struct side *s)
{
	struct pair_options options = { .no_connect = true };
	struct ibv_port_attr port;
	struct ibv_wc wc;
	struct pair p;

	if (s->client)
		return;
	pair_open(s, &p, &options);
	ctl("fail 1/sup query_port EIO 2 1");
	require(ibv_query_port(s->ctx, 1, &port) == 0, "the first call to be skipped");
	require(ibv_query_port(s->ctx, 1, &port) == EIO, "EIO");
	require(ibv_query_port(s->ctx, 1, &port) == EIO, "EIO twice");
	require(ibv_query_port(s->ctx, 1, &port) == 0, "then no more");
	ctl("fail 1/sup alloc_pd EACCES");
	errno = 0;
	require(!ibv_alloc_pd(s->ctx) && errno == EACCES, "EACCES stays EACCES");
	ctl("fail 1/sup reg_mr ENOMEM");
	errno = 0;
	require(!ibv_reg_mr(s->pd, p.buf, 64, 0) && errno == ENOMEM, "reg_mr to fail");
	ctl("fail 1/sup create_cq EMFILE");
	require(!ibv_create_cq(s->ctx, 1, NULL, NULL, 0) && errno == EMFILE, "create_cq to fail");
	ctl("fail 1/sup modify_qp ETIMEDOUT");
	require(to_init(&p, 0) == ETIMEDOUT, "modify_qp to fail");
	require(to_init(&p, 0) == 0, "and then not");
	ctl("fail 1/sup post_recv ENOMEM");
	require(post_recv(&p, 1, 0, 1) == ENOMEM, "post_recv to fail");
	ctl("fail 1/sup poll_cq EIO");
	require(ibv_poll_cq(p.send_cq, 1, &wc) < 0, "poll_cq to fail");
	ctl("fail 1/sup destroy_qp EINTR");
	require(ibv_destroy_qp(p.qp) == EINTR, "destroy_qp to fail");
	pair_close(&p);
}

/* A hundred writes on two QPs under `delay` with a seed: how often their completions changed from
 * one QP to the other. */
static int delayed_writes(struct pair *a, struct pair *b, int seed)
{
	uint64_t next[2] = { 0, 0 };
	int switches = 0, last = -1;
	char words[64];

	(void)snprintf(words, sizeof(words), "delay 1/sup 100 20000 %d", seed);
	ctl(words);
	for (uint64_t k = 0; k < 100; k++)
		require(post(k % 2 ? b : a, IBV_WR_RDMA_WRITE, k / 2, 0, 64, IBV_SEND_SIGNALED) ==
				0,
			"a post");
	for (int k = 0; k < 100; k++) {
		struct ibv_wc wc = await(a->send_cq);
		int q = wc.qp_num == b->qp->qp_num;

		require(wc.status == IBV_WC_SUCCESS && wc.wr_id == next[q]++, "order within a QP");
		switches += last != q;
		last = q;
	}
	return switches;
}

static unsigned long long delay_digest(void)
{
	const char *tool = getenv("FABRICCTL");
	char line[512], text[256];
	unsigned long long digest = 0;
	FILE *out;

	require(tool && snprintf(line, sizeof(line), "%s show 1/sup", tool) < (int)sizeof(line),
		"FABRICCTL names the tool");
	out = popen(line, "re");
	require(out && fgets(text, sizeof(text), out) && fgets(text, sizeof(text), out) &&
			sscanf(text, "  delays 100 digest %llx", &digest) == 1,
		"100 delays and their digest");
	(void)pclose(out);
	return digest;
}

/* Two QPs' completions mix anew, each QP's stay in order, and a seed stands for the same delays
 * each time, in this process and in the next. */
static void delays(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair a, b;

	pair_open(s, &a, &options);
	options.send_cq = a.send_cq; /* one queue shows one order */
	pair_open(s, &b, &options);
	if (!s->client) {
		unsigned long long first, second;

		require(delayed_writes(&a, &b, 7) < 100,
			"another order across QPs than the posts'");
		first = delay_digest();
		(void)delayed_writes(&a, &b, 8);
		second = delay_digest();
		require(first != second, "other delays from another seed");
		(void)delayed_writes(&a, &b, 7);
		require(delay_digest() == first, "the same delays from the same seed");
		require(first == DELAYS_OF_SEED_7,
			"the delays that seed 7 stood for in other runs");
		(void)printf("seed 7: %016llx, seed 8: %016llx\n", first, second);
		ctl("reset");
	}
	sync_ends(s);
	pair_close(&b);
	pair_close(&a);
}

static void device_killed(struct side *s)
{
	struct pair_options options = { .timeout = 12, .retry = 1 };
	struct ibv_device_attr attr;
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client) {
		require(post_recv(&p, 1, ARENA, 64) == 0, "a receive");
		sync_ends(s);
		require(await_event(s, IBV_EVENT_DEVICE_FATAL), "the event");
		require(await(p.recv_cq).status == IBV_WC_WR_FLUSH_ERR, "receives flushed");
		require(ibv_query_device(s->ctx, &attr) == EIO, "EIO from a dead device");
		sync_ends(s);
	} else {
		sync_ends(s);
		ctl("kill 2/sup");
		sync_ends(s);
		require(write_once(&p, 64) == IBV_WC_RETRY_EXC_ERR, "silence from it");
	}
	sync_ends(s);
	pair_close(&p); /* taking down works on a dead device */
}

/* Unplugged: with the fatal event or without it events end, and nothing completes. */
static void removed(struct side *s, const char *words, bool told)
{
	struct pair_options options = { .timeout = 12, .retry = 1 };
	struct pollfd events = { .fd = s->ctx->async_fd };
	struct ibv_async_event event;
	struct ibv_device_attr attr;
	struct ibv_wc wc;
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client) {
		require(post_recv(&p, 1, ARENA, 64) == 0, "a receive");
		sync_ends(s);
		require(!told || await_event(s, IBV_EVENT_DEVICE_FATAL), "the event");
		require(poll(&events, 1, 5000) == 1 && events.revents & POLLHUP, "no more events");
		errno = 0;
		require(ibv_get_async_event(s->ctx, &event) == -1 && errno == EIO, "none is had");
		require(ibv_query_device(s->ctx, &attr) == EIO, "EIO from a device that is gone");
		require(ibv_poll_cq(p.recv_cq, 1, &wc) == 0, "nothing completes");
		sync_ends(s);
	} else {
		sync_ends(s);
		ctl(words);
		sync_ends(s);
		require(write_once(&p, 64) == IBV_WC_RETRY_EXC_ERR, "silence from it");
	}
	sync_ends(s);
	pair_close(&p);
}

static void device_removed(struct side *s)
{
	removed(s, "remove 2/sup", true);
}

static void device_vanished(struct side *s)
{
	removed(s, "remove 2/sup quiet", false);
}

static void gid_change(struct side *s)
{
	struct ibv_gid_entry entry;

	if (s->client)
		return;
	ctl("gid 1/sup 5 10.9.1.77/v2");
	require(await_event(s, IBV_EVENT_GID_CHANGE), "the event");
	require(ibv_query_gid_ex(s->ctx, 1, 5, &entry, 0) == 0 && entry.gid.raw[15] == 77 &&
			entry.gid_type == IBV_GID_TYPE_ROCE_V2,
		"the new entry");
	ctl("gid 1/sup 3 -");
	require(ibv_query_gid_ex(s->ctx, 1, 3, &entry, 0) == ENODATA, "no data in an empty entry");
}

const struct fault_case control_cases[] = {
	{ .name = "port-flap", .run = port_flap },
	{ .name = "port-flap-in-flight", .run = port_flap_in_flight },
	{ .name = "port-dead", .run = port_dead },
	{ .name = "port-dead-in-read", .run = port_dead_in_read },
	{ .name = "rates", .run = rates },
	{ .name = "sped-up", .run = sped_up },
	{ .name = "drop-qp", .run = drop_qp },
	{ .name = "fail-verbs", .run = fail_verbs },
	{ .name = "delays", .run = delays },
	{ .name = "device-killed", .run = device_killed },
	{ .name = "device-removed", .run = device_removed },
	{ .name = "device-vanished", .run = device_vanished },
	{ .name = "gid-change", .run = gid_change },
	{ 0 },
};
