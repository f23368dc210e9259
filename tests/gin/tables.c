/* SPDX-License-Identifier: Apache-2.0 */
/* Every table in the form of v11, so that the same cases judge all of them. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/gin/ranks.h"

#define MESHES	 16
#define CONTEXTS 3 /* asked for, and used in turn */

mpib_nccl_gin_iget_v13 *table_get;
mpib_nccl_gin_iflush_v13 *table_flush;

static const struct mpib_nccl_gin_v11 *v11;
static const struct mpib_nccl_gin_v12 *v12;
static const struct mpib_nccl_gin_v13 *v13;
static const struct mpib_nccl_rma_v14 *v14;
static const struct mpib_nccl_rma_v15 *v15;
static struct mpib_nccl_gin_v11 form;

/* Contexts of the meshes that there are; threads may make some at once. */
static pthread_mutex_t meshes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	void *coll, *ctx;
} meshes[MESHES];

static void **ctx_at(void *coll)
{
	for (int k = 0; k < MESHES; k++)
		if (meshes[k].coll == coll)
			return &meshes[k].ctx;
	CHECK(!"a mesh that is known");
	return NULL;
}

static int next_context(void)
{
	static int context;

	return context++ % CONTEXTS;
}

/* ---- v12 ------------------------------------------------------------------------------------- */

static ncclResult_t connect_v12(void *ctx, void *handles[], int nranks, int own, void *listener,
				void **coll)
{
	return v12->connect(ctx, handles, nranks, own, CONTEXTS, DEPTH, listener, coll);
}

static ncclResult_t put_v12(void *coll, uint64_t from, void *src, size_t size, uint64_t to,
			    void *dst, uint32_t to_rank, void **request)
{
	return v12->iput(coll, from, src, size, to, dst, to_rank, next_context(), request);
}

static ncclResult_t put_signal_v12(void *coll, uint64_t from, void *src, size_t size, uint64_t to,
				   void *dst, uint32_t to_rank, uint64_t at, void *signal,
				   uint64_t value, uint32_t op, void **request)
{
	return v12->iputSignal(coll, from, src, size, to, dst, to_rank, at, signal, value, op,
			       next_context(), request);
}

/* ---- contexts: to puts of v13 and RMA, and to queryLastError of all
 * ------------------------------------------------------------------- */

/* A function of the table that is open. */
#define OF_ANY(of_v12, field)                                                                      \
	(v11 ? v11->field : v12 ? (of_v12) : v13 ? v13->field : v14 ? v14->field : v15->field)

ncclResult_t table_contexts(void *coll, int contexts, void **ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	struct mpib_nccl_gin_config_v13 gin = { .nContexts = contexts, .trafficClass = -1 };
	struct mpib_nccl_rma_config_v14 rma = { .nContexts = contexts, .trafficClass = -1 };

	if (v11)
		return v11->createContext(coll, SIGNALS, SIGNALS, ctx, &device);
	if (v12)
		return v12->createContext(coll, SIGNALS, SIGNALS, contexts, ctx, &device);
	if (v13)
		return v13->createContext(coll, &gin, ctx, &device);
	return v14 ? v14->createContext(coll, &rma, ctx) : v15->createContext(coll, &rma, ctx);
}

static ncclResult_t connect_ctx(void *ctx, void *handles[], int nranks, int own, void *listener,
				void **coll)
{
	mpib_nccl_gin_connect_v11 *connect = OF_ANY(connect_v12, connect);
	ncclResult_t result = connect(ctx, handles, nranks, own, listener, coll);

	(void)pthread_mutex_lock(&meshes_lock);
	for (int k = 0; result == ncclSuccess && k < MESHES; k++) {
		if (meshes[k].coll)
			continue;
		meshes[k].coll = *coll;
		result = table_contexts(*coll, CONTEXTS, &meshes[k].ctx);
		CHECK(result != ncclSuccess || meshes[k].ctx);
		break;
	}
	(void)pthread_mutex_unlock(&meshes_lock);
	return result;
}

static ncclResult_t close_ctx(void *coll)
{
	mpib_nccl_gin_close *destroy = OF_ANY(v12->destroyContext, destroyContext);
	mpib_nccl_gin_close *close_coll = OF_ANY(v12->closeColl, closeColl);

	for (int k = 0; coll && k < MESHES; k++) {
		if (meshes[k].coll != coll)
			continue;
		CHECK(destroy(meshes[k].ctx) == ncclSuccess);
		meshes[k].coll = NULL;
	}
	return close_coll(coll);
}

static ncclResult_t progress_ctx(void *coll)
{
	void *ctx = *ctx_at(coll);

	return v13 ? v13->ginProgress(ctx) : v14 ? v14->rmaProgress(ctx) : v15->rmaProgress(ctx);
}

static ncclResult_t last_error_ctx(void *coll, bool *has_error)
{
	return OF_ANY(v12->queryLastError, queryLastError)(*ctx_at(coll), has_error);
}

static ncclResult_t put_ctx(void *coll, uint64_t from, void *src, size_t size, uint64_t to,
			    void *dst, uint32_t to_rank, void **request)
{
	void *ctx = *ctx_at(coll);

	if (v15)
		return v15->iput(ctx, next_context(), from, src, size, to, dst, to_rank, 1,
				 request);
	return (v13 ? v13->iput : v14->iput)(ctx, next_context(), from, src, size, to, dst, to_rank,
					     request);
}

static ncclResult_t put_signal_ctx(void *coll, uint64_t from, void *src, size_t size, uint64_t to,
				   void *dst, uint32_t to_rank, uint64_t at, void *signal,
				   uint64_t value, uint32_t op, void **request)
{
	static unsigned int calls;
	bool strong = calls++ & 1; /* which changes nothing */
	void *ctx = *ctx_at(coll);
	int context = next_context();

	if (v13)
		return v13->iputSignal(ctx, context, from, src, size, to, dst, to_rank, at, signal,
				       value, op, request);
	if (v14)
		return v14->iputSignal(ctx, context, from, src, size, to, dst, to_rank, at, signal,
				       value, op, strong, request);
	return v15->iputSignal(ctx, context, from, src, size, to, dst, to_rank, at, signal, value,
			       op, strong, 1, request);
}

static ncclResult_t get_ctx(void *coll, int context, uint64_t from, void *remote, size_t size,
			    uint64_t to, void *local, uint32_t of_rank, void **request)
{
	void *ctx = *ctx_at(coll);

	(void)context;
	if (v15)
		return v15->iget(ctx, next_context(), from, remote, size, to, local, of_rank, 0,
				 request);
	return (v13 ? v13->iget : v14->iget)(ctx, next_context(), from, remote, size, to, local,
					     of_rank, request);
}

static ncclResult_t flush_ctx(void *coll, int context, void *mhandle, uint32_t of_rank,
			      void **request)
{
	void *ctx = *ctx_at(coll);

	return v13   ? v13->iflush(ctx, context, mhandle, of_rank, request)
	       : v14 ? v14->iflush(ctx, context, mhandle, of_rank, request)
		     : v15->iflush(ctx, context, mhandle, of_rank, request);
}

/* ---- RMA: without the handle for code on the device ------------------------------------------ */

static ncclResult_t register_rma(void *coll, void *data, size_t size, int type, uint64_t flags,
				 void **mhandle, void **gin_handle)
{
	ncclResult_t result =
		(v14 ? v14->regMrSym : v15->regMrSym)(coll, data, size, type, flags, mhandle);

	*gin_handle = *mhandle;
	return result;
}

static ncclResult_t properties_wide(int dev, struct mpib_nccl_properties_v11 *props)
{
	struct mpib_nccl_properties_v12 wide;
	ncclResult_t result = (v13   ? v13->getProperties
			       : v14 ? v14->getProperties
				     : v15->getProperties)(dev, &wide);

	memset(props, 0, sizeof(*props));
	props->netDeviceType = wide.netDeviceType;
	props->maxRecvs = wide.maxRecvs;
	props->vProps.ndevs = wide.vProps.ndevs;
	props->vProps.devs[0] = wide.vProps.devs[0];
	return result;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* What all tables have by the same name and type. */
#define TAKE(table)                                                                                \
	do {                                                                                       \
		form.name = (table)->name;                                                         \
		form.init = (table)->init;                                                         \
		form.devices = (table)->devices;                                                   \
		form.listen = (table)->listen;                                                     \
		form.deregMrSym = (table)->deregMrSym;                                             \
		form.closeListen = (table)->closeListen;                                           \
		form.test = (table)->test;                                                         \
		form.finalize = (table)->finalize;                                                 \
	} while (0)

static void with_contexts(void)
{
	form.getProperties = properties_wide;
	form.ginProgress = progress_ctx;
	form.iput = put_ctx;
	form.iputSignal = put_signal_ctx;
	table_get = get_ctx;
	table_flush = flush_ctx;
}

static const struct mpib_nccl_gin_v11 *with_coll(void)
{
	if (v11) {
		form = *v11;
	} else {
		TAKE(v12);
		form.getProperties = v12->getProperties;
		form.regMrSym = v12->regMrSym;
		form.ginProgress = v12->ginProgress;
		form.iput = put_v12;
		form.iputSignal = put_signal_v12;
	}
	form.connect = connect_ctx;
	form.closeColl = close_ctx;
	form.queryLastError = last_error_ctx;
	return &form;
}

static void *named(void *library, const char *name, const char *symbol)
{
	const char *wanted = getenv("TABLE");

	return strcmp(wanted ? wanted : "v11", name) == 0 ? dlsym(library, symbol) : NULL;
}

const struct mpib_nccl_gin_v11 *table_find(void *library)
{
	v11 = named(library, "v11", "ncclGinPlugin_v11");
	v12 = named(library, "v12", "ncclGinPlugin_v12");
	v13 = named(library, "v13", "ncclGinPlugin_v13");
	v14 = named(library, "rma14", "ncclRmaPlugin_v14");
	v15 = named(library, "rma15", "ncclRmaPlugin_v15");
	CHECK(v11 || v12 || v13 || v14 || v15);
	if (v11 || v12)
		return with_coll();
	with_contexts();
	form.connect = connect_ctx;
	form.closeColl = close_ctx;
	form.queryLastError = last_error_ctx;
	if (v13) {
		TAKE(v13);
		form.regMrSym = v13->regMrSym;
		return &form;
	}
	form.regMrSym = register_rma;
	if (v14)
		TAKE(v14);
	else
		TAKE(v15);
	return &form;
}
