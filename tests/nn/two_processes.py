"""Run by test_sharded.py: two processes shard a model and train it; prints what differs from one process."""

import copy
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tokenspace.errors import TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)

V, D, T = 5000, 64, 30


class Model(torch.nn.Module):
    """A transformer's ends: the input, and a head that is tied to it."""

    def __init__(self):
        super().__init__()
        self.input = TransformerInput(
            TokenEmbedding(V, D, padding_idx=0, scale="sqrt"),
            position=LearnedPositionalEmbedding(T, D),
            segment=SegmentEmbedding(2, D),
            layer_norm=torch.nn.LayerNorm(D),
        )
        self.head = LMHead(self.input.token, bias=True)

    def forward(self, ids):
        return self.head.loss(self.input(ids), ids)


class Lookup(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.token = kind(V, D)

    def forward(self, ids):
        return self.token(ids).square().mean()


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def batch(step, rank):
    return torch.randint(V, (4, T), generator=torch.Generator().manual_seed(10 * step + rank))


def trained(model, of_rank, rate=1e-2):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(3):
        optimizer.zero_grad()
        of_rank(model, step).backward()
        optimizer.step()
    return {name: full(value.detach()) for name, value in model.named_parameters()}


def difference(found, expected):
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


def fully_sharded(rank, make, policy=None):
    torch.manual_seed(0)
    model, whole = make(), None
    whole = copy.deepcopy(model)
    options = {} if policy is None else {"mp_policy": policy}
    if isinstance(model, Lookup):
        fully_shard(model.token, **options)
    fully_shard(model, **options)
    found = trained(model, lambda model, step: model(batch(step, rank)))
    expected = trained(whole, lambda model, step: sum(model(batch(step, each)) for each in range(2)) / 2)
    return difference(found, expected)


def parallel(mesh, style, sparse=False):
    """A table by rows or by columns, against torch's own module."""
    ids = batch(0, 0)
    ours = TokenEmbedding(V, D, padding_idx=3, scale=2.0)
    theirs = torch.nn.Embedding.from_pretrained(ours.weight.detach().clone(), freeze=False, padding_idx=3)
    parallelize_module(ours, mesh, style)
    found, expected = full(ours(ids)), 2.0 * theirs(ids)
    found.square().sum().backward()
    expected.square().sum().backward()
    try:
        ours(ids + V)
    except TokenIdError:
        return max(
            difference({"": full(ours.weight.grad)}, {"": theirs.weight.grad}),
            (found - expected).abs().max().item(),
        )
    return float("inf")


def distributed_ids(mesh, placement):
    """Ids and labels that are DTensors themselves, through the whole layer and the loss."""
    torch.manual_seed(0)
    model, ids = Model(), batch(0, 0)
    model.input.projection = None
    expected = model(ids)
    expected.backward()
    gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    distribute_module(model, mesh)
    found = model(distribute_tensor(ids, mesh, [placement]))
    found.backward()
    own = {name: full(value.grad) for name, value in model.named_parameters()}
    return max(abs(full(found).item() - expected.item()), difference(own, gradients))


def sinusoidal(mesh):
    layer, ids = TransformerInput(TokenEmbedding(V, D), position=SinusoidalPositionalEncoding(D)), batch(0, 0)
    expected = layer(ids)
    distribute_module(layer, mesh)
    return (full(layer(distribute_tensor(ids, mesh, [Shard(0)]))) - expected).abs().max().item()


def compare(rank, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    there, back = {"input_layouts": Replicate()}, {"output_layouts": Replicate()}
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    cases = {
        "FSDP2, lookup": lambda: fully_sharded(rank, lambda: Lookup(TokenEmbedding)),
        "FSDP2, model": lambda: fully_sharded(rank, Model),
        "FSDP2, model in bfloat16": lambda: fully_sharded(rank, Model, half) / 100,  # that is how exact it is
        "rows": lambda: parallel(mesh, RowwiseParallel(**there, **back)),
        "rows, DTensor out": lambda: parallel(mesh, RowwiseParallel(**there, use_local_output=False)),
        "columns": lambda: parallel(mesh, ColwiseParallel(**back)),
        "replicated ids": lambda: distributed_ids(mesh, Replicate()),
        "sharded ids": lambda: distributed_ids(mesh, Shard(0)),
        "sinusoidal": lambda: sinusoidal(mesh),
    }
    for name, case in cases.items():
        found = case()
        if rank == 0:
            sys.stdout.write(f"{name}: {found:.1e}\n")
            sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads outlive the group: that they end with Python is not certain


if __name__ == "__main__":
    mp.spawn(compare, (sys.argv[1],), nprocs=2)
