/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of registered memory as a NIC does them: in ascending order with the last word
 * last, since programs may poll on it, and atomics for atomics. */
#include "tests/fabric/fabric.h"

#include <string.h>

#define ASCENDING_MAX 512 /* bytes at the end that are written word by word */

/* ThreadSanitizer must not see the engine's accesses to a program's memory: a NIC's aren't seen
 * either, and what orders them is the completion. */
#if defined(__SANITIZE_THREAD__)
#define NIC_ACCESS __attribute__((no_sanitize_thread, noinline))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NIC_ACCESS __attribute__((no_sanitize("thread"), noinline))
#endif
#endif

#ifdef NIC_ACCESS
NIC_ACCESS void fab_copy_bulk(uint8_t *to, const uint8_t *from, size_t len)
{
	for (size_t k = 0; k < len; k++)
		((volatile uint8_t *)to)[k] = ((const volatile uint8_t *)from)[k];
}
#else
#define NIC_ACCESS
void fab_copy_bulk(uint8_t *to, const uint8_t *from, size_t len)
{
	memcpy(to, from, len);
}
#endif

/* Each store releases those before it, so whoever sees the last word sees all. */
NIC_ACCESS static void copy_ascending(uint8_t *to, const uint8_t *from, size_t len)
{
	for (; len && (uintptr_t)to % 8; len--)
		__atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
	for (; len >= 8; len -= 8, to += 8, from += 8) {
		uint64_t word;

		__builtin_memcpy(&word, from, 8);
		__atomic_store_n((uint64_t *)to, word, __ATOMIC_RELEASE);
	}
	while (len--)
		__atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
}

void fab_copy_in(const struct fab_mr *mr, uint8_t *to, const void *from, size_t len)
{
	const uint8_t *bytes = from;
	size_t bulk = len > ASCENDING_MAX ? (len - ASCENDING_MAX) & ~(size_t)63 : 0;

	if (mr->gpu) {
		fab_gpu_copy(true, (uint64_t)(uintptr_t)to, (void *)(uintptr_t)from, len);
		return;
	}
	fab_crew_copy(to, bytes, bulk);
	copy_ascending(to + bulk, bytes + bulk, len - bulk);
}

void fab_copy_out(const struct fab_mr *mr, void *to, const uint8_t *from, size_t len)
{
	if (mr->gpu)
		fab_gpu_copy(false, (uint64_t)(uintptr_t)from, to, len);
	else
		fab_crew_copy(to, from, len);
}

NIC_ACCESS uint64_t fab_run_atomic(const struct fab_mr *mr, uint8_t *at, bool add,
				   uint64_t compare_add, uint64_t swap)
{
	uint64_t old = compare_add, value;

	if (mr->gpu) { /* one engine a process: nobody else does atomics on it meanwhile */
		fab_copy_out(mr, &old, at, 8);
		value = add ? old + compare_add : old == compare_add ? swap : old;
		fab_copy_in(mr, at, &value, 8);
		return old;
	}
	if (add)
		return __atomic_fetch_add((uint64_t *)at, compare_add, __ATOMIC_SEQ_CST);
	(void)__atomic_compare_exchange_n((uint64_t *)at, &old, swap, false, __ATOMIC_SEQ_CST,
					  __ATOMIC_SEQ_CST);
	return old;
}
