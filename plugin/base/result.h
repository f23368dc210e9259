/* SPDX-License-Identifier: Apache-2.0 */
/* The one translation from this plugin's negative errno to NCCL's result. */
#ifndef MPIB_PLUGIN_RESULT_H
#define MPIB_PLUGIN_RESULT_H

#include <errno.h>

#include "plugin/base/nccl_abi.h"

/* What NCCL gave can't be: the caller's mistake. Not EINVAL, which verbs and system calls return
 * for reasons of their own. */
#define MPIB_EARGUMENT EBADRQC
/* The user's environment is wrong (a setting, a missing device, two ends that differ). */
#define MPIB_EUSAGE EBADR
/* Cannot happen: our own mistake. */
#define MPIB_EINTERNAL ENOTRECOVERABLE

ncclResult_t mpib_result_of(int error);

/* For the error of a verb or a system call of this host, once it is told: @error, or -EIO where
 * NCCL would take its number for the caller's mistake or for something about the peer. */
int mpib_error_of_host(int error);

/* 0 and positive values are success. */
static inline ncclResult_t mpib_result(int r)
{
	return __builtin_expect(r >= 0, 1) ? ncclSuccess : mpib_result_of(r);
}

#endif
