/* SPDX-License-Identifier: Apache-2.0 */
/* Rate and latency. Each device has two clocks in the shared state that say when its wire out and
 * its wire in are free again; every part of a message moves them on by its length over the rate.
 * All processes of a node share them, so they share the device.
 *
 * A part begins as soon as its wire is free, and no earlier than it was asked for. So a thread that
 * had no processor for a while puts on the wire what a NIC would have carried meanwhile, and a wire
 * that nothing was asked of has nothing to make up for. */
#include "tests/fabric/link.h"

#define WINDOW_NS 200000 /* how far ahead of time a wire may be filled */
#define PART_NS	  250000 /* what one part may take on the wire */

/* The part's start on the wire. */
static uint64_t take(_Atomic uint64_t *clock, uint64_t earliest, uint64_t ns)
{
	uint64_t old = atomic_load(clock), start;

	do {
		start = old > earliest ? old : earliest;
	} while (!atomic_compare_exchange_weak(clock, &old, start + ns));
	return start;
}

static uint64_t wire_ns(size_t len, uint64_t rate)
{
	return rate ? (uint64_t)((double)len * 1e9 / (double)rate) : 0;
}

bool fab_shape(uint32_t from, uint32_t to, size_t len, uint64_t asked, uint64_t *ret_due)
{
	struct fab_state_dev *a = fab_dev_state(from), *b = fab_dev_state(to);
	uint64_t rate_a = atomic_load_explicit(&a->rate, memory_order_relaxed);
	uint64_t rate_b = atomic_load_explicit(&b->rate, memory_order_relaxed);
	uint64_t latency = atomic_load_explicit(&a->latency_ns, memory_order_relaxed);
	uint64_t free_a = rate_a ? atomic_load(&a->tx_free_ns) : 0;
	uint64_t free_b = rate_b ? atomic_load(&b->rx_free_ns) : 0;
	uint64_t free = free_a > free_b ? free_a : free_b, now = fab_now();
	uint64_t start = asked, end = asked;

	atomic_fetch_add_explicit(&a->tx_bytes, len, memory_order_relaxed);
	atomic_fetch_add_explicit(&b->rx_bytes, len, memory_order_relaxed);
	if (!rate_a && !rate_b) {
		*ret_due = latency ? now + latency : 0;
		return true;
	}
	if (free > now + WINDOW_NS) {
		atomic_fetch_sub_explicit(&a->tx_bytes, len, memory_order_relaxed);
		atomic_fetch_sub_explicit(&b->rx_bytes, len, memory_order_relaxed);
		*ret_due = free - WINDOW_NS;
		return false;
	}
	if (rate_a) {
		start = take(&a->tx_free_ns, asked, wire_ns(len, rate_a));
		end = start + wire_ns(len, rate_a);
	}
	if (rate_b) {
		uint64_t end_b =
			take(&b->rx_free_ns, start, wire_ns(len, rate_b)) + wire_ns(len, rate_b);

		end = end_b > end ? end_b : end;
	}
	*ret_due = end + latency;
	return true;
}

uint32_t fab_shape_segment(uint32_t from, uint32_t to)
{
	uint64_t rate = atomic_load_explicit(&fab_dev_state(from)->rate, memory_order_relaxed);
	uint64_t rate_b = atomic_load_explicit(&fab_dev_state(to)->rate, memory_order_relaxed);
	uint32_t mtu = fab_dev_conf(from)->mtu;
	uint64_t part;

	if (rate_b && (!rate || rate_b < rate))
		rate = rate_b;
	if (!rate)
		return FAB_SEGMENT_MAX;
	part = rate / (1000000000ULL / PART_NS) / mtu * mtu;
	if (part < mtu)
		part = mtu;
	return part > FAB_SEGMENT_MAX ? FAB_SEGMENT_MAX : (uint32_t)part;
}
