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

K = 16
FEWEST = 4  # rows of a cluster, about, where nobody asks for a number of clusters
STARTS = 10
FITTED = 10_000  # rows that are linked, the first
LINKS = 50  # of each, to its nearest
FAINTEST = 1e-3  # no link weighs less, whatever its cosine: each row hangs together with others
DIRECTIONS = 50  # of the links, at most, that tell the clusters apart
DENSE = 1_000  # rows up to which all directions are computed: few rows settle no iteration
NEAREST = 8  # tokens that tell what a cluster holds; the first three name it
FREQUENT = 4  # a name is chosen from this part of the rows, the first: words that people know
PASSES = 50  # at most, of each start
SETTLED = 1e-4  # the share of rows that still move when a start ends
BATCH = 1_000  # rows whose nearest are sought at once


@dataclass(frozen=True)
class Clusters:
    """Which cluster each row belongs to, the largest first.

    - ``labels``: (V,) int32; -1 for rows that no token names, and rows without a direction (all zeros)
    - ``centers``: (K, D), the mean unit row of its linked rows, scaled to length 1
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
    k: SupportsIndex | None = None,
    seed: SupportsIndex = 0,
    center: bool = True,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
) -> Clusters:
    """``k`` clusters of rows by direction: spectral clustering (Ng, Jordan & Weiss 2001).

    By default 16, or a quarter as many as the rows that have a direction where these are fewer than 64, but
    two; the settings say which.

    The first 10,000 rows, which in most vocabularies are the most frequent tokens, are linked each to its 50
    nearest by cosine. Rows lie together that many links join: k-means of the links' top eigenvectors, of ten
    starts by k-means++ (Arthur & Vassilvitskii 2007) the tightest. Rows further on go to the cluster whose
    center is nearest. Rows are switched as in ``neighbors``.

    The same seed and versions give the same clusters on the same machine. Fewer come back where the linked
    rows have fewer directions. ``ShapeError`` for more clusters than rows; ``MissingExtra`` without
    scikit-learn.

    >>> from tokenspace.vocab import Vocab
    >>> rows = np.array([[1, 0.1], [0, 1], [1, 0], [0.1, 1], [1, 0]], np.float32)
    >>> found = clusters(Table(rows, Vocab(["cat", "two", "dog", "one", "cow"])), k=2, center=False)
    >>> found.labels, found.names
    (array([0, 1, 0, 1, 0], dtype=int32), ('dog, cow, cat', 'two, one'))
    """
    asked, seed = None if k is None else _count(k), checked_seed(seed)
    view = View(table, center, remove)
    usable = _usable(view)
    about = " about the mean row" if view.center else ""
    if not len(usable):
        raise ShapeError(
            f"no row of this table that a token names has a direction{about}, so none lie together"
        )
    count = min(K, max(len(usable) // FEWEST, min(len(usable), 2))) if asked is None else asked
    if count > len(usable):
        raise ShapeError(
            f"{count:,} clusters of {len(usable):,} rows that have a direction{about}; ask for fewer"
        )
    fitted = usable[: max(FITTED, count)]
    units = view.units(fitted)
    together = _together(units, min(count, len(np.unique(units, axis=0))), seed, progress)
    centers = np.stack([units[together == label].mean(axis=0) for label in np.unique(together)])
    centers = unit_rows(centers)
    labels, near = _assigned(view, usable, centers, progress)
    labels[fitted] = np.unique(together, return_inverse=True)[1]
    near[fitted] = np.einsum("nd,nd->n", units, centers[labels[fitted]])
    order = np.argsort(-np.bincount(labels[usable], minlength=len(centers)), kind="stable")
    place = np.full(len(centers) + 1, -1, np.int32)
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
            "rows": len(fitted),
            "links": LINKS,
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


def _together(units: Float[Array, "N D"], k: int, seed: int, progress: Progress | None) -> Int[Array, " N"]:
    """Which of ``k`` clusters each row is in, of the start whose rows lie nearest to their centers."""
    try:
        from sklearn.cluster import kmeans_plusplus
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtra("clustering", "look") from None
    best, best_sum = np.zeros(len(units), np.int64), -np.inf
    with threadpool_limits(limits=1):  # sums in one order, whatever the machine's cores
        points = unit_rows(_directions(_links(units, stage(progress, 0, 0.5)), min(k, DIRECTIONS)))
        for start in range(STARTS):
            first, _ = kmeans_plusplus(points, k, random_state=(STARTS * seed + start) % 2**32)
            labels, total = _settled(points, unit_rows(first))
            if total > best_sum:
                best, best_sum = labels, total
            stage(progress, 0.5, 0.9)(start + 1, STARTS)
    return best


def _links(units: Float[Array, "N D"], progress: Progress) -> Any:
    """A sparse symmetric matrix (N, N): the cosine of rows, one of which is among the other's nearest."""
    from scipy import sparse

    rows = len(units)
    k = min(LINKS, rows - 1)
    ids, cosines = np.empty((rows, k), np.int64), np.empty((rows, k))
    for start in range(0, rows, BATCH):
        part = slice(start, start + BATCH)
        products = units[part] @ units.T
        np.fill_diagonal(products[:, start:], -np.inf)
        ids[part] = np.argpartition(products, -k, axis=1)[:, rows - k :]
        cosines[part] = np.take_along_axis(products, ids[part], axis=1)
        progress(min(start + BATCH, rows), rows)
    weights = np.maximum(cosines.ravel(), FAINTEST)
    links = sparse.csr_matrix((weights, (np.repeat(np.arange(rows), k), ids.ravel())), (rows, rows))
    return links.maximum(links.T)


def _directions(links: Any, n: int) -> Float[Array, "N n"]:
    """The top ``n`` eigenvectors of the links, each divided by the roots of both its rows' sums."""
    from scipy import sparse
    from scipy.sparse.linalg import eigsh

    rows = links.shape[0]
    if rows == 1:
        return np.ones((1, n), np.float32)
    roots = sparse.diags(np.asarray(links.sum(axis=1)).ravel() ** -0.5)
    scaled = roots @ links @ roots
    if rows <= DENSE:
        vectors = np.linalg.eigh(scaled.toarray())[1][:, -n:]
    else:
        start = np.random.default_rng(0).random(rows)  # the same for all seeds: there is one answer
        _, vectors = eigsh(scaled, n, which="LA", v0=start)
    return vectors.astype(np.float32)


def _settled(points: Float[Array, "N n"], centers: Float[Array, "K n"]) -> tuple[Int[Array, " N"], float]:
    """The nearest center of each point when each has moved to the mean of its points, again and again."""
    every = np.arange(len(points))
    labels = np.full(len(points), -1)
    for _ in range(PASSES):
        cosines = points @ centers.T
        before, labels = labels, cosines.argmax(axis=1)
        if np.count_nonzero(labels != before) <= SETTLED * len(points):
            break
        members = np.zeros_like(cosines)
        members[every, labels] = 1
        centers = unit_rows(members.T @ points)
    return labels, float(cosines[every, labels].sum(dtype=np.float64))


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
