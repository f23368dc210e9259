/* SPDX-License-Identifier: Apache-2.0 */
/* A random life of connections against a model (world.h), over a wire that delays and reorders
 * whatever may be (wire.h). Sizes, tags, groups, shares, ports, the order of calls and the end are
 * random; whole rails stand still for a while. MPIB_TEST_LIVES makes it long. */
#include "tests/unit/plugin/test.h"

#include <errno.h>

#include "plugin/connection/comm.h"
#include "plugin/wire/imm.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/wire.h"
#include "tests/unit/plugin/world.h"

static struct world worlds[2];

enum end {
	THROUGH, /* all that was begun arrives */
	EARLY,	 /* closed whatever is on its way */
	FAULT,	 /* the same after an error */
};

/* What a life's environment and devices are like; before init. */
static void random_settings(void)
{
	static const uint32_t max_msgs[] = { 256, 1024, 1u << 30, 1u << 30 };
	static const char *const split_mins[] = { "0", "1", "4096", "65536" };
	static const char *const qps[] = { "1", "2", "3", "4" };

	pair_env();
	(void)setenv("MPIB_MODE", wire_below(4) ? "1" : "0", 1);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	(void)setenv("MPIB_SPLIT_MIN", split_mins[wire_below(4)], 1);
	(void)setenv("MPIB_SOUT_QP", qps[wire_below(4)], 1);
	(void)setenv("MPIB_SUP_QP", qps[wire_below(4)], 1);
	(void)setenv("MPIB_GPUDIRECT", wire_below(2) ? "1" : "0", 1);
	/* The wire keeps requests and completions of queue pairs: none is made anew. */
	(void)setenv("MPIB_RAIL_PAUSE_MIN_MS", "3600000", 1);
	(void)setenv("MPIB_RAIL_PAUSE_MAX_MS", "3600000", 1);
	(void)setenv("MPIB_RAIL_WAIT_SEC", "0", 1);
	fake_set_max_msg(max_msgs[wire_below(4)]);
}

static void move_something(struct world *w)
{
	(void)w;
	(void)wire_move();
}

static void (*const acts[])(struct world *w) = { world_try_irecv, world_try_isend,
						 world_try_test_send, world_try_test_recv,
						 move_something };

#define ACTS (sizeof(acts) / sizeof(acts[0]))

/* One random thing. The weights, and what stands still, change now and then. */
static void act(struct world *w, const unsigned int weight[ACTS])
{
	unsigned int sum = 0, at, k = 0;

	for (size_t n = 0; n < ACTS; n++)
		sum += weight[n];
	for (at = wire_below(sum); at >= weight[k]; k++)
		at -= weight[k];
	acts[k](w);
}

static void change_weather(unsigned int weight[ACTS])
{
	for (unsigned int k = 0; k < ACTS; k++)
		weight[k] = 1u << wire_below(6);
	wire_freeze(wire_below(3) ? 0 : wire_below(4), wire_below(3) ? 0 : wire_below(4));
}

/* Something that ends a connection at the latest when its completion is seen. */
static void make_fault(void)
{
	static const enum ibv_wc_status statuses[] = { IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR,
						       IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR };
	const struct mpib_comm *recv = worlds[wire_below(2)].p.recv;
	unsigned int rail = recv->nqps[MPIB_SUP] ? wire_below(2) : MPIB_SOUT;

	switch (wire_below(5)) {
	case 0:
		fake_bad_completion(wire_below(4), statuses[wire_below(4)]);
		break;
	case 1:
		wire_refuse_post(1 + wire_below(20));
		break;
	case 2:
		wire_break_poll(1 + wire_below(20));
		break;
	case 3:
		fake_fail(FAKE_POST_SRQ_RECV, wire_below(3), ENOMEM);
		break;
	default: /* of a row that isn't there, and won't be for long */
		(void)fake_immediate(recv->qp[rail][0]->qp_num,
				     mpib_imm_encode((recv->recv.tail + 130) % MPIB_ROWS,
						     mpib_rail_bit(rail), wire_below(9)),
				     8);
		break;
	}
}

/* Until @rows are through on both connections; then what is on its way gets there. */
static void live(unsigned int rows, enum end end)
{
	unsigned int weight[ACTS] = { 1, 1, 1, 1, 1 }, climate = 1u << (7 + wire_below(7));

	for (unsigned int n = 0; worlds[0].sent + worlds[1].sent < rows; n++) {
		if (n % climate == 0)
			change_weather(weight);
		act(&worlds[wire_below(2)], weight);
		if (end == FAULT && wire_below(1000) == 0)
			make_fault();
		if (worlds[0].failed || worlds[1].failed)
			return;
		if (n > 20000000)
			fail_msg("nothing moves any more");
	}
	if (end != THROUGH)
		return;
	wire_freeze(0, 0);
	for (unsigned int k = 0; k < 2; k++)
		for (unsigned int n = 0; worlds[k].received != worlds[k].planned; n++) {
			if (worlds[k].posted != worlds[k].planned)
				world_try_irecv(&worlds[k]);
			world_try_isend(&worlds[k]);
			(void)wire_move();
			world_try_test_send(&worlds[k]);
			world_try_test_recv(&worlds[k]);
			if (n > 10000000)
				fail_msg("nothing moves any more");
		}
}

static void one_life(unsigned int rows, enum end end)
{
	struct mpib_nccl_config config = { .trafficClass = -1 };
	static bool broken;
	void *ctx;

	if (broken)
		fail_msg("an earlier life broke off");
	broken = true;
	random_settings();
	test_log_clear();
	assert_int_equal(mpib_entry_init(&ctx, &config, test_logger), ncclSuccess);
	wire_connect();
	for (unsigned int k = 0; k < 2; k++)
		world_open(&worlds[k], end == FAULT);
	live(rows, end);
	if (end == THROUGH)
		for (unsigned int k = 0; k < 2; k++)
			world_check_ended(&worlds[k]);
	wire_report_all();
	for (unsigned int k = 0; k < 2; k++)
		world_close(&worlds[k]);
	/* Every receive of the shared queues is accounted for. */
	for (int dev = 0; dev < 2; dev++) {
		struct mpib_device *device = mpib_device_get(dev);

		if (!device) {
			fail_msg("device %d is gone", dev);
			return;
		}
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			assert_int_equal(atomic_load(&device->hca[rail].srq_credits),
					 wire_receives(dev, rail));
	}
	wire_cut();
	assert_int_equal(mpib_entry_finalize(ctx), ncclSuccess);
	assert_int_equal(fake_live(), 0);
	fake_fail(FAKE_POST_SRQ_RECV, 0, 0);
	for (unsigned int dev = 0; dev < 4; dev++)
		fake_bad_completion(dev, IBV_WC_SUCCESS);
	fake_set_max_msg(1u << 30);
	broken = false;
}

static unsigned int count(const char *name, unsigned int otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned int)strtoul(text, NULL, 0) : otherwise;
}

static void test_whole_lives(void **state)
{
	unsigned int lives = count("MPIB_TEST_LIVES", 8);

	(void)state;
	wire_random = mpib_test_random_init(1);
	for (unsigned int k = 0; k < lives; k++)
		one_life(800, THROUGH);
}

/* Closed whatever is on its way. */
static void test_early_ends(void **state)
{
	unsigned int lives = count("MPIB_TEST_LIVES", 12);

	(void)state;
	wire_random = mpib_test_random_init(2);
	for (unsigned int k = 0; k < lives; k++)
		one_life(1 + wire_below(200), EARLY);
}

/* What is done is right up to the error, and what is closed then leaves nothing behind. */
static void test_faults(void **state)
{
	unsigned int lives = count("MPIB_TEST_LIVES", 12);

	(void)state;
	wire_random = mpib_test_random_init(3);
	for (unsigned int k = 0; k < lives; k++)
		one_life(2000, FAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_lives),
		cmocka_unit_test(test_early_ends),
		cmocka_unit_test(test_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
