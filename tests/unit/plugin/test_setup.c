/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection's queue pairs are told, from which settings; what of a connection reaches which
 * request; memory of GPUs. */
#include "tests/unit/plugin/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/mman.h>

#include "plugin/connection/comm.h"
#include "plugin/base/result.h"
#include "plugin/data/transfer.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

enum { SOUT, SUP, SOUT2, SUP2 }; /* devices of fake_verbs.h */

static struct pair p;

static int clean(void **state)
{
	static const char *const names[] = {
		"MPIB_IB_TC",	"MPIB_IB_SL",	  "MPIB_IB_TIMEOUT",   "MPIB_IB_RETRY_CNT",
		"MPIB_IB_ECE",	"MPIB_NODE_ADDR", "MPIB_GPUDIRECT",    "MPIB_FLUSH",
		"MPIB_IB_PKEY", "MPIB_MODE",	  "MPIB_IB_GID_INDEX", "MPIB_ISLAND_PREFIX_LEN"
	};

	(void)state;
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
		(void)unsetenv(names[k]);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	pair_env();
	fake_reset_ports();
	test_log_clear();
	memset(&p, 0, sizeof(p));
	return 0;
}

static int finish(void **state)
{
	(void)state;
	pair_close(&p);
	fake_set_max_msg(1u << 30);
	return fake_live() == 0 ? 0 : -1;
}

static void open_pair(int to_dev)
{
	if (pair_open(&p, test_logger, to_dev) != ncclSuccess)
		fail_msg("no connection: %s", test_log_state.text);
}

static struct mpib_comm *send_base(void)
{
	return p.send;
}

static struct mpib_comm *recv_base(void)
{
	return p.recv;
}

/* Of the QPs of a rail, all alike. */
static struct fake_qp_state qp_of(const struct mpib_comm *comm, unsigned int rail)
{
	struct fake_qp_state first, other;

	assert_true(comm->nqps[rail] > 0);
	assert_int_equal(fake_qp(comm->qp[rail][0]->qp_num, &first), 0);
	for (unsigned int k = 1; k < comm->nqps[rail]; k++) {
		assert_int_equal(fake_qp(comm->qp[rail][k]->qp_num, &other), 0);
		assert_int_equal(other.attr.path_mtu, first.attr.path_mtu);
		assert_int_equal(other.attr.timeout, first.attr.timeout);
		assert_int_equal(other.ece_options, first.ece_options);
		assert_int_equal(other.attr.ah_attr.grh.traffic_class,
				 first.attr.ah_attr.grh.traffic_class);
	}
	return first;
}

/* Each rail at the smaller MTU of the two ends, whichever end has it. Device 2 and 3 are the
 * listener's. */
static void test_smaller_mtu_per_rail(void **state)
{
	struct fake_port port;

	(void)state;
	(void)setenv("MPIB_MODE", "1", 1);
	fake_get_port(SOUT2, &port);
	port.mtu = IBV_MTU_1024;
	fake_set_port(SOUT2, &port);
	fake_get_port(SUP, &port);
	port.mtu = IBV_MTU_2048;
	fake_set_port(SUP, &port);
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SOUT).attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(qp_of(p.recv, MPIB_SOUT).attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.path_mtu, IBV_MTU_2048);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).attr.path_mtu, IBV_MTU_2048);
	pair_close(&p);

	/* Read again at the next connection: nothing was lowered for good. */
	fake_reset_ports();
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SOUT).attr.path_mtu, IBV_MTU_4096);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).attr.path_mtu, IBV_MTU_4096);
}

/* Within one process, without a new init. */
static void test_mtu_and_gid_read_at_each_connection(void **state)
{
	struct pair first;
	struct fake_port port;

	(void)state;
	open_pair(0);
	first = p;
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.path_mtu, IBV_MTU_4096);
	fake_get_port(SUP, &port);
	port.mtu = IBV_MTU_512;
	port.ip = 0x0a090163;
	fake_set_port(SUP, &port);
	open_pair(0);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.path_mtu, IBV_MTU_512);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.ah_attr.grh.dgid.raw[15], 0x63);
	pair_close(&p);
	/* The address is gone: this connection is refused and the older one goes on. */
	port.ip = 0;
	fake_set_port(SUP, &port);
	test_log_clear();
	assert_int_not_equal(pair_open(&p, test_logger, 0), ncclSuccess);
	assert_logged("SUP rail sup:1: no RoCE v2 GID with a routable IPv4 address");
	pair_close(&p);
	p = first;
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
}

/* What the table is asked by one connection: a listener, and both rails of both ends. */
static unsigned int gid_queries(void)
{
	unsigned int before = fake_calls(FAKE_QUERY_GID);

	assert_int_equal(mpib_api_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	assert_int_equal(pair_shake(&p, 0), ncclSuccess);
	return fake_calls(FAKE_QUERY_GID) - before;
}

static void close_ends(void)
{
	assert_int_equal(mpib_api_close(p.send), ncclSuccess);
	assert_int_equal(mpib_api_close(p.recv), ncclSuccess);
	assert_int_equal(mpib_api_close_listen(p.listener), ncclSuccess);
	p.send = p.recv = p.listener = NULL;
}

static void set_gids(unsigned int device, unsigned int first, unsigned int end)
{
	struct fake_port port;

	fake_get_port(device, &port);
	port.gid_first = (uint8_t)first;
	port.gid_end = (uint8_t)end;
	fake_set_port(device, &port);
}

/* The table is searched once; later the entry alone is read, until it isn't one that serves or the
 * device says that the table changed. */
static void test_gid_is_searched_once(void **state)
{
	struct mpib_hca *sup;

	(void)state;
	open_pair(0);
	sup = &mpib_device_get(0)->hca[MPIB_SUP];
	close_ends();
	assert_int_equal(gid_queries(), 5);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.ah_attr.grh.sgid_index, 3);
	close_ends();

	/* The address moves: the first end that looks searches, and finds it. */
	set_gids(SUP, 1, 2);
	assert_int_equal(gid_queries(), 5 + 2);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.ah_attr.grh.sgid_index, 1);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).attr.ah_attr.grh.sgid_index, 1);
	close_ends();

	/* A better entry: the one that serves is kept until the device tells of it. */
	set_gids(SUP, 3, 4);
	(void)gid_queries();
	close_ends();
	set_gids(SUP, 0, 4);
	(void)gid_queries();
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.ah_attr.grh.sgid_index, 3);
	close_ends();
	fake_port_event(SUP, IBV_EVENT_GID_CHANGE, 2); /* another port's */
	fake_event(SUP, IBV_EVENT_GID_CHANGE);
	for (unsigned int k = 0; k < 2000 && atomic_load(&sup->gid_at); k++)
		(void)poll(NULL, 0, 1);
	(void)gid_queries();
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.ah_attr.grh.sgid_index, 1);
}

static void test_timeout_retries_service_level(void **state)
{
	struct fake_qp_state qp;

	(void)state;
	open_pair(0);
	qp = qp_of(p.send, MPIB_SUP);
	assert_int_equal(qp.attr.timeout, 18);
	assert_int_equal(qp.attr.retry_cnt, 6);
	assert_int_equal(qp.attr.ah_attr.sl, 0);
	pair_close(&p);
	(void)setenv("MPIB_IB_TIMEOUT", "21", 1);
	(void)setenv("MPIB_IB_RETRY_CNT", "3", 1);
	(void)setenv("MPIB_IB_SL", "5", 1);
	open_pair(0);
	for (unsigned int end = 0; end < 2; end++)
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			qp = qp_of(end ? p.recv : p.send, rail);
			assert_int_equal(qp.attr.timeout, 21);
			assert_int_equal(qp.attr.retry_cnt, 3);
			assert_int_equal(qp.attr.ah_attr.sl, 5);
			assert_int_equal(qp.attr.rnr_retry, 7);
		}
}

/* Sets up a connection whose two ends NCCL gave the traffic class @config, or -1. */
static void traffic_class(int config, unsigned int expected)
{
	struct mpib_nccl_config c = { .trafficClass = config };

	assert_int_equal(mpib_api_init(&p.ctx, &c, test_logger), ncclSuccess);
	assert_int_equal(mpib_api_traffic_class(p.ctx), config);
	assert_int_equal(mpib_api_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && !(p.send && p.recv); k++) {
		if (!p.send)
			assert_int_equal(mpib_api_connect(0, mpib_api_traffic_class(p.ctx),
							  p.handle, &p.send),
					 ncclSuccess);
		if (!p.recv)
			assert_int_equal(mpib_api_accept(p.listener, &p.recv), ncclSuccess);
		(void)poll(NULL, 0, 1);
	}
	assert_true(p.send && p.recv);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		assert_int_equal(qp_of(p.send, rail).attr.ah_attr.grh.traffic_class, expected);
		assert_int_equal(qp_of(p.recv, rail).attr.ah_attr.grh.traffic_class, expected);
	}
	pair_close(&p);
}

/* NCCL's setting of the communicator (ncclNetCommConfig), unless the environment has one. */
static void test_traffic_class(void **state)
{
	(void)state;
	traffic_class(-1, 0);
	traffic_class(106, 106);
	traffic_class(300, 0); /* no such class */
	(void)setenv("MPIB_IB_TC", "41", 1);
	traffic_class(-1, 41);
	traffic_class(106, 41);
	(void)setenv("MPIB_IB_TC", "0", 1);
	traffic_class(106, 0);
}

/* Tables from v10 on: listen has none, connect has one. Every QP of both ends gets it. */
static void test_traffic_class_of_connect_alone(void **state)
{
	(void)state;
	assert_int_equal(mpib_api_init(&p.ctx, NULL, test_logger), ncclSuccess);
	assert_int_equal(mpib_api_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && !(p.send && p.recv); k++) {
		if (!p.send)
			assert_int_equal(mpib_api_connect(0, 106, p.handle, &p.send), ncclSuccess);
		if (!p.recv)
			assert_int_equal(mpib_api_accept(p.listener, &p.recv), ncclSuccess);
		(void)poll(NULL, 0, 1);
	}
	assert_true(p.send && p.recv);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		assert_int_equal(qp_of(p.send, rail).attr.ah_attr.grh.traffic_class, 106);
		assert_int_equal(qp_of(p.recv, rail).attr.ah_attr.grh.traffic_class, 106);
	}
}

/* The accepting node sets one itself, and it isn't the connecting node's. */
static void test_traffic_class_differs(void **state)
{
	struct mpib_comm *send = NULL;
	struct mpib_env env;
	int r = 0;

	(void)state;
	assert_int_equal(mpib_env_read(&env), 0);
	(void)setenv("MPIB_IB_TC", "41", 1);
	assert_int_equal(mpib_api_init(&p.ctx, NULL, test_logger), ncclSuccess);
	assert_int_equal(mpib_api_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && r == 0; k++) {
		r = mpib_connect(mpib_device_get(0), &env, 106, p.handle, &send);
		(void)mpib_api_accept(p.listener, &p.recv);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, -MPIB_EUSAGE);
	assert_null(p.recv);
	assert_logged("MPIB_IB_TC differs: 41 on the accepting side, 106 on the connecting side");
}

/* Both drivers have it: both ends' QPs get what both can. */
static void test_ece(void **state)
{
	(void)state;
	fake_set_ece(SUP, 0x15b3, 0xf0f0);
	fake_set_ece(SUP2, 0x15b3, 0x3c3c);
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SUP).ece_vendor, 0x15b3);
	assert_int_equal(qp_of(p.send, MPIB_SUP).ece_options, 0x3030);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).ece_vendor, 0x15b3);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).ece_options, 0x3030);
	assert_int_equal(qp_of(p.send, MPIB_SOUT).ece_vendor, 0); /* that rail has none */
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
}

/* One end without, another vendor's, or switched off: the connection comes up without it. */
static void test_ece_not_on_both(void **state)
{
	(void)state;
	(void)setenv("MPIB_MODE", "1", 1);
	fake_set_ece(SUP2, 0x15b3, 0xff);
	open_pair(1);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).ece_vendor, 0);
	pair_close(&p);
	fake_set_ece(SUP, 0x14e4, 0xff);
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SUP).ece_vendor, 0);
	pair_close(&p);
	fake_set_ece(SUP, 0x15b3, 0xff);
	(void)setenv("MPIB_IB_ECE", "0", 1);
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SUP).ece_vendor, 0);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).ece_vendor, 0);
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
}

static void set_infiniband(unsigned int device, uint16_t lid)
{
	struct fake_port port;

	fake_get_port(device, &port);
	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port.lid = lid;
	fake_set_port(device, &port);
}

/* InfiniBand: LIDs in place of a global route, and the node's name from MPIB_NODE_ADDR. */
static void test_infiniband(void **state)
{
	struct fake_qp_state qp;

	(void)state;
	set_infiniband(SOUT, 11);
	set_infiniband(SUP, 12);
	set_infiniband(SOUT2, 21);
	set_infiniband(SUP2, 22);
	assert_int_not_equal(pair_open(&p, test_logger, 0), ncclSuccess);
	assert_logged("set MPIB_NODE_ADDR");
	assert_int_equal(test_log_warnings(), 1);
	pair_close(&p);
	(void)setenv("MPIB_NODE_ADDR", "10.5.1.9", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(1);
	assert_int_equal(send_base()->local.rail[MPIB_SOUT].ipv4_be, inet_addr("10.5.1.9"));
	assert_int_equal(send_base()->path, MPIB_PATH_INTRA); /* the same setting on both ends */
	qp = qp_of(p.send, MPIB_SUP);
	assert_int_equal(qp.attr.ah_attr.is_global, 0);
	assert_int_equal(qp.attr.ah_attr.dlid, 22);
	assert_int_equal(qp_of(p.recv, MPIB_SOUT).attr.ah_attr.dlid, 11);
	assert_int_equal(pair_transfer(&p, 5000, 5000), ncclSuccess);
}

/* One end InfiniBand and the other RoCE: refused, with both values, on both. */
static void set_pkeys(unsigned int device, uint16_t first, uint16_t second, uint16_t third)
{
	struct fake_port port;

	fake_get_port(device, &port);
	port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	port.lid = (uint16_t)(device + 1);
	port.pkey[0] = first;
	port.pkey[1] = second;
	port.pkey[2] = third;
	fake_set_port(device, &port);
}

/* The limited default partition at index 0, as subnet managers leave it, and a full one behind. */
static void test_partition(void **state)
{
	(void)state;
	(void)setenv("MPIB_NODE_ADDR", "10.5.1.9", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	set_pkeys(SOUT, 0x7fff, 0, 0x8003);
	set_pkeys(SUP, 0xffff, 0, 0);
	set_pkeys(SOUT2, 0x8003, 0x7fff, 0);
	set_pkeys(SUP2, 0x7fff, 0, 0); /* limited, but the other end is a full member */
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SOUT).attr.pkey_index, 2);
	assert_int_equal(qp_of(p.recv, MPIB_SOUT).attr.pkey_index, 0);
	assert_int_equal(send_base()->local.rail[MPIB_SOUT].pkey, 0x8003);
	assert_int_equal(recv_base()->remote.rail[MPIB_SOUT].pkey, 0x8003);
	assert_int_equal(pair_transfer(&p, 5000, 5000), ncclSuccess);
	pair_close(&p);

	/* By key, whatever the index: it exists on both ports, but not on SUP. */
	(void)setenv("MPIB_IB_PKEY", "0x0003", 1);
	test_log_clear();
	assert_int_not_equal(pair_open(&p, test_logger, 1), ncclSuccess);
	assert_logged("SUP rail sup:1: the port is not in partition 0x0003 (MPIB_IB_PKEY");
	pair_close(&p);
	set_pkeys(SUP, 0x0003, 0xffff, 0x8003);
	set_pkeys(SUP2, 0xffff, 0x0003, 0);
	open_pair(1);
	assert_int_equal(qp_of(p.send, MPIB_SUP).attr.pkey_index, 2);
	assert_int_equal(qp_of(p.recv, MPIB_SUP).attr.pkey_index, 1);
}

static void test_partitions_differ(void **state)
{
	(void)state;
	(void)setenv("MPIB_NODE_ADDR", "10.5.1.9", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	set_pkeys(SOUT, 0xffff, 0, 0);
	set_pkeys(SUP, 0x8003, 0, 0);
	set_pkeys(SOUT2, 0xffff, 0, 0);
	set_pkeys(SUP2, 0x8004, 0, 0);
	assert_int_not_equal(pair_open(&p, test_logger, 1), ncclSuccess);
	assert_logged("partition key of SUP differs: 0x8004 on the accepting side, 0x8003 on the "
		      "connecting side");
	pair_close(&p);
	set_pkeys(SUP, 0, 0, 0);
	assert_int_not_equal(pair_open(&p, test_logger, 1), ncclSuccess);
	assert_logged("SUP rail sup:1: the port is in no partition");
}

static void test_link_layers_differ(void **state)
{
	(void)state;
	set_infiniband(SUP2, 22);
	(void)setenv("MPIB_NODE_ADDR", "10.5.1.9", 1);
	assert_int_not_equal(pair_open(&p, test_logger, 1), ncclSuccess);
	assert_logged("link layer of SUP differs: 1 on the accepting side, 2 on");
}

/* An error found while another request is tested reaches all of the connection, and no other
 * connection; the process goes on with new ones. */
static void test_error_reaches_every_request(void **state)
{
	void *receives[5], *sends[5], *in, *other = NULL;
	size_t room = 100;
	int tag = 1, done = 0;
	struct pair second;

	(void)state;
	open_pair(0);
	second = p;
	open_pair(0);
	in = p.in;
	for (unsigned int k = 0; k < 5; k++)
		assert_int_equal(
			mpib_api_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &receives[k]),
			ncclSuccess);
	fake_bad_completion(SUP, IBV_WC_RETRY_EXC_ERR);
	for (unsigned int k = 0; k < 5; k++)
		assert_int_equal(mpib_api_isend(p.send, p.out, 8, tag, p.send_mr, &sends[k]),
				 ncclSuccess);
	assert_int_equal(mpib_api_test(sends[4], &done, NULL), ncclRemoteError);
	assert_int_equal(mpib_api_test(sends[0], &done, NULL), ncclRemoteError);
	assert_int_equal(done, 0);
	assert_int_equal(mpib_api_isend(p.send, p.out, 8, tag, p.send_mr, &other), ncclRemoteError);
	assert_null(other);
	assert_int_equal(test_log_warnings(), 1);
	/* The peer is told, and all of its requests have it. */
	for (unsigned int k = 0; k < 30000; k++) {
		if (mpib_api_test(receives[4], &done, NULL) != ncclSuccess)
			break;
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(mpib_api_test(receives[4], &done, NULL), ncclRemoteError);
	assert_int_equal(test_log_warnings(), 2);
	assert_logged("the peer failed: SUP rail sup:1, QP 0x");

	assert_int_equal(pair_transfer(&second, 1000, 1000), ncclSuccess);
	pair_close(&p);
	open_pair(0);
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
	pair_close(&second);
}

/* Reads on the rails that brought data, none else, and none where it is off. */
static void test_flush(void **state)
{
	static const struct {
		const char *flush, *gpudirect;
		unsigned int sup_reads;
	} rows[] = { { "1", "1", 1 }, { "0", "1", 0 }, { "1", "0", 0 } };

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		void *in, *request = (void *)1;
		int size = 1000, done = 0;
		unsigned int sup, sout;

		(void)setenv("MPIB_FLUSH", rows[k].flush, 1);
		(void)setenv("MPIB_GPUDIRECT", rows[k].gpudirect, 1);
		open_pair(0);
		in = p.in;
		sup = fake_reads(SUP);
		sout = fake_reads(SOUT);
		/* Nothing has arrived: nothing to wait for. */
		assert_int_equal(mpib_api_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request),
				 ncclSuccess);
		assert_null(request);
		assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
		request = (void *)1;
		assert_int_equal(mpib_api_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request),
				 ncclSuccess);
		assert_int_equal(request != NULL, rows[k].sup_reads);
		if (request)
			assert_int_equal(mpib_api_test(request, &done, NULL), ncclSuccess);
		assert_int_equal(done, rows[k].sup_reads);
		assert_int_equal(fake_reads(SUP) - sup, rows[k].sup_reads);
		assert_int_equal(fake_reads(SOUT) - sout, 0);
		pair_close(&p);
	}
}

static void test_flush_reads_both_rails(void **state)
{
	struct mpib_hint_entry half = { .sup_bw = 512 };
	unsigned int sup, sout;
	void *in, *request = NULL;
	int size = 4096, done = 0;

	(void)state;
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(0);
	in = p.in;
	atomic_store(&send_base()->agent.hint, &half);
	assert_int_equal(pair_transfer(&p, 4096, 4096), ncclSuccess);
	sup = fake_reads(SUP);
	sout = fake_reads(SOUT);
	assert_int_equal(mpib_api_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request), ncclSuccess);
	assert_non_null(request);
	assert_int_equal(mpib_api_test(request, &done, NULL), ncclSuccess);
	assert_int_equal(done, 1);
	assert_int_equal(fake_reads(SUP) - sup, 1);
	assert_int_equal(fake_reads(SOUT) - sout, 1);
	atomic_store(&send_base()->agent.hint, NULL);
}

/* DMA-BUF where both drivers take it, peer memory where one refuses, and a line that says which. */
static void test_dmabuf(void **state)
{
	struct mpib_properties props;
	unsigned int before;
	void *mr = NULL;

	(void)state;
	fake_set_dmabuf(SOUT, 0);
	fake_set_dmabuf(SUP, 0);
	open_pair(0);
	assert_int_equal(mpib_api_properties(0, &props), ncclSuccess);
	assert_true(props.ptr_support & NCCL_PTR_DMABUF);
	assert_logged("sout+sup: GPU memory through DMA-BUF");
	before = fake_calls(FAKE_REG_MR);
	assert_int_equal(mpib_api_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
			 ncclSuccess);
	assert_non_null(mr);
	assert_int_equal(fake_calls(FAKE_REG_MR) - before, 1); /* vanilla: SUP alone */
	assert_int_equal(mpib_api_dereg_mr(p.send, mr), ncclSuccess);
	/* A driver that refuses after all, and no peer memory: an error that says so. */
	fake_set_dmabuf(SUP, EINVAL);
	test_log_clear();
	assert_int_not_equal(mpib_api_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
			     ncclSuccess);
	assert_int_equal(test_log_warnings(), 1);
	pair_close(&p);

	/* SUP's driver knows none: not offered. */
	fake_set_dmabuf(SUP, EOPNOTSUPP);
	open_pair(0);
	assert_int_equal(mpib_api_properties(0, &props), ncclSuccess);
	assert_false(props.ptr_support & NCCL_PTR_DMABUF);
	pair_close(&p);

	/* Peer memory too: the registration goes another way, in one line without a warning. */
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	fake_set_dmabuf(SUP, 0);
	open_pair(0);
	assert_logged("GPU memory through DMA-BUF, else ibv_reg_mr");
	fake_set_dmabuf(SUP, EINVAL);
	test_log_clear();
	assert_int_equal(mpib_api_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
			 ncclSuccess);
	assert_logged("DMA-BUF refused (Invalid argument): using peer memory");
	assert_int_equal(test_log_warnings(), 0);
	assert_int_equal(mpib_api_dereg_mr(p.send, mr), ncclSuccess);
}

/* NCCL's buffers are relaxed in their order, the rings that a last word completes are not. */
static void test_relaxed_ordering(void **state)
{
	(void)state;
	open_pair(0);
	assert_true(fake_mr_access() & IBV_ACCESS_RELAXED_ORDERING); /* the latest: p.in */
	assert_false(MPIB_MR_ACCESS_RING & IBV_ACCESS_RELAXED_ORDERING);
	assert_int_equal(recv_base()->ring_mr->entry[MPIB_SUP] != NULL, 1);
}

/* Sizes that no 32-bit number holds, with a buffer that takes no memory. */
static void test_beyond_4_gib(void **state)
{
	const size_t size = ((size_t)5 << 30) + 130, half = (size * 512 >> 10) & ~127ul;
	struct mpib_hint_entry hint = { .sup_bw = 512 };
	void *from, *to, *from_mr = NULL, *to_mr = NULL, *rr = NULL, *sr = NULL;
	int tag = 1, done = 0, got = 0;

	(void)state;
	from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		skip();
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(0);
	atomic_store(&send_base()->agent.hint, &hint);
	assert_int_equal(mpib_api_reg_mr(p.send, from, size, NCCL_PTR_HOST, &from_mr), 0);
	assert_int_equal(mpib_api_reg_mr(p.recv, to, size, NCCL_PTR_HOST, &to_mr), 0);
	for (unsigned int round = 0; round < 2; round++) {
		size_t room = size;

		assert_int_equal(mpib_api_irecv(p.recv, 1, &to, &room, &tag, &to_mr, &rr), 0);
		assert_int_equal(mpib_api_isend(p.send, from, size, tag, from_mr, &sr), 0);
		assert_non_null(rr);
		assert_non_null(sr);
		for (done = 0; !done;)
			assert_int_equal(mpib_api_test(sr, &done, NULL), ncclSuccess);
		assert_int_equal(send_base()->counters->rail[MPIB_SUP].bytes, half * (round + 1));
		assert_int_equal(send_base()->counters->rail[MPIB_SOUT].bytes,
				 (size - half) * (round + 1));
		done = 0;
		if (round == 0) {
			while (!done)
				assert_int_equal(mpib_api_test(rr, &done, NULL), ncclSuccess);
			assert_int_equal(((struct mpib_request *)rr)->sizes[0], size);
		} else {
			/* NCCL's size is an int: an error, and no wrapped number. */
			assert_int_not_equal(mpib_api_test(rr, &done, &got), ncclSuccess);
			assert_int_equal(got, 0);
			assert_logged("2 GiB or more can't be reported");
		}
	}
	assert_int_equal(mpib_api_dereg_mr(p.send, from_mr), ncclSuccess);
	assert_int_equal(mpib_api_dereg_mr(p.recv, to_mr), ncclSuccess);
	atomic_store(&send_base()->agent.hint, NULL);
	(void)munmap(from, size);
	(void)munmap(to, size);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, clean, finish)
	const struct CMUnitTest tests[] = {
		CASE(test_smaller_mtu_per_rail),
		CASE(test_mtu_and_gid_read_at_each_connection),
		CASE(test_gid_is_searched_once),
		CASE(test_timeout_retries_service_level),
		CASE(test_traffic_class),
		CASE(test_traffic_class_of_connect_alone),
		CASE(test_traffic_class_differs),
		CASE(test_ece),
		CASE(test_ece_not_on_both),
		CASE(test_infiniband),
		CASE(test_link_layers_differ),
		CASE(test_partition),
		CASE(test_partitions_differ),
		CASE(test_error_reaches_every_request),
		CASE(test_flush),
		CASE(test_flush_reads_both_rails),
		CASE(test_dmabuf),
		CASE(test_relaxed_ordering),
		CASE(test_beyond_4_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
