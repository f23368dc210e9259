/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the user through NCCL's logger. The first function that knows the cause writes one
 * line; nobody above repeats it. Never on the data path of a healthy connection. */
#ifndef MPIB_PLUGIN_LOG_H
#define MPIB_PLUGIN_LOG_H

#include "plugin/base/nccl_abi.h"

/* NCCL's logger, or NULL to be silent; any thread may log while it is replaced. */
void mpib_log_set(ncclDebugLogger_t logger);
ncclDebugLogger_t mpib_log_get(void);

/* Warns, and keeps the line where it is this thread's first since mpib_log_forget. */
void mpib_log_warn(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A call begins in this thread: what was warned of before is of no interest to it. */
void mpib_log_forget(void);
/* Why the call fails, for the peer: the first line that it wrote. Where it wrote none, "@subject:"
 * and the text of @error are written now, so that no failure is silent. Without the prefix; this
 * thread's, until its next call. */
const char *mpib_log_explain(const char *subject, int error);

/* The format is a string literal: it is joined to the prefix. */
#define MPIB_LOG_PREFIX "NET/MPIB : "
#define MPIB_LOG(level, flags, ...)                                                                \
	do {                                                                                       \
		ncclDebugLogger_t log_ = mpib_log_get();                                           \
		if (log_)                                                                          \
			log_(level, flags, __FILE__, __LINE__, MPIB_LOG_PREFIX __VA_ARGS__);       \
	} while (0)

/* A problem; always shown, and kept by NCCL as the last error. */
#define MPIB_WARN(...) mpib_log_warn(__FILE__, __LINE__, MPIB_LOG_PREFIX __VA_ARGS__)
/* What every NCCL_DEBUG=INFO user should see. */
#define MPIB_INFO(...) MPIB_LOG(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __VA_ARGS__)
/* Detail, shown with NCCL_DEBUG_SUBSYS=NET. */
#define MPIB_DETAIL(...) MPIB_LOG(NCCL_LOG_INFO, NCCL_NET, __VA_ARGS__)

#endif
