/* SPDX-License-Identifier: Apache-2.0 */
/* Good payloads of the handshake, and their decoders on a heap block of exactly the length, where a
 * sanitizer sees a read past it. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_PAYLOADS_H
#define MPIB_TESTS_UNIT_PLUGIN_PAYLOADS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "plugin/wire/handshake.h"
#include "tests/unit/plugin/test.h"

static inline struct mpib_handle handle_v4(void)
{
	struct mpib_handle handle;
	struct sockaddr_in *in4 = (void *)&handle.addr;

	memset(&handle, 0, sizeof(handle));
	handle.version = MPIB_WIRE_VERSION;
	handle.nonce = 0x1122334455667788u;
	in4->sin_family = AF_INET;
	in4->sin_port = htons(0x1234);
	in4->sin_addr.s_addr = htonl(0x0a000105);
	handle.sout_ip_be = htonl(0x0a000107);
	handle.mode = MPIB_MODE_ADVANCED;
	handle.prefix_len = 24;
	return handle;
}

static inline int decode_handle(const uint8_t *bytes, size_t len, struct mpib_handle *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_handle_decode(copy, len, ret);
	free(copy);
	return r;
}

static inline struct mpib_peer peer(void)
{
	struct mpib_peer p;

	memset(&p, 0, sizeof(p));
	p.nonce = 77;
	p.pid = 4711;
	p.mode = MPIB_MODE_VANILLA;
	p.prefix_len = 16;
	p.features = 0x80000000u | MPIB_FEATURE_FAILOVER;
	p.traffic_class = 106;
	p.cts_traffic_class = 192;
	p.service_level = 5;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		p.qps[rail] = (uint16_t)(2 + 2 * rail);
		memset(p.rail[rail].gid, 0x10 + (int)rail, 16);
		p.rail[rail].ipv4_be = htonl(0x0a000001 + (rail << 8));
		p.rail[rail].mtu = 5;
		p.rail[rail].link_layer = 2;
		p.rail[rail].lid = 0x0102;
		p.rail[rail].pkey = (uint16_t)(0x8003 + rail);
		(void)snprintf(p.rail[rail].hca, sizeof(p.rail[rail].hca), "mlx5_%u:1", rail);
	}
	return p;
}

#define PEER_RAIL      22
#define PEER_RAIL_SIZE (2 + 16 + 4 + 1 + 1 + 2 + 2 + MPIB_HCA_NAME_MAX)
#define PEER_SIZE      (PEER_RAIL + 2 * PEER_RAIL_SIZE)

static inline int decode_peer(const uint8_t *bytes, size_t len, struct mpib_peer *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	size_t used = 0;
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_peer_decode(copy, len, ret, &used);
	free(copy);
	if (r == 0)
		assert_int_equal(used, PEER_SIZE);
	return r;
}

static inline struct mpib_peer_qps peer_qps(void)
{
	struct mpib_peer_qps q;

	memset(&q, 0, sizeof(q));
	q.path = 1;
	q.rail_mask = 3;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		q.qps[rail] = MPIB_QPS_MAX;
		q.ring_rkey[rail] = 0xaabb0000u + rail;
		q.ece[rail].vendor_id = 0x15b3;
		q.ece[rail].options = 0x30000001u + rail;
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
			q.qpn[rail][k] = 0xffff00u + rail * MPIB_QPS_MAX + k;
	}
	q.ring_addr = 0x7f0011223344u;
	return q;
}

#define QPS_QPN	      14 /* of a rail: behind count, key and ECE */
#define QPS_RAIL_SIZE (QPS_QPN + 4 * MPIB_QPS_MAX)
#define QPS_SIZE      (2 + 2 * QPS_RAIL_SIZE + 8)

static inline int decode_qps(const uint8_t *bytes, size_t len, struct mpib_peer_qps *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	size_t used = 0;
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_peer_qps_decode(copy, len, ret, &used);
	free(copy);
	if (r == 0)
		assert_int_equal(used, QPS_SIZE);
	return r;
}

#endif
