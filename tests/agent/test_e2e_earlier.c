/* SPDX-License-Identifier: Apache-2.0 */
/* Today's agent on what earlier ones really left behind, killed under living jobs (A06): no slot
 * moves or is given twice, no share changes. earlier/ has the files, and make.py, which made them:
 * three processes hold five flows in a table of 16. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "agent/base/crc32.h"
#include "agent/clients/process.h"
#include "agent/state/adopt_impl.h"
#include "agent/state/overrides.h"
#include "common/hint.h"
#include "tests/agent/harness/fresh.h"
#include "tests/agent/harness/table.h"

static const char policy[] = "[agent]\nslots = 16\n[islands]\na = 10.0.1.0/24\nb = 10.0.2.0/24\n"
			     "[policy]\ninter = 333\n[flow 10.0.1.1 10.0.2.9]\nshare = 77\n";

/* By commit. The first knows no overrides. */
static const char *const versions[] = { "c65ac74", "737a03d" };

#define N_VERSIONS (sizeof(versions) / sizeof(versions[0]))
#define N_FLOWS	   5u
#define FILE_MAX   65536u

/* ---- files ---------------------------------------------------------------------------------- */

struct content {
	size_t len;
	union {
		uint8_t bytes[FILE_MAX];
		struct mpib_adopt_header state;
		struct mpib_overrides_header overrides;
	};
};

static struct content state_file;
static struct content overrides_file;

static void read_file(const char *version, const char *name, struct content *ret)
{
	const char *dir = getenv("AGENT_TEST_EARLIER");
	char path[4096];
	FILE *file;

	assert_non_null(dir);
	(void)snprintf(path, sizeof(path), "%s/%s/%s", dir, version, name);
	file = fopen(path, "re");
	ret->len = 0;
	if (!file && errno == ENOENT)
		return;
	assert_non_null(file);
	ret->len = fread(ret->bytes, 1, sizeof(ret->bytes), file);
	assert_true(ret->len < sizeof(ret->bytes));
	(void)fclose(file);
}

static void write_file(const char *name, mode_t mode, const struct content *content)
{
	char path[TEMPDIR_MAX + 64];
	int fd;

	if (!content->len)
		return;
	(void)snprintf(path, sizeof(path), "%s/%s", agent.dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content->bytes, content->len), (ssize_t)content->len);
	assert_int_equal(close(fd), 0);
}

static struct mpib_adopt_record *record_at(size_t n)
{
	return (struct mpib_adopt_record *)(void *)(state_file.bytes + sizeof(state_file.state)) +
	       n;
}

static size_t n_records(void)
{
	return (state_file.len - sizeof(state_file.state)) / sizeof(struct mpib_adopt_record);
}

static void seal_header(void)
{
	state_file.state.checksum =
		mpib_crc32(&state_file.state, offsetof(struct mpib_adopt_header, checksum));
}

/* Over the header without it and over the records, and over these two. */
static uint32_t checksum_of_overrides(void)
{
	struct mpib_overrides_header header = overrides_file.overrides;
	uint32_t parts[2];

	header.checksum = 0;
	parts[0] = mpib_crc32(&header, sizeof(header));
	parts[1] = mpib_crc32(overrides_file.bytes + sizeof(header),
			      overrides_file.len - sizeof(header));
	return mpib_crc32(parts, sizeof(parts));
}

static void set_boot(const uint8_t boot_id[16])
{
	struct mpib_overrides_header *header = &overrides_file.overrides;

	memcpy(state_file.state.boot_id, boot_id, 16);
	seal_header();
	if (!overrides_file.len)
		return;
	assert_int_equal(header->checksum, checksum_of_overrides());
	memcpy(header->boot_id, boot_id, 16);
	header->checksum = checksum_of_overrides();
}

/* Another boot than this one, wherever they were made. */
static void leave_boot(void)
{
	struct mpib_adopt_header mine;

	mpib_adopt_make_header(&mine);
	mine.boot_id[3] ^= 1;
	set_boot(mine.boot_id);
}

/* Its writer's boot was this one, and its processes live here: @pids and @starts, by the upper
 * half of the connection id. All else stays as it was written. */
static void bring_to_life(const pid_t pids[4], const uint64_t starts[4])
{
	struct mpib_adopt_header mine;

	mpib_adopt_make_header(&mine);
	state_file.state.pid_ns = mine.pid_ns;
	set_boot(mine.boot_id);
	for (size_t n = 0; n < n_records(); n++) {
		struct mpib_adopt_record *record = record_at(n);
		uint32_t job = record->conn_id >> 16;

		if (!record->used)
			continue;
		assert_in_range(job, 1, 3);
		record->pid = pids[job];
		record->start_time = starts[job];
		record->checksum = mpib_crc32(record, offsetof(struct mpib_adopt_record, checksum));
	}
}

/* Its records are longer by a half, and its version is the next one. */
static void make_future(void)
{
	static uint8_t longer[FILE_MAX];
	size_t size = sizeof(struct mpib_adopt_record);
	size_t n = n_records();

	assert_true(sizeof(state_file.state) + n * size / 2 * 3 <= sizeof(longer));
	memset(longer, 0xA5, sizeof(longer));
	for (size_t k = 0; k < n; k++)
		memcpy(longer + k * size / 2 * 3, record_at(k), size);
	memcpy(state_file.bytes + sizeof(state_file.state), longer, n * size / 2 * 3);
	state_file.len = sizeof(state_file.state) + n * size / 2 * 3;
	state_file.state.version++;
	state_file.state.record_size = (uint32_t)(size / 2 * 3);
	seal_header();
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static int wait_for_end(void *arg)
{
	(void)arg;
	(void)pause();
	return 0;
}

static uint64_t start_of(pid_t pid)
{
	uint64_t start = 0;
	int fd = -1;

	assert_int_equal(mpib_process_open(pid, MPIB_UID_ANY, &fd, &start), 0);
	assert_int_equal(close(fd), 0);
	return start;
}

/* The slot of a flow in the table, which has it. */
static uint32_t slot_of(const struct mpib_hint_entry *entries, const char *dst)
{
	for (uint32_t slot = 0; slot < 16; slot++) {
		if (entries[slot].dst_ip == test_ip(dst))
			return slot;
	}
	fail_msg("no slot has a flow to %s", dst);
	return 0;
}

struct scene {
	pid_t second; /* job that ends when it is told to */
	const struct mpib_hint_header *header;
	struct mpib_hint_entry *left; /* what the earlier agent left in the table */
};

/* Lays the files of @version down, with two living jobs and one that has ended, or (@foreign) as
 * they are, and starts today's agent. */
static void begin(struct scene *scene, const char *version, bool foreign, bool future)
{
	static struct content hints_file;
	pid_t ended = harness_fork(wait_for_end, NULL);
	uint64_t ended_start = start_of(ended);

	assert_int_equal(kill(ended, SIGKILL), 0);
	(void)harness_reap(ended);
	scene->second = harness_fork(wait_for_end, NULL);
	read_file(version, "hints", &hints_file);
	read_file(version, "state", &state_file);
	read_file(version, "overrides", &overrides_file);
	assert_int_equal(hints_file.len, MPIB_HINTS_SIZE(16));
	leave_boot();
	if (!foreign)
		bring_to_life((pid_t[4]){ 0, getpid(), scene->second, ended },
			      (uint64_t[4]){ 0, start_of(getpid()), start_of(scene->second),
					     ended_start });
	if (future)
		make_future();

	agent_write_ini(&agent, policy);
	assert_int_equal(mkdir(agent.dir, 0755), 0);
	write_file("hints", 0644, &hints_file);
	write_file("state", 0600, &state_file);
	write_file("overrides", 0600, &overrides_file);
	scene->header = agent_map_hints(&agent);
	scene->left = table_snapshot(scene->header);
	assert_int_equal(agent_count_flows(scene->header), N_FLOWS);
	assert_int_equal(scene->left[slot_of(scene->left, "10.0.2.1")].sup_bw, 333);
	assert_int_equal(scene->left[slot_of(scene->left, "10.0.1.2")].sup_bw, 1024);
	assert_int_equal(scene->left[slot_of(scene->left, "10.0.2.9")].sup_bw, 77);
	assert_int_equal(scene->left[slot_of(scene->left, "10.0.2.4")].sup_bw,
			 overrides_file.len ? 500 : 333);
	agent_start(&agent);
}

static void end(struct scene *scene)
{
	if (scene->second) {
		assert_int_equal(kill(scene->second, SIGKILL), 0);
		(void)harness_reap(scene->second);
	}
	free(scene->left);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_fini(&agent);
	agent_init(&agent);
}

/* ---- what has to hold ----------------------------------------------------------------------- */

static void living_jobs_keep_slots_and_shares(void **state)
{
	(void)state;
	for (size_t n = 0; n < N_VERSIONS; n++) {
		struct scene scene;

		begin(&scene, versions[n], false, false);
		assert_int_equal(agent_log_count(&agent, "5 registrations of 2 processes "
							 "re-adopted, 1 of ended processes "
							 "dropped, 0 damaged"),
				 1);
		/* The slot of the job that has ended is free. */
		assert_true(agent_await_flows(scene.header, N_FLOWS - 1, 5000));
		memset(&scene.left[slot_of(scene.left, "10.0.2.5")], 0, sizeof(*scene.left));
		table_expect_same(scene.header, scene.left);
		table_expect_none_given_twice(&agent, scene.header, scene.left);
		end(&scene);
	}
}

/* Who ends frees what nobody else holds; who asks again has what he had. */
static void the_jobs_are_known_by_their_processes(void **state)
{
	(void)state;
	for (size_t n = 0; n < N_VERSIONS; n++) {
		struct scene scene;
		uint32_t slot;

		begin(&scene, versions[n], false, false);
		slot = slot_of(scene.left, "10.0.2.1");
		assert_int_equal(kill(scene.second, SIGKILL), 0);
		(void)harness_reap(scene.second);
		scene.second = 0;
		assert_true(agent_await_flows(scene.header, 3, 5000));
		assert_int_equal(agent_entry(scene.header, slot)->dst_ip, test_ip("10.0.2.1"));
		assert_int_equal(agent_register_once(&agent, 0x10001, test_ip("10.0.1.1"),
						     test_ip("10.0.2.1"))
					 .slot,
				 slot);
		assert_int_equal(agent_deregister_once(&agent, 0x10001).status, MPIB_STATUS_OK);
		assert_true(agent_await_flows(scene.header, 2, 5000));
		end(&scene);
	}
}

/* Another boot's or another pid namespace's: nobody's end can be told, so that all is kept until
 * its holder comes back. What was set by hand ends with its boot. */
static void the_files_as_they_are_keep_every_slot(void **state)
{
	(void)state;
	for (size_t n = 0; n < N_VERSIONS; n++) {
		struct scene scene;
		uint32_t slot;

		begin(&scene, versions[n], true, false);
		assert_int_equal(agent_log_count(&agent, "of another boot or pid namespace"), 1);
		slot = slot_of(scene.left, "10.0.2.4");
		scene.left[slot].sup_bw = 333;
		table_expect_same(scene.header, scene.left);
		assert_int_equal(agent_register_once(&agent, 0x20003, test_ip("10.0.1.1"),
						     test_ip("10.0.2.4"))
					 .slot,
				 slot);
		assert_int_equal(agent_deregister_once(&agent, 0x20003).status, MPIB_STATUS_OK);
		assert_true(agent_await_flows(scene.header, N_FLOWS - 1, 5000));
		memset(&scene.left[slot], 0, sizeof(*scene.left));
		table_expect_none_given_twice(&agent, scene.header, scene.left);
		end(&scene);
	}
}

static void a_future_version_keeps_every_slot_and_share(void **state)
{
	struct scene scene;

	(void)state;
	begin(&scene, versions[N_VERSIONS - 1], false, true);
	assert_int_equal(agent_log_count(&agent, "of another version"), 1);
	table_expect_same(scene.header, scene.left);
	table_expect_none_given_twice(&agent, scene.header, scene.left);
	/* And what this agent makes of it is its own. */
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent_start(&agent);
	table_expect_same(scene.header, scene.left);
	end(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(living_jobs_keep_slots_and_shares),
		AGENT_TEST(the_jobs_are_known_by_their_processes),
		AGENT_TEST(the_files_as_they_are_keep_every_slot),
		AGENT_TEST(a_future_version_keeps_every_slot_and_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
