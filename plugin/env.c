/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/macros.h"
#include "common/mpib_agent_iface.h"
#include "plugin/log.h"
#include "plugin/result.h"

#define NUMBER(field) offsetof(struct mpib_env, field), 0
#define TEXT(field)   0, 0, offsetof(struct mpib_env, field), sizeof(((struct mpib_env *)0)->field)

const struct mpib_env_row mpib_env_rows[] = {
	{ "MPIB_HCA_SOUT", "", TEXT(hca_sout),
	  "HCA of the scale-out rail, name[:port]; a comma list gives several fused devices" },
	{ "MPIB_HCA_SUP", "", TEXT(hca_sup),
	  "HCA of the scale-up rail, paired by position with MPIB_HCA_SOUT" },
	{ "MPIB_OOB_IF", "", TEXT(oob_if),
	  "network interface of the TCP control connections; default: that of SOUT's address" },
	{ MPIB_AGENT_DIR_ENV, MPIB_AGENT_DIR_DEFAULT, TEXT(agent_dir),
	  "directory of the agent's hints and socket" },
	{ "MPIB_MODE", "0", 0, 1, NUMBER(mode),
	  "0 vanilla: topology decides; 1 advanced: the agent" },
	{ "MPIB_ISLAND_PREFIX_LEN", "24", 0, 32, NUMBER(prefix_len),
	  "nodes whose SOUT addresses share this many bits are one island" },
	{ "MPIB_SOUT_QP", "2", 1, MPIB_QPS_MAX, NUMBER(qps[0]), "QPs a connection on SOUT" },
	{ "MPIB_SUP_QP", "4", 1, MPIB_QPS_MAX, NUMBER(qps[1]), "QPs a connection on SUP" },
	{ "MPIB_NODE_ADDR", "", TEXT(node_addr),
	  "InfiniBand only: the IPv4 address that stands for this node in islands and flows" },
	{ "MPIB_IB_GID_INDEX", "-1", -1, MPIB_GID_INDEX_MAX, NUMBER(gid_index),
	  "GID index on both rails; -1: the first routable RoCE v2 IPv4 entry" },
	{ "MPIB_IB_TIMEOUT", "18", 1, 31, NUMBER(timeout),
	  "ACK timeout exponent: 4.096 us * 2^N a try" },
	{ "MPIB_IB_RETRY_CNT", "6", 0, 7, NUMBER(retry_cnt),
	  "transport retries; 7 is for ever on some drivers" },
	{ "MPIB_IB_TC", "-1", -1, 255, NUMBER(tc),
	  "traffic class of all QPs; -1: NCCL's setting for the communicator, else 0" },
	{ "MPIB_IB_SL", "0", 0, 15, NUMBER(sl), "service level of all QPs" },
	{ "MPIB_GPUDIRECT", "-1", -1, 1, NUMBER(gpudirect),
	  "GPU memory: 0 off; 1 take ibv_reg_mr to serve it; -1: find out" },
	{ "MPIB_FLUSH", "1", 0, 1, NUMBER(flush),
	  "1: where NCCL asks, wait until received data is visible to the GPU; 0: never" },
	{ "MPIB_IB_ECE", "1", 0, 1, NUMBER(ece),
	  "1: enhanced connection establishment where both ends have it" },
	{ "MPIB_AGENT_OPTIONAL", "0", 0, 1, NUMBER(agent_optional),
	  "1: advanced mode starts without an agent, on the vanilla policy until one appears" },
	{ "MPIB_AGENT_STALE_SEC", "10", 1, 86400, NUMBER(agent_stale_sec),
	  "seconds without a heartbeat after which the vanilla policy holds" },
	{ "MPIB_CONNECT_TIMEOUT_SEC", "120", 1, 86400, NUMBER(connect_timeout_sec),
	  "seconds that a connection may take from TCP connect to ready" },
	{ "MPIB_SPLIT_MIN", "32768", 0, 1 << 30, NUMBER(split_min),
	  "bytes from which a message is divided between the rails" },
};

const size_t mpib_env_row_count = MPIB_ARRAY_SIZE(mpib_env_rows);

static int read_row(const struct mpib_env_row *row, struct mpib_env *env)
{
	const char *text = getenv(row->name);
	char *field = (char *)env + row->offset;
	char *end;
	long value;

	if (!text || !*text)
		text = row->default_text;

	if (row->size) {
		if (strlen(text) >= row->size) {
			MPIB_WARN("%s is longer than %zu bytes: shorten it", row->name,
				  row->size - 1);
			return -MPIB_EUSAGE;
		}
		memcpy(field, text, strlen(text) + 1);
		return 0;
	}

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < row->min || value > row->max) {
		MPIB_WARN("%s=%s: must be a number from %ld to %ld (%s)", row->name, text, row->min,
			  row->max, row->help);
		return -MPIB_EUSAGE;
	}
	*(int *)(void *)field = (int)value;
	return 0;
}

int mpib_env_read(struct mpib_env *ret)
{
	struct mpib_env env;
	int r;

	memset(&env, 0, sizeof(env));
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		r = read_row(&mpib_env_rows[k], &env);
		if (r < 0)
			return r;
	}

	*ret = env;
	return 0;
}

char *mpib_env_list(bool given, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t k = 0; k < mpib_env_row_count && used < size; k++) {
		const char *text = getenv(mpib_env_rows[k].name);

		if (given != (text && *text))
			continue;
		if (!given)
			text = mpib_env_rows[k].default_text;
		if (*text)
			used += (size_t)snprintf(buf + used, size - used, " %s=%s",
						 mpib_env_rows[k].name, text);
	}
	return buf;
}
