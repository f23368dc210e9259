/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL hands to the calls, and from which thread. */
#include "tests/plugin/driver.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* NCCL hands over whatever its stack holds. */
static void uninitialised_properties(void)
{
	struct mpib_nccl_properties_v12 p12;
	struct mpib_nccl_properties_v11 p11;
	struct mpib_nccl_properties_v7 p7;
	struct mpib_nccl_net_v11 *v11;
	struct mpib_nccl_net_v7 *v7;
	void *ctx = NULL;

	library_open();
	v11 = library_symbol("ncclNetPlugin_v11");
	v7 = library_symbol("ncclNetPlugin_v7");
	CHECK(net_init(&ctx) == ncclSuccess);
	memset(&p12, 0xa5, sizeof(p12));
	memset(&p11, 0xa5, sizeof(p11));
	memset(&p7, 0xa5, sizeof(p7));
	CHECK(net->getProperties(0, &p12) == ncclSuccess);
	CHECK(v11->getProperties(0, &p11) == ncclSuccess);
	CHECK(v7->getProperties(0, &p7) == ncclSuccess);
	CHECK(p12.name && strcmp(p12.name, "sout+sup") == 0);
	CHECK(p12.name == p11.name && p12.name == p7.name);
	CHECK(!p12.pciPath && !p11.pciPath && !p7.pciPath); /* nothing says where it stands */
	CHECK(p12.guid && p12.guid == p7.guid);
	CHECK(p12.speed > 0 && p12.port == 1 && p12.maxRecvs == 8 && p12.maxComms > 0);
	CHECK(p12.latency == 0 && p12.regIsGlobal == 0 && p12.forceFlush == 0);
	CHECK(p12.ptrSupport & NCCL_PTR_HOST && !(p12.ptrSupport & ~7));
	CHECK(p12.netDeviceType == NCCL_NET_DEVICE_HOST);
	CHECK(p12.vProps.ndevs == 1 && p12.vProps.devs[0] == 0);
	CHECK(p12.maxP2pBytes > 0 && p12.maxP2pBytes <= INT_MAX);
	CHECK(p12.maxCollBytes > 0 && p12.maxMultiRequestSize == 1);
	CHECK(p12.railId == 0 && p12.planeId == NCCL_NET_ID_UNDEF);
	CHECK(p11.vProps.ndevs == 1 && p11.vProps.devs[0] == 0);
	CHECK(p7.netDeviceType == NCCL_NET_DEVICE_HOST && p7.maxRecvs == 8);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* The fabric's INI gives SOUT a place, and the script says which. */
static void pci_path(void)
{
	const char *wanted = getenv("PCI_WANTED");
	struct mpib_nccl_properties_v12 props;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	CHECK(net->getProperties(0, &props) == ncclSuccess);
	CHECK(wanted && props.pciPath && strcmp(props.pciPath, wanted) == 0);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

static void wrong_device(void)
{
	static const int wrong[] = { -1, 1, 99, INT_MIN, INT_MAX };
	struct mpib_nccl_device_handle *device = NULL;
	struct mpib_nccl_properties_v12 props;
	char handle[HANDLE_BYTES] = { 0 };
	void *ctx = NULL, *listener, *comm;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	CHECK(net->listen(ctx, 0, handle, &listener) == ncclSuccess);
	for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
		char other[HANDLE_BYTES];
		void *none = NULL;

		CHECK(net->getProperties(wrong[k], &props) != ncclSuccess);
		CHECK(net->listen(ctx, wrong[k], other, &none) != ncclSuccess);
		comm = NULL;
		CHECK(net->connect(ctx, wrong[k], handle, &comm, &device) != ncclSuccess);
		CHECK(!none && !comm);
	}
	CHECK(net->closeListen(listener) == ncclSuccess);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* "No completion needed" is a hint only; the pointer must not survive the call. */
static void request_is_one(void)
{
	void *ctx = NULL, *request, *in;
	struct ends ends;
	size_t room = 64;
	int tag = 3, done = 0, size = -1;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	in = ends.in;
	request = (void *)1;
	CHECK(net->isend(ends.send, ends.out, 64, tag, ends.send_mr, NULL, &request) ==
	      ncclSuccess);
	CHECK(!request);
	request = (void *)1;
	CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &request) ==
	      ncclSuccess);
	CHECK(request && request != (void *)1);
	for (void *send = NULL; !send;)
		CHECK(net->isend(ends.send, ends.out, 64, tag, ends.send_mr, NULL, &send) ==
		      ncclSuccess);
	while (!done)
		CHECK(net->test(request, &done, &size) == ncclSuccess);
	CHECK(size == 64);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* A slot that test() doesn't free for want of sizes would run out. */
static void sizes_null(void)
{
	void *ctx = NULL;
	struct ends ends;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	for (unsigned int n = 0; n < 2000; n++) {
		void *in = ends.in, *send = NULL, *recv = NULL;
		size_t room = 64;
		int tag = 3, done = 0;

		CHECK(net->irecv(ends.recv, 1, &in, &room, &tag, &ends.recv_mr, NULL, &recv) ==
		      ncclSuccess);
		CHECK(recv);
		while (!send)
			CHECK(net->isend(ends.send, ends.out, 64, tag, ends.send_mr, NULL, &send) ==
			      ncclSuccess);
		while (!done)
			CHECK(net->test(recv, &done, NULL) == ncclSuccess);
		for (done = 0; !done;)
			CHECK(net->test(send, &done, NULL) == ncclSuccess);
	}
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

struct registrar {
	struct ends *ends;
	atomic_bool stop;
	atomic_uint rounds;
};

static void *register_on(void *arg)
{
	struct registrar *r = arg;
	char *buffer = aligned_alloc(4096, (size_t)64 * 4096);

	CHECK(buffer);
	while (!atomic_load(&r->stop)) {
		void *mr[3] = { NULL };

		for (unsigned int k = 0; k < 3; k++)
			CHECK(net->regMr(k & 1 ? r->ends->recv : r->ends->send, buffer + k * 4096,
					 (size_t)(k + 1) * 8192, NCCL_PTR_HOST,
					 &mr[k]) == ncclSuccess);
		for (unsigned int k = 0; k < 3; k++)
			CHECK(net->deregMr(k & 1 ? r->ends->recv : r->ends->send, mr[k]) ==
			      ncclSuccess);
		atomic_fetch_add(&r->rounds, 1);
	}
	free(buffer);
	return NULL;
}

/* The service thread registers on a connection that the progress thread is using. */
static void register_from_another_thread(void)
{
	struct registrar r = { 0 };
	unsigned int transfers = 0;
	pthread_t thread;
	struct ends ends;
	void *ctx = NULL;
	uint64_t end;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	r.ends = &ends;
	CHECK(pthread_create(&thread, NULL, register_on, &r) == 0);
	/* Until they did overlap, however late the other thread gets a processor. */
	end = clock_ms() + 60000;
	for (; transfers < 500 || atomic_load(&r.rounds) <= 10; transfers++) {
		CHECK(clock_ms() < end);
		ends_transfer(&ends, transfers % 500 * 100);
	}
	atomic_store(&r.stop, true);
	CHECK(pthread_join(thread, NULL) == 0);
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* The handle comes from the network: whatever stands where the plugin keeps its own state. */
static void hostile_handle(void)
{
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	for (unsigned int round = 0; round < 20; round++) {
		struct ends ends;

		memset(&ends, 0, sizeof(ends));
		CHECK(net->listen(ctx, 0, ends.handle, &ends.listener) == ncclSuccess);
		for (unsigned int k = 64; k < HANDLE_BYTES; k++)
			ends.handle[k] = (char)(round == 0 ? 0xff : (k * 31 + round * 77) >> 2);
		ends_shake(&ends, ctx);
		CHECK(net->closeListen(ends.listener) == ncclSuccess);
		ends_transfer(&ends, 1000);
		ends_close(&ends);
	}
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* A handle is good while its listener is there, whatever state of a first connection is in it. */
static void handle_reuse(void)
{
	struct mpib_nccl_device_handle *device = NULL;
	void *ctx = NULL, *again = NULL;
	struct ends ends, second;
	uint64_t end;
	ncclResult_t result;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	memset(&ends, 0, sizeof(ends));
	memset(&second, 0, sizeof(second));
	CHECK(net->listen(ctx, 0, ends.handle, &ends.listener) == ncclSuccess);
	ends_shake(&ends, ctx);
	memcpy(second.handle, ends.handle, sizeof(ends.handle)); /* the first one's state in it */
	second.listener = ends.listener;
	ends_shake(&second, ctx);
	CHECK(second.send != ends.send && second.recv != ends.recv);
	CHECK(net->closeListen(ends.listener) == ncclSuccess);
	end = clock_ms() + 30000;
	for (result = ncclSuccess; result == ncclSuccess && clock_ms() < end; sleep_ms(5))
		result = net->connect(ctx, 0, second.handle, &again, &device);
	CHECK(result != ncclSuccess && !again);
	ends_transfer(&ends, 1000);
	ends_transfer(&second, 2000);
	ends_close(&ends);
	ends_close(&second);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

/* The longest call in ms of a set-up whose other side doesn't move. */
static uint64_t longest_call(void *ctx)
{
	struct mpib_nccl_device_handle *device = NULL;
	char handle[HANDLE_BYTES];
	void *listener, *send = NULL, *recv = NULL;
	uint64_t worst = 0;

	CHECK(net->listen(ctx, 0, handle, &listener) == ncclSuccess);
	for (unsigned int n = 0; n < 300; n++) {
		uint64_t before = clock_ms();

		/* The other side doesn't move for a while: first accept waits, then connect. */
		if (n < 100)
			CHECK(net->accept(listener, &recv, &device) == ncclSuccess && !recv);
		else if (n < 200)
			CHECK(net->connect(ctx, 0, handle, &send, &device) == ncclSuccess && !send);
		if (clock_ms() - before > worst)
			worst = clock_ms() - before;
		sleep_ms(1);
	}
	(void)printf("longest call %llu ms\n", (unsigned long long)worst);
	CHECK(net->closeListen(listener) == ncclSuccess);
	return worst;
}

/* No call of the set-up may block, however slow the peer is. One that blocks does so each time; one
 * that only waits for the processor doesn't. */
static void set_up_never_blocks(void)
{
	unsigned int late = 0;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	while (longest_call(ctx) >= 200)
		CHECK(++late < 10);
	CHECK(net->finalize(ctx) == ncclSuccess);
	library_close();
}

const struct trap call_traps[] = {
	{ "uninitialised-properties", uninitialised_properties },
	{ "pci-path", pci_path },
	{ "wrong-device", wrong_device },
	{ "request-is-one", request_is_one },
	{ "sizes-null", sizes_null },
	{ "register-from-another-thread", register_from_another_thread },
	{ "hostile-handle", hostile_handle },
	{ "handle-reuse", handle_reuse },
	{ "set-up-never-blocks", set_up_never_blocks },
	{ NULL, NULL },
};
