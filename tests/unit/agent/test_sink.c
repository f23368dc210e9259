/* SPDX-License-Identifier: Apache-2.0 */
/* A journal that stands still: nothing waits for it, nothing is out of order, and what is lost is
 * told. */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/journal/journal_socket.h"
#include "tests/unit/agent/tempdir.h"
#include "tests/unit/agent/test.h"

#define FLOOD 100000u

static char dir[TEMPDIR_MAX];
static char path[TEMPDIR_MAX + 16];

static int set_up(void **state)
{
	(void)state;
	tempdir_make(dir);
	(void)snprintf(path, sizeof(path), "%s/socket", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tempdir_remove(dir);
	return 0;
}

static bool put(struct mpib_journal_socket *sink, unsigned int number)
{
	char message[128];
	char field[160];
	struct iovec fields[2] = {
		{ .iov_base = field },
		{ .iov_base = (char *)(uintptr_t) "PRIORITY=6", .iov_len = 10 },
	};

	(void)snprintf(message, sizeof(message), "number %u", number);
	fields[0].iov_len = (size_t)snprintf(field, sizeof(field), "MESSAGE=%s", message);
	return mpib_journal_socket_put(sink, fields, 2, message);
}

/* Puts until one is lost. How many were taken. */
static unsigned int flood(struct mpib_journal_socket *sink)
{
	unsigned int n = 0;

	while (n < FLOOD && put(sink, n))
		n++;
	assert_true(n > 1000); /* a burst of the journal's own bound has room */
	assert_true(n < FLOOD);
	return n;
}

static int listen_at_path(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Reads what is there; the number after the last, which are in order from @next on. */
static unsigned int read_datagrams(int fd, unsigned int next)
{
	char wanted[256];
	char data[4097];
	ssize_t n;

	while ((n = recv(fd, data, sizeof(data) - 1, 0)) > 0) {
		data[n] = '\0';
		(void)snprintf(wanted, sizeof(wanted),
			       "SYSLOG_IDENTIFIER=mpib-agentd\nMESSAGE=number %u\nPRIORITY=6\n",
			       next++);
		assert_string_equal(data, wanted);
	}
	return next;
}

static void a_journal_that_stands_still_gets_all_in_order_later(void **state)
{
	struct mpib_journal_socket *sink;
	unsigned int next = 0;
	unsigned int taken;
	int fd = listen_at_path();

	(void)state;
	assert_int_equal(mpib_journal_socket_new(path, -1, &sink), 0);
	taken = flood(sink);
	for (unsigned int n = 0; n < FLOOD && next < taken; n++) {
		next = read_datagrams(fd, next);
		mpib_journal_socket_flush(sink);
	}
	assert_int_equal(next, taken);
	/* and there is room again, at once */
	assert_true(put(sink, taken));
	mpib_journal_socket_flush(sink);
	assert_int_equal(read_datagrams(fd, next), taken + 1);
	assert_null(mpib_journal_socket_free(sink));
	assert_int_equal(close(fd), 0);
}

static void a_journal_that_is_not_there_yet_gets_it_when_it_is(void **state)
{
	struct mpib_journal_socket *sink;
	int fd;

	(void)state;
	assert_int_equal(mpib_journal_socket_new(path, -1, &sink), 0);
	for (unsigned int n = 0; n < 5; n++)
		assert_true(put(sink, n));
	fd = listen_at_path();
	assert_null(mpib_journal_socket_free(sink)); /* the last try */
	assert_int_equal(read_datagrams(fd, 0), 5);
	assert_int_equal(close(fd), 0);
}

static void a_pipe_that_nobody_reads_stops_nothing(void **state)
{
	struct mpib_journal_socket *sink;
	unsigned int next = 0;
	unsigned int taken;
	char line[256];
	char wanted[64];
	int ends[2];
	FILE *in;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(mpib_journal_socket_new(NULL, ends[1], &sink), 0);
	taken = flood(sink);
	in = fdopen(ends[0], "r");
	assert_non_null(in);
	while (next < taken) {
		mpib_journal_socket_flush(sink);
		assert_non_null(fgets(line, sizeof(line), in));
		(void)snprintf(wanted, sizeof(wanted), "mpib-agentd: number %u\n", next++);
		assert_string_equal(line, wanted);
	}
	assert_null(mpib_journal_socket_free(sink));
	(void)close(ends[1]);
	(void)fclose(in);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_journal_that_stands_still_gets_all_in_order_later),
		T(a_journal_that_is_not_there_yet_gets_it_when_it_is),
		T(a_pipe_that_nobody_reads_stops_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
