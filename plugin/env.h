/* SPDX-License-Identifier: Apache-2.0 */
/* Every setting of the plugin: one row in env.c with name, default, range and help. Read once, at
 * the first init of the process. */
#ifndef MPIB_PLUGIN_ENV_H
#define MPIB_PLUGIN_ENV_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define MPIB_QPS_MAX 16 /* most QPs on one rail of one connection */

#define MPIB_GID_INDEX_MAX 255 /* verbs name a source GID with eight bits */

enum mpib_mode {
	MPIB_MODE_VANILLA = 0,	/* topology alone decides */
	MPIB_MODE_ADVANCED = 1, /* the agent's hint decides */
};

struct mpib_env {
	char hca_sout[256]; /* comma list of name[:port]; empty when unset */
	char hca_sup[256];
	char node_addr[16]; /* empty, or an IPv4 address */
	char oob_if[64];    /* empty: the interface of SOUT's address */
	char agent_dir[PATH_MAX];
	int mode; /* enum mpib_mode */
	int prefix_len;
	int qps[2];    /* by rail */
	int gid_index; /* -1: choose */
	int timeout;
	int retry_cnt;
	int tc;
	int sl;
	int gpudirect; /* -1: find out */
	int flush;
	int ece;
	int agent_optional;
	int agent_stale_sec;
	int connect_timeout_sec;
	int split_min;
};

/* One row; `default_text` is what an unset or empty variable means. */
struct mpib_env_row {
	const char *name;
	const char *default_text;
	long min, max; /* both 0 for a text */
	size_t offset; /* into struct mpib_env */
	size_t size;   /* of the text's buffer; 0 for a number */
	const char *help;
};

extern const struct mpib_env_row mpib_env_rows[];
extern const size_t mpib_env_row_count;

/* Fills @ret from the environment. -MPIB_EUSAGE for a value that is no number or out of range, or
 * a text that is too long: one warning names variable, value and range. */
int mpib_env_read(struct mpib_env *ret);

/* " NAME=value" for each variable that the environment sets (@given), or for each default that is
 * in force and not empty; in @buf, cut where it doesn't fit. Returns @buf. */
char *mpib_env_list(bool given, char *buf, size_t size);

#endif
