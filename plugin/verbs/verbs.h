/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thin wrappers over libibverbs, and the only place that knows each verb's way to report an error:
 * here all return 0 or a negative errno. The library is opened at run time, so that a container
 * without it gets a line that says so instead of a plugin that doesn't load. Posting and polling
 * go through the context's own operations (inline in verbs.h) and need no symbol.
 */
#ifndef MPIB_PLUGIN_VERBS_H
#define MPIB_PLUGIN_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* Opens libibverbs.so.1 once a process. -ELIBACC (with a warning that names the cause) where it
 * or a needed symbol is missing. The caller serialises. */
int mpib_verbs_load(void);

/* Before this library's own code goes: gives that reference back. Device contexts are closed. */
void mpib_verbs_unload(void);

/* Whether the optional ibv_reg_mr_iova2 (IBVERBS_1.8: relaxed ordering) is there. */
bool mpib_verbs_has_iova2(void);

/* As ibv_get_device_list; @ret_list is freed with mpib_verbs_free_list. */
int mpib_verbs_list(struct ibv_device ***ret_list, int *ret_count);
void mpib_verbs_free_list(struct ibv_device **list);
const char *mpib_verbs_device_name(struct ibv_device *device);

int mpib_verbs_open(struct ibv_device *device, struct ibv_context **ret_ctx);
void mpib_verbs_close(struct ibv_context *ctx);
int mpib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret);
int mpib_verbs_query_port(struct ibv_context *ctx, unsigned int port, struct ibv_port_attr *ret);

/* The port's speed code: the newer, wider field where library and device have it. */
uint32_t mpib_verbs_port_speed(struct ibv_context *ctx, unsigned int port,
			       const struct ibv_port_attr *attr);

/* An entry of the partition table, in host order; -ENODATA for an empty or missing one. */
int mpib_verbs_query_pkey(struct ibv_context *ctx, unsigned int port, unsigned int index,
			  uint16_t *ret);

/* A GID table entry with its type; -ENODATA for an empty or missing one. */
int mpib_verbs_query_gid(struct ibv_context *ctx, unsigned int port, unsigned int index,
			 struct ibv_gid_entry *ret);

int mpib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **ret);
void mpib_verbs_dealloc_pd(struct ibv_pd *pd);

/* @access may carry IBV_ACCESS_RELAXED_ORDERING, which is dropped where iova2 is missing. */
int mpib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t size, unsigned int access,
		      struct ibv_mr **ret);
int mpib_verbs_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova, int fd,
			  unsigned int access, struct ibv_mr **ret);
int mpib_verbs_dereg_mr(struct ibv_mr *mr);

int mpib_verbs_create_cq(struct ibv_context *ctx, int depth, void *owner, struct ibv_cq **ret);
int mpib_verbs_destroy_cq(struct ibv_cq *cq);
int mpib_verbs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_srq **ret);
int mpib_verbs_destroy_srq(struct ibv_srq *srq);
int mpib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret);
int mpib_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
/* What the device itself knows of the attributes of @mask. */
int mpib_verbs_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *ret, int mask);
int mpib_verbs_destroy_qp(struct ibv_qp *qp);

/* Enhanced connection establishment; -EOPNOTSUPP where library or provider has none. */
int mpib_verbs_query_ece(struct ibv_qp *qp, struct ibv_ece *ret);
int mpib_verbs_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);

/* 1 and an event, or 0 where none is waiting (the async descriptor is non-blocking). */
int mpib_verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *ret);
void mpib_verbs_ack_event(struct ibv_async_event *event);

const char *mpib_verbs_wc_text(enum ibv_wc_status status);
const char *mpib_verbs_event_text(enum ibv_event_type type);

#endif
