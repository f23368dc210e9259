/* SPDX-License-Identifier: Apache-2.0 */
/* What mpibctl and the agent say to each other over the agent's socket: message types from 64 up,
 * private to the two. Frames have the contract's 8-byte header. A request is a header alone, or
 * a struct mpib_admin_flow_request where it is about one flow or one process; the answer is any
 * number of RECORDS frames and one END frame. A reader steps by record_size, so that records can
 * grow at their end; an agent that doesn't know a request answers RESPONSE with
 * MPIB_STATUS_INVALID. */
#ifndef MPIB_AGENT_ADMIN_H
#define MPIB_AGENT_ADMIN_H

#include <stdint.h>

#include "agent/policy/policy.h"
#include "common/mpib_agent_iface.h"

enum mpib_admin_type {
	MPIB_ADMIN_STATUS = 64, /* one struct mpib_admin_status */
	MPIB_ADMIN_FLOWS = 65,	/* struct mpib_admin_flow, a record a slot with a flow */
	MPIB_ADMIN_RELOAD = 66, /* struct mpib_admin_change; for root and the agent's own user */
	MPIB_ADMIN_EXPLAIN =
		67, /* a flow: struct mpib_admin_rule, one a rule, the strongest first */
	MPIB_ADMIN_POLICY = 68,	  /* struct mpib_admin_text: the effective policy */
	MPIB_ADMIN_SET = 69,	  /* a flow's share for a while: struct mpib_admin_change */
	MPIB_ADMIN_UNSET = 70,	  /* ends that: the same; both for root and the agent's own user */
	MPIB_ADMIN_MONITOR = 71,  /* struct mpib_admin_event as they happen; ends with the reader */
	MPIB_ADMIN_FLOWS_OF = 72, /* of one process: as FLOWS, those that it has registered */
	MPIB_ADMIN_RECORDS = 192,
	MPIB_ADMIN_END = 193,
};

enum mpib_admin_verdict {
	MPIB_ADMIN_OK = 0,
	MPIB_ADMIN_FAILED = 1,	  /* the text says why */
	MPIB_ADMIN_FORBIDDEN = 2, /* not for this user */
};

/* Longest text of an END frame. */
#define MPIB_ADMIN_TEXT_MAX 512u

/* Longest RECORDS frame. */
#define MPIB_ADMIN_FRAME_MAX 4096u

struct mpib_admin_records {
	struct mpib_msg_header header;
	uint16_t record_size; /* bytes of each */
	uint16_t count;	      /* records that follow */
	uint32_t reserved;
} __attribute__((packed));

struct mpib_admin_end {
	struct mpib_msg_header header;
	uint8_t verdict; /* enum mpib_admin_verdict */
	uint8_t reserved[3];
	uint32_t total; /* records sent */
			/* up to MPIB_ADMIN_TEXT_MAX bytes of text follow, without a NUL */
} __attribute__((packed));

struct mpib_admin_flow_request {
	struct mpib_msg_header header;
	uint32_t src_be;
	uint32_t dst_be;
	union {
		uint32_t share; /* SET: a rule's (common/share.h) */
		uint32_t pid;	/* FLOWS_OF, as the agent sees it */
	};
	uint32_t seconds; /* SET: until it ends, 0 for no end */
};

/* What connections say of their rails in their counters; all 0 where none does: an older plugin.
 * Index 0 is SOUT, 1 is SUP. */
struct mpib_admin_rails {
	uint32_t known;	  /* connections that tell */
	uint32_t up[2];	  /* of these, that have the rail now */
	uint32_t lost[2]; /* that had it, and lost it */
	uint32_t reserved;
	uint64_t losses[2]; /* counts since the agent saw the connections first */
	uint64_t returns[2];
	uint64_t parts_again[2]; /* parts of messages sent again */
};

/* What is measured of a flow whose share finds itself. */
struct mpib_admin_tuning {
	uint32_t given; /* what the rule says (common/share.h); the rest is 0 where that isn't auto
			 */
	uint32_t state; /* enum mpib_balance_state */
	uint64_t
		rate[2]; /* bytes a second that each rail gives while it is busy, 0: not measured */
	uint64_t changes; /* of its share */
};

/* Changes of a share that an EXPLAIN tells, the latest first. */
#define MPIB_ADMIN_MOVES 4u

struct mpib_admin_move {
	uint64_t age_usec; /* all 0: there is none */
	uint32_t before;
	uint16_t after;
	uint16_t reason; /* enum mpib_balance_reason */
};

/* Device-initiated communication of a flow: connections of meshes, and what they have put. */
struct mpib_admin_gin {
	uint32_t connections; /* of the flow's, those known to be a mesh's */
	uint32_t reserved;
	uint64_t puts[2];  /* by rail; a put that is divided counts on both */
	uint64_t bytes[2]; /* part of what was sent */
};

enum mpib_admin_rule_state {
	MPIB_ADMIN_RULE_NO = 0,	      /* doesn't apply to the flow */
	MPIB_ADMIN_RULE_APPLIES = 1,  /* but a stronger one is in force */
	MPIB_ADMIN_RULE_IN_FORCE = 2, /* gave the share */
};

/* No slot: nobody has registered the flow. */
#define MPIB_ADMIN_NO_SLOT UINT32_MAX

struct mpib_admin_rule {
	uint32_t rule;	/* enum mpib_rule */
	uint32_t state; /* enum mpib_admin_rule_state */
	uint32_t share; /* that it gives, or would give */
	uint32_t line;	/* of the policy file, 0 for a default */
	/* of the flow, the same in each record: */
	uint32_t slot;
	uint32_t table_share; /* that plugins read */
	uint32_t registrations;
	uint32_t seconds; /* the override's time left, 0: no end */
	char src_island[MPIB_ISLAND_NAME_MAX];
	char dst_island[MPIB_ISLAND_NAME_MAX];
	struct mpib_admin_rails rails;
	/* since `auto`: what the rule gives, in place of `share`, and what is known of the flow */
	uint32_t given;
	uint32_t least; /* of a share that finds itself */
	uint32_t most;
	uint32_t reserved;
	struct mpib_admin_tuning tuning;
	uint64_t windows;
	uint64_t unused_windows;
	struct mpib_admin_move moves[MPIB_ADMIN_MOVES];
	struct mpib_admin_gin gin;
};

/* One entry of the journal. The first of a MONITOR is named "monitor" and says that it began; one
 * named "missed" says how many it didn't get. */
struct mpib_admin_event {
	uint64_t usec; /* since the epoch */
	uint32_t priority;
	uint32_t reserved;
	char name[24];
	char flow[32]; /* "" where it is about none */
	char text[440];
};

/* A piece of a text. */
struct mpib_admin_text {
	uint32_t len;
	char text[1020];
};

struct mpib_admin_status {
	uint32_t pid;
	uint32_t uid;
	uint32_t slots;
	uint32_t flows; /* slots in use */
	uint32_t registrations;
	uint32_t processes;
	uint32_t clients;
	uint32_t max_clients;
	uint32_t generation;
	uint32_t heartbeat;
	uint32_t policy_refused; /* 1: the latest reload was refused, see error */
	uint32_t reserved;
	uint64_t start_usec;  /* since the epoch */
	uint64_t policy_usec; /* when the policy in force was loaded */
	uint64_t registered;  /* counts since the start */
	uint64_t deregistered;
	uint64_t refused;
	uint64_t reloads;
	uint64_t reloads_refused;
	uint64_t entries_written; /* journal */
	uint64_t entries_suppressed;
	uint64_t beat_age_usec; /* since the heartbeat moved */
	uint64_t monitors;
	uint64_t events_missed; /* by monitors that read too slowly */
	char version[16];
	char config[256]; /* path, cut where it is longer; "" for the built-in defaults */
	char error[256];  /* of the refused reload */
	uint32_t unsaved; /* 1: the state file lacks something, see unsaved_error */
	uint32_t unsaved_registrations;
	uint32_t unclaimed;	 /* registrations of before whose process can't be told */
	uint32_t policy_missing; /* 1: there was no policy file, the defaults are in force */
	char unsaved_error[256];
	uint32_t config_file; /* 1 + enum mpib_config_file; 0: an older agent, which doesn't tell */
	uint32_t reserved_end;
	uint64_t config_usec;	       /* when that was last written; 0: there is none */
	struct mpib_admin_rails rails; /* of all connections; counts of those that ended, too */
};

struct mpib_admin_flow {
	uint32_t slot;
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t share;
	uint32_t rule;		/* enum mpib_rule */
	uint32_t line;		/* of the rule, 0 for a default */
	uint32_t registrations; /* 0: kept for a flow whose processes may come back */
	uint32_t uid;		/* whose part of the table the slot counts to */
	int32_t pid;		/* a process that holds it */
	uint32_t seconds;	/* the override's time left, 0: no end, or none */
	char src_island[MPIB_ISLAND_NAME_MAX];
	char dst_island[MPIB_ISLAND_NAME_MAX];
	/* by the counters of its processes; index 0 is SOUT, 1 is SUP */
	uint64_t sent[2];
	uint64_t received[2];
	uint64_t sent_rate[2]; /* bytes a second, in the latest */
	uint64_t received_rate[2];
	uint64_t moved_usec; /* when the latest byte was seen, since the epoch; 0: none yet */
	struct mpib_admin_rails rails;
	struct mpib_admin_tuning tuning;
	struct mpib_admin_gin gin;
};

struct mpib_admin_change {
	uint32_t slot;
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t before;
	uint32_t after;
};

_Static_assert(sizeof(struct mpib_admin_records) == 16, "records header");
_Static_assert(sizeof(struct mpib_admin_end) == 16, "end header");
_Static_assert(sizeof(struct mpib_admin_flow_request) == 24, "request about a flow");
_Static_assert(sizeof(struct mpib_admin_rails) == 72, "rails in a record");
_Static_assert(sizeof(struct mpib_admin_rule) == 32 + 64 + 72 + 16 + 32 + 16 + 64 + 40,
	       "rule record");
_Static_assert(sizeof(struct mpib_admin_event) == 512, "event record");
_Static_assert(sizeof(struct mpib_admin_text) == 1024, "text record");
_Static_assert(sizeof(struct mpib_admin_status) == 48 + 96 + 16 + 512 + 16 + 256 + 16 + 72,
	       "status record");
_Static_assert(sizeof(struct mpib_admin_flow) == 40 + 64 + 72 + 72 + 32 + 40, "flow record");
_Static_assert(sizeof(struct mpib_admin_change) == 20, "change record");

#endif
