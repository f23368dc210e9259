/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: many ask for a reload while the policy file goes on changing. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "agent/admin/admin.h"
#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

/* So many that shares follow in many slices, the last slot's in the last one. */
#define SLOTS	 4096u
#define ASKERS	 4u
#define ASKS	 120u
#define VERSIONS 1024u

/* Version n of the file says share n. */
struct versions {
	_Atomic uint32_t written;
	_Atomic bool over;
	uint32_t slot;
};

static struct versions *versions;

/* Whole at any time, as an editor or a package writes it. */
static void write_version(uint32_t version)
{
	char path[TEMPDIR_MAX + 32];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/agent.ini.new", agent.base);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fprintf(file, "[agent]\nslots = %u\n[policy]\ninter = %u\n", SLOTS, version);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(path, agent.ini), 0);
	atomic_store(&versions->written, version);
}

static int run_writer(void *arg)
{
	static const struct timespec pause = { .tv_nsec = 200000 };

	(void)arg;
	for (uint32_t n = 2; n <= VERSIONS && !atomic_load(&versions->over); n++) {
		write_version(n);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

/* Asks for a reload and waits for its verdict. */
static bool reload(int fd)
{
	struct mpib_msg_header ask = { MPIB_MSG_MAGIC, sizeof(ask), MPIB_ADMIN_RELOAD, 0 };
	uint8_t frame[MPIB_ADMIN_FRAME_MAX];
	struct mpib_admin_end end = { 0 };

	if (send(fd, &ask, sizeof(ask), MSG_NOSIGNAL) != sizeof(ask))
		return false;
	do {
		if (recv(fd, &end.header, sizeof(end.header), MSG_WAITALL) != sizeof(end.header) ||
		    recv(fd, frame, end.header.msg_len - sizeof(end.header), MSG_WAITALL) < 0)
			return false;
	} while (end.header.msg_type != MPIB_ADMIN_END);
	memcpy((uint8_t *)&end + sizeof(end.header), frame, sizeof(end) - sizeof(end.header));
	return end.verdict == MPIB_ADMIN_OK;
}

/* Fails where a share is older than the file was when it asked. */
static int run_asker(void *arg)
{
	const struct mpib_hint_entry *entry = agent_entry(agent_map_hints(&agent), versions->slot);
	int fd = agent_connect(&agent);

	(void)arg;
	for (unsigned int n = 0; n < ASKS; n++) {
		uint32_t asked = atomic_load(&versions->written);
		uint32_t share = 0;

		if (!reload(fd) || !mpib_hint_read(entry, &share))
			return 2;
		if (share < asked) {
			print_message("share %u after a reload that was asked for when the file "
				      "said %u\n",
				      share, asked);
			return 1;
		}
	}
	return 0;
}

/* However many ask while one is under way, and whether one reading of the file serves several:
 * after the answer, what is in force is at least as new as the file was when it was asked. */
static void after_a_reload_the_policy_is_as_new_as_the_file_when_it_was_asked_for(void **state)
{
	struct answer a = { 0 };
	pid_t askers[ASKERS];
	pid_t writer;
	int fd;

	(void)state;
	versions = mmap(NULL, sizeof(*versions), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	assert_true(versions != MAP_FAILED);
	write_version(1);
	agent_start(&agent);
	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < SLOTS; n++)
		a = agent_register(fd, n, test_ip("10.0.1.1"), test_ip("10.0.2.1") + n);
	assert_int_equal(a.status, MPIB_STATUS_OK);
	versions->slot = a.slot;
	writer = harness_fork(run_writer, NULL);
	for (unsigned int n = 0; n < ASKERS; n++)
		askers[n] = harness_fork(run_asker, NULL);
	for (unsigned int n = 0; n < ASKERS; n++)
		assert_int_equal(harness_reap(askers[n]), 0);
	atomic_store(&versions->over, true);
	assert_int_equal(harness_reap(writer), 0);
	(void)close(fd);
	(void)munmap(versions, sizeof(*versions));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(after_a_reload_the_policy_is_as_new_as_the_file_when_it_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
