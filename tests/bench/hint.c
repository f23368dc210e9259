/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `run` asks about hints and the agent, one JSON object each:
 *
 *     bench-hint-more read                      a read from memory, and one with a writer at 1 kHz
 *     bench-hint-more register DIR CLIENTS N    N registrations by so many processes
 *     bench-hint-more slots DIR N SHARE         holds N flows ("ready"), then waits until all of
 *                                               them have SHARE
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "common/hint.h"
#include "common/wire.h"
#include "tests/bench/side.h"
#include "tests/netperf/clock.h"

#define CHAIN	    1024u /* a share names the next entry, so as many as there are shares */
#define ROUNDS	    200u
#define READS	    2000000u
#define CLIENTS_MAX 256u
#define TOTAL_MAX   1000000u
#define SLOTS_MAX   4096u
#define LINE	    4u /* entries of a cache line */
#define PEER	    0x0101000au

/* Every entry in a line of its own, visited in a random order that only the reads tell. */
static struct mpib_hint_entry *make_chain(void)
{
	struct mpib_hint_entry *table =
		aligned_alloc(64, (size_t)CHAIN * LINE * sizeof(struct mpib_hint_entry));
	uint32_t order[CHAIN];

	bench_want(table, "out of memory");
	memset(table, 0, (size_t)CHAIN * LINE * sizeof(*table));
	srand(1);
	for (uint32_t n = 0; n < CHAIN; n++)
		order[n] = n;
	for (uint32_t n = CHAIN - 1; n > 0; n--) {
		uint32_t other = (uint32_t)rand() % (n + 1), kept = order[n];

		order[n] = order[other];
		order[other] = kept;
	}
	for (uint32_t n = 0; n < CHAIN; n++)
		mpib_hint_write(&table[(size_t)order[n] * LINE], order[(n + 1) % CHAIN], PEER,
				PEER);
	return table;
}

static bool flush(const struct mpib_hint_entry *table)
{
#if defined(__x86_64__)
	for (uint32_t n = 0; n < CHAIN; n++)
		_mm_clflush(&table[(size_t)n * LINE]);
	_mm_mfence();
	return true;
#else
	(void)table;
	return false;
#endif
}

/* Nanoseconds of a read whose line is in no cache, the best of some rounds; 0 where lines can't be
 * flushed. */
static double read_cold(void)
{
	struct mpib_hint_entry *table = make_chain();
	double best = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		uint32_t at = 0;
		double start;

		if (!flush(table))
			break;
		start = np_now();
		for (uint32_t n = 0; n < CHAIN; n++)
			(void)mpib_hint_read(&table[(size_t)at * LINE], &at);
		start = (np_now() - start) * 1e9 / CHAIN;
		if (round == 0 || start < best)
			best = start;
	}
	free(table);
	return best;
}

static struct mpib_hint_entry watched;
static _Atomic bool stop;

static void *write_each_ms(void *arg)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	unsigned long *writes = arg;

	while (!atomic_load(&stop)) {
		mpib_hint_write(&watched, (uint32_t)(++*writes % 1025), PEER, PEER);
		(void)nanosleep(&ms, NULL);
	}
	return NULL;
}

static double read_warm(void)
{
	double best = 0;
	uint32_t share = 0;

	for (unsigned int round = 0; round < 10; round++) {
		double start = np_now();
		uint64_t own = 0;

		for (unsigned int n = 0; n < READS; n++) {
			(void)mpib_hint_read(&watched, &share);
			own += share;
		}
		bench_want(own <= (uint64_t)READS * MPIB_SHARE_MAX, "a share over 1024");
		start = (np_now() - start) * 1e9 / READS;
		if (round == 0 || start < best)
			best = start;
	}
	return best;
}

static void reads(void)
{
	double cold = read_cold(), warm, written;
	unsigned long writes = 0;
	pthread_t thread;

	mpib_hint_write(&watched, 768, PEER, PEER);
	warm = read_warm();
	bench_want(pthread_create(&thread, NULL, write_each_ms, &writes) == 0, "no thread");
	written = read_warm();
	atomic_store(&stop, true);
	(void)pthread_join(thread, NULL);
	(void)printf("{\"warm_ns\": %.2f, \"written_ns\": %.2f, \"cold_ns\": %.2f, "
		     "\"writes\": %lu}\n",
		     warm, written, cold, writes);
}

static int dial(const char *dir)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir,
			   MPIB_SOCKET_NAME);

	bench_want(fd >= 0 && len > 0 && (size_t)len < sizeof(address.sun_path), "no socket");
	bench_want(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0,
		   "no agent");
	return fd;
}

/* The slot of a registration. */
static uint32_t ask(int fd, uint8_t type, uint32_t conn_id, uint32_t peer)
{
	struct mpib_wire_msg msg = { .type = type,
				     .conn_id = conn_id,
				     .sout_src_be = PEER,
				     .sout_dst_be = peer,
				     .sup_src_be = PEER,
				     .sup_dst_be = peer };
	char buf[64];
	size_t want = 8, got = 0;
	int len = mpib_wire_encode_request(buf, sizeof(buf), &msg);

	bench_want(len > 0 && send(fd, buf, (size_t)len, MSG_NOSIGNAL) == len, "the agent is gone");
	while (got < want) {
		ssize_t n = recv(fd, buf + got, want - got, 0);

		bench_want(n > 0, "the agent is gone");
		got += (size_t)n;
		bench_want(mpib_wire_frame(buf, got, &want) >= 0, "no answer of the agent's");
	}
	bench_want(mpib_wire_decode_response(buf, got, type, &msg) == 0 &&
			   msg.status == MPIB_STATUS_OK,
		   "the agent refused");
	return msg.hint_slot;
}

static void client(const char *dir, int go, double *took, unsigned long rounds, uint32_t peer)
{
	int fd = dial(dir);
	char byte;

	bench_want(read(go, &byte, 1) == 0, "no start");
	for (unsigned long n = 0; n < rounds; n++) {
		double start = np_now();

		(void)ask(fd, MPIB_MSG_REGISTER, (uint32_t)n, peer);
		took[n] = np_now() - start;
		(void)ask(fd, MPIB_MSG_DEREGISTER, (uint32_t)n, 0);
	}
	(void)close(fd);
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void registrations(const char *dir, unsigned long clients, unsigned long total)
{
	unsigned long rounds = total / clients;
	double *took = mmap(NULL, total * sizeof(*took), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double start;
	int go[2] = { -1, -1 };

	bench_want(rounds > 0 && took != MAP_FAILED && pipe(go) == 0, "set-up");
	for (unsigned long n = 0; n < clients; n++) {
		pid_t pid = fork();

		bench_want(pid >= 0, "fork failed");
		if (pid == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			(void)close(go[1]);
			client(dir, go[0], took + n * rounds, rounds, (uint32_t)(1 + n % 200));
			_exit(0);
		}
	}
	(void)close(go[0]);
	(void)usleep(100000); /* all of them are there */
	start = np_now();
	(void)close(go[1]);
	for (unsigned long n = 0; n < clients; n++) {
		int status = 0;

		bench_want(wait(&status) > 0 && status == 0, "a client failed");
	}
	start = np_now() - start;
	total = rounds * clients;
	qsort(took, total, sizeof(*took), compare);
	(void)printf("{\"per_second\": %.0f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"count\": %lu}\n",
		     (double)total / start, took[total / 2] * 1e6, took[total * 99 / 100] * 1e6,
		     total);
}

static const struct mpib_hint_entry *map_table(const char *dir)
{
	char path[256];
	struct stat st = { 0 };
	char *map;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, MPIB_HINTS_NAME);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bench_want(fd >= 0 && fstat(fd, &st) == 0, "no hint table");
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	bench_want(map != MAP_FAILED, "no hint table");
	(void)close(fd);
	return (const struct mpib_hint_entry *)(const void *)(map +
							      sizeof(struct mpib_hint_header));
}

/* From the first entry that changes to the last one. Where this process had no core as the first
 * ones changed, that was before the look that found it: "late_us" is how long before at most. */
static void slots(const char *dir, unsigned long count, uint32_t want)
{
	const struct mpib_hint_entry *table = map_table(dir);
	static uint32_t slot[SLOTS_MAX];
	unsigned long at = 0;
	double first = 0, before = 0, last;
	int fd = dial(dir);

	for (unsigned long n = 0; n < count; n++)
		slot[n] = ask(fd, MPIB_MSG_REGISTER, (uint32_t)n, (uint32_t)(1 + n));
	(void)puts("ready");
	(void)fflush(stdout);
	/* the agent's order is not known: any of them may be the first */
	while (first == 0) {
		double look = np_now();

		for (unsigned long n = 0; n < count && first == 0; n++)
			if (mpib_hint_load(&table[slot[n]].sup_bw) == want)
				first = np_now();
		if (first == 0)
			before = look;
	}
	while (at < count)
		at += mpib_hint_load(&table[slot[at]].sup_bw) == want;
	last = np_now();
	(void)printf("{\"slots\": %lu, \"change_us\": %.2f, \"late_us\": %.2f}\n", count,
		     (last - first) * 1e6, (first - before) * 1e6);
	(void)close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "read") == 0)
		reads();
	else if (argc == 5 && strcmp(argv[1], "register") == 0)
		registrations(argv[2], bench_number(argv[3], CLIENTS_MAX, "1 to 256 clients"),
			      bench_number(argv[4], TOTAL_MAX, "a number of registrations"));
	else if (argc == 5 && strcmp(argv[1], "slots") == 0)
		slots(argv[2], bench_number(argv[3], SLOTS_MAX, "1 to 4096 slots"),
		      (uint32_t)bench_number(argv[4], MPIB_SHARE_MAX, "a share"));
	else
		bench_give_up("usage: bench-hint-more read | register DIR CLIENTS N | "
			      "slots DIR N SHARE");
	return 0;
}
