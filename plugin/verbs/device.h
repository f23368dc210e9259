/* SPDX-License-Identifier: Apache-2.0 */
/* Fused devices: made by the process's first init and closed by its last finalize. */
#ifndef MPIB_PLUGIN_DEVICE_H
#define MPIB_PLUGIN_DEVICE_H

#include "plugin/verbs/hca.h"

/* Opens what the environment names. -MPIB_EUSAGE (wrong or missing names: the warning lists what
 * exists) or the cause's errno (permission stays EACCES); one warning; nothing stays open. */
int mpib_devices_open(const struct mpib_env *env);
void mpib_devices_close(void);
int mpib_device_count(void);

/* NULL for an index that doesn't exist. */
struct mpib_device *mpib_device_get(int index);

#endif
