"""Row updates against torch's dense optimizers in float64, for every type of table; other rows stay."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.kernels import update
from tokenspace.kernels.half import computed_in

DTYPES = [np.float32, np.float64, ml_dtypes.bfloat16, np.float16]
BETAS, EPS = (0.8, 0.95), 1e-3


def sgd(table, rate, weight_decay, t, threads):
    update.sgd(table.weight, table.rows, table.d, rate=rate, weight_decay=weight_decay, threads=threads)


def adagrad(table, rate, weight_decay, t, threads):
    sums = table.state("sums")
    update.adagrad(
        table.weight,
        sums,
        table.rows,
        table.d,
        rate=rate,
        eps=EPS,
        weight_decay=weight_decay,
        threads=threads,
    )


def row_wise_adagrad(table, rate, weight_decay, t, threads):
    sums = table.state("row sums")
    update.row_wise_adagrad(
        table.weight,
        sums,
        table.rows,
        table.d,
        rate=rate,
        eps=EPS,
        weight_decay=weight_decay,
        threads=threads,
    )


def adam(table, rate, weight_decay, t, threads):
    first, second = 1 - BETAS[0] ** t, 1 - BETAS[1] ** t
    step = update.AdamStep(
        1 - rate * weight_decay, 1 - BETAS[0], 1 - BETAS[1], rate / first, second**-0.5, EPS
    )
    moments = table.state("exp_avg"), table.state("exp_avg_sq")
    update.adam(table.weight, *moments, table.rows, table.d, step, threads=threads)


class RowWiseAdagrad(torch.optim.Adagrad):
    """Its definition: Adagrad whose sums all get the mean of the row."""

    def step(self):
        (weight,) = self.param_groups[0]["params"]
        group, state = self.param_groups[0], self.state[weight]
        with torch.no_grad():
            g = weight.grad + group["weight_decay"] * weight
            state["sum"] += (g**2).mean(1, keepdim=True)
            weight -= group["lr"] * g / (state["sum"].sqrt() + group["eps"])


UPDATES = {
    "sgd": (sgd, torch.optim.SGD, {}),
    "adagrad": (adagrad, torch.optim.Adagrad, {"eps": EPS}),
    "row-wise adagrad": (row_wise_adagrad, RowWiseAdagrad, {"eps": EPS}),
    "adam": (adam, torch.optim.AdamW, {"eps": EPS, "betas": BETAS}),
}


class Table:
    def __init__(self, weight, rows):
        self.weight, self.rows, self.kept = weight.copy(), rows, {}

    def state(self, name):
        shape = self.weight.shape[:1] if name == "row sums" else self.weight.shape
        return self.kept.setdefault(name, np.zeros(shape, computed_in(self.weight)))


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(UPDATES)),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 7, 8, 33, 100])),
    weight_decay=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_some_steps_are_torchs(name, dtype, shape, weight_decay, seed):
    rng = np.random.default_rng(seed)
    kernel, optimizer, options = UPDATES[name]
    weight = rng.standard_normal(shape).astype(dtype)
    rows = rng.permutation(shape[0])[: rng.integers(shape[0] + 1)]
    table = Table(weight, rows)
    truth = torch.nn.Parameter(torch.tensor(weight[rows].astype(np.float64)))
    torchs = optimizer([truth], lr=0.05, weight_decay=weight_decay, **options)
    for t in (1, 2, 3):
        table.d = rng.standard_normal((len(rows), shape[1])).astype(dtype)
        truth.grad = torch.tensor(table.d.astype(np.float64))
        kernel(table, 0.05, weight_decay, t, threads=1)
        torchs.step()
    found, untouched = table.weight.astype(np.float64), np.setdiff1d(np.arange(shape[0]), rows)
    step = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 3e-2, "float16": 4e-3}[np.dtype(dtype).name]
    np.testing.assert_allclose(found[rows], truth.detach().numpy(), rtol=step, atol=step)
    np.testing.assert_array_equal(found[untouched], weight[untouched].astype(np.float64))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", UPDATES)
def test_a_short_weight_is_the_float32_result_rounded_once(name, dtype, rng):
    kernel, rows = UPDATES[name][0], np.arange(50)
    weight = rng.standard_normal((50, 40)).astype(dtype)
    short, wide = Table(weight, rows), Table(weight.astype(np.float32), rows)
    short.d = rng.standard_normal((50, 40)).astype(dtype)
    wide.d = short.d.astype(np.float32)
    for table in (short, wide):
        kernel(table, 0.01, 0.1, 1, threads=1)
    np.testing.assert_array_equal(short.weight, wide.weight.astype(dtype))


@pytest.mark.parametrize("name", UPDATES)
def test_the_bits_are_the_same_at_any_number_of_threads(name, rng):
    weight, rows = rng.standard_normal((3000, 100)).astype(np.float32), rng.permutation(3000)[:2500]
    d = rng.standard_normal((2500, 100)).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        table = Table(weight, rows)
        table.d = d
        for t in (1, 2):
            UPDATES[name][0](table, 0.05, 0.1, t, threads)
        results.append([table.weight, *table.kept.values()])
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", UPDATES)
def test_nan_and_infinity_stay_in_their_rows(name):
    table = Table(np.ones((3, 9), np.float32), np.arange(3))
    table.d = np.full((3, 9), np.array([[np.nan], [np.inf], [1.0]]), np.float32)
    UPDATES[name][0](table, 0.1, 0.0, 1, threads=1)
    assert np.isnan(table.weight[0]).all()
    assert not np.isfinite(table.weight[1]).any()
    assert np.isfinite(table.weight[2]).all()
