/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that two plugins exchange outside RDMA: the listen handle and the frames of the control
 * connection. Pure: encode into and decode from a buffer with a length; every value that comes in
 * is checked here, so that the rest of the plugin can trust it. All integers are little-endian but
 * IPv4 addresses and GIDs, which keep network order. docs/wire.md draws it.
 */
#ifndef MPIB_PLUGIN_HANDSHAKE_H
#define MPIB_PLUGIN_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/versions.h" /* MPIB_WIRE_VERSION */
#include "plugin/base/env.h"
#include "plugin/base/rail.h"

#define MPIB_GID_SIZE 16 /* bytes, as verbs have it */

/* ---- the listen handle --------------------------------------------------------------------- */

/* The first 64 of NCCL's 128 bytes; the rest is the connecting side's to keep its state in. */
#define MPIB_HANDLE_SIZE 64

struct mpib_handle {
	uint16_t version;
	uint64_t nonce;		      /* a connector proves with it that it was sent here */
	struct sockaddr_storage addr; /* TCP listener, IPv4 or IPv6 */
	uint32_t sout_ip_be;	      /* listener's SOUT address */
	uint8_t mode;		      /* enum mpib_mode */
	uint8_t prefix_len;
};

void mpib_handle_encode(uint8_t buf[MPIB_HANDLE_SIZE], const struct mpib_handle *handle);

/* -EBADMSG for something that is no MPIB handle. A handle of another version decodes to version,
 * nonce and addr, whose places never change; compare ret->version. */
int mpib_handle_decode(const uint8_t *buf, size_t len, struct mpib_handle *ret);

/* ---- frames -------------------------------------------------------------------------------- */

enum mpib_frame_type {
	MPIB_FRAME_GREETING = 1, /* listener, at once: an MPIB listener is here. No payload */
	MPIB_FRAME_HELLO = 2,	 /* connector: nonce and who it is (struct mpib_peer) */
	MPIB_FRAME_ACCEPT = 3,	 /* acceptor: who it is, and its QPs */
	MPIB_FRAME_CONNECT = 4,	 /* connector: its QPs, ready to receive */
	MPIB_FRAME_READY = 5,	 /* acceptor: its QPs are ready too */
	MPIB_FRAME_REFUSE = 6,	 /* either: no connection, and why */
	MPIB_FRAME_BYE = 7,	 /* either: closed in good order; which rows it is done with */
	MPIB_FRAME_FAIL = 8,	 /* either: this end failed, and why */
	/* Sent only where both ends have MPIB_FEATURE_FAILOVER. */
	MPIB_FRAME_RAIL_DOWN = 9,
	MPIB_FRAME_RAIL_UP = 10,
	MPIB_FRAME_RAIL_READY = 11,
	MPIB_FRAME_RAIL_PORT = 12, /* receiver: its port is up again; a hint, without an answer */
};

#define MPIB_FRAME_HEADER      16
#define MPIB_FRAME_PAYLOAD_MAX 1024
#define MPIB_FRAME_MAX	       (MPIB_FRAME_HEADER + MPIB_FRAME_PAYLOAD_MAX)
#define MPIB_TEXT_MAX	       400 /* bytes of a reason, without NUL */

struct mpib_frame {
	uint16_t version;
	uint16_t type;
	const uint8_t *payload; /* points into the decoded buffer */
	size_t payload_len;
};

/* Bytes written (header and payload); @cap is at least MPIB_FRAME_MAX, @len at most
 * MPIB_FRAME_PAYLOAD_MAX. */
size_t mpib_frame_encode(uint8_t *buf, uint16_t type, const void *payload, size_t len);

/* 1: a whole frame, *ret_used bytes long; 0: more bytes are needed; -EBADMSG: not our protocol, or
 * a payload over the limit. */
int mpib_frame_decode(const uint8_t *buf, size_t len, struct mpib_frame *ret, size_t *ret_used);

/* ---- payloads ------------------------------------------------------------------------------ */

#define MPIB_HCA_NAME_MAX 64

/* What an end can do beyond what its version requires; in force is what both ends have. */
enum mpib_feature {
	MPIB_FEATURE_FAILOVER = 1, /* survives the loss of a rail by RAIL_DOWN and what follows */
	MPIB_FEATURE_MAIL = 2,	   /* its ring has a mailbox for frames about rails (mail.h) */
};

/* A partition key: 15 bits of number, and whether its holder is a full member. Limited members
 * reach full ones alone (InfiniBand specification, 10.9). */
#define MPIB_PKEY_NUMBER  0x7fffu
#define MPIB_PKEY_FULL	  0x8000u
#define MPIB_PKEY_DEFAULT 0xffffu

/* What each end says of itself; both sides must come to the same path from it. */
struct mpib_peer {
	uint64_t nonce;
	uint32_t pid;
	uint8_t mode;
	uint8_t prefix_len;
	uint32_t features; /* enum mpib_feature; bits of later releases are kept */
	/* Of both directions of the connection: the connector decides. */
	uint8_t traffic_class;
	uint8_t cts_traffic_class; /* of the QP that carries the clear-to-sends */
	uint8_t service_level;
	uint16_t qps[MPIB_RAIL_MAX]; /* configured, before any suppression */
	struct {
		uint8_t gid[MPIB_GID_SIZE];
		uint32_t ipv4_be;
		uint8_t mtu;	    /* enum ibv_mtu: 1..5 */
		uint8_t link_layer; /* 1 IB, 2 Ethernet */
		uint16_t lid;
		uint16_t pkey;		     /* the partition that the QPs are in */
		char hca[MPIB_HCA_NAME_MAX]; /* name:port */
	} rail[MPIB_RAIL_MAX];
};

/* QPs that exist, and the ring in this end's memory that the other one writes to: the CTS ring of a
 * sender, the completion records of a receiver. */
struct mpib_peer_qps {
	uint8_t path;	   /* enum mpib_path */
	uint8_t rail_mask; /* rails that this end could bring up */
	uint16_t qps[MPIB_RAIL_MAX];
	uint32_t qpn[MPIB_RAIL_MAX][MPIB_QPS_MAX];
	/* Enhanced connection establishment (man ibv_query_ece); vendor 0: none. The acceptor
	 * offers, the connector answers with what both have. */
	struct {
		uint32_t vendor_id;
		uint32_t options;
	} ece[MPIB_RAIL_MAX];
	uint64_t ring_addr;
	uint32_t ring_rkey[MPIB_RAIL_MAX];
};

size_t mpib_peer_encode(uint8_t *buf, const struct mpib_peer *peer);
int mpib_peer_decode(const uint8_t *buf, size_t len, struct mpib_peer *ret, size_t *ret_used);

size_t mpib_peer_qps_encode(uint8_t *buf, const struct mpib_peer_qps *qps);
int mpib_peer_qps_decode(const uint8_t *buf, size_t len, struct mpib_peer_qps *ret,
			 size_t *ret_used);

/* The nonce stands first in every HELLO, of whatever version. */
int mpib_hello_nonce(const uint8_t *payload, size_t len, uint64_t *ret_nonce);

/* A reason as printable text with NUL; anything else in it becomes '?'. @buf holds
 * MPIB_TEXT_MAX + 1 bytes. */
void mpib_text_decode(const uint8_t *payload, size_t len, char *buf);

/* What FAIL carries: the text, and where it isn't MPIB_FAIL_OTHER a NUL and the kind behind it.
 * @buf holds MPIB_FRAME_PAYLOAD_MAX bytes; returns those used. Decoding takes what it doesn't know
 * for MPIB_FAIL_OTHER; @ret_text holds MPIB_TEXT_MAX + 1 bytes. */
enum mpib_fail_kind {
	MPIB_FAIL_OTHER = 0,
	MPIB_FAIL_DEVICE = 1, /* the failing end has lost a device */
};
size_t mpib_fail_encode(uint8_t *buf, enum mpib_fail_kind kind, const char *text);
enum mpib_fail_kind mpib_fail_decode(const uint8_t *payload, size_t len, char *ret_text);

/* What BYE carries: a row number modulo 2^32, as in the clear-to-send ring. From a receiver, all
 * rows below it have arrived; from a sender, all below it are in its send queues and none from it
 * on ever will be. @buf holds MPIB_BYE_SIZE bytes; returns as many. */
#define MPIB_BYE_SIZE 4
size_t mpib_bye_encode(uint8_t *buf, uint32_t rows);
int mpib_bye_decode(const uint8_t *payload, size_t len, uint32_t *ret_rows);

/* The accepting side compares what must be equal on both ends (@remote is the connector). 0, or
 * -MPIB_EUSAGE and a text that names both values. */
int mpib_peer_agree(const struct mpib_peer *local, const struct mpib_peer *remote, char *ret_text,
		    size_t text_size);

#endif
