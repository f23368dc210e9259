/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/verbs.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/macros.h"
#include "plugin/base/log.h"

static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_pkey)(struct ibv_context *, uint8_t, int, __be16 *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	int (*query_gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *,
			    uint32_t, size_t);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *,
				    int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	int (*destroy_srq)(struct ibv_srq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	int (*destroy_qp)(struct ibv_qp *);
	int (*query_ece)(struct ibv_qp *, struct ibv_ece *);
	int (*set_ece)(struct ibv_qp *, struct ibv_ece *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	int (*fork_init)(void);
	const char *(*wc_status_str)(enum ibv_wc_status);
	const char *(*event_type_str)(enum ibv_event_type);
} verbs;

static void *library;

#define SYMBOL(field, name, needed)                                                                \
	{                                                                                          \
		&verbs.field, sizeof(verbs.field), name, needed                                    \
	}

static const struct {
	void *slot;
	size_t size;
	const char *name;
	bool needed;
} symbols[] = {
	SYMBOL(get_device_list, "ibv_get_device_list", true),
	SYMBOL(free_device_list, "ibv_free_device_list", true),
	SYMBOL(get_device_name, "ibv_get_device_name", true),
	SYMBOL(open_device, "ibv_open_device", true),
	SYMBOL(close_device, "ibv_close_device", true),
	SYMBOL(query_device, "ibv_query_device", true),
	SYMBOL(query_port, "ibv_query_port", true),
	SYMBOL(query_pkey, "ibv_query_pkey", true),
	SYMBOL(query_gid, "ibv_query_gid", true),
	SYMBOL(query_gid_ex, "_ibv_query_gid_ex", false),
	SYMBOL(alloc_pd, "ibv_alloc_pd", true),
	SYMBOL(dealloc_pd, "ibv_dealloc_pd", true),
	SYMBOL(reg_mr, "ibv_reg_mr", true),
	SYMBOL(reg_mr_iova2, "ibv_reg_mr_iova2", false),
	SYMBOL(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", false),
	SYMBOL(dereg_mr, "ibv_dereg_mr", true),
	SYMBOL(create_cq, "ibv_create_cq", true),
	SYMBOL(destroy_cq, "ibv_destroy_cq", true),
	SYMBOL(create_srq, "ibv_create_srq", true),
	SYMBOL(destroy_srq, "ibv_destroy_srq", true),
	SYMBOL(create_qp, "ibv_create_qp", true),
	SYMBOL(modify_qp, "ibv_modify_qp", true),
	SYMBOL(query_qp, "ibv_query_qp", true),
	SYMBOL(destroy_qp, "ibv_destroy_qp", true),
	SYMBOL(query_ece, "ibv_query_ece", false),
	SYMBOL(set_ece, "ibv_set_ece", false),
	SYMBOL(get_async_event, "ibv_get_async_event", true),
	SYMBOL(ack_async_event, "ibv_ack_async_event", true),
	SYMBOL(fork_init, "ibv_fork_init", false),
	SYMBOL(wc_status_str, "ibv_wc_status_str", true),
	SYMBOL(event_type_str, "ibv_event_type_str", true),
};

int mpib_verbs_load(void)
{
	void *lib;

	if (library)
		return 0;

	/* It stays in the process, whoever closes it: provider libraries don't survive that. */
	lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib) {
		MPIB_WARN("libibverbs can't be loaded (%s): install rdma-core's libibverbs and its "
			  "provider libraries here or in the container",
			  dlerror());
		return -ELIBACC;
	}

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(symbols); k++) {
		void *address = dlsym(lib, symbols[k].name);

		if (!address && symbols[k].needed) {
			MPIB_WARN("libibverbs.so.1 lacks %s: install rdma-core 22 or newer",
				  symbols[k].name);
			(void)dlclose(lib);
			return -ELIBACC;
		}
		memcpy(symbols[k].slot, &address, symbols[k].size);
	}

	/* Kernels before 5.12 make registered pages copy-on-write at a fork, under the HCA's hands;
	 * on later ones this does nothing. */
	if (verbs.fork_init)
		(void)verbs.fork_init();
	library = lib;
	return 0;
}

void mpib_verbs_unload(void)
{
	if (library)
		(void)dlclose(library);
	library = NULL;
}

bool mpib_verbs_has_iova2(void)
{
	return verbs.reg_mr_iova2 != NULL;
}

/* errno of a verb that returns NULL or -1; some providers leave it 0. */
static int from_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

/* Verbs documented to return a positive errno; a few providers return -1 or a negative one. */
static int from_return(int r)
{
	if (r == 0)
		return 0;
	if (r == -1)
		return from_errno();
	return r > 0 ? -r : r;
}

int mpib_verbs_list(struct ibv_device ***ret_list, int *ret_count)
{
	struct ibv_device **list;
	int count = 0;

	errno = 0;
	list = verbs.get_device_list(&count);
	if (!list)
		return from_errno();

	*ret_list = list;
	*ret_count = count;
	return 0;
}

void mpib_verbs_free_list(struct ibv_device **list)
{
	if (list)
		verbs.free_device_list(list);
}

const char *mpib_verbs_device_name(struct ibv_device *device)
{
	return verbs.get_device_name(device);
}

int mpib_verbs_open(struct ibv_device *device, struct ibv_context **ret_ctx)
{
	struct ibv_context *ctx;

	errno = 0;
	ctx = verbs.open_device(device);
	if (!ctx)
		return from_errno();

	*ret_ctx = ctx;
	return 0;
}

void mpib_verbs_close(struct ibv_context *ctx)
{
	if (ctx)
		(void)verbs.close_device(ctx);
}

int mpib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	return from_return(verbs.query_device(ctx, ret));
}

int mpib_verbs_query_port(struct ibv_context *ctx, unsigned int port, struct ibv_port_attr *ret)
{
	/* The exported function fills the older, shorter struct; the rest stays zero. */
	memset(ret, 0, sizeof(*ret));
	return from_return(verbs.query_port(ctx, (uint8_t)port, ret));
}

/* As newer headers have struct ibv_port_attr. A library of before fills its own part, and zeros the
 * rest. */
struct port_attr_ex {
	struct ibv_port_attr attr;
	uint32_t active_speed_ex;
};

uint32_t mpib_verbs_port_speed(struct ibv_context *ctx, unsigned int port,
			       const struct ibv_port_attr *attr)
{
	struct verbs_context *vctx = __extension__ verbs_get_ctx_op(ctx, query_port);
	struct port_attr_ex ex;

	memset(&ex, 0, sizeof(ex));
	if (vctx && vctx->query_port(ctx, (uint8_t)port, &ex.attr, sizeof(ex)) == 0 &&
	    ex.active_speed_ex)
		return ex.active_speed_ex;
	return attr->active_speed;
}

int mpib_verbs_query_pkey(struct ibv_context *ctx, unsigned int port, unsigned int index,
			  uint16_t *ret)
{
	__be16 key = 0;

	errno = 0;
	if (verbs.query_pkey(ctx, (uint8_t)port, (int)index, &key) < 0)
		return -ENODATA;
	*ret = be16toh(key);
	return *ret & 0x7fff ? 0 : -ENODATA;
}

/* Without ibv_query_gid_ex (rdma-core before 34) the type stands in sysfs. */
static int gid_type_from_sysfs(struct ibv_context *ctx, unsigned int port, unsigned int index,
			       uint32_t *ret_type)
{
	char path[256], text[32];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%u",
		       mpib_verbs_device_name(ctx->device), port, index);
	file = fopen(path, "re");
	if (!file)
		return -ENODATA;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	(void)fclose(file);

	*ret_type = strstr(text, "RoCE v2") ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return text[0] ? 0 : -ENODATA;
}

int mpib_verbs_query_gid(struct ibv_context *ctx, unsigned int port, unsigned int index,
			 struct ibv_gid_entry *ret)
{
	static const union ibv_gid zero;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (verbs.query_gid_ex) {
		r = from_return(verbs.query_gid_ex(ctx, port, index, ret, 0, sizeof(*ret)));
	} else {
		ret->gid_index = index;
		ret->port_num = port;
		r = from_return(verbs.query_gid(ctx, (uint8_t)port, (int)index, &ret->gid));
		if (r == 0)
			r = gid_type_from_sysfs(ctx, port, index, &ret->gid_type);
	}
	if (r < 0)
		return r;

	return memcmp(&ret->gid, &zero, sizeof(zero)) == 0 ? -ENODATA : 0;
}

int mpib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **ret)
{
	errno = 0;
	*ret = verbs.alloc_pd(ctx);
	return *ret ? 0 : from_errno();
}

void mpib_verbs_dealloc_pd(struct ibv_pd *pd)
{
	if (pd)
		(void)verbs.dealloc_pd(pd);
}

int mpib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t size, unsigned int access,
		      struct ibv_mr **ret)
{
	struct ibv_mr *mr;

	errno = 0;
	if (verbs.reg_mr_iova2)
		mr = verbs.reg_mr_iova2(pd, addr, size, (uint64_t)(uintptr_t)addr, access);
	else
		mr = verbs.reg_mr(pd, addr, size, (int)(access & ~IBV_ACCESS_RELAXED_ORDERING));
	if (!mr)
		return from_errno();

	*ret = mr;
	return 0;
}

int mpib_verbs_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova, int fd,
			  unsigned int access, struct ibv_mr **ret)
{
	struct ibv_mr *mr;

	if (!verbs.reg_dmabuf_mr)
		return -EOPNOTSUPP;

	errno = 0;
	mr = verbs.reg_dmabuf_mr(pd, offset, size, iova, fd, (int)access);
	if (!mr)
		return from_errno();

	*ret = mr;
	return 0;
}

int mpib_verbs_dereg_mr(struct ibv_mr *mr)
{
	return mr ? from_return(verbs.dereg_mr(mr)) : 0;
}

int mpib_verbs_create_cq(struct ibv_context *ctx, int depth, void *owner, struct ibv_cq **ret)
{
	struct ibv_cq *cq;

	errno = 0;
	cq = verbs.create_cq(ctx, depth, owner, NULL, 0);
	if (!cq)
		return from_errno();

	*ret = cq;
	return 0;
}

int mpib_verbs_destroy_cq(struct ibv_cq *cq)
{
	return cq ? from_return(verbs.destroy_cq(cq)) : 0;
}

int mpib_verbs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_srq **ret)
{
	struct ibv_srq *srq;

	errno = 0;
	srq = verbs.create_srq(pd, attr);
	if (!srq)
		return from_errno();

	*ret = srq;
	return 0;
}

int mpib_verbs_destroy_srq(struct ibv_srq *srq)
{
	return srq ? from_return(verbs.destroy_srq(srq)) : 0;
}

int mpib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret)
{
	struct ibv_qp *qp;

	errno = 0;
	qp = verbs.create_qp(pd, attr);
	if (!qp)
		return from_errno();

	*ret = qp;
	return 0;
}

int mpib_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return from_return(verbs.modify_qp(qp, attr, mask));
}

int mpib_verbs_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *ret, int mask)
{
	struct ibv_qp_init_attr init;

	return from_return(verbs.query_qp(qp, ret, mask, &init));
}

int mpib_verbs_destroy_qp(struct ibv_qp *qp)
{
	return qp ? from_return(verbs.destroy_qp(qp)) : 0;
}

int mpib_verbs_query_ece(struct ibv_qp *qp, struct ibv_ece *ret)
{
	return verbs.query_ece ? from_return(verbs.query_ece(qp, ret)) : -EOPNOTSUPP;
}

int mpib_verbs_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return verbs.set_ece ? from_return(verbs.set_ece(qp, ece)) : -EOPNOTSUPP;
}

int mpib_verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *ret)
{
	return verbs.get_async_event(ctx, ret) == 0 ? 1 : 0;
}

void mpib_verbs_ack_event(struct ibv_async_event *event)
{
	verbs.ack_async_event(event);
}

const char *mpib_verbs_wc_text(enum ibv_wc_status status)
{
	return verbs.wc_status_str(status);
}

const char *mpib_verbs_event_text(enum ibv_event_type type)
{
	return verbs.event_type_str(type);
}
