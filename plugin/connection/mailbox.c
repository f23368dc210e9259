/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connection/mailbox.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

void mpib_mailbox_open(struct mpib_mailbox *box, void *memory, uint64_t addr)
{
	box->in = memory;
	box->out = (void *)((char *)memory + MPIB_MAIL_SIZE);
	box->addr = addr;
}

/* FNV-1a over all that stands before the sum, and the turn. */
static uint32_t sum_of(const struct mpib_mail_slot *slot)
{
	const uint8_t *bytes = (const uint8_t *)slot;
	uint32_t sum = 2166136261u;

	for (size_t k = 0; k < sizeof(*slot); k++)
		if (k < offsetof(struct mpib_mail_slot, sum) ||
		    k >= offsetof(struct mpib_mail_slot, turn))
			sum = (sum ^ bytes[k]) * 16777619u;
	return sum;
}

/* A post that fails is as one that gets lost with its rail. */
static void post(const struct mpib_mailbox *box, struct mpib_comm *comm, unsigned int rail,
		 uint16_t type, const uint8_t *payload, size_t len)
{
	struct mpib_mail_slot *slot = &box->out[box->said % MPIB_MAIL_SLOTS];
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)slot,
		.length = sizeof(*slot),
		.lkey = comm->ring_mr->lkey[rail],
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = MPIB_WR_MAIL,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		/* A sender's QP frees its queue by the completions of messages. */
		.send_flags = comm->kind == MPIB_COUNTER_RECV ? IBV_SEND_SIGNALED : 0,
		.wr.rdma.remote_addr = box->addr + box->said % MPIB_MAIL_SLOTS * sizeof(*slot),
		.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail],
	};

	memset(slot, 0, sizeof(*slot));
	slot->type = htole16(type);
	slot->len = htole16((uint16_t)len);
	memcpy(slot->payload, payload, len);
	slot->turn = htole32(box->said + 1);
	slot->sum = htole32(sum_of(slot));
	(void)ibv_post_send(comm->qp[rail][0], &wr, &bad);
}

void mpib_mailbox_say(struct mpib_mailbox *box, struct mpib_comm *comm, unsigned int rail,
		      uint16_t type, uint8_t *payload, size_t len)
{
	mpib_watch_assert_locked();
	payload[2] = (uint8_t)box->said;
	payload[3] = (uint8_t)(box->said >> 8);
	/* A socket that fails is the end of the connection, which the helper thread sees there. */
	if (!box->ctl_dead)
		(void)mpib_ctl_send(&comm->ctl, type, payload, len);
	if (box->in && rail < MPIB_RAIL_MAX && len <= MPIB_MAIL_PAYLOAD_MAX)
		post(box, comm, rail, type, payload, len);
	box->said++;
}

int mpib_mailbox_is_next(struct mpib_mailbox *box, const struct mpib_frame *frame)
{
	int16_t ahead;

	mpib_watch_assert_locked();
	if (!box->in || frame->payload_len < 4)
		return 1;
	ahead = (int16_t)((frame->payload[2] | frame->payload[3] << 8) - (int)box->heard);
	if (ahead > 0)
		return -EPROTO;
	if (ahead < 0)
		return 0;
	box->heard++;
	return 1;
}

/* Copied before it is looked at: the peer writes there. */
bool mpib_mailbox_take(const struct mpib_mailbox *box, struct mpib_mail_slot *slot,
		       struct mpib_frame *ret)
{
	const struct mpib_mail_slot *in = &box->in[box->heard % MPIB_MAIL_SLOTS];
	const uint32_t turn =
		atomic_load_explicit((const _Atomic uint32_t *)&in->turn, memory_order_acquire);

	mpib_watch_assert_locked();
	if (le32toh(turn) != box->heard + 1)
		return false;
	memcpy(slot, in, sizeof(*slot));
	if (slot->turn != turn || le32toh(slot->sum) != sum_of(slot) ||
	    le16toh(slot->len) > sizeof(slot->payload))
		return false;
	ret->type = le16toh(slot->type);
	ret->payload = slot->payload;
	ret->payload_len = le16toh(slot->len);
	return true;
}
