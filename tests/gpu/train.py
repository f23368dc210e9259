# SPDX-License-Identifier: Apache-2.0
"""A small model, trained with DistributedDataParallel: torchrun … train.py STEPS.

Rank 0 prints each step's loss to the last bit, and a hash of the weights at the end."""
import hashlib
import os
import sys

import torch
import torch.distributed as dist


def main():
    rank, world, steps = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
    gpu = rank % torch.cuda.device_count()  # ranks may outnumber GPUs
    torch.cuda.set_device(gpu)
    device = torch.device("cuda", gpu)
    dist.init_process_group("nccl", device_id=device)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(),
        torch.nn.Linear(4096, 4096), torch.nn.GELU(),
        torch.nn.Linear(4096, 64),
    ).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank)
    for step in range(1, steps + 1):
        x = torch.randn(64, 1024, generator=data).to(device)
        y = torch.randint(0, 64, (64,), generator=data).to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print("step", step, (total.item() / world).hex(), flush=True)
    if rank == 0:
        weights = hashlib.sha256()
        for parameter in model.parameters():
            weights.update(parameter.detach().cpu().numpy().tobytes())
        print("weights", weights.hexdigest(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
