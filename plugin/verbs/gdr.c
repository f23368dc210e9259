/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/gdr.h"

#include <errno.h>
#include <unistd.h>

#include "common/macros.h"
#include "plugin/base/log.h"
#include "plugin/base/nccl_abi.h"

/* Where the peer-memory modules of the NVIDIA driver and of its predecessors show themselves. */
static const char *const peer_memory_files[] = {
	"/sys/module/nvidia_peermem/version",
	"/sys/kernel/mm/memory_peers/nv_mem/version",
	"/sys/kernel/mm/memory_peers/nv_mem_nc/version",
};

static const char *peer_memory_module(void)
{
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(peer_memory_files); k++)
		if (access(peer_memory_files[k], F_OK) == 0)
			return peer_memory_files[k];
	return NULL;
}

/* A driver that knows DMA-BUFs gets as far as looking at the descriptor, which is none. */
static bool takes_dmabuf(const struct mpib_hca *hca)
{
	struct ibv_mr *mr;
	int r = mpib_verbs_reg_dmabuf(hca->pd, 0, 0, 0, -1, 0, &mr);

	if (r == 0) {
		(void)mpib_verbs_dereg_mr(mr);
		return true;
	}
	return r != -EOPNOTSUPP && r != -EPROTONOSUPPORT && r != -ENOSYS;
}

unsigned int mpib_gdr_probe(const struct mpib_device *dev, const struct mpib_env *env)
{
	const char *module = peer_memory_module();
	unsigned int mask = 0;

	if (env->gpudirect == 0) {
		MPIB_INFO("%s: GPU memory off (MPIB_GPUDIRECT=0)", dev->name);
		return 0;
	}
	if (env->gpudirect == 1 || module)
		mask |= NCCL_PTR_CUDA;
	if (takes_dmabuf(&dev->hca[MPIB_SOUT]) && takes_dmabuf(&dev->hca[MPIB_SUP]))
		mask |= NCCL_PTR_DMABUF;

	if (mask)
		MPIB_INFO("%s: GPU memory through %s%s%s", dev->name,
			  mask & NCCL_PTR_DMABUF ? "DMA-BUF" : "",
			  mask == (NCCL_PTR_DMABUF | NCCL_PTR_CUDA) ? ", else " : "",
			  mask & NCCL_PTR_CUDA ? (module ? module : "ibv_reg_mr (MPIB_GPUDIRECT=1)")
					       : "");
	else
		MPIB_INFO("%s: no GPU memory: neither a peer-memory module (nvidia_peermem) nor "
			  "DMA-BUF on both rails; NCCL copies through host memory",
			  dev->name);
	return mask;
}
