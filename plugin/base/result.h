/* SPDX-License-Identifier: Apache-2.0 */
/* The one translation from this plugin's negative errno to NCCL's result. */
#ifndef MPIB_PLUGIN_RESULT_H
#define MPIB_PLUGIN_RESULT_H

#include <errno.h>

#include "plugin/base/nccl_abi.h"

/* The user's environment is wrong (a setting, a missing device, two ends that differ). */
#define MPIB_EUSAGE EBADR
/* Cannot happen: our own mistake. */
#define MPIB_EINTERNAL ENOTRECOVERABLE

ncclResult_t mpib_result_of(int error);

/* 0 and positive values are success. */
static inline ncclResult_t mpib_result(int r)
{
	return __builtin_expect(r >= 0, 1) ? ncclSuccess : mpib_result_of(r);
}

#endif
