"""Every optimizer against its torch equivalent, a sparse one where there is one; and what a step touches."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdagrad, SparseAdamW, SparseRowWiseAdagrad, SparseSGD
from tokenspace.optim.touched import Touched

STATM = Path("/proc/self/statm")
# torch's own sparse optimizers make their tensors without saying whether to check them
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")


class RowWiseAdagrad(torch.optim.Optimizer):
    """FBGEMM's EXACT_ROWWISE_ADAGRAD as its documentation defines it, for tables."""

    def __init__(self, params, lr, eps, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                sums = self.state[weight].setdefault("sum", torch.zeros(len(weight), dtype=weight.dtype))
                g = weight.grad.to_dense() + group["weight_decay"] * weight
                sums += g.square().mean(1)
                weight -= group["lr"] * g / (sums.sqrt() + group["eps"])[:, None]


class Pair:
    """One optimizer of ours and its equivalent, each with a table and whatever else is given."""

    def __init__(self, ours, torchs, *tensors):
        self.mine = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        self.theirs = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        self.ours, self.torchs = ours(self.mine), torchs(self.theirs)

    def step(self, *gradients, dense_for_torch=False):
        for mine, theirs, gradient in zip(self.mine, self.theirs, gradients, strict=True):
            mine.grad = gradient
            theirs.grad = gradient.to_dense() if dense_for_torch and gradient.is_sparse else gradient.clone()
        self.ours.step()
        self.torchs.step()

    def assert_equal(self, tolerance=1e-6):
        for mine, theirs in zip(self.mine, self.theirs, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def sparse(ids, values, rows, *, coalesced=False):
    return torch.sparse_coo_tensor(
        torch.as_tensor(ids, dtype=torch.int64)[None],
        values,
        (rows, *values.shape[1:]),
        is_coalesced=coalesced,
        check_invariants=True,
    )


OPTIMIZERS = {
    "SGD": (lambda p: SparseSGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "Adagrad": (
        lambda p: SparseAdagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1, eps=1e-4),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1, eps=1e-4),
    ),
    "row-wise Adagrad": (
        lambda p: SparseRowWiseAdagrad(p, lr=0.1, eps=1e-4),
        lambda p: RowWiseAdagrad(p, lr=0.1, eps=1e-4),
    ),
    "AdamW, lazy": (
        lambda p: SparseAdamW(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.0),
        lambda p: torch.optim.SparseAdam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3),
    ),
}
DENSE = {
    "SGD": (
        lambda p: SparseSGD(p, 0.1, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1),
    ),
    "Adagrad": (
        lambda p: SparseAdagrad(p, 0.1, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1),
    ),
    "AdamW": (
        lambda p: SparseAdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.2),
        lambda p: torch.optim.AdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.2),
    ),
    "AdamW, exact": (
        lambda p: SparseAdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.2, exact=True),
        lambda p: torch.optim.AdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.2),
    ),
}
IDS = st.one_of(
    st.lists(st.integers(0, 6), max_size=20),
    st.integers(0, 6).flatmap(lambda one: st.lists(st.just(one), min_size=1, max_size=40)),
)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(list(OPTIMIZERS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shape=st.sampled_from([(7, 1), (7, 5), (7, 64)]),
    steps=st.lists(IDS, min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_row_sparse_gradients(name, dtype, shape, steps, seed):
    torch.manual_seed(seed)
    pair = Pair(*OPTIMIZERS[name], torch.randn(shape, dtype=dtype))
    for ids in steps:
        pair.step(sparse(ids, torch.randn(len(ids), shape[1], dtype=dtype), shape[0]))
        pair.assert_equal(5e-6 if dtype == torch.float32 else 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(DENSE)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shape=st.sampled_from([(), (1,), (9,), (3, 4), (2, 3, 4), (0, 3)]),
    seed=st.integers(0, 2**31),
)
@pytest.mark.filterwarnings("ignore::tokenspace.optim.DenseGradientWarning")
def test_dense_gradients_of_any_shape(name, dtype, shape, seed):
    torch.manual_seed(seed)
    pair = Pair(*DENSE[name], torch.randn(shape, dtype=dtype))
    for _ in range(3):
        pair.step(torch.randn(shape, dtype=dtype))
    pair.assert_equal(1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("name", ["SGD", "AdamW, exact"])
def test_a_table_beside_dense_parameters(name):
    torch.manual_seed(0)
    pair = Pair(*DENSE[name], torch.randn(6, 4), torch.randn(4), torch.randn(4, 4))
    for ids in ([0, 3], [3], [1, 0]):
        if name == "AdamW, exact":
            pair.ours.flush()
        gradient = sparse(sorted(ids), torch.randn(len(ids), 4), 6, coalesced=True)
        if name == "SGD":  # torch decays all rows at each step; lazily, those of the gradient are
            pair.torchs.param_groups[0]["weight_decay"] = pair.ours.param_groups[0]["weight_decay"] = 0.0
        pair.step(gradient, torch.randn(4), torch.randn(4, 4), dense_for_torch=True)
    if name == "AdamW, exact":
        pair.ours.flush()
    pair.assert_equal()


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (lambda p: SparseSGD(p, 0.1, weight_decay=0.3), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.3)),
        (
            lambda p: SparseAdagrad(p, 0.1, weight_decay=0.3),
            lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.3),
        ),
        (
            lambda p: SparseRowWiseAdagrad(p, 0.1, weight_decay=0.3),
            lambda p: RowWiseAdagrad(p, 0.1, 1e-8, weight_decay=0.3),
        ),
        (
            lambda p: SparseAdamW(p, 0.1, weight_decay=0.3),
            lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.3),
        ),
    ],
    ids=["SGD", "Adagrad", "row-wise Adagrad", "AdamW"],
)
def test_weight_decay_reaches_the_rows_that_are_touched_and_no_others(ours, torchs):
    torch.manual_seed(0)
    pair = Pair(ours, torchs, torch.randn(5, 3))
    before = pair.mine[0].detach().clone()
    rows = torch.tensor([1, 4])
    for _ in range(3):
        pair.step(sparse(rows, torch.randn(2, 3), 5), dense_for_torch=True)
    torch.testing.assert_close(pair.mine[0][rows], pair.theirs[0][rows])
    assert torch.equal(pair.mine[0][[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_short_tables_keep_a_float32_state_and_round_the_weight_once(name, dtype):
    torch.manual_seed(0)
    weight = torch.randn(6, 8).to(dtype)
    short, wide = torch.nn.Parameter(weight.clone()), torch.nn.Parameter(weight.float())
    optimizers = [OPTIMIZERS[name][0]([parameter]) for parameter in (short, wide)]
    values = torch.randn(3, 8).to(dtype)
    short.grad, wide.grad = (sparse([0, 2, 5], v, 6) for v in (values, values.float()))
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(short, wide.to(dtype))
    states = [optimizer.state[p] for optimizer, p in zip(optimizers, (short, wide), strict=True)]
    for key, value in states[0].items():
        assert value.dtype == torch.float32
        assert torch.equal(value, states[1][key])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_repeated_short_gradients_are_summed_before_they_are_rounded(dtype):
    weight = torch.nn.Parameter(torch.zeros(3, 2, dtype=dtype))
    weight.grad = sparse([1] * 1000, torch.ones(1000, 2, dtype=dtype), 3)  # torch's own sum of them is 256
    SparseSGD([weight], lr=0.5).step()
    assert torch.equal(weight.detach(), torch.tensor([[0.0] * 2, [-500.0] * 2, [0.0] * 2], dtype=dtype))


@pytest.mark.parametrize("kind", [*OPTIMIZERS, "AdamW, dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.filterwarnings("ignore::tokenspace.optim.DenseGradientWarning")
def test_torchs_operations_do_what_the_kernels_do(kind, dtype, monkeypatch):
    """What other devices take, run here."""
    torch.manual_seed(0)
    make = DENSE["AdamW"][0] if kind == "AdamW, dense" else OPTIMIZERS[kind][0]
    weight, gradients = torch.randn(6, 8).to(dtype), torch.randn(3, 5, 8).to(dtype)
    results = []
    for kernels in (True, False):
        monkeypatch.setattr(Touched, "fits_kernels", lambda _, kernels=kernels: kernels)
        parameter = torch.nn.Parameter(weight.clone())
        optimizer = make([parameter])
        for gradient in gradients:
            if kind == "AdamW, dense":
                parameter.grad = torch.cat([gradient, gradient[:1]])
            else:
                parameter.grad = sparse([4, 0, 1, 0, 5], gradient, 6)
            optimizer.step()
        results.append([parameter.detach(), *optimizer.state[parameter].values()])
    step = torch.finfo(dtype).eps
    for ours, torchs in zip(*results, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=4 * step, atol=4 * step)


def test_a_weight_that_is_not_contiguous_is_updated_all_the_same():
    torch.manual_seed(0)
    pair = Pair(*OPTIMIZERS["SGD"], torch.randn(5, 4))
    pair.mine[0].data = pair.mine[0].data.T.contiguous().T
    assert not pair.mine[0].is_contiguous()
    pair.step(sparse([1, 2], torch.randn(2, 4), 5))
    pair.assert_equal()


def test_a_vector_has_rows_of_one_number():
    torch.manual_seed(0)
    for name in ("SGD", "Adagrad", "AdamW, lazy"):
        pair = Pair(*OPTIMIZERS[name], torch.randn(5))
        pair.step(sparse([3, 0, 3], torch.randn(3), 5))
        pair.assert_equal()
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, -2.0, 4.0])
    SparseRowWiseAdagrad([weight], lr=0.5, eps=0.0).step()
    assert weight.tolist() == [-0.5, 0.5, -0.5]


def test_rows_may_have_several_axes():
    torch.manual_seed(0)
    pair = Pair(*OPTIMIZERS["AdamW, lazy"], torch.randn(5, 2, 3))
    pair.step(sparse([3, 0, 3], torch.randn(3, 2, 3), 5))
    pair.assert_equal()


def test_the_bits_are_the_same_at_any_number_of_threads():
    results, threads = [], torch.get_num_threads()
    for n in (1, 2):
        torch.manual_seed(0)
        torch.set_num_threads(n)
        weight = torch.nn.Parameter(torch.randn(2000, 100))
        optimizer = SparseAdamW([weight])
        for _ in range(2):
            weight.grad = sparse(torch.randint(2000, (6000,)), torch.randn(6000, 100), 2000)
            optimizer.step()
        results.append(weight.detach())
    torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_gradients_are_left_as_they_were():
    weight = torch.nn.Parameter(torch.ones(4, 3))
    for gradient in (
        sparse([2, 2, 1], torch.ones(3, 3), 4),
        sparse([1, 2], torch.ones(2, 3), 4, coalesced=True),
    ):
        weight.grad, before = gradient, gradient.clone()
        SparseAdamW([weight]).step()
        assert weight.grad is gradient
        assert torch.equal(gradient._values(), before._values())


def test_autograd_sees_the_change():
    weight = torch.nn.Parameter(torch.ones(4, 3))
    squared = (weight**2).sum()
    weight.grad = sparse([1], torch.ones(1, 3), 4)
    SparseSGD([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.backward()


@pytest.mark.skipif(not STATM.exists(), reason="tells how much memory is in use")
@pytest.mark.parametrize("exact", [False, True])
def test_a_step_touches_nothing_as_large_as_the_table(exact):
    """A table of 512 MB, moments of 1 GB: the system hands out a page when it is touched; these are few."""
    rows = 2**23
    table = TokenEmbedding.from_pretrained(
        torch.from_numpy(np.zeros((rows, 16), np.float32)), False, sparse=True
    )
    optimizer = SparseAdamW(table.parameters(), lr=0.1, exact=exact)
    before = resident_bytes()
    for ids in ([5, rows - 1], [5], [5, rows - 1, 77]):
        optimizer.zero_grad()
        table(torch.tensor(ids)).sum().backward()
        optimizer.step()
    assert (table.weight[[5, rows - 1, 77]] < 0).all()
    assert resident_bytes() - before < 25e6  # less than one number for each row takes


def resident_bytes():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "make", [SparseAdamW, lambda weights: SparseAdamW(weights, exact=True), SparseAdagrad]
)
def test_steps_are_counted_exactly_whatever_the_default_type(make):
    weight = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = make([weight])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # in which 256 + 1 is 256
    try:
        for _ in range(258):
            weight.grad = torch.sparse_coo_tensor(
                [[1]], torch.ones(1, 2).float(), (3, 2), check_invariants=True
            )
            optimizer.step()
        again = make([weight])
        again.load_state_dict(optimizer.state_dict())
    finally:
        torch.set_default_dtype(before)
    assert optimizer.state[weight]["step"] == again.state[weight]["step"] == 258
