/* SPDX-License-Identifier: Apache-2.0 */
/* The frames that set up a mesh, behind HELLO. Pure; docs/wire.md draws them. */
#ifndef MPIB_PLUGIN_GIN_FRAMES_H
#define MPIB_PLUGIN_GIN_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/wire/handshake.h"

/* Types of MPIB_FRAME_*, of which net connections have others. */
enum mpib_gin_frame {
	MPIB_GIN_FRAME_TURN = 32,   /* acceptor: the HELLO was good, and has its turn. No payload */
	MPIB_GIN_FRAME_JOIN = 33,   /* connector: its rank and QPs */
	MPIB_GIN_FRAME_MEET = 34,   /* acceptor: who it is (struct mpib_peer), its rank and QPs */
	MPIB_GIN_FRAME_READY = 35,  /* connector: its QPs are ready. No payload */
	MPIB_GIN_FRAME_MEMORY = 36, /* either: what it has registered */
	MPIB_GIN_FRAME_LOST = 37,   /* either: its QP of a rail is in ERR. The rail's number */
	MPIB_GIN_FRAME_CLOSED = 38, /* either: all its QPs of SOUT are; what the peer's one took */
};

/* Both ends must be of one layout of JOIN and of one way to order signals. Tests build another. */
#ifndef MPIB_GIN_VERSION
#define MPIB_GIN_VERSION 2
#endif

struct mpib_gin_join {
	uint16_t version;
	uint32_t nranks, rank;
	uint32_t qpn[MPIB_RAIL_MAX];  /* 0: none */
	uint8_t reads[MPIB_RAIL_MAX]; /* READs and atomics at once that the QP takes */
};

struct mpib_gin_memory_frame {
	uint64_t number; /* of the registration: all ranks count alike */
	uint64_t addr, size;
	uint32_t rkey[MPIB_RAIL_MAX];
	uint8_t failed; /* 1: this end could not */
};

struct mpib_gin_closed {
	uint32_t packet; /* the number of the next packet that the QP would have taken */
	bool counts;	 /* the device does count: not all QPs say what they began with */
};

/* @buf holds MPIB_FRAME_PAYLOAD_MAX bytes; bytes written. */
size_t mpib_gin_join_encode(uint8_t *buf, const struct mpib_gin_join *join);
size_t mpib_gin_memory_encode(uint8_t *buf, const struct mpib_gin_memory_frame *memory);
size_t mpib_gin_closed_encode(uint8_t *buf, const struct mpib_gin_closed *closed);
/* 0 or -EBADMSG. The version stands first: of another one only it is read. */
int mpib_gin_join_decode(const uint8_t *payload, size_t len, struct mpib_gin_join *ret);
int mpib_gin_memory_decode(const uint8_t *payload, size_t len, struct mpib_gin_memory_frame *ret);
int mpib_gin_closed_decode(const uint8_t *payload, size_t len, struct mpib_gin_closed *ret);

#endif
