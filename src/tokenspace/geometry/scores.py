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
from tokenspace.geometry.transform import Products, View
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
    """What each of N rows scores at least and at most, or anything that ranks as scores do."""

    least: Float[Array, "*axes N"]
    most: Float[Array, "*axes N"]


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


def bounds(block: Products, target: Float[Array, " D"], metric: Metric) -> Bounds:
    """Bounds of a block's scores against ``target``; of ``l2``, of half the squares that it ranks by."""
    if metric == "cosine":
        return Bounds(*(side[0] for side in cosines(block)))
    near = block.near[0]
    length = float(np.linalg.norm(target.astype(np.float64)))
    off = block.reach * np.float32(length)
    if metric == "l2":  # (|target|² - distance²) / 2
        squares = np.square(block.switched)
        near = near - squares / 2
        off += squares + np.float32(length**2)
    off = off * np.float32(block.error) + (SMALL**2 if metric == "l2" else TINY)
    return Bounds(near - off, near + off)


def cosines(block: Products) -> Bounds:
    """Bounds (Q, N) of the cosines of a block's rows with targets of length 1, or zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.float32(block.error) * block.reach / block.switched
        near = block.near / block.switched
    without = block.switched == 0
    near[:, without] = 0
    off[without] = block.reach[without] > 0  # as far as cosines go, where only the length is lost
    return Bounds(np.maximum(near - off, -1), np.minimum(near + off, 1))


def best(
    view: View,
    targets: Float[Array, "Q D"],
    within: Callable[[Products], Bounds],
    score: Callable[[Int[Array, " N"]], Float[Array, " N"]],
    k: int,
    excluded: Iterable[int],
) -> list[Hit]:
    """The ``k`` best rows that are neither ``excluded`` nor placeholders: by ``score``, then by id.

    ``within`` bounds the scores of a block of rows by their products with ``targets``.
    """
    vocab = view.table.vocab
    candidates = _Candidates(k, np.union1d(list(excluded), vocab.placeholders()).astype(np.int64))
    view.scan(targets, lambda block: candidates.offer(block.start, within(block)))
    ids = candidates.ids
    step = max(1, AT_ONCE // view.table.dim)
    parts = [score(ids[start : start + step]) for start in range(0, len(ids), step)]
    exact = np.concatenate(parts) if parts else np.empty(0, np.float32)
    order = np.lexsort((ids, -exact))[:k]
    found = zip(ids[order].tolist(), exact[order].tolist(), strict=True)
    return [Hit(vocab[i], i, value) for i, value in found]


class _Candidates:
    """The rows that may be among the ``k`` best of those so far, but for those ``left_out`` (sorted)."""

    def __init__(self, k: int, left_out: Int[Array, " N"]):
        self._k = k
        self._left_out = left_out
        self.ids = np.empty(0, np.int64)
        self._within = Bounds(np.empty(0, np.float32), np.empty(0, np.float32))
        self._floor = -np.inf  # k rows score this at least

    def offer(self, start: int, within: Bounds) -> None:
        """Take the rows from ``start`` on as candidates."""
        may = within.most >= self._floor
        first, last = np.searchsorted(self._left_out, (start, start + len(may)))
        may[self._left_out[first:last] - start] = False
        self.ids = np.concatenate([self.ids, start + np.flatnonzero(may)])
        self._within = Bounds(
            *(np.concatenate([a, b[may]]) for a, b in zip(self._within, within, strict=True))
        )
        if len(self.ids) > self._k:
            self._floor = np.partition(self._within.least, -self._k)[-self._k]
            still = self._within.most >= self._floor
            self.ids, self._within = self.ids[still], Bounds(*(side[still] for side in self._within))


def check_metric(metric: str) -> None:
    """``ShapeError`` if there is no such metric."""
    if metric not in get_args(Metric):
        raise ShapeError(f"metric {metric!r} is not known; allowed: {', '.join(get_args(Metric))}")


def check_k(k: int) -> None:
    """``ShapeError`` unless k is a whole number of rows, at least 1."""
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ShapeError(f"k must be a whole number from 1 on, found {k!r}")
