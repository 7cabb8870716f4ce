"""Run by test_distributed.py: two processes train one table, each on its own ids; prints the differences."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdamW


def train(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for sparse in (True, False):
        torch.save(trained(rank, sparse), f"{folder}/{sparse}-{rank}")
    dist.destroy_process_group()
    os._exit(0)  # DistributedDataParallel keeps gloo's threads: that they end with Python is not certain


def trained(rank, sparse):
    torch.manual_seed(0)
    table = TokenEmbedding(30, 4, sparse=sparse)
    module = torch.nn.parallel.DistributedDataParallel(table)
    settings = {"lr": 0.1, "weight_decay": 0.1}
    make = SparseAdamW if sparse else torch.optim.AdamW
    optimizer = make(table.parameters(), **settings, **({"exact": True} if sparse else {}))
    for step in range(8):
        ids = torch.randint(30, (5,), generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        (module(ids) - 1.0).square().mean().backward()
        optimizer.step()
    return table.state_dict()


if __name__ == "__main__":
    folder = sys.argv[1]
    mp.spawn(train, (folder,), nprocs=2)
    first, second, dense = (
        torch.load(f"{folder}/{name}")["weight"] for name in ("True-0", "True-1", "False-0")
    )
    sys.stdout.write(f"{(first - second).abs().max():.1e} {(first - dense).abs().max():.1e}\n")
