/* SPDX-License-Identifier: Apache-2.0 */
/* Of some objects a device has so many, for all processes of the host: what MPIB can't do without,
 * and what to say when one can't be made. */
#ifndef MPIB_PLUGIN_LIMIT_H
#define MPIB_PLUGIN_LIMIT_H

#include "plugin/verbs/hca.h"

enum mpib_object { MPIB_OBJECT_QP, MPIB_OBJECT_CQ, MPIB_OBJECT_SRQ, MPIB_OBJECT_MR };

#define MPIB_ADVICE_MAX 384

/* Where a verb that makes one of @what fails with @r: what may have run out (the process's locked
 * memory, the device's objects), how much of it there is, and what to do. "" where that can't be
 * the cause. Returns @buf. */
const char *mpib_limit_advice(const struct mpib_hca *hca, enum mpib_object what, int r,
			      char buf[MPIB_ADVICE_MAX]);

/* Whether the device has what a connection needs: 0, or -MPIB_EUSAGE with one warning. */
int mpib_limit_check(const struct mpib_hca *hca, const struct mpib_env *env);

#endif
