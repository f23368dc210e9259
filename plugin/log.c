/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/log.h"

#include <stdatomic.h>

static _Atomic(ncclDebugLogger_t) current_logger;

void mpib_log_set(ncclDebugLogger_t logger)
{
	atomic_store_explicit(&current_logger, logger, memory_order_release);
}

ncclDebugLogger_t mpib_log_get(void)
{
	return atomic_load_explicit(&current_logger, memory_order_acquire);
}
