/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection's queue pairs are told, from which settings. */
#include "tests/unit/plugin/test.h"

#include <arpa/inet.h>
#include <errno.h>

#include "plugin/base/result.h"
#include "tests/unit/plugin/one_pair.h"

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

	assert_int_equal(mpib_entry_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	assert_int_equal(pair_shake(&p, 0), ncclSuccess);
	return fake_calls(FAKE_QUERY_GID) - before;
}

static void close_ends(void)
{
	assert_int_equal(mpib_entry_close(p.send), ncclSuccess);
	assert_int_equal(mpib_entry_close(p.recv), ncclSuccess);
	assert_int_equal(mpib_entry_close_listen(p.listener), ncclSuccess);
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

	assert_int_equal(mpib_entry_init(&p.ctx, &c, test_logger), ncclSuccess);
	assert_int_equal(mpib_entry_traffic_class(p.ctx), config);
	assert_int_equal(mpib_entry_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && !(p.send && p.recv); k++) {
		if (!p.send)
			assert_int_equal(mpib_entry_connect(0, mpib_entry_traffic_class(p.ctx),
							    p.handle, &p.send),
					 ncclSuccess);
		if (!p.recv)
			assert_int_equal(mpib_entry_accept(p.listener, &p.recv), ncclSuccess);
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
	assert_int_equal(mpib_entry_init(&p.ctx, NULL, test_logger), ncclSuccess);
	assert_int_equal(mpib_entry_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && !(p.send && p.recv); k++) {
		if (!p.send)
			assert_int_equal(mpib_entry_connect(0, 106, p.handle, &p.send),
					 ncclSuccess);
		if (!p.recv)
			assert_int_equal(mpib_entry_accept(p.listener, &p.recv), ncclSuccess);
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
	assert_int_equal(mpib_entry_init(&p.ctx, NULL, test_logger), ncclSuccess);
	assert_int_equal(mpib_entry_listen(p.ctx, 0, p.handle, &p.listener), ncclSuccess);
	for (unsigned int k = 0; k < 30000 && r == 0; k++) {
		r = mpib_connect(mpib_device_get(0), &env, 106, p.handle, &send);
		(void)mpib_entry_accept(p.listener, &p.recv);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_smaller_mtu_per_rail),  CASE(test_mtu_and_gid_read_at_each_connection),
		CASE(test_gid_is_searched_once),  CASE(test_timeout_retries_service_level),
		CASE(test_traffic_class),	  CASE(test_traffic_class_of_connect_alone),
		CASE(test_traffic_class_differs), CASE(test_ece),
		CASE(test_ece_not_on_both),	  CASE(test_infiniband),
		CASE(test_link_layers_differ),	  CASE(test_partition),
		CASE(test_partitions_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
