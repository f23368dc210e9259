/* SPDX-License-Identifier: Apache-2.0 */
/* Never in the way of a job: kills, stops, restarts, reloads and overrides at random moments while
 * processes register, deregister and read their shares. MPIB_TEST_ROUNDS sets how many rounds,
 * MPIB_TEST_SEED which ones; both are printed. After each round every flow that a worker holds has
 * the slot that it was promised, and the share of the policy in force. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/harness.h"

#define WORKERS	   8
#define PER_WORKER 12

/* One connection of a worker, in memory that the test shares with it. */
struct holding {
	_Atomic uint32_t slot; /* UINT32_MAX: not registered at present */
	_Atomic uint32_t dst;
};

struct shared {
	struct holding holdings[WORKERS][PER_WORKER];
	_Atomic uint32_t pause;	 /* the test looks: stand still */
	_Atomic uint32_t paused; /* workers that do */
	_Atomic uint32_t stop;
	_Atomic uint32_t step[WORKERS]; /* 1 connects, 2 asks, 3 stands still, 0 other */
	_Atomic uint64_t asked;
	_Atomic uint32_t moved; /* a re-registration got another slot than before */
	_Atomic uint32_t mixed; /* a read gave what no policy ever said */
};

static struct agent agent;
static struct shared *shared;
static const struct mpib_hint_header *header;
static ino_t inode;
static pid_t pids[WORKERS];

static const struct timespec blink = { .tv_nsec = 1000000 };

/* ---- workers -------------------------------------------------------------------------------- */

struct worker {
	unsigned int index;
	unsigned int seed;
	int fd;
};

static void stand_still(void)
{
	if (!atomic_load(&shared->pause))
		return;

	(void)atomic_fetch_add(&shared->paused, 1);
	while (atomic_load(&shared->pause) && !atomic_load(&shared->stop))
		(void)nanosleep(&blink, NULL);
	(void)atomic_fetch_sub(&shared->paused, 1);
}

/* As a plugin does: a lost connection is opened again, the request repeated. */
static struct answer persist(struct worker *w, bool enter, uint32_t conn_id, uint32_t dst)
{
	struct answer answer = { 0 };

	while (!answer.ok && !atomic_load(&shared->stop)) {
		atomic_store(&shared->step[w->index], 1);
		if (w->fd < 0)
			w->fd = agent_connect(&agent);
		atomic_store(&shared->step[w->index], 2);
		if (w->fd >= 0)
			answer = enter ? agent_register(w->fd, conn_id, htonl(0x0A000001), dst)
				       : agent_deregister(w->fd, conn_id);
		if (answer.ok)
			break;
		if (w->fd >= 0)
			(void)close(w->fd);
		w->fd = -1;
		(void)nanosleep(&blink, NULL);
	}
	atomic_store(&shared->step[w->index], 0);
	(void)atomic_fetch_add(&shared->asked, 1);
	return answer;
}

static void enter(struct worker *w, unsigned int n)
{
	struct holding *h = &shared->holdings[w->index][n];
	uint32_t dst = htonl(0x0A000000 | w->index << 8 | (n + 2));
	struct answer answer = persist(w, true, n, dst);

	if (!answer.ok)
		return;
	atomic_store(&h->dst, dst);
	atomic_store(&h->slot, answer.status == MPIB_STATUS_OK ? answer.slot : UINT32_MAX);
}

static void work_once(struct worker *w)
{
	unsigned int n = (unsigned int)rand_r(&w->seed) % PER_WORKER;
	struct holding *h = &shared->holdings[w->index][n];
	uint32_t slot = atomic_load(&h->slot);
	uint32_t share = 0;
	struct answer answer;

	if (slot == UINT32_MAX) {
		enter(w, n);
		return;
	}

	switch (rand_r(&w->seed) % 4) {
	case 0: /* the slot is nobody's while the request is on its way */
		atomic_store(&h->slot, UINT32_MAX);
		(void)persist(w, false, n, 0);
		break;
	case 1: /* the same again, as after an agent's restart: the same slot */
		answer = persist(w, true, n, atomic_load(&h->dst));
		if (answer.ok && (answer.status != MPIB_STATUS_OK || answer.slot != slot))
			(void)atomic_fetch_add(&shared->moved, 1);
		break;
	default:
		/* the policies of this test say 100 to 199, an override 500 */
		if (mpib_hint_read(agent_entry(header, slot), &share) && share != 500 &&
		    (share < 100 || share > 199))
			(void)atomic_fetch_add(&shared->mixed, 1);
		break;
	}
}

static int run_worker(void *arg)
{
	struct worker *w = arg;

	w->fd = -1;
	while (!atomic_load(&shared->stop)) {
		stand_still();
		work_once(w);
	}
	return 0;
}

/* ---- the agent's fate ----------------------------------------------------------------------- */

static void drain_notify(void)
{
	char text[2048];

	while (recv(agent.notify_fd, text, sizeof(text), MSG_DONTWAIT) >= 0)
		;
}

static void write_policy(unsigned int share, unsigned int mode)
{
	char text[128];

	/* Islands of /24 both: intra for worker 0's flows, inter for the others'. */
	(void)snprintf(text, sizeof(text), "[policy]\nintra = %u\ninter = %u\n%s", share, share,
		       mode ? "nonsense\n" : "");
	agent_write_ini(&agent, text);
}

static void one_fate(unsigned int *seed, unsigned int *share)
{
	struct timespec nap = { .tv_nsec = (long)(rand_r(seed) % 30) * 1000000 };

	(void)nanosleep(&nap, NULL); /* anywhere in what the workers do */
	drain_notify();
	switch (rand_r(seed) % 6) {
	case 0:
	case 1:
		assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
		*share = 100 + (unsigned int)rand_r(seed) % 100;
		write_policy(*share, 0);
		agent_start(&agent);
		break;
	case 2:
		assert_int_equal(agent_stop(&agent, SIGTERM), 0);
		agent_start(&agent);
		break;
	case 3:
		*share = 100 + (unsigned int)rand_r(seed) % 100;
		write_policy(*share, 0);
		free(agent_ctl_words(&agent, 0, "reload", NULL));
		break;
	case 4:
		write_policy(*share, 1);
		free(agent_ctl_words(&agent, 1, "reload", NULL));
		write_policy(*share, 0);
		break;
	default:
		assert_int_equal(kill(agent.pid, SIGSTOP), 0);
		nap.tv_nsec = (long)(rand_r(seed) % 60) * 1000000;
		(void)nanosleep(&nap, NULL);
		assert_int_equal(kill(agent.pid, SIGCONT), 0);
		break;
	}
}

/* ---- what must hold ------------------------------------------------------------------------- */

static void tell_who_is_late(void)
{
	char text[256] = "";

	for (unsigned int w = 0; w < WORKERS; w++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), " %u:%u:%ld", w,
			       atomic_load(&shared->step[w]), (long)kill(pids[w], 0));
	fail_msg("workers don't stand still (worker:step:alive):%s", text);
}

static void pause_workers(void)
{
	/* A request on the way may wait for its answer as long as the harness lets it. */
	uint64_t end = harness_now_ms() + 30000;

	atomic_store(&shared->pause, 1);
	while (atomic_load(&shared->paused) < WORKERS) {
		if (harness_now_ms() >= end)
			tell_who_is_late();
		(void)nanosleep(&blink, NULL);
	}
}

static void resume_workers(void)
{
	atomic_store(&shared->pause, 0);
	while (atomic_load(&shared->paused))
		(void)nanosleep(&blink, NULL);
}

static void check(unsigned int round, unsigned int share)
{
	char path[TEMPDIR_MAX + 32];
	struct stat st;
	uint32_t held = 0;

	for (unsigned int w = 0; w < WORKERS; w++) {
		for (unsigned int n = 0; n < PER_WORKER; n++) {
			struct holding *h = &shared->holdings[w][n];
			uint32_t slot = atomic_load(&h->slot);
			struct mpib_hint_entry entry = { 0 };
			uint32_t wanted = share;

			if (slot == UINT32_MAX)
				continue;
			held++;
			assert_true(mpib_hint_read_entry(agent_entry(header, slot), &entry));
			if (w == 1 && n == 0)
				wanted = 500; /* has an override */
			if (entry.dst_ip != atomic_load(&h->dst) || entry.sup_bw != wanted)
				fail_msg("round %u: slot %u of worker %u has flow to %08x share "
					 "%u, not %08x share %u",
					 round, slot, w, ntohl(entry.dst_ip), entry.sup_bw,
					 ntohl(atomic_load(&h->dst)), wanted);
		}
	}

	/* No slot is lost, none is anybody's who left. */
	if (!agent_await_flows(header, held, 3000))
		fail_msg("round %u: %u flows in the table, %u are held", round,
			 agent_count_flows(header), held);
	(void)snprintf(path, sizeof(path), "%s/hints", agent.dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_ino == inode);
	if (atomic_load(&shared->moved) || atomic_load(&shared->mixed))
		fail_msg("round %u: %u slots moved, %u shares of no policy", round,
			 atomic_load(&shared->moved), atomic_load(&shared->mixed));
}

static unsigned int number(const char *variable, unsigned int otherwise)
{
	const char *text = getenv(variable);

	return text && *text ? (unsigned int)strtoul(text, NULL, 10) : otherwise;
}

static void nothing_is_lost_whatever_happens_to_the_agent(void **state)
{
	unsigned int rounds = number("MPIB_TEST_ROUNDS", 60);
	unsigned int seed = number("MPIB_TEST_SEED", (unsigned int)time(NULL));
	struct worker workers[WORKERS];
	unsigned int share = 150;
	char path[TEMPDIR_MAX + 32];
	struct stat st;

	(void)state;
	print_message("MPIB_TEST_ROUNDS=%u MPIB_TEST_SEED=%u\n", rounds, seed);
	agent_init(&agent);
	write_policy(share, 0);
	agent_start(&agent);
	header = agent_map_hints(&agent);
	(void)snprintf(path, sizeof(path), "%s/hints", agent.dir);
	assert_int_equal(stat(path, &st), 0);
	inode = st.st_ino;
	free(agent_ctl_words(&agent, 0, "set", "10.0.0.1-10.0.1.2", "500", NULL));

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(shared != MAP_FAILED);
	for (unsigned int w = 0; w < WORKERS; w++) {
		for (unsigned int n = 0; n < PER_WORKER; n++)
			atomic_store(&shared->holdings[w][n].slot, UINT32_MAX);
	}
	for (unsigned int w = 0; w < WORKERS; w++) {
		workers[w] = (struct worker){ .index = w, .seed = seed + w + 1 };
		pids[w] = harness_fork(run_worker, &workers[w]);
	}

	for (unsigned int round = 0; round < rounds; round++) {
		one_fate(&seed, &share);
		if (round % 4 != 3)
			continue;
		pause_workers();
		check(round, share);
		resume_workers();
	}

	/* A worker's death frees what it held, by whichever agent. */
	pause_workers();
	check(rounds, share);
	atomic_store(&shared->stop, 1);
	for (unsigned int w = 0; w < WORKERS; w++)
		assert_int_equal(harness_reap(pids[w]), 0);
	assert_true(agent_await_flows(header, 0, 3000));
	print_message("%llu requests were answered\n",
		      (unsigned long long)atomic_load(&shared->asked));
	agent_fini(&agent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_whatever_happens_to_the_agent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
