/* SPDX-License-Identifier: Apache-2.0 */
/* What the fabric looks like: nodes, devices and their properties, from an INI file or built in.
 * Pure: no file of the fabric's own is touched here, and a parsed configuration never changes. */
#ifndef MPIB_FABRIC_CONFIG_H
#define MPIB_FABRIC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAB_NAME_MAX	32 /* bytes of a device, node, network or fabric name, NUL included */
#define FAB_NODES_MAX	64
#define FAB_DEVS_MAX	256 /* devices of all nodes together */
#define FAB_GIDS_MAX	16
#define FAB_PKEYS_MAX	16
#define FAB_SGE_MAX	16
#define FAB_COPIERS_MAX 8

enum fab_gid_type {
	FAB_GID_NONE, /* empty entry */
	FAB_GID_V1,   /* RoCE v1 */
	FAB_GID_V2,   /* RoCE v2 */
};

struct fab_gid {
	uint8_t raw[16];
	uint32_t type; /* enum fab_gid_type */
};

/* One device with its one port. Rates count payload bytes. */
struct fab_dev_conf {
	char name[FAB_NAME_MAX];
	char network[FAB_NAME_MAX];   /* devices of one network reach each other */
	char pci[128];		      /* folder of the PCI device in sysfs, or empty */
	uint32_t node;		      /* index in fab_config.node */
	uint32_t scoped;	      /* 1: reaches its own island only */
	uint32_t mtu;		      /* bytes: 256..4096 */
	uint32_t speed_gbps;	      /* what query_port tells; shapes nothing */
	uint32_t active_width;	      /* codes of struct ibv_port_attr; 0: as speed_gbps says */
	uint32_t active_speed;	      /* 0: as speed_gbps says; beyond 8 bits as a newer library */
	uint32_t infiniband;	      /* link layer: 0 Ethernet, 1 InfiniBand */
	uint32_t has_address;	      /* the GID table came from an IPv4 address */
	uint32_t max_msg;	      /* bytes of the largest message */
	uint32_t max_srq, max_srq_wr; /* max_srq 0: no shared receive queues */
	uint32_t atomics;	      /* 0: the device has none */
	uint32_t relaxed_ordering;    /* 0: registrations that ask for it are refused */
	uint32_t adaptive;	      /* 1: plain writes take any path, see spread.c */
	uint32_t pkeys;
	uint16_t pkey[FAB_PKEYS_MAX]; /* the partition table; bit 15: full member */
	uint32_t max_qp, max_qp_wr, max_cq, max_cqe, max_mr, max_sge, max_rd_atomic, max_inline;
	uint32_t limit_errno; /* of what is one object too many */
	uint32_t inline_step; /* a QP gets a multiple of it, up to max_inline */
	uint64_t rate;	      /* bytes a second, 0 = no limit */
	uint64_t latency_ns;  /* one way */
	uint64_t unseen_ns;   /* acknowledged writes become visible so much later */
	uint64_t guid;	      /* host order */
	struct fab_gid gid[FAB_GIDS_MAX];
};

struct fab_node_conf {
	char name[FAB_NAME_MAX];
	char island[FAB_NAME_MAX];
};

struct fab_config {
	char name[FAB_NAME_MAX];
	uint32_t nodes, devs;
	uint32_t gpu;	  /* 1: CUDA device memory may be registered */
	uint32_t null;	  /* 1: sends complete at once and move nothing */
	uint32_t memlock; /* 1: registrations count against RLIMIT_MEMLOCK */
	uint32_t ring;	  /* bytes of a link's request ring, a power of two */
	uint32_t copiers; /* threads a process that help to copy, up to FAB_COPIERS_MAX */
	struct fab_node_conf node[FAB_NODES_MAX];
	struct fab_dev_conf dev[FAB_DEVS_MAX]; /* node by node */
};

/* The built-in two nodes with the rails `sout` and `sup`. */
void fab_config_default(struct fab_config *ret_conf);

/* Parses @len bytes of @text. On a mistake returns -EINVAL with "line N: cause" in @err. */
int fab_config_parse(const char *text, size_t len, struct fab_config *ret_conf, char *err,
		     size_t err_len);

/* Reads and parses the file at @path; negative errno, with the cause in @err. */
int fab_config_load(const char *path, struct fab_config *ret_conf, char *err, size_t err_len);

/* A number that differs for different configurations; names the meeting directory. */
uint32_t fab_config_hash(const struct fab_config *conf);

struct in_addr;
/* Fills the GID table of @dev, and its guid if it has none, from an IPv4 address. */
void fab_gids_from_ipv4(struct fab_dev_conf *dev, const struct in_addr *ip);

/* Fills the GID table of an InfiniBand port: the default subnet's prefix and the GUID. */
void fab_gids_from_guid(struct fab_dev_conf *dev);

/* Reads one GID table entry: "ADDRESS/v1" or "ADDRESS/v2" (IPv4, IPv6), or "-" for an empty one. */
int fab_gid_parse(const char *text, struct fab_gid *ret_gid);

#endif
