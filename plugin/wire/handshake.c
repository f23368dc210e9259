/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/wire/handshake.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/rail.h"
#include "plugin/base/result.h"

#define HANDLE_MAGIC 0x4342504du /* "MPBC" */
#define FRAME_MAGIC  0x4642504du /* "MPBF" */

#define FAMILY_IPV4 4
#define FAMILY_IPV6 6

/* A cursor over a buffer. Reading past the end gives zeros and sets `bad`, so that a decoder checks
 * once, at its end. The encoders' buffers are sized by their callers. */
struct cursor {
	uint8_t *out;
	const uint8_t *in;
	size_t len;
	size_t at;
	bool bad;
};

static void put(struct cursor *c, const void *data, size_t size)
{
	memcpy(c->out + c->at, data, size);
	c->at += size;
}

static void put_number(struct cursor *c, uint64_t value, size_t size)
{
	for (size_t k = 0; k < size; k++)
		c->out[c->at++] = (uint8_t)(value >> (8 * k));
}

static void get(struct cursor *c, void *data, size_t size)
{
	if (c->bad || c->len - c->at < size) {
		c->bad = true;
		memset(data, 0, size);
		return;
	}
	memcpy(data, c->in + c->at, size);
	c->at += size;
}

static uint64_t get_number(struct cursor *c, size_t size)
{
	uint8_t bytes[8] = { 0 };
	uint64_t value = 0;

	get(c, bytes, size);
	for (size_t k = 0; k < size; k++)
		value |= (uint64_t)bytes[k] << (8 * k);
	return value;
}

/* ---- the listen handle --------------------------------------------------------------------- */

void mpib_handle_encode(uint8_t buf[MPIB_HANDLE_SIZE], const struct mpib_handle *handle)
{
	struct cursor c = { .out = buf };
	const struct sockaddr_in *in4 = (const void *)&handle->addr;
	const struct sockaddr_in6 *in6 = (const void *)&handle->addr;

	memset(buf, 0, MPIB_HANDLE_SIZE);
	put_number(&c, HANDLE_MAGIC, 4);
	put_number(&c, handle->version, 2);
	if (handle->addr.ss_family == AF_INET) {
		put_number(&c, FAMILY_IPV4, 2);
		put_number(&c, handle->nonce, 8);
		put(&c, &in4->sin_port, 2);
		put(&c, &in4->sin_addr, 4);
		c.at += 12;
	} else {
		put_number(&c, FAMILY_IPV6, 2);
		put_number(&c, handle->nonce, 8);
		put(&c, &in6->sin6_port, 2);
		put(&c, &in6->sin6_addr, sizeof(in6->sin6_addr));
	}
	put(&c, &handle->sout_ip_be, 4);
	put_number(&c, handle->mode, 1);
	put_number(&c, handle->prefix_len, 1);
}

int mpib_handle_decode(const uint8_t *buf, size_t len, struct mpib_handle *ret)
{
	struct cursor c = { .in = buf, .len = len };
	struct mpib_handle handle;
	struct sockaddr_in *in4 = (void *)&handle.addr;
	struct sockaddr_in6 *in6 = (void *)&handle.addr;
	uint8_t address[sizeof(struct in6_addr)];
	uint16_t port_be;
	uint64_t family;

	memset(&handle, 0, sizeof(handle));
	if (get_number(&c, 4) != HANDLE_MAGIC)
		return -EBADMSG;
	handle.version = (uint16_t)get_number(&c, 2);
	family = get_number(&c, 2);
	handle.nonce = get_number(&c, 8);
	get(&c, &port_be, 2);
	get(&c, address, sizeof(address));
	if (c.bad || port_be == 0)
		return -EBADMSG;

	if (family == FAMILY_IPV4) {
		in4->sin_family = AF_INET;
		in4->sin_port = port_be;
		memcpy(&in4->sin_addr, address, 4);
	} else if (family == FAMILY_IPV6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = port_be;
		memcpy(&in6->sin6_addr, address, sizeof(address));
	} else {
		return -EBADMSG;
	}

	if (handle.version == MPIB_WIRE_VERSION) {
		get(&c, &handle.sout_ip_be, 4);
		handle.mode = (uint8_t)get_number(&c, 1);
		handle.prefix_len = (uint8_t)get_number(&c, 1);
		if (c.bad || handle.mode > MPIB_MODE_ADVANCED || handle.prefix_len > 32)
			return -EBADMSG;
	}

	*ret = handle;
	return 0;
}

/* ---- frames -------------------------------------------------------------------------------- */

size_t mpib_frame_encode(uint8_t *buf, uint16_t type, const void *payload, size_t len)
{
	struct cursor c = { .out = buf };

	put_number(&c, FRAME_MAGIC, 4);
	put_number(&c, MPIB_WIRE_VERSION, 2);
	put_number(&c, type, 2);
	put_number(&c, len, 4);
	put_number(&c, 0, 4);
	if (len)
		put(&c, payload, len);
	return c.at;
}

int mpib_frame_decode(const uint8_t *buf, size_t len, struct mpib_frame *ret, size_t *ret_used)
{
	struct cursor c = { .in = buf, .len = len };
	uint64_t magic, payload_len;
	struct mpib_frame frame;

	/* A stranger is known by its first bytes; don't wait for a whole header. */
	for (size_t k = 0; k < len && k < 4; k++)
		if (buf[k] != (uint8_t)(FRAME_MAGIC >> (8 * k)))
			return -EBADMSG;
	if (len < MPIB_FRAME_HEADER)
		return 0;

	magic = get_number(&c, 4);
	frame.version = (uint16_t)get_number(&c, 2);
	frame.type = (uint16_t)get_number(&c, 2);
	payload_len = get_number(&c, 4);
	(void)get_number(&c, 4);
	if (magic != FRAME_MAGIC || payload_len > MPIB_FRAME_PAYLOAD_MAX)
		return -EBADMSG;
	if (len - MPIB_FRAME_HEADER < payload_len)
		return 0;

	frame.payload = buf + MPIB_FRAME_HEADER;
	frame.payload_len = (size_t)payload_len;
	*ret = frame;
	*ret_used = MPIB_FRAME_HEADER + (size_t)payload_len;
	return 1;
}

/* ---- payloads ------------------------------------------------------------------------------ */

size_t mpib_peer_encode(uint8_t *buf, const struct mpib_peer *peer)
{
	struct cursor c = { .out = buf };

	put_number(&c, peer->nonce, 8);
	put_number(&c, peer->pid, 4);
	put_number(&c, peer->mode, 1);
	put_number(&c, peer->prefix_len, 1);
	put_number(&c, peer->features, 4);
	put_number(&c, peer->traffic_class, 1);
	put_number(&c, peer->cts_traffic_class, 1);
	put_number(&c, peer->service_level, 1);
	put_number(&c, 0, 1);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		put_number(&c, peer->qps[rail], 2);
		put(&c, peer->rail[rail].gid, MPIB_GID_SIZE);
		put(&c, &peer->rail[rail].ipv4_be, 4);
		put_number(&c, peer->rail[rail].mtu, 1);
		put_number(&c, peer->rail[rail].link_layer, 1);
		put_number(&c, peer->rail[rail].lid, 2);
		put_number(&c, peer->rail[rail].pkey, 2);
		put(&c, peer->rail[rail].hca, MPIB_HCA_NAME_MAX);
	}
	return c.at;
}

/* A name from the network goes into log lines: printable and terminated, or it is refused. */
static bool name_ok(const char *name)
{
	size_t len = strnlen(name, MPIB_HCA_NAME_MAX);

	if (len == 0 || len == MPIB_HCA_NAME_MAX)
		return false;
	for (size_t k = 0; k < len; k++)
		if (name[k] < '!' || name[k] > '~')
			return false;
	return true;
}

int mpib_peer_decode(const uint8_t *buf, size_t len, struct mpib_peer *ret, size_t *ret_used)
{
	struct cursor c = { .in = buf, .len = len };
	struct mpib_peer peer;

	memset(&peer, 0, sizeof(peer));
	peer.nonce = get_number(&c, 8);
	peer.pid = (uint32_t)get_number(&c, 4);
	peer.mode = (uint8_t)get_number(&c, 1);
	peer.prefix_len = (uint8_t)get_number(&c, 1);
	peer.features = (uint32_t)get_number(&c, 4);
	peer.traffic_class = (uint8_t)get_number(&c, 1);
	peer.cts_traffic_class = (uint8_t)get_number(&c, 1);
	peer.service_level = (uint8_t)get_number(&c, 1);
	(void)get_number(&c, 1);
	if (peer.mode > MPIB_MODE_ADVANCED || peer.prefix_len > 32 || peer.service_level > 15)
		return -EBADMSG;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		peer.qps[rail] = (uint16_t)get_number(&c, 2);
		get(&c, peer.rail[rail].gid, MPIB_GID_SIZE);
		get(&c, &peer.rail[rail].ipv4_be, 4);
		peer.rail[rail].mtu = (uint8_t)get_number(&c, 1);
		peer.rail[rail].link_layer = (uint8_t)get_number(&c, 1);
		peer.rail[rail].lid = (uint16_t)get_number(&c, 2);
		peer.rail[rail].pkey = (uint16_t)get_number(&c, 2);
		get(&c, peer.rail[rail].hca, MPIB_HCA_NAME_MAX);
		if (c.bad || peer.qps[rail] < 1 || peer.qps[rail] > MPIB_QPS_MAX ||
		    peer.rail[rail].mtu < 1 || peer.rail[rail].mtu > 5 ||
		    !(peer.rail[rail].pkey & MPIB_PKEY_NUMBER) || !name_ok(peer.rail[rail].hca))
			return -EBADMSG;
	}

	*ret = peer;
	*ret_used = c.at;
	return 0;
}

size_t mpib_peer_qps_encode(uint8_t *buf, const struct mpib_peer_qps *qps)
{
	struct cursor c = { .out = buf };

	put_number(&c, qps->path, 1);
	put_number(&c, qps->rail_mask, 1);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		put_number(&c, qps->qps[rail], 2);
		put_number(&c, qps->ring_rkey[rail], 4);
		put_number(&c, qps->ece[rail].vendor_id, 4);
		put_number(&c, qps->ece[rail].options, 4);
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
			put_number(&c, qps->qpn[rail][k], 4);
	}
	put_number(&c, qps->ring_addr, 8);
	return c.at;
}

int mpib_peer_qps_decode(const uint8_t *buf, size_t len, struct mpib_peer_qps *ret,
			 size_t *ret_used)
{
	struct cursor c = { .in = buf, .len = len };
	struct mpib_peer_qps qps;

	memset(&qps, 0, sizeof(qps));
	qps.path = (uint8_t)get_number(&c, 1);
	qps.rail_mask = (uint8_t)get_number(&c, 1);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		qps.qps[rail] = (uint16_t)get_number(&c, 2);
		qps.ring_rkey[rail] = (uint32_t)get_number(&c, 4);
		qps.ece[rail].vendor_id = (uint32_t)get_number(&c, 4);
		qps.ece[rail].options = (uint32_t)get_number(&c, 4);
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++) {
			qps.qpn[rail][k] = (uint32_t)get_number(&c, 4);
			if (qps.qpn[rail][k] > 0xffffff)
				return -EBADMSG;
		}
		if (qps.qps[rail] > MPIB_QPS_MAX)
			return -EBADMSG;
	}
	qps.ring_addr = get_number(&c, 8);
	if (c.bad || qps.path > 1 || qps.rail_mask == 0 || qps.rail_mask > MPIB_RAILS_ALL)
		return -EBADMSG;

	*ret = qps;
	*ret_used = c.at;
	return 0;
}

int mpib_hello_nonce(const uint8_t *payload, size_t len, uint64_t *ret_nonce)
{
	struct cursor c = { .in = payload, .len = len };
	uint64_t nonce = get_number(&c, 8);

	if (c.bad)
		return -EBADMSG;
	*ret_nonce = nonce;
	return 0;
}

void mpib_text_decode(const uint8_t *payload, size_t len, char *buf)
{
	if (len > MPIB_TEXT_MAX)
		len = MPIB_TEXT_MAX;
	for (size_t k = 0; k < len; k++)
		buf[k] = (char)(payload[k] >= ' ' && payload[k] <= '~' ? payload[k] : '?');
	buf[len] = '\0';
}

size_t mpib_fail_encode(uint8_t *buf, enum mpib_fail_kind kind, const char *text)
{
	size_t len = strlen(text);

	if (len > MPIB_TEXT_MAX)
		len = MPIB_TEXT_MAX;
	memcpy(buf, text, len);
	if (kind != MPIB_FAIL_OTHER) {
		buf[len++] = 0;
		buf[len++] = (uint8_t)kind;
	}
	return len;
}

enum mpib_fail_kind mpib_fail_decode(const uint8_t *payload, size_t len, char *ret_text)
{
	enum mpib_fail_kind kind = MPIB_FAIL_OTHER;

	if (len >= 2 && payload[len - 2] == 0) {
		if (payload[len - 1] == MPIB_FAIL_DEVICE)
			kind = MPIB_FAIL_DEVICE;
		len -= 2;
	}
	mpib_text_decode(payload, len, ret_text);
	return kind;
}

size_t mpib_bye_encode(uint8_t *buf, uint32_t rows)
{
	struct cursor c = { .out = buf };

	put_number(&c, rows, 4);
	return c.at;
}

int mpib_bye_decode(const uint8_t *payload, size_t len, uint32_t *ret_rows)
{
	struct cursor c = { .in = payload, .len = len };
	uint32_t rows = (uint32_t)get_number(&c, 4);

	if (c.bad)
		return -EBADMSG;
	*ret_rows = rows;
	return 0;
}

/* Two limited members of a partition can't talk to each other. */
static bool pkeys_meet(unsigned int local, unsigned int remote)
{
	return (local & MPIB_PKEY_NUMBER) == (remote & MPIB_PKEY_NUMBER) &&
	       (local | remote) & MPIB_PKEY_FULL;
}

static int pkeys_agree(const struct mpib_peer *local, const struct mpib_peer *remote,
		       char *ret_text, size_t text_size)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int here = local->rail[rail].pkey, there = remote->rail[rail].pkey;

		if (pkeys_meet(here, there))
			continue;
		(void)snprintf(
			ret_text, text_size,
			"partition key of %s differs: 0x%04x on the accepting side, 0x%04x on the "
			"connecting side%s: have the subnet manager make both members of one "
			"partition, and name it by MPIB_IB_PKEY where there are several",
			mpib_rail_name(rail), here, there,
			here == there ? ", both limited members" : "");
		return -MPIB_EUSAGE;
	}
	return 0;
}

int mpib_peer_agree(const struct mpib_peer *local, const struct mpib_peer *remote, char *ret_text,
		    size_t text_size)
{
	const struct {
		const char *name;
		unsigned int local, remote;
	} rows[] = {
		{ "MPIB_MODE", local->mode, remote->mode },
		{ "MPIB_ISLAND_PREFIX_LEN", local->prefix_len, remote->prefix_len },
		{ "MPIB_SOUT_QP", local->qps[MPIB_SOUT], remote->qps[MPIB_SOUT] },
		{ "MPIB_SUP_QP", local->qps[MPIB_SUP], remote->qps[MPIB_SUP] },
		{ "link layer of SOUT", local->rail[MPIB_SOUT].link_layer,
		  remote->rail[MPIB_SOUT].link_layer },
		{ "link layer of SUP", local->rail[MPIB_SUP].link_layer,
		  remote->rail[MPIB_SUP].link_layer },
		{ "MPIB_IB_TC", local->traffic_class, remote->traffic_class },
		{ "MPIB_IB_FIFO_TC", local->cts_traffic_class, remote->cts_traffic_class },
		{ "MPIB_IB_SL", local->service_level, remote->service_level },
	};

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		if (rows[k].local == rows[k].remote)
			continue;
		(void)snprintf(
			ret_text, text_size,
			"%s differs: %u on the accepting side, %u on the connecting side: set "
			"the same on every node",
			rows[k].name, rows[k].local, rows[k].remote);
		return -MPIB_EUSAGE;
	}

	return pkeys_agree(local, remote, ret_text, text_size);
}
