/* SPDX-License-Identifier: Apache-2.0 */
/* Whether GPU memory can be registered, found by trying, not by hoping: NCCL has no way back from a
 * registration that fails after it was promised. */
#ifndef MPIB_PLUGIN_GDR_H
#define MPIB_PLUGIN_GDR_H

#include "plugin/verbs/hca.h"

/* Mask of NCCL_PTR_CUDA (a peer-memory module serves ibv_reg_mr) and NCCL_PTR_DMABUF (both HCAs'
 * drivers take DMA-BUFs). Logs one line that says which way is in use, or why none is. */
unsigned int mpib_gdr_probe(const struct mpib_device *dev, const struct mpib_env *env);

#endif
