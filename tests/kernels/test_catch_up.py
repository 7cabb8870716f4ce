"""Rows brought up to date are where torch's dense AdamW in float64 has them, each of them once."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from tokenspace.kernels import catch_up as module
from tokenspace.kernels.catch_up import Behind, IdleRows
from tokenspace.kernels.half import computed_in
from tokenspace.kernels.update import AdamStep, adam

V, D, EPS = 12, 9, 1e-8
LR = WEIGHT_DECAY = 2**-7
"""1 - LR · WEIGHT_DECAY is a float32. Others are rounded to one, by torch too: 1 - 1e-4 is off by 2e-8."""


class Run:
    """A table under lazy kernels and `IdleRows`, and the same one under torch's dense AdamW."""

    def __init__(
        self, dtype=np.float32, betas=(0.9, 0.999), eps=EPS, scale=1.0, seed=0, shape=(V, D), capacity=500
    ):
        self.rng, self.betas, self.eps, self.scale = np.random.default_rng(seed), betas, eps, scale
        self.weight = self.rng.standard_normal(shape).astype(dtype)
        self.moments = [np.zeros(shape, computed_in(self.weight)) for _ in range(2)]
        self.idle, self.t = IdleRows(self.weight, eps, capacity), 0
        self.truth = torch.nn.Parameter(torch.tensor(self.weight.astype(np.float64)))
        self.torchs = torch.optim.AdamW([self.truth], betas=betas, eps=eps)

    def catch_up(self, ids=None, threads=1):
        self.idle.catch_up(self.weight, *self.moments, ids, threads)

    def step(self, rows, lr=LR, weight_decay=WEIGHT_DECAY):
        rows = np.asarray(rows, np.int64)
        d = (self.rng.standard_normal((len(rows), self.weight.shape[1])) * self.scale).astype(
            self.weight.dtype
        )
        self.truth.grad = torch.zeros_like(self.truth)
        self.truth.grad[rows] = torch.tensor(d.astype(np.float64))
        group = self.torchs.param_groups[0]
        group["lr"], group["weight_decay"], group["betas"], group["eps"] = (
            lr,
            weight_decay,
            self.betas,
            self.eps,
        )
        self.torchs.step()
        self.t += 1
        first, second = (1 - beta**self.t for beta in self.betas)
        step = AdamStep(
            1 - lr * weight_decay, 1 - self.betas[0], 1 - self.betas[1], lr / first, second**-0.5, self.eps
        )
        if not self.idle.has_room(step):
            self.catch_up()
        self.catch_up(rows)
        adam(self.weight, *self.moments, rows, d, step)
        self.idle.record(rows, step)

    def off(self, rows=slice(None)):
        """The largest difference of weights, and of each moment as a part of its largest number."""
        state = self.torchs.state[self.truth]
        wide = self.weight.astype(np.float64)
        differences = [np.abs(wide - self.truth.detach().numpy())[rows].max()]
        for found, name in zip(self.moments, ("exp_avg", "exp_avg_sq"), strict=True):
            expected = state[name].numpy()
            differences.append((np.abs(found - expected)[rows] / max(np.abs(expected).max(), 1e-30)).max())
        return differences


BETAS = pytest.mark.parametrize(
    "betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.95), (0.99, 0.95), (0.0, 0.9)], ids=str
)


@BETAS
@pytest.mark.parametrize("eps", [1e-8, 1e-2])
@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_mixed_gaps(betas, eps, scale):
    run = Run(betas=betas, eps=eps, scale=scale)
    for t in range(60):
        run.step(run.rng.permutation(V)[: run.rng.integers(0, 4)], lr=1e-2 * (1 + math.cos(t / 20)))
        if t % 7 == 0:
            run.catch_up(run.rng.integers(0, V, 5))
    run.catch_up()
    weight, first, second = run.off()
    assert weight < 5e-6
    assert max(first, second) < 5e-6


@BETAS
def test_float64_tables_are_held_to_the_rules_own_error(betas):
    run = Run(np.float64, betas)
    run.step(range(V))
    for _ in range(40):
        run.step([0])
    run.catch_up()
    weight, first, second = run.off()
    smooth = betas[1] ** 2 >= betas[0]
    assert weight < (1e-4 if smooth else 1e-12)  # a thousandth of ten steps' 0.01, at most
    assert max(first, second) < 1e-12


def test_the_rule_and_the_steps_one_by_one_agree(monkeypatch):
    runs = []
    for smooth in (True, False):
        monkeypatch.setattr(module.idle_steps, "is_smooth", lambda *_, smooth=smooth: smooth)
        run = Run()
        for t in range(300):
            run.step([t % V] if t < 40 else [0])
        run.catch_up()
        runs.append(run)
    np.testing.assert_allclose(runs[0].weight, runs[1].weight, atol=3e-6)  # 289 roundings against one
    np.testing.assert_array_equal(runs[0].moments, runs[1].moments)
    assert runs[0].off()[0] < 5e-6


def test_long_gaps_only_decay_after_the_window():
    run = Run(capacity=3000)
    run.step(range(V))
    for _ in range(2500):
        run.step([0], weight_decay=2**-5)
    run.catch_up()
    assert run.off(slice(1, V))[0] < 2e-6
    assert run.off(slice(1, V))[2] < 2e-6


@pytest.mark.parametrize(("dtype", "within"), [(ml_dtypes.bfloat16, 2**-8), (np.float16, 2**-11)])
def test_short_tables_are_rounded_once(dtype, within):
    run = Run(dtype)
    run.step(range(V))
    run.weight = run.weight.astype(np.float32).astype(dtype)
    start = run.weight.astype(np.float64)
    run.truth.data = torch.tensor(start)
    run.idle = IdleRows(run.weight, EPS)
    for _ in range(50):
        run.step([])
    run.catch_up()
    expected = run.truth.detach().numpy()
    assert np.abs(expected - start).max() > 0.03
    assert (
        np.abs(run.weight.astype(np.float64) - expected) <= np.abs(expected) * within * 1.001 + 1e-6
    ).all()


def test_only_the_rows_asked_for_move_and_each_once():
    run = Run()
    run.step(range(V))
    before = run.weight.copy()
    for _ in range(5):
        run.step([])
    run.catch_up(np.array([3, 7, 3, 3], np.int32))
    moved = np.flatnonzero((run.weight != before).any(1))
    assert moved.tolist() == [3, 7]
    assert run.off([3, 7])[0] < 1e-6
    after = run.weight.copy()
    run.catch_up(np.array([7, 3]))
    np.testing.assert_array_equal(run.weight, after)


def test_what_is_no_row_is_passed_over():
    run = Run()
    run.step(range(V))
    run.step([])
    run.catch_up(np.array([-1, V, 2**40, 2]))
    assert run.off([2])[0] < 1e-6


def test_a_full_history_starts_anew():
    run = Run(capacity=20)
    for t in range(70):
        run.step([t % V])
    assert 0 < run.idle.step <= 20
    run.catch_up()
    assert run.idle.step == 0
    assert run.off()[0] < 3e-6


def test_betas_may_come_to_need_the_steps_one_by_one_and_back():
    run = Run()
    for t in range(90):
        run.betas = (0.95, 0.9) if 30 <= t < 60 else (0.9, 0.999)
        run.step([t % V])
    run.catch_up()
    # after a change of betas torch's bias corrections are whatever 1 - β^t gives: so are ours
    assert run.off()[0] < 5e-6


@pytest.mark.parametrize("smooth", [True, False])
def test_the_bits_are_the_same_at_any_number_of_threads(smooth):
    weights = []
    for threads in (1, 2, 5):
        run = Run(betas=(0.9, 0.999) if smooth else (0.95, 0.9), shape=(2000, 100))
        for t in range(8):
            run.step(range(t, 2000, 5 + t))
        run.catch_up(threads=threads)
        weights.append(run.weight)
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])


def test_interrupted_between_two_pieces_no_row_is_lost_or_moved_twice(monkeypatch):
    run = Run(shape=(3000, 64))
    run.step(range(3000))
    run.step([])
    real, calls = module.share_ranges, []

    def interrupted(body, cuts, threads):
        def counted(start, stop):
            calls.append(start)
            if len(calls) == 3:
                raise KeyboardInterrupt
            body(start, stop)

        real(counted, cuts, threads)

    monkeypatch.setattr(module, "share_ranges", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.catch_up()
    assert run.off()[0] > 1e-4
    monkeypatch.undo()
    run.catch_up()
    assert run.off()[0] < 1e-6


def test_who_is_behind():
    run = Run()
    run.step([1, 2])
    ids = np.arange(V)
    assert run.idle.behind(ids, run.moments[0]).rows == V - 2  # all others have missed its decay
    run.catch_up()
    assert run.idle.behind(ids, run.moments[0]) == Behind(0, -1, 0)
    run.step([1], weight_decay=0.0)
    run.step([4], weight_decay=0.0)
    # 1 misses a step, 2 misses two; 4 was just touched, the others have no moments yet
    assert run.idle.behind(ids, run.moments[0]) == Behind(2, 1, 1)
    assert run.idle.behind(ids[2:], run.moments[0]) == Behind(1, 2, 2)


def test_a_rate_of_zero_leaves_nobody_behind():
    run = Run()
    run.step(range(V))
    run.step([], lr=0.0)
    assert run.idle.behind(np.arange(V), run.moments[0]).rows == 0
    run.catch_up()
    assert max(run.off()) < 1e-6
