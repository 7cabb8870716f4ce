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
from tokenspace.geometry.cosine import SMALL, unit_rows
from tokenspace.geometry.rows import dots
from tokenspace.geometry.transform import Products, View
from tokenspace.shapes import Array, Float, Int

Metric = Literal["cosine", "dot", "l2"]

TINY = np.finfo(np.float32).tiny  # what products may be off by where they underflow


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
    rows: Float[Array, "N D"], target: Float[Array, "*N D"], metric: Metric
) -> Float[Array, " N"]:
    """The exact scores of ``rows`` against ``target``, one vector or one for each of them.

    For ``cosine`` the target has length 1 (or is zero), as ``unit_rows`` makes it.
    """
    if metric == "cosine":
        return np.clip(dots(unit_rows(rows), target), -1, 1)
    wide = rows.astype(np.float64)  # the products of small numbers vanish in float32
    if metric == "dot":
        return dots(wide, target)
    apart = wide - target
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


def nearest_to(
    view: View, target: Float[Array, " D"], metric: Metric, k: int, excluded: Iterable[int]
) -> list[Hit]:
    """The ``best`` rows by their score against ``target``."""
    if metric == "cosine":
        target = unit_rows(target)

    def within(block: Products) -> Bounds:
        return bounds(block, target, metric)

    return best(view, target[None], within, lambda rows: exact_scores(rows, target, metric), k, excluded)


def best(
    view: View,
    targets: Float[Array, "Q D"],
    within: Callable[[Products], Bounds],
    score: Callable[[Float[Array, "N D"]], Float[Array, " N"]],
    k: int,
    excluded: Iterable[int],
) -> list[Hit]:
    """The ``k`` best rows that are neither ``excluded`` nor placeholders: by ``score``, then by id.

    ``within`` bounds the scores of a block of rows by their products with ``targets``; ``score`` gives the
    exact ones of rows under the view's switches.
    """
    vocab = view.table.vocab
    found = _Candidates(k, np.union1d(list(excluded), vocab.placeholders()).astype(np.int64))

    def take(block: Products) -> None:
        found.offer(block.start, within(block), lambda some: score(view.switched(block.rows[some])))

    view.scan(targets, take)
    order = np.lexsort((found.ids, -found.scores))[:k]
    scores = found.scores[order].astype(np.float32)  # as ``nearest`` keeps them
    pairs = zip(found.ids[order].tolist(), scores.tolist(), strict=True)
    return [Hit(vocab[i], i, value) for i, value in pairs]


class _Candidates:
    """The rows that may be among the ``k`` best of those so far, but for those ``left_out`` (sorted)."""

    def __init__(self, k: int, left_out: Int[Array, " N"]):
        self._k = k
        self._left_out = left_out
        self.ids = np.empty(0, np.int64)
        self.scores = np.empty(0, np.float32)
        self._within = Bounds(np.empty(0, np.float32), np.empty(0, np.float32))
        self._floor = -np.inf  # k rows score this at least

    def offer(
        self, start: int, within: Bounds, score: Callable[[Int[Array, " N"]], Float[Array, " N"]]
    ) -> None:
        """Take the rows from ``start`` on as candidates; ``score`` gives the exact scores of some of them."""
        may = within.most >= self._floor
        first, last = np.searchsorted(self._left_out, (start, start + len(may)))
        may[self._left_out[first:last] - start] = False
        new = np.flatnonzero(may)
        if not new.size:
            return
        old = len(self.ids)
        least, most = (np.append(a, b[new]) for a, b in zip(self._within, within, strict=True))
        if len(least) > self._k:
            self._floor = np.partition(least, -self._k)[-self._k]
        still = most >= self._floor
        new = new[still[old:]]
        self.ids = np.append(self.ids[still[:old]], start + new)
        self.scores = np.append(self.scores[still[:old]], score(new))
        self._within = Bounds(least[still], most[still])


def check_metric(metric: str) -> None:
    """``ShapeError`` if there is no such metric."""
    if metric not in get_args(Metric):
        raise ShapeError(f"metric {metric!r} is not known; allowed: {', '.join(get_args(Metric))}")


def check_k(k: int) -> None:
    """``ShapeError`` unless k is a whole number of rows, at least 1."""
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ShapeError(f"k must be a whole number from 1 on, found {k!r}")
