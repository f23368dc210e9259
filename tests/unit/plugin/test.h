/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin's unit tests share: cmocka, and a logger that keeps the lines. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_TEST_H
#define MPIB_TESTS_UNIT_PLUGIN_TEST_H

#include "tests/unit/common/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/log.h"

#define TEST_LOG_MAX 65536

static struct {
	pthread_mutex_t lock;
	unsigned int warnings;
	size_t len;
	char text[TEST_LOG_MAX];
} test_log_state = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* An NCCL logger: counts warnings and keeps every line while there is room. */
__attribute__((format(printf, 5, 6))) static inline void test_logger(int level, unsigned long flags,
								     const char *file, int line,
								     const char *fmt, ...)
{
	va_list args;
	int n;

	(void)flags;
	(void)file;
	(void)line;
	(void)pthread_mutex_lock(&test_log_state.lock);
	if (level == NCCL_LOG_WARN)
		test_log_state.warnings++;
	va_start(args, fmt);
	n = vsnprintf(test_log_state.text + test_log_state.len, TEST_LOG_MAX - test_log_state.len,
		      fmt, args);
	va_end(args);
	if (n > 0 && test_log_state.len + (size_t)n + 1 < TEST_LOG_MAX) {
		test_log_state.len += (size_t)n;
		test_log_state.text[test_log_state.len++] = '\n';
	}
	test_log_state.text[test_log_state.len] = '\0';
	(void)pthread_mutex_unlock(&test_log_state.lock);
}

/* Starts afresh, with the logger set. */
static inline void test_log_clear(void)
{
	mpib_log_set(test_logger);
	(void)pthread_mutex_lock(&test_log_state.lock);
	test_log_state.warnings = 0;
	test_log_state.len = 0;
	test_log_state.text[0] = '\0';
	(void)pthread_mutex_unlock(&test_log_state.lock);
}

static inline unsigned int test_log_warnings(void)
{
	unsigned int warnings;

	(void)pthread_mutex_lock(&test_log_state.lock);
	warnings = test_log_state.warnings;
	(void)pthread_mutex_unlock(&test_log_state.lock);
	return warnings;
}

static inline int test_log_has(const char *part)
{
	int found;

	(void)pthread_mutex_lock(&test_log_state.lock);
	found = strstr(test_log_state.text, part) != NULL;
	(void)pthread_mutex_unlock(&test_log_state.lock);
	return found;
}

/* Fails with the whole log where @part isn't in it. */
#define assert_logged(part)                                                                        \
	do {                                                                                       \
		if (!test_log_has(part))                                                           \
			fail_msg("'%s' wasn't logged; the log: %s", part, test_log_state.text);    \
	} while (0)

#endif
