/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plugin/fake_verbs.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/plugin/fake_impl.h"

#define PORT(address)                                                                              \
	{                                                                                          \
		.width = 2, .speed = 32, .mtu = IBV_MTU_4096,                                      \
		.link_layer = IBV_LINK_LAYER_ETHERNET, .ip = (address), .gid_first = 2,            \
		.gid_end = 4, .pkey = {                                                            \
			0xffff                                                                     \
		}                                                                                  \
	}

#define LIMITS                                                                                     \
	{                                                                                          \
		.max_srq = 4096, .max_qp_wr = 8192, .max_cqe = 65536                               \
	}

struct fake_state fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.next_key = 0x1000,
	.next_qpn = 0x100,
	.max_msg = 1u << 30,
	.limits = LIMITS,
	.port = { PORT(0x0a000101), PORT(0x0a090101), PORT(0x0a000201), PORT(0x0a090201) },
	.dmabuf = { EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP },
};

static const char *const verb_names[FAKE_VERB_MAX] = {
	[FAKE_LIST] = "get_device_list",
	[FAKE_OPEN] = "open_device",
	[FAKE_QUERY_DEVICE] = "query_device",
	[FAKE_QUERY_PORT] = "query_port",
	[FAKE_QUERY_GID] = "query_gid",
	[FAKE_ALLOC_PD] = "alloc_pd",
	[FAKE_REG_MR] = "reg_mr",
	[FAKE_CREATE_CQ] = "create_cq",
	[FAKE_CREATE_SRQ] = "create_srq",
	[FAKE_CREATE_QP] = "create_qp",
	[FAKE_MODIFY_QP] = "modify_qp",
	[FAKE_POST_SEND] = "post_send",
	[FAKE_POST_SRQ_RECV] = "post_srq_recv",
	[FAKE_POLL_CQ] = "poll_cq",
	[FAKE_DEREG_MR] = "dereg_mr",
	[FAKE_DESTROY_CQ] = "destroy_cq",
	[FAKE_DESTROY_SRQ] = "destroy_srq",
	[FAKE_DESTROY_QP] = "destroy_qp",
};

void *fake_allocate(size_t size)
{
	void *block = NULL;

	RULE(posix_memalign(&block, 64, size) == 0);
	memset(block, 0, size);
	return block;
}

void fake_lock(void)
{
	(void)pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	(void)pthread_mutex_unlock(&fake.lock);
}

int fake_enter(enum fake_verb verb)
{
	int err = 0;

	fake.calls[verb]++;
	if (fake.fail_errno && fake.fail_verb == verb && fake.fail_skip-- == 0) {
		err = fake.fail_errno;
		fake.fail_errno = 0;
		fake.failed = 1;
	}
	return err;
}

void *fake_new_object(size_t size)
{
	fake.live++;
	return fake_allocate(size);
}

void fake_free_object(void *object)
{
	fake.live--;
	free(object);
}

/* ---- control -------------------------------------------------------------------------------- */

void fake_fail(enum fake_verb verb, unsigned int skip, int err)
{
	fake_lock();
	fake.fail_verb = verb;
	fake.fail_skip = skip;
	fake.fail_errno = err;
	fake.failed = 0;
	fake_unlock();
}

int fake_failed(void)
{
	int failed;

	fake_lock();
	failed = fake.failed;
	fake_unlock();
	return failed;
}

unsigned int fake_calls(enum fake_verb verb)
{
	unsigned int calls;

	fake_lock();
	calls = fake.calls[verb];
	fake_unlock();
	return calls;
}

const char *fake_verb_name(enum fake_verb verb)
{
	return verb_names[verb];
}

unsigned int fake_live(void)
{
	unsigned int live;

	fake_lock();
	live = fake.live;
	fake_unlock();
	return live;
}

unsigned int fake_live_mrs(void)
{
	unsigned int live;

	fake_lock();
	live = fake.live_mrs;
	fake_unlock();
	return live;
}

unsigned int fake_mr_access(void)
{
	unsigned int access;

	fake_lock();
	access = fake.mr_access;
	fake_unlock();
	return access;
}

void fake_set_max_msg(uint32_t max)
{
	fake_lock();
	fake.max_msg = max;
	fake_unlock();
}

void fake_set_port(unsigned int device, const struct fake_port *port)
{
	fake_lock();
	fake.port[device] = *port;
	fake_unlock();
}

void fake_get_port(unsigned int device, struct fake_port *ret)
{
	fake_lock();
	*ret = fake.port[device];
	fake_unlock();
}

void fake_set_limits(const struct fake_limits *limits)
{
	fake_lock();
	fake.limits = *limits;
	fake_unlock();
}

void fake_reset_ports(void)
{
	static const struct fake_port start[FAKE_DEVICES] = { PORT(0x0a000101), PORT(0x0a090101),
							      PORT(0x0a000201), PORT(0x0a090201) };

	fake_lock();
	memcpy(fake.port, start, sizeof(start));
	fake.limits = (struct fake_limits)LIMITS;
	memset(fake.ece, 0, sizeof(fake.ece));
	for (unsigned int k = 0; k < FAKE_DEVICES; k++)
		fake.dmabuf[k] = EOPNOTSUPP;
	fake_unlock();
}

void fake_set_ece(unsigned int device, uint32_t vendor, uint32_t options)
{
	fake_lock();
	fake.ece[device] = (struct ibv_ece){ .vendor_id = vendor, .options = options };
	fake_unlock();
}

void fake_hide_devices(int hide)
{
	fake_lock();
	fake.hidden = hide;
	fake_unlock();
}

void fake_set_dmabuf(unsigned int device, int err)
{
	fake_lock();
	fake.dmabuf[device] = err;
	fake_unlock();
}

unsigned int fake_reads(unsigned int device)
{
	unsigned int reads;

	fake_lock();
	reads = fake.reads[device];
	fake_unlock();
	return reads;
}

enum ibv_qp_state fake_state(const struct ibv_qp *qp)
{
	enum ibv_qp_state state;

	fake_lock();
	state = qp->state;
	fake_unlock();
	return state;
}

void fake_set_port_down(unsigned int device, int down)
{
	fake_lock();
	fake.port_down[device] = down;
	fake_unlock();
}

void fake_bad_completion(unsigned int device, enum ibv_wc_status status)
{
	fake_lock();
	fake.bad[device] = status;
	fake_unlock();
}
