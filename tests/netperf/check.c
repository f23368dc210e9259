/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/check.h"

#include "tests/netperf/log.h"
#include "tests/netperf/pattern.h"

/* Fills of a light stage's slots must not look like any message's own bytes. */
#define SLOT_SALT 0x510751075107u

static struct np_pattern message_pattern(const struct np_chan *chan, uint64_t number)
{
	return np_pattern_make(chan->seed + (chan->stage->id << 32), chan->id, number);
}

/* What lies between the edges in a light stage: the sender fills each slot once. */
static struct np_pattern slot_pattern(const struct np_chan *chan, uint64_t number)
{
	return np_pattern_make(chan->seed ^ SLOT_SALT, chan->id, number % chan->pool.count);
}

void np_check_open(struct np_chan *chan)
{
	if (!chan->stage->light || !chan->send)
		return;
	for (unsigned int slot = 0; slot < chan->pool.count; slot++)
		np_pattern_fill(slot_pattern(chan, slot), np_pool_data(&chan->pool, slot), 0,
				chan->stage->max_size);
}

/* Start and length of the two parts that a light check covers; the second may be empty. */
static void edges(size_t size, size_t *ret_head, size_t *ret_tail_at)
{
	*ret_head = size < NP_EDGE ? size : NP_EDGE;
	*ret_tail_at = size - *ret_head < NP_EDGE ? *ret_head : size - NP_EDGE;
}

void np_check_fill(struct np_chan *chan, unsigned int slot, const struct np_message *message)
{
	struct np_pattern pattern = message_pattern(chan, message->number);
	char *data = np_pool_data(&chan->pool, slot);
	size_t head, tail_at;

	if (!chan->stage->light) {
		np_pattern_fill(pattern, data, 0, message->size);
		return;
	}
	edges(message->size, &head, &tail_at);
	np_pattern_fill(pattern, data, 0, head);
	np_pattern_fill(pattern, data + tail_at, tail_at, message->size - tail_at);
}

static bool report(const struct np_chan *chan, unsigned int slot, const struct np_message *message,
		   struct np_pattern pattern, size_t at)
{
	const unsigned char *data = (unsigned char *)np_pool_data(&chan->pool, slot);
	size_t wrong = 0;
	char name[NP_CHAN_NAME];

	for (size_t k = at; k < message->size && k < at + NP_PAGE; k++)
		wrong += data[k] != np_pattern_byte(pattern, k);
	np_error("%s, stage %s, message %llu (tag %d, %zu bytes): wrong byte at %zu: 0x%02x, not "
		 "0x%02x; %zu wrong in the next 4096%s",
		 np_chan_name(chan, name), chan->stage->name, (unsigned long long)message->number,
		 message->tag, message->size, at, data[at], np_pattern_byte(pattern, at), wrong,
		 !chan->send && data[at] == np_guard_byte(data + at)
			 ? " (never written: said done too early?)"
			 : "");
	return false;
}

static bool check_part(const struct np_chan *chan, unsigned int slot,
		       const struct np_message *message, struct np_pattern pattern, size_t at,
		       size_t len)
{
	const char *data = np_pool_data(&chan->pool, slot);
	size_t good = np_pattern_check(pattern, data + at, at, len);

	return good == len || report(chan, slot, message, pattern, at + good);
}

bool np_check_arrived(const struct np_chan *chan, unsigned int slot,
		      const struct np_message *message)
{
	return np_pattern_check(message_pattern(chan, message->number),
				np_pool_data(&chan->pool, slot), 0, message->size) == message->size;
}

static bool check_bands(struct np_chan *chan, unsigned int slot, const struct np_message *message,
			size_t used, size_t room)
{
	ptrdiff_t at;
	char name[NP_CHAN_NAME];

	if (np_pool_check(&chan->pool, slot, used, room, &at))
		return true;
	np_error("%s, stage %s, message %llu (tag %d, %zu bytes, room for %zu): the plugin wrote "
		 "outside%s, at %td of the buffer",
		 np_chan_name(chan, name), chan->stage->name, (unsigned long long)message->number,
		 message->tag, message->size, message->room, used ? "" : " or late", at);
	return false;
}

bool np_check_free(struct np_chan *chan, unsigned int slot, const struct np_message *message)
{
	return chan->stage->light || check_bands(chan, slot, message, 0, message->room);
}

bool np_check_message(struct np_chan *chan, unsigned int slot, const struct np_message *message)
{
	struct np_pattern pattern = message_pattern(chan, message->number);
	size_t size = message->size, head, tail_at;

	if (chan->stage->light) {
		edges(size, &head, &tail_at);
		chan->slot_message[slot] = message->number + 1;
		return check_part(chan, slot, message, pattern, 0, head) &&
		       check_part(chan, slot, message, pattern, tail_at, size - tail_at);
	}
	if (!check_part(chan, slot, message, pattern, 0, size))
		return false;
	if (chan->send) /* beyond the slot alone: what an earlier message left is no guard */
		return check_bands(chan, slot, message, chan->pool.cap, chan->pool.cap);
	if (!check_bands(chan, slot, message, size, message->room))
		return false;
	np_pool_restore(&chan->pool, slot, size);
	return true;
}

static bool check_slot_end(struct np_chan *chan, unsigned int slot)
{
	uint64_t number = chan->slot_message ? chan->slot_message[slot] : 0;
	struct np_message message = { number - 1, 0, chan->stage->max_size, chan->stage->max_size };
	size_t used = 0, head, tail_at;

	if (chan->send) {
		used = chan->pool.cap; /* its own messages */
	} else if (chan->stage->light && number) {
		used = message.size;
		edges(used, &head, &tail_at);
		if (!check_part(chan, slot, &message, slot_pattern(chan, message.number), head,
				tail_at - head) ||
		    !check_part(chan, slot, &message, message_pattern(chan, message.number), 0,
				head))
			return false;
	}
	return check_bands(chan, slot, &message, used, chan->pool.cap);
}

bool np_chan_check_end(struct np_chan *chan)
{
	for (unsigned int slot = 0; slot < chan->pool.count; slot++)
		if (!check_slot_end(chan, slot))
			return false;
	return true;
}
