/* SPDX-License-Identifier: Apache-2.0 */
/* Slots, their owners and their limits, without a socket in sight. */
#include <errno.h>
#include <time.h>

#include "agent/slots/registry.h"
#include "tests/unit/agent/test.h"

static struct mpib_registry *new_registry(uint32_t entries)
{
	struct mpib_registry *registry = NULL;

	assert_int_equal(mpib_registry_new(entries, &registry), 0);
	return registry;
}

static struct mpib_peer *new_peer(struct mpib_registry *registry, pid_t pid, uid_t uid)
{
	struct mpib_peer *peer = NULL;

	assert_int_equal(mpib_registry_peer_new(registry, pid, 1000 + (uint64_t)pid, uid, &peer),
			 0);
	return peer;
}

/* Flow number @n. */
static struct mpib_addresses flow(uint32_t n)
{
	return (struct mpib_addresses){ .sout_src_be = 1 + n, .sout_dst_be = 0x01010101 };
}

static int add(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
	       uint32_t flow_number, uint32_t *ret_slot)
{
	struct mpib_addresses addresses = flow(flow_number);
	struct mpib_reg *reg = NULL;
	int r = mpib_registry_add(registry, peer, conn_id, &addresses, &reg);

	if (r >= 0)
		*ret_slot = reg->slot;
	return r;
}

static bool remove_conn(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id)
{
	struct mpib_reg *reg = mpib_registry_find(registry, peer, conn_id);

	assert_non_null(reg);
	return mpib_registry_remove(registry, reg);
}

static void end_peer(struct mpib_registry *registry, struct mpib_peer *peer)
{
	while (!LIST_EMPTY(&peer->regs))
		(void)mpib_registry_remove(registry, LIST_FIRST(&peer->regs));
	assert_null(mpib_registry_peer_put(registry, peer));
}

/* Processor time of registering and finding 60000 connections whose ids are @step apart. */
static uint64_t usec_of_ids(uint32_t step)
{
	struct mpib_registry *registry = new_registry(4);
	struct mpib_peer *peer = new_peer(registry, 7, 0);
	struct timespec start;
	struct timespec end;
	uint32_t slot = 0;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start), 0);
	for (uint32_t n = 0; n < 60000; n++)
		assert_int_equal(add(registry, peer, n * step, 1, &slot), 1);
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end), 0);
	end_peer(registry, peer);
	assert_null(mpib_registry_free(registry));
	return (uint64_t)((end.tv_sec - start.tv_sec) * 1000000 +
			  (end.tv_nsec - start.tv_nsec) / 1000);
}

/* A11: the whole id is hashed, so that no client can make all searches slow. */
static void ids_alike_in_their_low_14_bits_are_found_as_fast(void **state)
{
	uint64_t neighbours = usec_of_ids(1);
	uint64_t alike = usec_of_ids(1u << 14);

	(void)state;
	print_message("60000 registrations: %llu us for ids in a row, %llu us for ids 2^14 apart\n",
		      (unsigned long long)neighbours, (unsigned long long)alike);
	assert_true(alike < 8 * neighbours);
}

static void connections_of_one_flow_share_a_slot_until_the_last_goes(void **state)
{
	struct mpib_registry *registry = new_registry(4);
	struct mpib_peer *a = new_peer(registry, 10, 0);
	struct mpib_peer *b = new_peer(registry, 11, 5);
	uint32_t first = 99;
	uint32_t slot = 99;

	(void)state;
	assert_int_equal(add(registry, a, 1, 7, &first), 1);
	assert_int_equal(add(registry, a, 2, 7, &slot), 1);
	assert_int_equal(slot, first);
	assert_int_equal(add(registry, b, 1, 7, &slot), 1);
	assert_int_equal(slot, first);
	assert_int_equal(mpib_registry_n_flows(registry), 1);
	assert_int_equal(mpib_registry_n_regs(registry), 3);

	assert_false(remove_conn(registry, a, 1));
	assert_false(remove_conn(registry, b, 1));
	assert_true(remove_conn(registry, a, 2));
	assert_int_equal(mpib_registry_n_flows(registry), 0);
	assert_false(mpib_slot_has_flow(mpib_registry_slot(registry, first)));

	end_peer(registry, a);
	end_peer(registry, b);
	assert_null(mpib_registry_free(registry));
}

static void the_same_request_again_is_fine_with_another_flow_is_not(void **state)
{
	struct mpib_registry *registry = new_registry(4);
	struct mpib_peer *a = new_peer(registry, 10, 0);
	uint32_t slot = 99;

	(void)state;
	assert_int_equal(add(registry, a, 1, 7, &slot), 1);
	assert_int_equal(add(registry, a, 1, 7, &slot), 0);
	assert_int_equal(add(registry, a, 1, 8, &slot), -EEXIST);
	assert_int_equal(mpib_registry_n_regs(registry), 1);
	assert_int_equal(mpib_registry_n_flows(registry), 1);
	end_peer(registry, a);
	assert_null(mpib_registry_free(registry));
}

static void equal_connection_ids_of_two_processes_never_mix(void **state)
{
	struct mpib_registry *registry = new_registry(4);
	struct mpib_peer *a = new_peer(registry, 10, 1);
	struct mpib_peer *b = new_peer(registry, 11, 2);
	uint32_t slot_a = 99;
	uint32_t slot_b = 99;

	(void)state;
	assert_int_equal(add(registry, a, 1, 7, &slot_a), 1);
	assert_null(mpib_registry_find(registry, b, 1));
	assert_int_equal(add(registry, b, 1, 8, &slot_b), 1);
	assert_int_not_equal(slot_a, slot_b);
	assert_true(remove_conn(registry, b, 1));
	assert_non_null(mpib_registry_find(registry, a, 1));
	end_peer(registry, a);
	end_peer(registry, b);
	assert_null(mpib_registry_free(registry));
}

static void an_address_of_zero_is_refused(void **state)
{
	static const struct mpib_addresses bad[] = { { 0, 5, 0, 0 },
						     { 5, 0, 0, 0 },
						     { 0, 0, 9, 9 } };
	struct mpib_registry *registry = new_registry(4);
	struct mpib_peer *a = new_peer(registry, 10, 0);
	struct mpib_reg *reg = NULL;

	(void)state;
	for (size_t n = 0; n < sizeof(bad) / sizeof(bad[0]); n++)
		assert_int_equal(mpib_registry_add(registry, a, 1, &bad[n], &reg), -EINVAL);
	assert_null(reg);
	end_peer(registry, a);
	assert_null(mpib_registry_free(registry));
}

static void root_gets_every_slot_and_then_none(void **state)
{
	struct mpib_registry *registry = new_registry(256);
	struct mpib_peer *root = new_peer(registry, 10, 0);
	uint32_t slot = 99;

	(void)state;
	for (uint32_t n = 0; n < 256; n++) {
		assert_int_equal(add(registry, root, n, n, &slot), 1);
		assert_int_equal(slot, n);
	}
	assert_int_equal(add(registry, root, 256, 256, &slot), -ENOSPC);
	/* a flow that is there costs no slot */
	assert_int_equal(add(registry, root, 257, 3, &slot), 1);
	end_peer(registry, root);
	assert_null(mpib_registry_free(registry));
}

static void a_user_leaves_an_eighth_to_others_and_all_a_sixteenth_to_root(void **state)
{
	struct mpib_registry *registry = new_registry(256);
	struct mpib_peer *greedy[2] = { new_peer(registry, 10, 1000),
					new_peer(registry, 11, 1000) };
	struct mpib_peer *other = new_peer(registry, 12, 1001);
	struct mpib_peer *root = new_peer(registry, 13, 0);
	uint32_t slot = 99;

	(void)state;
	for (uint32_t n = 0; n < 224; n++)
		assert_int_equal(add(registry, greedy[n % 2], n, n, &slot), 1);
	assert_int_equal(add(registry, greedy[0], 500, 500, &slot), -EDQUOT);
	assert_int_equal(add(registry, greedy[1], 500, 500, &slot), -EDQUOT);
	/* all users together leave a sixteenth to root */
	for (uint32_t n = 0; n < 16; n++)
		assert_int_equal(add(registry, other, n, 1000 + n, &slot), 1);
	assert_int_equal(add(registry, other, 500, 1500, &slot), -EACCES);
	for (uint32_t n = 0; n < 16; n++)
		assert_int_equal(add(registry, root, n, 2000 + n, &slot), 1);
	assert_int_equal(add(registry, root, 500, 2500, &slot), -ENOSPC);

	/* one given back is one to take */
	assert_true(remove_conn(registry, greedy[0], 0));
	assert_int_equal(add(registry, greedy[1], 500, 500, &slot), 1);
	for (unsigned int n = 0; n < 2; n++)
		end_peer(registry, greedy[n]);
	end_peer(registry, other);
	end_peer(registry, root);
	assert_null(mpib_registry_free(registry));
}

static void a_shared_slot_counts_to_the_user_who_stays(void **state)
{
	struct mpib_registry *registry = new_registry(8);
	struct mpib_peer *a = new_peer(registry, 10, 1);
	struct mpib_peer *b = new_peer(registry, 11, 2);
	uint32_t slot = 99;

	(void)state;
	assert_int_equal(add(registry, a, 1, 7, &slot), 1);
	assert_int_equal(add(registry, b, 1, 7, &slot), 1);
	assert_int_equal(a->user->held.of[MPIB_GOOD_SLOTS], 1);
	assert_int_equal(b->user->held.of[MPIB_GOOD_SLOTS], 0);
	assert_false(remove_conn(registry, a, 1));
	assert_int_equal(a->user->held.of[MPIB_GOOD_SLOTS], 0);
	assert_int_equal(b->user->held.of[MPIB_GOOD_SLOTS], 1);
	end_peer(registry, a);
	assert_ptr_equal(mpib_registry_slot(registry, slot)->user, b->user);
	end_peer(registry, b);
	assert_null(mpib_registry_free(registry));
}

static void a_buried_process_is_not_found_under_its_pid(void **state)
{
	struct mpib_registry *registry = new_registry(8);
	struct mpib_peer *old = new_peer(registry, 10, 1);
	struct mpib_peer *young;

	(void)state;
	assert_ptr_equal(mpib_registry_peer_find(registry, 10), old);
	mpib_registry_peer_bury(old);
	assert_null(mpib_registry_peer_find(registry, 10));
	young = new_peer(registry, 10, 1);
	assert_ptr_equal(mpib_registry_peer_find(registry, 10), young);
	end_peer(registry, old);
	assert_ptr_equal(mpib_registry_peer_find(registry, 10), young);
	end_peer(registry, young);
	assert_null(mpib_registry_free(registry));
}

static void unnamed_peers_are_never_the_same_process(void **state)
{
	struct mpib_registry *registry = new_registry(8);
	struct mpib_peer *a = new_peer(registry, 0, 1);
	struct mpib_peer *b = new_peer(registry, 0, 1);
	uint32_t slot = 99;

	(void)state;
	assert_null(mpib_registry_peer_find(registry, 0));
	assert_int_equal(add(registry, a, 1, 7, &slot), 1);
	assert_null(mpib_registry_find(registry, b, 1));
	end_peer(registry, a);
	end_peer(registry, b);
	assert_null(mpib_registry_free(registry));
}

static void adoption_takes_the_old_slot_and_refuses_contradictions(void **state)
{
	struct mpib_registry *registry = new_registry(8);
	struct mpib_peer *a = new_peer(registry, 10, 1);
	struct mpib_addresses one = flow(1);
	struct mpib_addresses two = flow(2);
	struct mpib_reg *reg = NULL;
	uint32_t slot = 99;

	(void)state;
	assert_int_equal(mpib_registry_adopt(registry, a, 1, &one, 5, &reg), 0);
	assert_int_equal(reg->slot, 5);
	assert_int_equal(mpib_registry_adopt(registry, a, 1, &one, 5, &reg), -EEXIST);
	assert_int_equal(mpib_registry_adopt(registry, a, 2, &two, 5, &reg), -EEXIST);
	assert_int_equal(mpib_registry_adopt(registry, a, 3, &one, 6, &reg), -EEXIST);
	assert_int_equal(mpib_registry_adopt(registry, a, 4, &two, 8, &reg), -ERANGE);
	assert_int_equal(mpib_registry_adopt(registry, a, 5, &one, 5, &reg), 0);
	assert_int_equal(mpib_registry_n_flows(registry), 1);
	assert_int_equal(add(registry, a, 9, 1, &slot), 1);
	assert_int_equal(slot, 5);
	end_peer(registry, a);
	assert_null(mpib_registry_free(registry));
}

static void a_grown_table_has_more_slots(void **state)
{
	struct mpib_registry *registry = new_registry(1);
	struct mpib_peer *root = new_peer(registry, 10, 0);
	uint32_t slot = 99;

	(void)state;
	assert_int_equal(add(registry, root, 1, 1, &slot), 1);
	assert_int_equal(add(registry, root, 2, 2, &slot), -ENOSPC);
	mpib_registry_grow(registry, 3);
	mpib_registry_grow(registry, 2);
	assert_int_equal(mpib_registry_entries(registry), 3);
	assert_int_equal(add(registry, root, 2, 2, &slot), 1);
	assert_int_equal(add(registry, root, 3, 3, &slot), 1);
	assert_int_equal(slot, 2);
	end_peer(registry, root);
	assert_null(mpib_registry_free(registry));
}

/* Random adds, removes and deaths against counts kept on the side. */
static void counts_hold_over_random_operations(void **state)
{
	struct mpib_registry *registry = new_registry(64);
	struct mpib_peer *peers[8];
	unsigned int seed = 42;
	uint32_t regs = 0;

	(void)state;
	for (pid_t n = 0; n < 8; n++)
		peers[n] = new_peer(registry, 100 + n, (uid_t)(n % 3));

	for (unsigned int round = 0; round < 50000; round++) {
		struct mpib_peer *peer = peers[(unsigned int)rand_r(&seed) % 8];
		uint32_t conn_id = (uint32_t)rand_r(&seed) % 50;
		struct mpib_reg *reg = mpib_registry_find(registry, peer, conn_id);
		uint32_t slot = 99;
		uint32_t held = 0;
		uint32_t owned = 0;

		if (reg) {
			(void)mpib_registry_remove(registry, reg);
			regs--;
		} else if (add(registry, peer, conn_id, (uint32_t)rand_r(&seed) % 80, &slot) == 1) {
			regs++;
			assert_true(slot < 64);
		}

		assert_int_equal(mpib_registry_n_regs(registry), regs);
		for (uint32_t index = 0; index < 64; index++) {
			held += mpib_registry_slot(registry, index)->n_regs;
			owned += mpib_registry_slot(registry, index)->user != NULL;
		}
		assert_int_equal(held, regs);
		assert_int_equal(owned, mpib_registry_n_flows(registry));
		assert_true(peers[1]->user->held.of[MPIB_GOOD_SLOTS] <= 56);
	}

	for (unsigned int n = 0; n < 8; n++)
		end_peer(registry, peers[n]);
	assert_int_equal(mpib_registry_n_flows(registry), 0);
	assert_int_equal(mpib_registry_n_peers(registry), 0);
	assert_null(mpib_registry_free(registry));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_alike_in_their_low_14_bits_are_found_as_fast),
		cmocka_unit_test(connections_of_one_flow_share_a_slot_until_the_last_goes),
		cmocka_unit_test(the_same_request_again_is_fine_with_another_flow_is_not),
		cmocka_unit_test(equal_connection_ids_of_two_processes_never_mix),
		cmocka_unit_test(an_address_of_zero_is_refused),
		cmocka_unit_test(root_gets_every_slot_and_then_none),
		cmocka_unit_test(a_user_leaves_an_eighth_to_others_and_all_a_sixteenth_to_root),
		cmocka_unit_test(a_shared_slot_counts_to_the_user_who_stays),
		cmocka_unit_test(a_buried_process_is_not_found_under_its_pid),
		cmocka_unit_test(unnamed_peers_are_never_the_same_process),
		cmocka_unit_test(adoption_takes_the_old_slot_and_refuses_contradictions),
		cmocka_unit_test(a_grown_table_has_more_slots),
		cmocka_unit_test(counts_hold_over_random_operations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
