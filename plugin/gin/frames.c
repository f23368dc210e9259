/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gin/frames.h"

#include <errno.h>
#include <string.h>

#define JOIN_SIZE   20
#define MEMORY_SIZE 33
#define CLOSED_SIZE 5

static size_t put(uint8_t *buf, size_t at, uint64_t value, size_t size)
{
	for (size_t k = 0; k < size; k++)
		buf[at + k] = (uint8_t)(value >> (8 * k));
	return at + size;
}

static uint64_t get(const uint8_t *payload, size_t *at, size_t size)
{
	uint64_t value = 0;

	for (size_t k = 0; k < size; k++)
		value |= (uint64_t)payload[*at + k] << (8 * k);
	*at += size;
	return value;
}

size_t mpib_gin_join_encode(uint8_t *buf, const struct mpib_gin_join *join)
{
	size_t at = put(buf, 0, join->version, 2);

	at = put(buf, at, join->nranks, 4);
	at = put(buf, at, join->rank, 4);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		at = put(buf, at, join->qpn[rail], 4);
		at = put(buf, at, join->reads[rail], 1);
	}
	return at;
}

int mpib_gin_join_decode(const uint8_t *payload, size_t len, struct mpib_gin_join *ret)
{
	size_t at = 0;

	memset(ret, 0, sizeof(*ret));
	if (len < 2)
		return -EBADMSG;
	ret->version = (uint16_t)get(payload, &at, 2);
	if (ret->version != MPIB_GIN_VERSION)
		return 0;
	if (len < JOIN_SIZE)
		return -EBADMSG;
	ret->nranks = (uint32_t)get(payload, &at, 4);
	ret->rank = (uint32_t)get(payload, &at, 4);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		ret->qpn[rail] = (uint32_t)get(payload, &at, 4);
		ret->reads[rail] = (uint8_t)get(payload, &at, 1);
		if (ret->qpn[rail] > 0xffffff || (ret->qpn[rail] && !ret->reads[rail]))
			return -EBADMSG;
	}
	return ret->qpn[MPIB_SOUT] ? 0 : -EBADMSG;
}

size_t mpib_gin_memory_encode(uint8_t *buf, const struct mpib_gin_memory_frame *memory)
{
	size_t at = put(buf, 0, memory->number, 8);

	at = put(buf, at, memory->addr, 8);
	at = put(buf, at, memory->size, 8);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		at = put(buf, at, memory->rkey[rail], 4);
	return put(buf, at, memory->failed, 1);
}

int mpib_gin_memory_decode(const uint8_t *payload, size_t len, struct mpib_gin_memory_frame *ret)
{
	size_t at = 0;

	if (len < MEMORY_SIZE)
		return -EBADMSG;
	ret->number = get(payload, &at, 8);
	ret->addr = get(payload, &at, 8);
	ret->size = get(payload, &at, 8);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		ret->rkey[rail] = (uint32_t)get(payload, &at, 4);
	ret->failed = (uint8_t)get(payload, &at, 1);
	/* What ends beyond the address space would pass every check of a put's place. */
	return ret->failed > 1 || ret->addr + ret->size < ret->addr ? -EBADMSG : 0;
}

size_t mpib_gin_closed_encode(uint8_t *buf, const struct mpib_gin_closed *closed)
{
	size_t at = put(buf, 0, closed->packet, 4);

	return put(buf, at, closed->counts, 1);
}

int mpib_gin_closed_decode(const uint8_t *payload, size_t len, struct mpib_gin_closed *ret)
{
	size_t at = 0;

	if (len < CLOSED_SIZE)
		return -EBADMSG;
	ret->packet = (uint32_t)get(payload, &at, 4);
	ret->counts = payload[at];
	return ret->packet > 0xffffff || payload[at] > 1 ? -EBADMSG : 0;
}
