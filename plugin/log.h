/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the user through NCCL's logger. The first function that knows the cause writes one
 * line; nobody above repeats it. Never on the data path of a healthy connection. */
#ifndef MPIB_PLUGIN_LOG_H
#define MPIB_PLUGIN_LOG_H

#include "plugin/nccl_abi.h"

/* NCCL's logger, or NULL to be silent; any thread may log while it is replaced. */
void mpib_log_set(ncclDebugLogger_t logger);
ncclDebugLogger_t mpib_log_get(void);

/* The format is a string literal: it is joined to the prefix. */
#define MPIB_LOG(level, flags, ...)                                                                \
	do {                                                                                       \
		ncclDebugLogger_t log_ = mpib_log_get();                                           \
		if (log_)                                                                          \
			log_(level, flags, __FILE__, __LINE__, "NET/MPIB : " __VA_ARGS__);         \
	} while (0)

/* A problem; always shown, and kept by NCCL as the last error. */
#define MPIB_WARN(...) MPIB_LOG(NCCL_LOG_WARN, NCCL_ALL, __VA_ARGS__)
/* What every NCCL_DEBUG=INFO user should see. */
#define MPIB_INFO(...) MPIB_LOG(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __VA_ARGS__)
/* Detail, shown with NCCL_DEBUG_SUBSYS=NET. */
#define MPIB_DETAIL(...) MPIB_LOG(NCCL_LOG_INFO, NCCL_NET, __VA_ARGS__)

#endif
