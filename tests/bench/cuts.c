/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection over two rails of the software fabric, cut while it carries messages of which
 * every byte is checked: node 1 sends, node 2 receives, and a third process makes the faults. Lines
 * on standard input, each answered by one of JSON:
 *
 *     cut NODE RAIL AFTER LATE_US DOWN_MS WINDOW SIZE MEASURE_MS
 *
 * NODE's port of RAIL goes down as its AFTER-th request begins to leave (0: at once), and up again
 * DOWN_MS after both ends are over it; what was under way comes LATE_US later. SIZE 0 stands for
 * random ones. With MEASURE_MS the goodput is measured as long, before the cut and after the
 * return.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/peer.h"
#include "tests/bench/side.h"
#include "tests/fabric/state.h"
#include "tests/netperf/clock.h"
#include "tests/netperf/counters.h"
#include "tests/netperf/pattern.h"
#include "tests/netperf/pool.h"

#define SIZE_MAX_BITS 18u /* random sizes, of which as many have each number of bits */
#define SIZE_LIMIT    (1u << 20)
#define SLOTS	      (2u * NCCL_NET_MAX_REQUESTS) /* so that each buffer also lies idle */
#define SIZES	      4096u			   /* more than can be under way */
#define STILL_S	      30			   /* nothing moves: a hang */
#define RETRY_S	      3
#define NOT_CUT_S     0.3 /* so few requests that the port is put down instead */

/* What an end knows of each rail, by its plugin's counters. */
struct rails_seen {
	_Atomic uint64_t losses[2], returns[2];
};

/* Between the three. Times are nanoseconds of CLOCK_MONOTONIC. */
struct shared {
	/* written by the one that makes the faults */
	_Atomic uint32_t run, stop; /* run: odd while the sender sends */
	_Atomic uint32_t window, size;
	_Atomic uint32_t watch; /* raised for each cut; its port and rail stand before */
	_Atomic uint32_t watch_dev, watch_rail;

	/* written by the sender */
	_Atomic uint64_t sent, sender_done;
	_Atomic uint32_t run_seen; /* `run`, as of its latest turn */
	_Atomic uint32_t sizes[SIZES];

	/* written by the receiver */
	_Atomic uint64_t done, bytes;
	_Atomic uint32_t watched; /* that cut's times stand */
	_Atomic uint64_t down, settled, byte, first, silence;

	struct rails_seen seen[2]; /* sender, receiver */
	_Atomic uint32_t ready;
};

struct end {
	struct bench_side side;
	struct bench_conn conn;
	struct np_pool pool;
	unsigned int slots[NCCL_NET_MAX_REQUESTS];
	struct np_counters counters;
	const struct mpib_counter_entry *entry;
	struct np_random random;
	bool sender;
};

struct watch {
	uint32_t number;
	uint64_t losses, down, settled, came, byte, last, silence;
};

struct order {
	unsigned int node, rail;
	unsigned long after, late_us, down_ms, window, size, measure_ms;
};

static struct shared *sh;
static struct fab_meeting meeting;
static uint64_t seed;

static uint64_t now_ns(void)
{
	return (uint64_t)(np_now() * 1e9);
}

static void nap(void)
{
	struct timespec ts = { .tv_nsec = 50000 };

	(void)nanosleep(&ts, NULL);
}

static uint32_t device_of(unsigned int node, unsigned int rail)
{
	return 2 * (node - 1) + rail; /* as the fabric of the benchmarks has them */
}

/* ---- the two ends ---------------------------------------------------------------------------- */

static void see(struct end *e)
{
	struct rails_seen *seen = &sh->seen[!e->sender];

	for (int rail = 0; rail < 2; rail++) {
		atomic_store(&seen->returns[rail],
			     __atomic_load_n(&e->entry->returns[rail], __ATOMIC_ACQUIRE));
		atomic_store(&seen->losses[rail],
			     __atomic_load_n(&e->entry->losses[rail], __ATOMIC_ACQUIRE));
	}
}

static void find_entry(struct end *e)
{
	bench_want(np_counters_open(&e->counters), "the plugin publishes no counters");
	for (uint32_t n = 0; !e->entry && n < e->counters.header->entries; n++)
		e->entry = np_counters_entry(&e->counters, n);
	bench_want(e->entry, "the connection isn't counted");
}

/* Every band is whole, and so is what lies idle. */
static void check_idle(struct end *e)
{
	ptrdiff_t at;

	for (unsigned int slot = 0; slot < SLOTS; slot++)
		bench_want(np_pool_check(&e->pool, slot, e->sender ? e->pool.cap : 0, e->pool.cap,
					 &at),
			   "bytes were written outside of messages, or late");
}

static void send_one(struct end *e)
{
	uint64_t number = atomic_load(&sh->sent);
	uint32_t size = atomic_load(&sh->size);
	unsigned int slot = (unsigned int)(number % SLOTS);
	char *data = np_pool_data(&e->pool, slot);

	if (!size) {
		struct np_random random = np_random_make(seed, number, 0);
		uint64_t bits = np_random_below(&random, SIZE_MAX_BITS + 1);

		size = (uint32_t)np_random_below(&random, 2ULL << bits);
	}
	np_pattern_fill(np_pattern_make(seed, 0, number), data, 0, size);
	atomic_store(&sh->sizes[number % SIZES], size);
	if (bench_send(&e->side, &e->conn, data, size))
		atomic_store(&sh->sent, number + 1);
}

/* True where something has moved. */
static bool sender_turn(struct end *e)
{
	uint64_t oldest = e->conn.done, was = atomic_load(&sh->sent);
	uint32_t run = atomic_load(&sh->run);

	if (run % 2 && e->conn.used < atomic_load(&sh->window))
		send_one(e);
	atomic_store(&sh->run_seen, run);
	if (e->conn.used && bench_test(&e->side, &e->conn, atomic_load(&sh->sizes[oldest % SIZES])))
		atomic_store(&sh->sender_done, e->conn.done);
	return e->conn.done != oldest || atomic_load(&sh->sent) != was;
}

static void check_message(struct end *e, uint64_t number, uint32_t size)
{
	unsigned int slot = (unsigned int)(number % SLOTS);
	const char *data = np_pool_data(&e->pool, slot);
	ptrdiff_t at;

	bench_want(np_pattern_check(np_pattern_make(seed, 0, number), data, 0, size) == size,
		   "a byte is wrong");
	bench_want(np_pool_check(&e->pool, slot, size, size, &at),
		   "bytes were written outside of a message");
	np_pool_restore(&e->pool, slot, size);
}

/* Times of the latest cut, as the receiver sees them: its end is over the loss, payload comes on
 * the rail that is left, a message is whole. @moved: one has just come. */
static void look(struct end *e, struct watch *w, bool moved)
{
	uint32_t number = atomic_load(&sh->watch), rail = atomic_load(&sh->watch_rail);
	const struct fab_state_dev *dev = &meeting.state->dev[atomic_load(&sh->watch_dev)];
	uint64_t losses = atomic_load(&sh->seen[1].losses[rail]);

	if (number != w->number) {
		*w = (struct watch){ .number = number, .losses = losses };
		return;
	}
	if (!number || atomic_load(&sh->watched) == number)
		return;
	if (!w->down && !atomic_load(&dev->port_up))
		w->down = w->last = atomic_load(&dev->down_ns);
	if (w->down && !w->settled && losses > w->losses) {
		w->settled = now_ns();
		w->came = atomic_load(&meeting.state->dev[device_of(2, !rail)].rx_bytes);
	}
	if (w->settled && !w->byte &&
	    atomic_load(&meeting.state->dev[device_of(2, !rail)].rx_bytes) > w->came)
		w->byte = now_ns();
	if (!w->down || !moved)
		return;
	if (now_ns() - w->last > w->silence)
		w->silence = now_ns() - w->last;
	w->last = now_ns();
	if (!w->byte)
		return;
	atomic_store(&sh->down, w->down);
	atomic_store(&sh->byte, w->byte);
	atomic_store(&sh->settled, w->settled);
	atomic_store(&sh->first, w->last);
	atomic_store(&sh->silence, w->silence);
	atomic_store(&sh->watched, number);
}

static bool receiver_turn(struct end *e, struct watch *w)
{
	uint64_t number = e->conn.done;
	uint32_t size;
	int told = 0;

	while (e->conn.used < NCCL_NET_MAX_REQUESTS) {
		char *data = np_pool_data(&e->pool, (unsigned int)(e->conn.posted % SLOTS));

		if (!bench_try_receive(&e->side, &e->conn, data, e->pool.cap))
			break;
	}
	/* Also where nothing is under way: who waits for the other end has to be called. */
	if (!e->conn.used || !bench_test_any(&e->side, &e->conn, &told)) {
		look(e, w, false);
		return false;
	}
	size = atomic_load(&sh->sizes[number % SIZES]);
	bench_want(told == (int)size, "a wrong size");
	look(e, w, true);
	check_message(e, number, size);
	atomic_fetch_add(&sh->bytes, size);
	atomic_store(&sh->done, e->conn.done);
	return true;
}

static void run_end(struct end *e, const char *plugin, int peer)
{
	struct watch watch = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setenv("MPIB_FABRIC_NODE", e->sender ? "1" : "2", 1);
	bench_open(&e->side, plugin, "fused");
	bench_want(np_pool_open(&e->pool, SIZE_LIMIT, SLOTS) == 0, "out of memory");
	if (e->sender) {
		bench_get(peer, e->conn.handle, sizeof(e->conn.handle));
	} else {
		bench_listen(&e->side, &e->conn);
		bench_put(peer, e->conn.handle, sizeof(e->conn.handle));
	}
	while (!(e->sender ? bench_connect : bench_accept)(&e->side, &e->conn))
		;
	bench_reg(&e->side, &e->conn, e->pool.map, e->pool.map_len);
	find_entry(e);
	atomic_fetch_add(&sh->ready, 1);
	while (!atomic_load(&sh->stop)) {
		see(e);
		/* leaves the processor to others: the rails are what is slow */
		if (!(e->sender ? sender_turn(e) : receiver_turn(e, &watch)))
			nap();
	}
	check_idle(e);
	bench_want(e->sender ? e->conn.done == atomic_load(&sh->sent)
			     : e->conn.done == atomic_load(&sh->done),
		   "a message was lost");
	/* receives that are out end with the connection */
	bench_hang_up(&e->side, &e->conn, e->sender);
	bench_close(&e->side);
	exit(0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static pid_t pids[2];

/* A failed end ends all; so does a standstill. */
static void alive(bool still_matters)
{
	static uint64_t seen;
	static double since;
	uint64_t moved =
		atomic_load(&sh->sent) + atomic_load(&sh->done) + atomic_load(&sh->sender_done);

	for (int k = 0; k < 2; k++)
		bench_want(waitpid(pids[k], NULL, WNOHANG) == 0, "an end has failed");
	if (moved != seen || !still_matters) {
		seen = moved;
		since = np_now();
	}
	bench_want(np_now() - since < STILL_S, "nothing moves: a hang");
	nap();
}

static void stream_for(double seconds)
{
	double end = np_now() + seconds;

	while (np_now() < end)
		alive(true);
}

static double goodput(double seconds)
{
	uint64_t bytes = atomic_load(&sh->bytes);
	double start = np_now();

	stream_for(seconds);
	return (double)(atomic_load(&sh->bytes) - bytes) / (np_now() - start);
}

static void drain(void)
{
	(void)atomic_fetch_add(&sh->run, 1);
	while (atomic_load(&sh->run_seen) != atomic_load(&sh->run) ||
	       atomic_load(&sh->sent) != atomic_load(&sh->done) ||
	       atomic_load(&sh->sent) != atomic_load(&sh->sender_done))
		alive(true);
}

static bool have_lost(unsigned int rail, const uint64_t before[2])
{
	return atomic_load(&sh->seen[0].losses[rail]) > before[0] &&
	       atomic_load(&sh->seen[1].losses[rail]) > before[1];
}

static bool are_up(void)
{
	for (int rail = 0; rail < 2; rail++)
		for (int k = 0; k < 2; k++)
			if (atomic_load(&sh->seen[k].losses[rail]) !=
			    atomic_load(&sh->seen[k].returns[rail]))
				return false;
	return true;
}

static void put_down(const struct order *o)
{
	uint32_t dev = device_of(o->node, o->rail);
	struct fab_state_dev *state = &meeting.state->dev[dev];
	double start = np_now();

	if (o->after)
		atomic_store(&state->cut_left, o->after);
	else
		(void)fab_meeting_port(&meeting, dev, false);
	while (atomic_load(&state->port_up)) {
		alive(true);
		if (np_now() - start < NOT_CUT_S)
			continue;
		atomic_store(&state->cut_left, 0);
		(void)fab_meeting_port(&meeting, dev, false);
	}
}

/* Both rails of both ends, for as long: after a port that went down and up again, whose events may
 * still be under way. */
static bool stay_up(double seconds)
{
	double end = np_now() + seconds;

	while (are_up() && np_now() < end)
		alive(true);
	return are_up();
}

/* The sender tries when its own port is up again, and by its pauses else. So a port of the sender
 * goes down, too, before one of the receiver's is up: while the rail is lost, that is no other
 * loss. */
static void put_up(const struct order *o)
{
	uint32_t own = device_of(1, o->rail);
	double tried = np_now();
	bool again = false;

	(void)fab_meeting_port(&meeting, own, false);
	(void)fab_meeting_port(&meeting, device_of(2, o->rail), true);
	(void)fab_meeting_port(&meeting, own, true);
	while (!(again ? stay_up(RETRY_S) : are_up())) {
		alive(true);
		if (np_now() - tried < RETRY_S)
			continue;
		(void)fab_meeting_port(&meeting, own, false);
		(void)fab_meeting_port(&meeting, own, true);
		tried = np_now();
		again = true;
	}
}

static double ms_between(uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) / 1e6 : 0;
}

static void cut(const struct order *o)
{
	struct fab_state_dev *dev = &meeting.state->dev[device_of(o->node, o->rail)];
	uint64_t before[2] = { atomic_load(&sh->seen[0].losses[o->rail]),
			       atomic_load(&sh->seen[1].losses[o->rail]) };
	uint64_t messages = atomic_load(&sh->done), bytes = atomic_load(&sh->bytes), up;
	double was = 0, is = 0, back;

	alive(false);
	atomic_store(&dev->late_ns, o->late_us * 1000);
	atomic_store(&sh->window, (uint32_t)o->window);
	atomic_store(&sh->size, (uint32_t)o->size);
	(void)atomic_fetch_add(&sh->run, 1);
	if (o->measure_ms) {
		stream_for(0.03);
		was = goodput((double)o->measure_ms / 1000);
	}
	atomic_store(&sh->watch_dev, device_of(o->node, o->rail));
	atomic_store(&sh->watch_rail, o->rail);
	atomic_fetch_add(&sh->watch, 1);
	stream_for(0.001);
	put_down(o);
	while (!have_lost(o->rail, before) || atomic_load(&sh->watched) != atomic_load(&sh->watch))
		alive(true);
	stream_for((double)o->down_ms / 1000);
	up = now_ns();
	put_up(o);
	back = ms_between(up, now_ns());
	if (o->measure_ms) {
		stream_for(0.03);
		is = goodput((double)o->measure_ms / 1000);
	}
	drain();
	atomic_store(&dev->late_ns, 0);
	(void)printf("{\"settled_ms\": %.3f, \"byte_ms\": %.3f, \"message_ms\": %.3f, "
		     "\"silence_ms\": %.3f, "
		     "\"back_ms\": %.3f, \"goodput_before\": %.0f, \"goodput_after\": %.0f, "
		     "\"messages\": %llu, "
		     "\"bytes\": %llu}\n",
		     ms_between(atomic_load(&sh->down), atomic_load(&sh->settled)),
		     ms_between(atomic_load(&sh->down), atomic_load(&sh->byte)),
		     ms_between(atomic_load(&sh->down), atomic_load(&sh->first)),
		     (double)atomic_load(&sh->silence) / 1e6, back, was, is,
		     (unsigned long long)(atomic_load(&sh->done) - messages),
		     (unsigned long long)(atomic_load(&sh->bytes) - bytes));
	(void)fflush(stdout);
}

static bool read_order(struct order *o)
{
	char line[256];

	if (!fgets(line, sizeof(line), stdin))
		return false;
	bench_want(sscanf(line, "cut %u %u %lu %lu %lu %lu %lu %lu", &o->node, &o->rail, &o->after,
			  &o->late_us, &o->down_ms, &o->window, &o->size, &o->measure_ms) == 8 &&
			   (o->node == 1 || o->node == 2) && o->rail < 2 && o->window > 0 &&
			   o->window <= NCCL_NET_MAX_REQUESTS && o->size <= SIZE_LIMIT,
		   "cut NODE RAIL AFTER LATE_US DOWN_MS WINDOW SIZE MEASURE_MS");
	return true;
}

static void open_fabric(void)
{
	static struct fab_config conf;
	char text[512];
	int r = fab_env_config(&conf, text, sizeof(text));

	bench_want(r == 0, text);
	r = fab_meeting_open(&conf, &meeting);
	bench_want(r == 0, "no fabric");
}

int main(int argc, char **argv)
{
	static struct end ends[2];
	int socks[2], status[2];
	struct order o;

	if (argc != 3) {
		(void)fprintf(stderr, "usage: bench-cuts PLUGIN SEED\n");
		return 2;
	}
	seed = bench_number(argv[2], ~0ul, "a seed");
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_want(sh != MAP_FAILED, "out of memory");
	open_fabric();
	bench_want(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0, "no socket");
	for (int k = 0; k < 2; k++) {
		ends[k].sender = k == 0;
		pids[k] = fork();
		bench_want(pids[k] >= 0, "fork failed");
		if (pids[k] == 0)
			run_end(&ends[k], argv[1], socks[k]);
	}
	while (atomic_load(&sh->ready) < 2)
		alive(false);
	(void)printf("{\"ready\": true}\n");
	(void)fflush(stdout);
	while (read_order(&o))
		cut(&o);
	atomic_store(&sh->stop, 1);
	for (int k = 0; k < 2; k++)
		bench_want(waitpid(pids[k], &status[k], 0) == pids[k] && status[k] == 0,
			   "an end has failed");
	return 0;
}
