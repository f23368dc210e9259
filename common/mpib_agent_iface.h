/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the MPIB plugin and mpib-agentd, version 1: the shared-memory hint table
 * and the registration messages, byte by byte. This is the only place that states it, and the
 * only header that MPIB installs. Usable from C11 and C++11.
 *
 * All integers are little-endian (the host order of every supported machine), except IPv4
 * addresses, which are in network byte order.
 */
#ifndef MPIB_AGENT_IFACE_H
#define MPIB_AGENT_IFACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define MPIB_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define MPIB_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "contract version 1 is little-endian"
#endif

/* Raised where an agent and a plugin of another release wouldn't understand each other any more. */
#define MPIB_CONTRACT_VERSION 1

/* ---- where things are ---------------------------------------------------------------------- */

/* Directory of both files below; the environment variable overrides it for agent, plugin and
 * mpibctl alike (tests, containers). */
#define MPIB_AGENT_DIR_DEFAULT "/tmp/mpib"
#define MPIB_AGENT_DIR_ENV     "MPIB_AGENT_DIR"
#define MPIB_HINTS_NAME	       "hints"
#define MPIB_SOCKET_NAME       "agent.sock"

/* ---- the hint table ------------------------------------------------------------------------ */

#define MPIB_HINT_MAGIC		  0x4D504948u
#define MPIB_HINT_ENTRIES_DEFAULT 256u
#define MPIB_HINT_ENTRIES_MAX	  65536u

/* A share is SUP's part of a message in 1/1024: 0 = all SOUT, 1024 = all SUP. A reader takes any
 * larger value for 1024. */
#define MPIB_SHARE_MAX 1024u

/* Start of the file; written by the agent alone. The file is 16 + max_entries * 16 bytes, never
 * shrinks and keeps its inode while anybody may have it mapped. */
struct mpib_hint_header {
	uint32_t magic;	      /* MPIB_HINT_MAGIC, written last when the table is made */
	uint32_t max_entries; /* 1..65536; a reader bounds it by the file's real size */
	uint32_t generation;  /* incarnation of the agent: changes with each start */
	uint32_t heartbeat;   /* raised about once a second; judge its age by your own clock */
};

/* One flow's slot. seq is even when the entry is stable, odd while the agent writes it. */
struct mpib_hint_entry {
	uint32_t sup_bw; /* the share, 0..1024; 0 when never written */
	uint32_t seq;	 /* seqlock; see common/hint.h for the memory order on both sides */
	uint32_t src_ip; /* SOUT source address of the flow, network order; 0 = slot is free */
	uint32_t dst_ip; /* SOUT destination address, network order */
};

MPIB_STATIC_ASSERT(sizeof(struct mpib_hint_header) == 16, "hint header is 16 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_header, magic) == 0, "magic at 0");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_header, max_entries) == 4, "max_entries at 4");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_header, generation) == 8, "generation at 8");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_header, heartbeat) == 12, "heartbeat at 12");
MPIB_STATIC_ASSERT(sizeof(struct mpib_hint_entry) == 16, "hint entry is 16 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_entry, sup_bw) == 0, "sup_bw at 0");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_entry, seq) == 4, "seq at 4");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_entry, src_ip) == 8, "src_ip at 8");
MPIB_STATIC_ASSERT(offsetof(struct mpib_hint_entry, dst_ip) == 12, "dst_ip at 12");

/* Size in bytes of a table with @entries slots. */
#define MPIB_HINTS_SIZE(entries)                                                                   \
	(sizeof(struct mpib_hint_header) + (size_t)(entries) * sizeof(struct mpib_hint_entry))
MPIB_STATIC_ASSERT(MPIB_HINTS_SIZE(MPIB_HINT_ENTRIES_DEFAULT) == 4112, "default table size");

/* ---- registration messages over the Unix stream socket ------------------------------------- */

#define MPIB_MSG_MAGIC 0x4D504952u

enum mpib_msg_type {
	MPIB_MSG_REGISTER = 1,	 /* a connection exists: which slot holds its hint? */
	MPIB_MSG_DEREGISTER = 2, /* it is gone */
	MPIB_MSG_COUNTERS = 3,	 /* here is what this process counts; one descriptor comes along */
	MPIB_MSG_RESPONSE = 128, /* answer to any of them */
};

enum mpib_status {
	MPIB_STATUS_OK = 0,
	MPIB_STATUS_NO_SLOT = 1, /* every slot (or this user's part of them) is taken */
	MPIB_STATUS_INVALID = 2, /* unknown type, wrong length, not your connection */
};

/* First bytes of every message. */
struct mpib_msg_header {
	uint32_t magic;	  /* MPIB_MSG_MAGIC */
	uint16_t msg_len; /* bytes of the whole message, this header included */
	uint8_t msg_type; /* enum mpib_msg_type */
	uint8_t reserved; /* 0 */
} __attribute__((packed));

/* conn_id is pid << 16 | counter. It is not unique on a host (pids are longer than 16 bits,
 * containers have pid namespaces), so the agent keys a connection by peer process and conn_id. */
struct mpib_msg_register {
	struct mpib_msg_header header;
	uint32_t conn_id;
	uint32_t sout_src_ip; /* this end's address on SOUT */
	uint32_t sout_dst_ip; /* the peer's; with sout_src_ip it names the flow */
	uint32_t sup_src_ip;  /* 0 where the connection has no SUP rail */
	uint32_t sup_dst_ip;
} __attribute__((packed));

struct mpib_msg_deregister {
	struct mpib_msg_header header;
	uint32_t conn_id;
} __attribute__((packed));

/* Optional, at most once a process and agent: the process's counter table (a memfd sealed with
 * F_SEAL_SHRINK, laid out as common/counters.h says) comes with the first byte of this message as
 * SCM_RIGHTS. The agent maps it for reading and closes its copy of the descriptor; another table
 * of the same process takes the place of the one before. Answered like DEREGISTER:
 * MPIB_STATUS_INVALID from an agent that doesn't know the message or refuses the table, which is
 * no reason to try again. A new generation in the hint header is one: a restarted agent has lost
 * the table. */
struct mpib_msg_counters {
	struct mpib_msg_header header;
	uint32_t size; /* bytes of the table, at most the file's size */
} __attribute__((packed));

/* Answer to REGISTER; hint_slot counts only with MPIB_STATUS_OK. */
struct mpib_msg_register_response {
	struct mpib_msg_header header;
	uint8_t status; /* enum mpib_status */
	uint8_t reserved[3];
	uint32_t hint_slot;
} __attribute__((packed));

/* Answer to DEREGISTER and COUNTERS. */
struct mpib_msg_deregister_response {
	struct mpib_msg_header header;
	uint8_t status; /* enum mpib_status */
	uint8_t reserved[3];
} __attribute__((packed));

MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_header) == 8, "message header is 8 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_header, msg_len) == 4, "msg_len at 4");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_header, msg_type) == 6, "msg_type at 6");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_header, reserved) == 7, "reserved at 7");
MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_register) == 28, "REGISTER is 28 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register, conn_id) == 8, "conn_id at 8");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register, sout_src_ip) == 12, "sout_src_ip at 12");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register, sout_dst_ip) == 16, "sout_dst_ip at 16");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register, sup_src_ip) == 20, "sup_src_ip at 20");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register, sup_dst_ip) == 24, "sup_dst_ip at 24");
MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_deregister) == 12, "DEREGISTER is 12 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_deregister, conn_id) == 8, "conn_id at 8");
MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_counters) == 12, "COUNTERS is 12 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_counters, size) == 8, "size at 8");
MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_register_response) == 16, "its answer is 16 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register_response, status) == 8, "status at 8");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_register_response, hint_slot) == 12, "slot at 12");
MPIB_STATIC_ASSERT(sizeof(struct mpib_msg_deregister_response) == 12, "its answer is 12 bytes");
MPIB_STATIC_ASSERT(offsetof(struct mpib_msg_deregister_response, status) == 8, "status at 8");

#ifdef __cplusplus
}
#endif

#endif
