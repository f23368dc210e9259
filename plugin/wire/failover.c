/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/wire/failover.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Each payload begins with these: rail, one byte of its own, two of 0, epoch. */
#define HEAD_SIZE 8

static void put_32(uint8_t *buf, uint32_t value)
{
	value = htole32(value);
	memcpy(buf, &value, sizeof(value));
}

static uint32_t get_32(const uint8_t *buf)
{
	uint32_t value;

	memcpy(&value, buf, sizeof(value));
	return le32toh(value);
}

static void put_head(uint8_t *buf, unsigned int rail, uint8_t own, uint32_t epoch)
{
	memset(buf, 0, HEAD_SIZE);
	buf[0] = (uint8_t)rail;
	buf[1] = own;
	put_32(buf + 4, epoch);
}

/* ---- payloads ------------------------------------------------------------------------------ */

size_t mpib_rail_down_encode(uint8_t *buf, const struct mpib_rail_down *down, bool receiver)
{
	uint8_t *at = buf + MPIB_RAIL_DOWN_SENDER;

	put_head(buf, down->rail, down->cause, down->epoch);
	put_32(buf + HEAD_SIZE, down->rows);
	if (!receiver)
		return MPIB_RAIL_DOWN_SENDER;
	for (unsigned int part = 0; part < MPIB_RAIL_MAX; part++)
		for (unsigned int k = 0; k < MPIB_ROW_WORDS; k++) {
			uint64_t word = htole64(down->arrived[part][k]);

			memcpy(at, &word, sizeof(word));
			at += sizeof(word);
		}
	return MPIB_RAIL_DOWN_RECEIVER;
}

int mpib_rail_down_decode(const uint8_t *buf, size_t len, bool receiver, struct mpib_rail_down *ret)
{
	const uint8_t *at = buf + MPIB_RAIL_DOWN_SENDER;

	memset(ret, 0, sizeof(*ret));
	if (len < (receiver ? MPIB_RAIL_DOWN_RECEIVER : MPIB_RAIL_DOWN_SENDER) ||
	    buf[0] >= MPIB_RAIL_MAX)
		return -EBADMSG;
	ret->rail = buf[0];
	ret->cause = buf[1] > MPIB_CAUSE_RETURN ? MPIB_CAUSE_OTHER : buf[1];
	ret->epoch = get_32(buf + 4);
	ret->rows = get_32(buf + HEAD_SIZE);
	for (unsigned int part = 0; receiver && part < MPIB_RAIL_MAX; part++)
		for (unsigned int k = 0; k < MPIB_ROW_WORDS; k++) {
			uint64_t word;

			memcpy(&word, at, sizeof(word));
			ret->arrived[part][k] = le64toh(word);
			at += sizeof(word);
		}
	return 0;
}

size_t mpib_rail_up_encode(uint8_t *buf, const struct mpib_rail_up *up)
{
	put_head(buf, up->rail, 0, up->epoch);
	return HEAD_SIZE + mpib_peer_qps_encode(buf + HEAD_SIZE, &up->qps);
}

int mpib_rail_up_decode(const uint8_t *buf, size_t len, struct mpib_rail_up *ret)
{
	struct mpib_peer_qps *qps = &ret->qps;
	size_t used;

	memset(ret, 0, sizeof(*ret));
	if (len < HEAD_SIZE || buf[0] >= MPIB_RAIL_MAX ||
	    mpib_peer_qps_decode(buf + HEAD_SIZE, len - HEAD_SIZE, qps, &used) < 0)
		return -EBADMSG;
	ret->rail = buf[0];
	ret->epoch = get_32(buf + 4);
	if (qps->rail_mask != mpib_rail_bit(ret->rail) || !qps->qps[ret->rail] ||
	    qps->qps[!ret->rail])
		return -EBADMSG;
	/* Numbers 0 and 1 are the subnet manager's and the connection manager's. */
	for (unsigned int k = 0; k < qps->qps[ret->rail]; k++)
		if (qps->qpn[ret->rail][k] < 2)
			return -EBADMSG;
	return 0;
}

size_t mpib_rail_ready_encode(uint8_t *buf, unsigned int rail, uint32_t epoch)
{
	put_head(buf, rail, 0, epoch);
	return MPIB_RAIL_READY_SIZE;
}

int mpib_rail_ready_decode(const uint8_t *buf, size_t len, unsigned int *ret_rail,
			   uint32_t *ret_epoch)
{
	if (len < MPIB_RAIL_READY_SIZE || buf[0] >= MPIB_RAIL_MAX)
		return -EBADMSG;
	*ret_rail = buf[0];
	*ret_epoch = get_32(buf + 4);
	return 0;
}

/* ---- a rail's states ------------------------------------------------------------------------- */

int mpib_rail_on_down(const struct mpib_rail_end *end, uint32_t epoch)
{
	if ((int32_t)(epoch - end->epoch) > 0)
		return -EPROTO;
	/* Both have settled that one, and it may have come back since: said twice, or late. */
	if (epoch != end->epoch || end->state == MPIB_RAIL_LOST)
		return MPIB_TODO_NOTHING;
	return end->state == MPIB_RAIL_SAID ? MPIB_TODO_SETTLE : MPIB_TODO_STOP_AND_SETTLE;
}

int mpib_rail_on_up(const struct mpib_rail_end *end, bool receiver, uint32_t epoch)
{
	if (receiver) /* the sender begins, when it has settled; so has this end then */
		return end->state == MPIB_RAIL_LOST && epoch == end->epoch + 1 ? MPIB_TODO_MAKE
									       : -EPROTO;
	if ((int32_t)(epoch - end->epoch) > 0)
		return -EPROTO;
	if (epoch != end->epoch || end->state > MPIB_RAIL_MADE)
		return MPIB_TODO_NOTHING; /* it was given up before the answer came */
	return end->state == MPIB_RAIL_MADE ? MPIB_TODO_CONNECT : -EPROTO;
}

int mpib_rail_on_ready(const struct mpib_rail_end *end, bool receiver, uint32_t epoch)
{
	if (!receiver || (int32_t)(epoch - end->epoch) > 0)
		return -EPROTO;
	if (epoch != end->epoch || end->state > MPIB_RAIL_MADE)
		return MPIB_TODO_NOTHING;
	return end->state == MPIB_RAIL_MADE ? MPIB_TODO_USE : -EPROTO;
}

/* ---- rows ---------------------------------------------------------------------------------- */

bool mpib_rail_rows_of_sender(const struct mpib_rail_down *down, uint32_t tail)
{
	/* Any number of rows may have been posted since. */
	return (int32_t)(tail - down->rows) >= 0;
}

bool mpib_rail_rows_of_receiver(const struct mpib_rail_down *down, uint32_t head)
{
	/* A row is posted when the one in its slot is done, so not before that was matched. Of rows
	 * that were matched since the frame was sent there may be any number. */
	return (int32_t)(down->rows - head) <= (int32_t)MPIB_ROWS;
}

void mpib_rail_down_mark(struct mpib_rail_down *down, unsigned int slot, unsigned int part)
{
	down->arrived[part][slot / 64] |= 1ull << slot % 64;
}

bool mpib_rail_has_arrived(const struct mpib_rail_down *down, uint32_t row, unsigned int part)
{
	int32_t behind = (int32_t)(down->rows - row);
	unsigned int slot = row % MPIB_ROWS;

	/* Posted after the receiver had spoken: its queue pairs were in ERR by then, and the slot's
	 * bits are an older row's. */
	if (behind <= 0)
		return false;
	/* The slot's bits are a newer row's, which is posted only when this one is done. */
	if (behind > (int32_t)MPIB_ROWS)
		return true;
	return down->arrived[part][slot / 64] >> slot % 64 & 1;
}
