"""Groups of rows that lie together, each named by the tokens nearest to its center."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, SupportsIndex

import numpy as np

from tokenspace import __version__
from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry.cosine import unit_rows
from tokenspace.geometry.projection import checked_seed, stage
from tokenspace.geometry.rows import row_blocks
from tokenspace.geometry.transform import Progress, View
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table

K = 20
STARTS = 10
NEAREST = 8  # tokens that tell what a cluster holds; the first three name it
FREQUENT = 4  # a name is chosen from this part of the rows, the first: words that people know
PASSES = 50  # at most, of each start
SETTLED = 1e-4  # the share of rows that still move when a start ends
FITTED = 2**24  # numbers that the centers are found from: 64 MB; of a larger table, a sample of its rows


@dataclass(frozen=True)
class Clusters:
    """Which cluster each row belongs to, the largest first.

    - ``labels``: (V,) int32; -1 for rows that no token names, and rows without a direction (all zeros)
    - ``centers``: (K, D), each cluster's mean unit row, weighted, and scaled to length 1
    - ``sizes``: (K,); ``nearest``: (K, 8) of its rows nearest to its center, -1 where it has fewer:
      of the quarter of its rows that stand first in the table, since tokens further on are rare
    - ``names``: the first three of these tokens
    - ``seed``, ``settings``, ``versions``: what makes the same clusters again
    """

    labels: Int[Array, " V"]
    centers: Float[Array, "K D"]
    sizes: Int[Array, " K"]
    nearest: Int[Array, "K near"]
    names: tuple[str, ...]
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]


def clusters(
    table: Table,
    k: SupportsIndex = K,
    seed: SupportsIndex = 0,
    center: bool = True,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
) -> Clusters:
    """``k`` clusters of rows by direction: spherical k-means (Dhillon & Modha 2001), of ten starts by
    k-means++ (Arthur & Vassilvitskii 2007) the one whose rows lie nearest to their centers.

    Rows are switched as in ``neighbors``. Most vocabularies count ids from the most frequent token on, so
    that a row weighs 1 / √(1 + its place): a few hundred words make up most of a text, and without weights
    the thousands of rare names and terms would leave them no cluster of their own.

    The same seed and versions give the same clusters on the same machine. Of a table of more than 2^24
    numbers the centers are found from a sample of rows, drawn by the seed, and every row goes to the nearest.
    ``ShapeError`` for more clusters than rows; ``MissingExtra`` without scikit-learn.

    >>> from tokenspace.vocab import Vocab
    >>> rows = np.array([[1, 0.1], [0, 1], [1, 0], [0.1, 1], [1, 0]], np.float32)
    >>> found = clusters(Table(rows, Vocab(["cat", "two", "dog", "one", "cow"])), k=2, center=False)
    >>> found.labels, found.names
    (array([0, 1, 0, 1, 0], dtype=int32), ('dog, cow, cat', 'two, one'))
    """
    count, seed = _count(k), checked_seed(seed)
    view = View(table, center, remove)
    usable = _usable(view)
    if count > len(usable):
        raise ShapeError(f"{count:,} clusters of {len(usable):,} rows that have a direction; ask for fewer")
    rng = np.random.default_rng(seed)
    room = max(FITTED // table.dim, count)
    fitted = usable if len(usable) <= room else np.sort(rng.choice(usable, room, replace=False))
    weights = (1 / np.sqrt(1 + np.searchsorted(usable, fitted))).astype(np.float32)
    centers = _centers(view.units(fitted), weights, count, seed, progress)
    labels, near = _assigned(view, usable, centers, progress)
    order = np.argsort(-np.bincount(labels[usable], minlength=count), kind="stable")
    order = order[np.isin(order, labels[usable])]  # fewer distinct rows than clusters leave some empty
    place = np.full(count + 1, -1, np.int32)
    place[order] = np.arange(len(order))
    labels = place[labels]  # a label of -1 takes the last place, which is -1
    nearest = _nearest(labels, near, len(order))
    return Clusters(
        labels=labels,
        centers=centers[order],
        sizes=np.bincount(labels[usable]),
        nearest=nearest,
        names=tuple(", ".join(table.vocab[i] for i in ids[:3].tolist() if i >= 0) for ids in nearest),
        seed=seed,
        settings={
            "k": count,
            "center": view.center,
            "remove": view.remove,
            "weights": "1/√(1 + place)",
            "rows": len(fitted),
        },
        versions={
            "tokenspace": __version__,
            "numpy": np.__version__,
            "scikit-learn": version("scikit-learn"),
        },
    )


def _usable(view: View) -> Int[Array, " rows"]:
    """The ids of the rows that a token names and that have a direction, switched or not."""
    usable = np.ones(len(view.table), bool)
    for blocks in (view.blocks(), row_blocks(view.table)):
        for start, rows in blocks:
            usable[start : start + len(rows)] &= rows.any(axis=1)
    usable[view.table.vocab.placeholders()] = False
    return np.flatnonzero(usable)


def _centers(
    units: Float[Array, "N D"],
    weights: Float[Array, " N"],
    k: int,
    seed: int,
    progress: Progress | None,
) -> Float[Array, "K D"]:
    """The unit centers of the best start: the one with the largest weighted sum of cosines."""
    try:
        from sklearn.cluster import kmeans_plusplus
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtra("clusters", "look") from None
    best, best_sum = np.empty(0, np.float32), -np.inf
    with threadpool_limits(limits=1):  # sums in one order, whatever the machine's cores
        for start in range(STARTS):
            first, _ = kmeans_plusplus(
                units, k, sample_weight=weights, random_state=(STARTS * seed + start) % 2**32
            )
            centers, total = _settled(units, weights, unit_rows(first))
            if total > best_sum:
                best, best_sum = centers, total
            stage(progress, 0, 0.9)(start + 1, STARTS)
    return best


def _settled(
    units: Float[Array, "N D"], weights: Float[Array, " N"], centers: Float[Array, "K D"]
) -> tuple[Float[Array, "K D"], float]:
    """Where ``centers`` come to rest when each moves to the mean of its rows, again and again."""
    every = np.arange(len(units))
    labels = np.full(len(units), -1)
    for _ in range(PASSES):
        cosines = units @ centers.T
        before, labels = labels, cosines.argmax(axis=1)
        if np.count_nonzero(labels != before) <= SETTLED * len(units):
            break
        members = np.zeros_like(cosines)
        members[every, labels] = weights
        centers = unit_rows(members.T @ units)
    return centers, float((cosines.max(axis=1) * weights).sum(dtype=np.float64))


def _assigned(
    view: View, usable: Int[Array, " rows"], centers: Float[Array, "K D"], progress: Progress | None
) -> tuple[Int[Array, " V"], Float[Array, " V"]]:
    """The nearest center of each row, -1 for those that have none, and the row's cosine with it."""
    rows = len(view.table)
    labels, near = np.full(rows, -1), np.full(rows, -np.inf, np.float32)
    for start, units in view.unit_blocks():
        cosines = units @ centers.T
        labels[start : start + len(units)] = cosines.argmax(axis=1)
        near[start : start + len(units)] = cosines.max(axis=1)
        stage(progress, 0.9, 1)(start + len(units), rows)
    without = np.ones(rows, bool)
    without[usable] = False
    labels[without] = -1
    return labels, near


def _nearest(labels: Int[Array, " V"], near: Float[Array, " V"], k: int) -> Int[Array, "K near"]:
    nearest = np.full((k, NEAREST), -1, np.int32)
    for label in range(k):
        ids = np.flatnonzero(labels == label)
        ids = ids[: max(len(ids) // FREQUENT, min(len(ids), NEAREST))]
        best = ids[np.lexsort((ids, -near[ids]))[:NEAREST]]
        nearest[label, : len(best)] = best
    return nearest


def _count(k: SupportsIndex) -> int:
    try:
        count = -1 if isinstance(k, bool) else operator.index(k)
    except TypeError:
        count = -1
    if count < 1:
        raise ShapeError(f"k must be a whole number of clusters from 1 on, found {k!r}")
    return count
