/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and that of NCCL's settings which are none of MPIB's. docs/mpib.7 has
 * both; tests/tree/test_man_env.c holds it against them. */
#include "common/env.h"
#include "common/macros.h"
#include "common/mpib_agent_iface.h"

#define FIELD_SIZE(field)	  sizeof(((struct mpib_env *)0)->field)
#define NUMBER(min, max, field)	  MPIB_ENV_NUMBER, min, max, offsetof(struct mpib_env, field), 0
#define KEY(min, max, field)	  MPIB_ENV_KEY, min, max, offsetof(struct mpib_env, field), 0
#define TEXT(kind, field)	  kind, 0, 0, offsetof(struct mpib_env, field), FIELD_SIZE(field)
#define OWN			  NULL, NULL
#define OR_NCCL(name, unset_text) name, unset_text

const struct mpib_env_row mpib_env_rows[] = {
	{ "MPIB_HCA_SOUT", "", TEXT(MPIB_ENV_HCAS, hca_sout), OWN,
	  "HCA of the scale-out rail, name[:port]; a comma list gives several fused devices" },
	{ "MPIB_HCA_SUP", "", TEXT(MPIB_ENV_HCAS, hca_sup), OWN,
	  "HCA of the scale-up rail, paired by position with MPIB_HCA_SOUT" },
	{ "MPIB_OOB_IF", "", TEXT(MPIB_ENV_INTERFACES, oob_if), OR_NCCL("NCCL_SOCKET_IFNAME", NULL),
	  "network interface of the TCP control connections; default: that of SOUT's address" },
	{ "MPIB_OOB_FAMILY", "", TEXT(MPIB_ENV_FAMILY, oob_family),
	  OR_NCCL("NCCL_SOCKET_FAMILY", NULL),
	  "address family of the control connections, AF_INET or AF_INET6; default: IPv4 where "
	  "the interface has it" },
	{ MPIB_AGENT_DIR_ENV, MPIB_AGENT_DIR_DEFAULT, TEXT(MPIB_ENV_DIRECTORY, agent_dir), OWN,
	  "directory of the agent's hints and socket" },
	{ "MPIB_MODE", "0", NUMBER(0, 1, mode), OWN,
	  "0 vanilla: topology decides; 1 advanced: the agent" },
	{ "MPIB_ISLAND_PREFIX_LEN", "24", NUMBER(0, 32, prefix_len), OWN,
	  "nodes whose SOUT addresses share this many bits are one island" },
	{ "MPIB_SOUT_QP", "2", NUMBER(1, MPIB_QPS_MAX, qps[0]),
	  OR_NCCL("NCCL_IB_QPS_PER_CONNECTION", NULL), "QPs a connection on SOUT" },
	{ "MPIB_SUP_QP", "4", NUMBER(1, MPIB_QPS_MAX, qps[1]),
	  OR_NCCL("NCCL_IB_QPS_PER_CONNECTION", NULL), "QPs a connection on SUP" },
	{ "MPIB_NODE_ADDR", "", TEXT(MPIB_ENV_IPV4, node_addr), OWN,
	  "InfiniBand only: the IPv4 address that stands for this node in islands and flows" },
	{ "MPIB_IB_GID_INDEX", "-1", NUMBER(-1, MPIB_GID_INDEX_MAX, gid_index),
	  OR_NCCL("NCCL_IB_GID_INDEX", NULL),
	  "GID index on both rails; -1: the first routable RoCE v2 IPv4 entry" },
	{ "MPIB_IB_TIMEOUT", "18", NUMBER(1, 31, timeout), OR_NCCL("NCCL_IB_TIMEOUT", NULL),
	  "ACK timeout exponent: 4.096 us * 2^N a try" },
	{ "MPIB_IB_RETRY_CNT", "6", NUMBER(0, 7, retry_cnt), OR_NCCL("NCCL_IB_RETRY_CNT", NULL),
	  "transport retries; 7 is for ever on some drivers" },
	{ "MPIB_IB_TC", "-1", NUMBER(-1, 255, tc), OR_NCCL("NCCL_IB_TC", NULL),
	  "traffic class of all QPs; -1: NCCL's setting for the communicator, else 0" },
	{ "MPIB_IB_FIFO_TC", "-1", NUMBER(-1, 255, fifo_tc), OR_NCCL("NCCL_IB_FIFO_TC", NULL),
	  "traffic class of the QP that carries the receivers' clear-to-sends; -1: that of the "
	  "others" },
	{ "MPIB_IB_SL", "0", NUMBER(0, 15, sl), OR_NCCL("NCCL_IB_SL", "-1"),
	  "service level of all QPs" },
	{ "MPIB_IB_PKEY", "-1", KEY(-1, 0xffff, pkey), OWN,
	  "InfiniBand: partition key (0x8001, not an index) of all QPs; -1: the first full "
	  "member" },
	{ "MPIB_IB_AR_THRESHOLD", "8192", NUMBER(-1, 1 << 30, ar_threshold),
	  OR_NCCL("NCCL_IB_AR_THRESHOLD", NULL),
	  "InfiniBand: a message of more bytes is a plain write, which adaptive routing spreads, "
	  "and "
	  "an immediate behind it; -1: never" },
	{ "MPIB_GPUDIRECT", "-1", NUMBER(-1, 1, gpudirect), OWN,
	  "GPU memory: 0 off; 1 take ibv_reg_mr to serve it; -1: find out" },
	{ "MPIB_FLUSH", "1", NUMBER(0, 1, flush), OWN,
	  "1: where NCCL asks, wait until received data is visible to the GPU; 0: never" },
	{ "MPIB_IB_ECE", "1", NUMBER(0, 1, ece), OR_NCCL("NCCL_IB_ECE_ENABLE", NULL),
	  "1: enhanced connection establishment where both ends have it" },
	{ "MPIB_IB_PCI_RELAXED_ORDERING", "2", NUMBER(0, 2, relaxed_ordering),
	  OR_NCCL("NCCL_IB_PCI_RELAXED_ORDERING", NULL),
	  "PCI relaxed ordering of received data: 0 off; 1 on, or registrations fail; 2 where "
	  "library and NIC have it" },
	{ "MPIB_AGENT_OPTIONAL", "0", NUMBER(0, 1, agent_optional), OWN,
	  "1: advanced mode starts without an agent, on the vanilla policy until one appears" },
	{ "MPIB_AGENT_STALE_SEC", "10", NUMBER(1, 86400, agent_stale_sec), OWN,
	  "seconds without a heartbeat after which the vanilla policy holds" },
	{ "MPIB_CONNECT_TIMEOUT_SEC", "120", NUMBER(1, 86400, connect_timeout_sec), OWN,
	  "seconds that a connection may take from TCP connect to ready" },
	{ "MPIB_SPLIT_MIN", "32768", NUMBER(0, 1 << 30, split_min), OWN,
	  "bytes from which a message is divided between the rails" },
	{ "MPIB_FAILOVER", "1", NUMBER(0, 1, failover), OWN,
	  "1: a connection survives the loss of a rail, where both ends have it on" },
	{ "MPIB_RAIL_STALL_MS", "3000", NUMBER(0, 600000, rail_stall_ms), OWN,
	  "milliseconds without a completion after which a rail is taken for lost while the other "
	  "one completes; 0: never" },
	{ "MPIB_RAIL_WAIT_SEC", "60", NUMBER(0, 86400, rail_wait_sec), OWN,
	  "seconds that messages wait for a rail when none is left; 0: they fail at once" },
	{ "MPIB_RAIL_PAUSE_MIN_MS", "1000", NUMBER(10, 3600000, rail_pause_min_ms), OWN,
	  "milliseconds until the first attempt to bring a lost rail back; each further pause is "
	  "twice as long" },
	{ "MPIB_RAIL_PAUSE_MAX_MS", "60000", NUMBER(10, 3600000, rail_pause_max_ms), OWN,
	  "milliseconds of the longest pause between these attempts" },
};

const size_t mpib_env_row_count = MPIB_ARRAY_SIZE(mpib_env_rows);

_Static_assert(MPIB_ARRAY_SIZE(mpib_env_rows) <= MPIB_ENV_ROWS_MAX, "one origin a row");

const struct mpib_env_unused mpib_env_unused_rows[] = {
	{ "NCCL_IB_HCA", NULL, "MPIB_HCA_SOUT",
	  "it doesn't say which device is SOUT and which SUP: set MPIB_HCA_SOUT and MPIB_HCA_SUP" },
	{ "NCCL_IB_PKEY", "0", "MPIB_IB_PKEY",
	  "it is an index into a port's table: MPIB_IB_PKEY takes the key itself" },
	{ "NCCL_IB_ROCE_VERSION_NUM", "2", "MPIB_IB_GID_INDEX",
	  "the rails use RoCE v2; MPIB_IB_GID_INDEX can name another entry" },
	{ "NCCL_IB_ADDR_FAMILY", "AF_INET", NULL,
	  "islands and flows are IPv4 addresses, so the rails' GIDs are" },
	{ "NCCL_IB_ADDR_RANGE", NULL, "MPIB_IB_GID_INDEX",
	  "the first routable GID is used, or the one that MPIB_IB_GID_INDEX names" },
	{ "NCCL_IB_SPLIT_DATA_ON_QPS", "0", NULL,
	  "a message uses one QP of a rail; messages use them in turn" },
	{ "NCCL_IB_ADAPTIVE_ROUTING", NULL, "MPIB_IB_AR_THRESHOLD",
	  "InfiniBand ports are taken to have it and RoCE not: MPIB_IB_AR_THRESHOLD=-1 does "
	  "without" },
	{ "NCCL_IB_USE_INLINE", "1", NULL, "control messages are inline where the NIC can" },
	{ "NCCL_IB_MERGE_NICS", "0", "MPIB_HCA_SOUT", "the two lists of HCAs say what is fused" },
	{ "NCCL_IB_DISABLE", "0", NULL, "it switches off NCCL's own transport alone" },
	{ "NCCL_GDR_FLUSH_DISABLE", "0", "MPIB_FLUSH", "set MPIB_FLUSH=0 for that" },
	{ "NCCL_IB_MERGE_VFS", "1", "MPIB_HCA_SOUT", "the two lists of HCAs say what is fused" },
	{ "NCCL_IB_DATA_DIRECT", "0", "MPIB_GPUDIRECT",
	  "GPU memory is reached through a peer-memory module or DMA-BUF" },
	{ "NCCL_IB_RETURN_ASYNC_EVENTS", "1", NULL,
	  "a lost device or a broken QP ends its connections, always" },
	{ "NCCL_IB_RESILIENCY_PORT_FAILOVER", "0", "MPIB_FAILOVER",
	  "MPIB_FAILOVER is on by default: messages of a lost rail move to the other one" },
	{ "NCCL_IB_*", NULL, NULL,
	  "any other setting of NCCL's own transport: MPIB has none for it" },
};

const size_t mpib_env_unused_count = MPIB_ARRAY_SIZE(mpib_env_unused_rows);
