"""The bounds that a search goes by hold every exact score, whatever rounding does; so the best are found."""

import sys
from functools import partial

import numpy as np
import pytest

from tokenspace.geometry import analogy, neighbors, unit_rows
from tokenspace.geometry import rows as rows_module
from tokenspace.geometry.scores import bounds, cosines, exact_scores
from tokenspace.geometry.transform import View
from tokenspace.table import Table
from tokenspace.vocab import Vocab

ROWS, DIM = 600, 96
BLOCK = 64 * DIM  # numbers of the 64 rows that are read at a time
SWITCHES = [{}, {"center": True}, {"remove": 3}]
METRICS = ["cosine", "dot", "l2"]


def spread(rng):
    """Lengths from 1e-12 to 1e6."""
    return rng.normal(size=(ROWS, DIM)) * 10.0 ** rng.uniform(-12, 6, size=(ROWS, 1))


def far_from_zero(rng):
    """What rows share is 100,000 times what they don't."""
    return rng.normal(size=(ROWS, DIM)) + 1e5


def near_alike(rng):
    """Rows that differ in their last digits, many of them not at all."""
    return 1 + rng.integers(-1, 2, size=(ROWS, DIM)) * 1e-7 * (rng.random((ROWS, DIM)) < 0.02)


def mostly_zero(rng):
    rows = rng.normal(size=(ROWS, DIM))
    rows[rng.random(ROWS) < 0.7] = 0
    return rows


def underflowing(rng):
    """Squares of these numbers are 0 in float32."""
    rows = rng.normal(size=(ROWS, DIM))
    rows[::3] *= 1e-30
    return rows


def tiny_about_zero_rows(rng):
    """The mean is so short that its square is 0, and lies far from most rows, which are 0."""
    rows = rng.normal(size=(ROWS, DIM)) * 1e-20
    rows[::2] = 0
    return rows


def huge(rng):
    return rng.normal(size=(ROWS, DIM)) * 1e14


TABLES = [spread, far_from_zero, near_alike, mostly_zero, underflowing, tiny_about_zero_rows, huge]


@pytest.fixture(params=TABLES, ids=lambda make: make.__name__)
def table(request, rng, monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK", BLOCK)
    return Table(request.param(rng).astype(np.float32), Vocab([f"w{i}" for i in range(ROWS)]))


def bounds_of_all(view, targets, within):
    parts = []
    view.scan(targets, lambda block: parts.append(within(block)))
    return [np.concatenate(side, axis=-1) for side in zip(*parts, strict=True)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "center", "remove"])
def test_exact_scores_lie_within_their_bounds(table, switches, metric):
    view = View(table, **switches)
    every = np.arange(ROWS)
    for query in (3, 4, 301):
        _, target = view.vector(query)
        target = unit_rows(target) if metric == "cosine" else target
        exact = exact_scores(view.rows(every), target, metric).astype(np.float64)
        if metric == "l2":
            exact = (np.dot(target, target.astype(np.float64)) - exact**2) / 2
        least, most = bounds_of_all(view, target[None], partial(bounds, target=target, metric=metric))
        assert (least <= exact).all()
        assert (exact <= most).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "center", "remove"])
def test_the_best_are_those_of_scoring_all(table, switches, metric):
    view = View(table, **switches)
    for query in (3, 301):
        _, target = view.vector(query)
        target = unit_rows(target) if metric == "cosine" else target
        exact = exact_scores(view.rows(np.arange(ROWS)), target, metric)
        order = [int(i) for i in np.lexsort((np.arange(ROWS), -exact)) if i != query]
        for k in (1, 10, 250):
            hits = neighbors(view, query, k, metric)
            assert [hit.id for hit in hits] == order[:k]
            assert [hit.score for hit in hits] == [float(np.float32(exact[i])) for i in order[:k]]


@pytest.mark.parametrize("scale", [1e-19, 1e-20, 1e-21, 1e-22])
def test_tiny_rows_about_a_tiny_mean(scale):
    rows = np.array([[0, 0], [3, 1], [0, 0], [1, 2]]) * scale
    table = Table(rows.astype(np.float32), Vocab(list("abcd")))
    assert [hit.id for hit in neighbors(table, 0, k=1, center=True)] == [2]
    assert [hit.id for hit in neighbors(table, 0, k=1, center=True, exclude_query=False)] == [0]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-38, "f4"), (1e-30, "f4"), (1e-22, "f4"), (1e14, "f4"), (1.5e4, "f2"), (1e-4, "f2")],
)
def test_squares_that_leave_the_tables_type_rank_as_in_float64(rng, metric, scale, dtype):
    rows = (rng.normal(size=(60, 6)) * scale).astype(dtype)
    table = Table(rows, Vocab([f"w{i}" for i in range(60)]))
    exact = rows.astype(np.float64) / scale
    query = exact[3]
    scores = {
        "cosine": exact @ query / np.linalg.norm(exact, axis=1),
        "dot": exact @ query,
        "l2": -np.linalg.norm(exact - query, axis=1),
    }[metric]
    order = [int(i) for i in np.argsort(-scores) if i != 3]
    assert [hit.id for hit in neighbors(table, 3, k=5, metric=metric)] == order[:5]


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "center", "remove"])
def test_an_analogys_best_are_those_of_scoring_all(table, switches, method):
    view = View(table, **switches)
    whole = analogy(view, 3, 4, 5, k=ROWS, method=method)
    assert len(whole) == ROWS - 3
    assert [-hit.score for hit in whole] == sorted(-hit.score for hit in whole)
    assert analogy(view, 3, 4, 5, k=7, method=method) == whole[:7]


def test_bounds_leave_few_to_score(rng, monkeypatch):
    table = Table(rng.normal(size=(20_000, 64)).astype(np.float32), Vocab([f"w{i}" for i in range(20_000)]))
    scored = []

    def counted(rows, target, metric):
        scored.append(len(rows))
        return exact_scores(rows, target, metric)

    monkeypatch.setattr(sys.modules["tokenspace.geometry.scores"], "exact_scores", counted)
    neighbors(table, 0, k=10, remove=2)
    assert 10 <= sum(scored) < 30


def test_bounds_are_narrow(minilm):
    view = View(minilm, center=True)
    least, most = bounds_of_all(view, view.units(np.array([5, 2_000])), cosines)
    named = np.setdiff1d(np.arange(len(minilm)), minilm.vocab.placeholders())
    assert (most - least)[:, named].max() < 1e-3
