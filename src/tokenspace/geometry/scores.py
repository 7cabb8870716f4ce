"""How near rows lie to a query, and the best of them.

All rows are scored by one matrix product, which float32 rounds, and so within bounds. Those that may be among
the best are then scored exactly: by the same arithmetic wherever they lie, so that equal rows score equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Literal, NamedTuple, get_args

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.geometry.cosine import SMALL
from tokenspace.geometry.rows import dots
from tokenspace.geometry.transform import View
from tokenspace.shapes import Array, Float, Int

Metric = Literal["cosine", "dot", "l2"]

TINY = np.finfo(np.float32).tiny  # what products may be off by where they underflow
AT_ONCE = 2**22  # numbers of rows that are scored exactly at a time


class Hit(NamedTuple):
    """A row that answers a query; the higher its score, the better."""

    token: str
    id: int
    score: float


class Bounds(NamedTuple):
    """What each row (V,) scores at least and at most, or anything that ranks as scores do."""

    least: Float[Array, "*axes V"]
    most: Float[Array, "*axes V"]


def exact_scores(
    view: View, ids: Int[Array, " N"], target: Float[Array, "*N D"], metric: Metric
) -> Float[Array, " N"]:
    """The exact scores of the rows ``ids`` against ``target``, one vector or one for each of them.

    For ``cosine`` the target has length 1 (or is zero), as ``unit_rows`` makes it.
    """
    if metric == "cosine":
        return np.clip(dots(view.units(ids), target), -1, 1)
    rows = view.rows(ids)
    if metric == "dot":
        return dots(rows, target)
    apart = rows - target
    return 0 - np.sqrt(dots(apart, apart))  # not minus zero


def bounds(view: View, target: Float[Array, " D"], metric: Metric) -> Bounds:
    """Bounds of every row's score against ``target``; of ``l2``, of half the squares that it ranks by."""
    if metric == "cosine":
        return Bounds(*(side[0] for side in cosines(view, target[None])))
    (near,), lengths = view.products(target[None])
    length = float(np.linalg.norm(target.astype(np.float64)))
    off = lengths.reach * np.float32(length)
    if metric == "l2":  # (|target|² - distance²) / 2
        squares = np.square(lengths.switched)
        near -= squares / 2
        off += squares + np.float32(length**2)
    off = off * np.float32(view.error) + (SMALL**2 if metric == "l2" else TINY)
    return Bounds(near - off, near + off)


def cosines(view: View, targets: Float[Array, "Q D"]) -> Bounds:
    """Bounds (Q, V) of the cosines of all rows with ``targets``, each of length 1, or zero."""
    near, lengths = view.products(targets)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.float32(view.error) * lengths.reach / lengths.switched
        near /= lengths.switched
    without = lengths.switched == 0
    near[:, without] = 0
    off[without] = lengths.reach[without] > 0  # as far as cosines go, where only the length is lost
    return Bounds(np.maximum(near - off, -1), np.minimum(near + off, 1))


def best(
    view: View,
    within: Bounds,
    score: Callable[[Int[Array, " N"]], Float[Array, " N"]],
    k: int,
    excluded: Iterable[int],
) -> list[Hit]:
    """The ``k`` best rows that are neither ``excluded`` nor placeholders: by ``score``, then by id."""
    vocab = view.table.vocab
    competes = np.ones(len(view.table), bool)
    competes[list(excluded)] = False
    competes[vocab.placeholders()] = False
    if k < np.count_nonzero(competes):
        least = np.where(competes, within.least, -np.inf)
        competes &= within.most >= np.partition(least, -k)[-k]
    ids = np.flatnonzero(competes)
    step = max(1, AT_ONCE // view.table.dim)
    parts = [score(ids[start : start + step]) for start in range(0, len(ids), step)]
    exact = np.concatenate(parts) if parts else np.empty(0, np.float32)
    order = np.lexsort((ids, -exact))[:k]
    return [
        Hit(vocab[i], i, value) for i, value in zip(ids[order].tolist(), exact[order].tolist(), strict=True)
    ]


def check_metric(metric: str) -> None:
    """``ShapeError`` if there is no such metric."""
    if metric not in get_args(Metric):
        raise ShapeError(f"metric {metric!r} is not known; allowed: {', '.join(get_args(Metric))}")


def check_k(k: int) -> None:
    """``ShapeError`` unless k is a whole number of rows, at least 1."""
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ShapeError(f"k must be a whole number from 1 on, found {k!r}")
