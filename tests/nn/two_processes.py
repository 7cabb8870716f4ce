"""Run by test_sharded.py: two processes shard a model and train it; prints what differs from one process."""

import copy
import itertools
import os
import sys
import warnings
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)
from tokenspace.nn.initializers import truncated_normal_
from tokenspace.optim import (
    DenseGradientWarning,
    SparseAdagrad,
    SparseAdamW,
    SparseRowWiseAdagrad,
    SparseSGD,
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


class Tied(torch.nn.Module):
    """A table whose padding row is 5, under a tied head; labels leave padding out."""

    def __init__(self, padding=0, head=None, **options):
        super().__init__()
        self.token = TokenEmbedding(V, D, padding_idx=padding, **options)
        self.head = LMHead(self.token, **(head or {}))
        with torch.no_grad():
            self.token.weight[padding] = 5.0

    def forward(self, ids, **options):
        return self.head.loss(self.token(ids), ids.where(ids != self.token.padding_idx, -100), **options)


def decayed(model, ids):
    """Train with weight decay, which moves every row that nothing holds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        full(model(ids)).square().mean().backward()
        optimizer.step()
    return full((model.token if isinstance(model, Tied) else model).weight.detach())


def padded(padding=0):
    ids = batch(0, 0)
    ids[:, -3:] = padding
    return ids


def frozen(padding, mesh=None, style=None):
    """A frozen row on the first or the last process: what one process makes of all rows, and itself."""
    torch.manual_seed(0)
    model = Tied(padding, freeze_padding=True)
    model = model if style is None else model.token
    whole = copy.deepcopy(model)
    if style is None:
        fully_shard(model)
    else:
        parallelize_module(model, mesh, style)
    found, expected = (decayed(each, padded(padding)) for each in (model, whole))
    return max((found - expected).abs().max().item(), (found[padding] - 5.0).abs().max().item())


def deferred(**options):
    """Made on meta, sharded, drawn: the padding row is zero, the others have their spread, and train."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Lookup(lambda rows, width: TokenEmbedding(rows, width, padding_idx=0, **options))
    fully_shard(model)
    model.to_empty(device="cpu")
    model.token.reset_parameters()
    weight = full(model.token.weight.detach())
    if options.get("sparse"):  # torch reduces no sparse gradients
        model.token.sparse = False
    model.to(torch.float64)
    model(padded()).backward()
    gradient = full(model.token.weight.grad)
    good = bool(gradient.any()) and not gradient[0].any() and abs(weight.std() * D**0.5 - 1.0) < 0.2
    return weight[0].abs().max().item() if good else float("inf")


def losses(mesh, table, placement, head=None, **options):
    """The loss and its gradient where the table, ids and labels are DTensors."""
    frozen = options.pop("freeze_padding", False)
    torch.manual_seed(0)
    model = Tied(freeze_padding=frozen, head=head)
    whole, ids = copy.deepcopy(model), padded()
    weight = torch.nn.Parameter(distribute_tensor(model.token.weight.detach(), mesh, [table]))
    model.token.weight = weight
    found, expected = model(distribute_tensor(ids, mesh, [placement]), **options), whole(ids, **options)
    found.backward()
    expected.backward()
    return max(
        abs(full(found).item() - expected.item()) / 10,
        (full(weight.grad) - whole.token.weight.grad).abs().max().item(),
    )


def row_optimizers(style=None, mesh=None):
    """The optimizers of tokenspace.optim on a sharded table, their state saved and loaded in between."""
    worst = 0.0
    for kind in (SparseSGD, SparseAdagrad, SparseRowWiseAdagrad, SparseAdamW):
        torch.manual_seed(0)
        model = Lookup(TokenEmbedding)
        whole, results = copy.deepcopy(model), []
        if style is None:
            fully_shard(model)
        else:
            parallelize_module(model.token, mesh, style)
        for each in (model, whole):
            optimizer = kind(each.parameters(), lr=1e-2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DenseGradientWarning)
                for _ in range(2):
                    optimizer.zero_grad()
                    full(each(batch(0, 0))).backward()
                    optimizer.step()
                    optimizer.load_state_dict(optimizer.state_dict())
            results.append(full(each.token.weight.detach()))
        worst = max(worst, (results[0] - results[1]).abs().max().item())
    return worst


def edits():
    """Rows shortened, zeroed on loading, added: what one process does, or an error that says what to do."""
    torch.manual_seed(0)
    model = Tied(padding_on_load="zero")
    whole = copy.deepcopy(model)
    fully_shard(model)
    for each in (model, whole):
        each.token.project_(0.9, torch.tensor([[1, 2], [2, V - 1]]))
    found, expected = full(model.token.weight.detach()).clone(), whole.token.weight.detach()
    worst = (found - expected).abs().max().item()
    model.load_state_dict(model.state_dict())
    worst = max(worst, full(model.token.weight.detach())[0].abs().max().item())
    try:
        model.token.add_rows(2)
    except ShapeError as error:
        return worst if "before fully_shard" in str(error) else float("inf")
    return float("inf")


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
        "frozen row, FSDP2": lambda: frozen(0),
        "last row frozen, FSDP2": lambda: frozen(V - 1),
        "frozen row, rows": lambda: frozen(V - 1, mesh, RowwiseParallel(**there, **back)),
        "frozen row, columns": lambda: frozen(0, mesh, ColwiseParallel(**back)),
        "deferred": lambda: deferred(),
        "deferred, truncated": lambda: deferred(initializer=partial(truncated_normal_, std=D**-0.5)),
        "deferred, sparse": lambda: deferred(sparse=True),
        "deferred, frozen": lambda: deferred(freeze_padding=True),
        "row optimizers, FSDP2": lambda: row_optimizers(),
        "row optimizers, rows": lambda: row_optimizers(RowwiseParallel(**there, **back), mesh),
        "row optimizers, columns": lambda: row_optimizers(ColwiseParallel(**back), mesh),
        "edits": lambda: edits(),
    }
    bent = {"head": {"soft_cap": 5.0}, "label_smoothing": 0.1}
    for table, placement in itertools.product(
        (Replicate(), Shard(0), Shard(1)), (Replicate(), Shard(0), Shard(1))
    ):
        for options in (
            {},
            {"chunked": False},
            bent,
            {"freeze_padding": True},
            {"freeze_padding": True, **bent},
        ):
            name = f"loss, table {table}, ids {placement}, {', '.join(options)}"
            cases[name] = partial(losses, mesh, table, placement, **options)
    for name, case in cases.items():
        found = case()
        if rank == 0:
            sys.stdout.write(f"{name}: {found:.1e}\n")
            sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads outlive the group: that they end with Python is not certain


if __name__ == "__main__":
    mp.spawn(compare, (sys.argv[1],), nprocs=2)
