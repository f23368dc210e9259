/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/result.h"

#define LINE_MAX_BYTES 1024

static _Atomic(ncclDebugLogger_t) current_logger;
static _Thread_local char first_warning[LINE_MAX_BYTES];

void mpib_log_set(ncclDebugLogger_t logger)
{
	atomic_store_explicit(&current_logger, logger, memory_order_release);
}

ncclDebugLogger_t mpib_log_get(void)
{
	return atomic_load_explicit(&current_logger, memory_order_acquire);
}

void mpib_log_warn(const char *file, int line, const char *format, ...)
{
	ncclDebugLogger_t logger = mpib_log_get();
	char text[LINE_MAX_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!first_warning[0])
		memcpy(first_warning, text, sizeof(text));
	if (logger)
		logger(NCCL_LOG_WARN, NCCL_ALL, file, line, "%s", text);
}

void mpib_log_forget(void)
{
	first_warning[0] = '\0';
}

const char *mpib_log_explain(const char *subject, int error)
{
	if (!first_warning[0])
		MPIB_WARN("%s: %s", subject, strerror(error == -MPIB_EARGUMENT ? EINVAL : -error));
	return first_warning + strlen(MPIB_LOG_PREFIX);
}
