/* SPDX-License-Identifier: Apache-2.0 */
/* Every setting of the plugin: one row of a table with name, default, range and help. The plugin,
 * mpibctl doctor and the test of mpib(7) read settings through this table and this parser, so that
 * they can't differ. Pure: the environment is the caller's; any thread. */
#ifndef MPIB_COMMON_ENV_H
#define MPIB_COMMON_ENV_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPIB_QPS_MAX 16 /* most QPs on one rail of one connection */

#define MPIB_GID_INDEX_MAX 255 /* verbs name a source GID with eight bits */

#define MPIB_ENV_ROWS_MAX 48  /* room for the origins of all rows */
#define MPIB_ENV_WHY_MAX  512 /* bytes of a sentence about a setting, with NUL */

enum mpib_mode {
	MPIB_MODE_VANILLA = 0,	/* topology alone decides */
	MPIB_MODE_ADVANCED = 1, /* the agent's hint decides */
};

/* Relaxed ordering of what a peer writes into NCCL's buffers. */
enum mpib_relaxed {
	MPIB_RELAXED_OFF = 0,
	MPIB_RELAXED_MUST = 1, /* registrations fail without it */
	MPIB_RELAXED_MAY = 2,  /* where library and device have it */
};

/* Where the value of a setting is from. */
enum mpib_env_origin {
	MPIB_ENV_DEFAULT,
	MPIB_ENV_OWN,  /* the variable of this name */
	MPIB_ENV_NCCL, /* NCCL's variable for the same thing, where the own one is unset */
};

struct mpib_env {
	char hca_sout[256]; /* comma list of name[:port]; empty when unset */
	char hca_sup[256];
	char node_addr[16]; /* empty, or an IPv4 address */
	char oob_if[256];   /* common/if_list.h; empty: the interface of SOUT's address */
	char oob_family[9]; /* "AF_INET", "AF_INET6"; empty: IPv4 where there is one */
	char agent_dir[PATH_MAX];
	int mode; /* enum mpib_mode */
	int prefix_len;
	int qps[2];    /* by rail */
	int gid_index; /* -1: choose */
	int timeout;
	int retry_cnt;
	int tc;
	int fifo_tc; /* -1: as tc */
	int sl;
	int pkey;	  /* -1: choose */
	int ar_threshold; /* -1: off */
	int gpudirect;	  /* -1: find out */
	int flush;
	int ece;
	int relaxed_ordering; /* enum mpib_relaxed */
	int agent_optional;
	int agent_stale_sec;
	int connect_timeout_sec;
	int split_min;
	int failover;
	int rail_stall_ms;
	int rail_wait_sec;
	int rail_pause_min_ms;
	int rail_pause_max_ms;
	uint8_t origin[MPIB_ENV_ROWS_MAX]; /* enum mpib_env_origin, by row */
};

/* How a value is written. */
enum mpib_env_kind {
	MPIB_ENV_NUMBER,     /* decimal */
	MPIB_ENV_KEY,	     /* a number that may be hexadecimal: 0x8001 */
	MPIB_ENV_HCAS,	     /* name[:port],name[:port] */
	MPIB_ENV_INTERFACES, /* common/if_list.h */
	MPIB_ENV_FAMILY,     /* AF_INET or AF_INET6 */
	MPIB_ENV_IPV4,	     /* one unicast address */
	MPIB_ENV_DIRECTORY,
};

/* One row; `default_text` is what an unset or empty variable means. */
struct mpib_env_row {
	char name[40];
	const char *default_text;
	enum mpib_env_kind kind;
	long min, max;		/* both 0 for a text */
	size_t offset;		/* into struct mpib_env */
	size_t size;		/* of the text's buffer; 0 for a number or a key */
	const char *nccl;	/* NCCL's variable that is used where this one is unset, or NULL */
	const char *nccl_unset; /* what means unset to NCCL, beside an empty value; or NULL */
	const char *help;
};

extern const struct mpib_env_row mpib_env_rows[];
extern const size_t mpib_env_row_count;

/* A variable of NCCL's own transport that means nothing here, and why. */
struct mpib_env_unused {
	const char *name;     /* with '*' at its end all that begin so and are no row's */
	const char *harmless; /* the value that asks for what MPIB does; NULL: there is none */
	const char *instead;  /* the setting of MPIB to name instead; NULL: there is none */
	const char *why;
};

extern const struct mpib_env_unused mpib_env_unused_rows[];
extern const size_t mpib_env_unused_count;

/* The value of variable @name in some environment, or NULL. */
typedef const char *(*mpib_env_get)(const void *environment, const char *name);

/* Reads one row from @environment into @env: the variable itself, NCCL's, or the default; an empty
 * value counts as unset. 0, or -EINVAL and a sentence in @ret_why (MPIB_ENV_WHY_MAX bytes) that
 * quotes variable and value, and says what is allowed; the field is as before then. */
int mpib_env_read_row(const struct mpib_env_row *row, mpib_env_get get, const void *environment,
		      struct mpib_env *env, char *ret_why);

/* The value in force as text, in @buf. Returns @buf. */
char *mpib_env_format(const struct mpib_env_row *row, const struct mpib_env *env, char *buf,
		      size_t size);

/* "a number from 1 to 31", in @buf. Returns @buf. */
char *mpib_env_allowed(const struct mpib_env_row *row, char *buf, size_t size);

enum mpib_env_origin mpib_env_origin_of(const struct mpib_env *env, const struct mpib_env_row *row);

/* The name of the variable that gave @field, a member of @env, its value; where nobody did, of the
 * one that could. */
const char *mpib_env_variable(const struct mpib_env *env, const void *field);

/* True where @entry, "NAME=value" of an environment, is named as a setting of MPIB and is none;
 * @ret_why (MPIB_ENV_WHY_MAX bytes) names the nearest one. */
bool mpib_env_is_unknown(const char *entry, char *ret_why);

/* The row of mpib_env_unused_rows that @entry, "NAME=value", belongs to, unless its value is
 * harmless or empty; else NULL. */
const struct mpib_env_unused *mpib_env_find_unused(const char *entry);

#endif
