"""The switches of a query: a table as it is, centered, or without the directions that all tokens share.

Mu & Viswanath (2018, "All-but-the-Top", algorithm 1): subtract the mean row; then take out of each row its
part along the n directions in which the centered rows vary most. Frequency tends to lie there, not meaning.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.geometry.compose import Resolved, resolve
from tokenspace.geometry.cosine import SMALL, norms, unit_rows
from tokenspace.geometry.rows import LARGEST, check_comparable, comparable_blocks, dots, unchecked_blocks
from tokenspace.shapes import Array, ArrayLike, Float, Int
from tokenspace.table import Table, check_table, check_unchanged

ROWS_AT_ONCE = 1_024  # that are computed with: they stay in the cache, and other threads wait less
Progress = Callable[[int, int], None]  # (done, total)


class Principal(NamedTuple):
    """The ``n`` directions (n, D) in which rows vary most, orthonormal, best first, in float64.

    ``mean`` (D,) is what was subtracted, ``variances`` (n,) are along the directions, ``total`` is the sum
    over all D of them. Each direction's largest component is positive, so that none turns round.
    """

    mean: Float[Array, " D"]
    directions: Float[Array, "n D"]
    variances: Float[Array, " n"]
    total: float


class Lengths(NamedTuple):
    """Of each row (V,) of a view: ``switched``, its length under the switches, and ``reach``, the length of
    the row as it is and of the mean row together, which the rounding of products grows with.

    Where squares underflow, a length is 0 or inexact, but the reach is not: 1e-15 more.
    """

    switched: Float[Array, " V"]
    reach: Float[Array, " V"]


class Products(NamedTuple):
    """Inner products (Q, N) of Q targets with the N ``rows`` (N, D) from ``start`` on, and ``Lengths`` (N,).

    A product, which is one with the row under the switches, is off by at most ``error`` times |target| times
    the row's reach. The ``rows`` are as they are stored; don't change or keep them.
    """

    start: int
    rows: Float[Array, "N D"]
    near: Float[Array, "Q N"]
    switched: Float[Array, " N"]
    reach: Float[Array, " N"]
    error: float


@dataclass(frozen=True)
class Transform:
    """What the switches do to a row: subtract ``mean`` (D,), then its parts along ``directions`` (n, D).

    >>> transform = Transform(np.array([1, 0], np.float32), np.array([[0, 1]], np.float32))
    >>> transform(np.array([[3, 4], [1, 1]], np.float32))
    array([[2., 0.],
           [0., 0.]], dtype=float32)
    """

    mean: Float[Array, " D"]
    directions: Float[Array, "n D"]

    @classmethod
    def of(cls, table: Table, center: bool = False, remove: SupportsIndex = 0) -> Transform:
        """That of ``table``: its mean row with ``center``, its top ``remove`` principal directions.

        Removing directions centers too, as the algorithm does. ``ShapeError`` if there are not more
        directions than ``remove``.
        """
        count, room = _count(remove), min(table.dim, len(table)) - 1
        if count > room:
            raise ShapeError(
                f"a table of {len(table):,} × {table.dim:,} has at most {room:,} directions to remove, "
                f"found {count:,}"
            )
        mean, directions = np.zeros(table.dim), np.empty((0, table.dim))
        if count:
            mean, directions, *_ = principal(View(table), count)
        elif center:
            mean = mean_row(View(table))
        return cls(mean.astype(np.float32), directions.astype(np.float32, order="C"))

    def __call__(self, rows: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        """``rows`` or one vector, switched: new unless nothing changes. Equal rows stay equal to the bit."""
        if not self.mean.any() and not len(self.directions):
            return rows
        flat = rows.reshape(-1, rows.shape[-1])
        switched = np.empty(flat.shape, np.result_type(flat, self.mean))
        for start in range(0, len(flat), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            some = np.subtract(flat[part], self.mean, out=switched[part])
            for direction in self.directions:
                some -= dots(some, direction)[:, None] * direction
        return switched.reshape(rows.shape)


class View:
    """A table seen through the switches ``center`` and ``remove`` (see ``Transform``): what a search reads.

    Every function that asks about nearness takes one in the place of a table. The transform and the rows'
    lengths are computed once, so that all queries but the first read the table once, unchecked: make a new
    view when rows have changed. Answers are the same to the bit. Safe to share between threads.

    >>> import tokenspace as ts
    >>> view = View(ts.load("wordnet"), remove=2)
    >>> [hit.token for hit in ts.geometry.neighbors(view, "cat", k=2)]
    ['panthera', 'felis']
    """

    def __init__(self, table: Table, center: bool = False, remove: SupportsIndex = 0):
        check_table(table)
        self.table = table
        self.remove = _count(remove)
        self.center = bool(center) or self.remove > 0
        self._transform: Transform | None = None
        self._lengths: Lengths | None = None
        self._lock = threading.RLock()

    @property
    def transform(self) -> Transform:
        """Computed when it is first asked for: two passes over the table where directions are removed."""
        with self._lock:
            if self._transform is None:
                self._transform = Transform.of(self.table, self.center, self.remove)
            return self._transform

    def vector(self, query: str | int | ArrayLike) -> tuple[Resolved, Float[Array, " D"]]:
        """What ``query`` stands for in the table (see ``resolve``), and its vector under the switches."""
        found = resolve(self.table, query)
        if (largest := float(np.abs(found.vector).max())) > LARGEST:
            raise TableFormatError(
                f"the vector of {found.word!r} holds a number of size {largest:.3g}; above {LARGEST:.0e} its "
                "products leave float32: scale the table down"
            )
        return found, self.switched(found.vector)

    def switched(self, rows: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        """``rows`` under the switches: new unless nothing changes."""
        return self.transform(rows) if self.center else rows

    def rows(self, ids: Int[Array, "*axes"]) -> Float[Array, "*axes D"]:
        """The rows of ``ids`` under the switches."""
        return self.switched(self.table.lookup(ids))

    def units(self, ids: Int[Array, "*axes"]) -> Float[Array, "*axes D"]:
        """The rows of ``ids`` under the switches, each scaled to length 1."""
        return unit_rows(self.rows(ids))

    def blocks(self) -> Iterator[tuple[int, Float[Array, "N D"]]]:
        """(first id, rows under the switches) over the whole table; don't change or keep what is yielded.

        ``TableFormatError`` for NaN, infinity, or numbers whose products leave float32.
        """
        for start, rows in comparable_blocks(self.table):
            yield start, self.switched(rows)

    def unit_blocks(self) -> Iterator[tuple[int, Float[Array, "N D"]]]:
        """``blocks`` with each row scaled to length 1."""
        for start, rows in self.blocks():
            yield start, unit_rows(rows)

    def scan(self, targets: Float[Array, "Q D"], take: Callable[[Products], None]) -> None:
        """Give ``take`` the inner products of ``targets`` with all rows under the switches, block by block.

        One pass over the rows as they are stored: the switches turn the targets instead.
        """
        with self._lock:  # whoever comes while rows are measured waits for the rest of it
            if self._lengths is None:
                lengths = Lengths(*np.empty((2, len(self.table)), np.float32))
                self._multiply(targets, self._measured(lengths), lengths, take)
                self._lengths = lengths
                return
        self._multiply(targets, unchecked_blocks(self.table), self._lengths, take)

    def _multiply(
        self,
        targets: Float[Array, "Q D"],
        blocks: Iterator[tuple[int, Float[Array, "N D"]]],
        lengths: Lengths,
        take: Callable[[Products], None],
    ) -> None:
        turned, shift = targets, np.zeros(len(targets), np.float32)
        if self.center:
            for direction in self.transform.directions[::-1]:
                turned = turned - dots(turned, direction)[:, None] * direction
            shift = turned @ self.transform.mean
        for start, rows in blocks:
            part = slice(start, start + len(rows))
            near = turned @ rows.T
            near -= shift[:, None]
            take(Products(start, rows, near, lengths.switched[part], lengths.reach[part], self.error))

    @property
    def error(self) -> float:
        """A bound of float32's rounding in sums of D numbers, each switch being one more: what is compared
        differs by it twice (Higham 2002, Accuracy and Stability of Numerical Algorithms, §3.1).
        """
        return 2 * (self.table.dim + 8) * (1 + self.remove) * 2.0**-24

    def _measured(self, lengths: Lengths) -> Iterator[tuple[int, Float[Array, "N D"]]]:
        """The rows as they are stored, checked; a block's lengths are written before it is yielded."""
        mean = float(np.linalg.norm(self.transform.mean.astype(np.float64)))
        for start, rows in unchecked_blocks(self.table):
            part = slice(start, start + len(rows))
            own = norms(rows)
            check_comparable(self.table, rows, start, own)
            lengths.switched[part] = norms(self.switched(rows)) if self.center else own
            lengths.reach[part] = own + mean
            small = np.flatnonzero(lengths.switched[part] < SMALL)
            lengths.reach[start + small[rows[small].any(axis=1) | (mean > 0)]] += SMALL
            yield start, rows


def seen(table: Table | View, center: bool = False, remove: SupportsIndex = 0) -> View:
    """``table`` as a view under the switches; a view, which has its own, as it is.

    ``ShapeError`` if switches come with a view: which ones would be meant?
    """
    if not isinstance(table, View):
        return View(table, center, remove)
    check_unchanged(table.table)
    if center or remove:
        raise ShapeError("a view has its own switches; give center and remove when making it, or a table")
    return table


def mean_row(view: View) -> Float[Array, " D"]:
    """The mean of a view's rows, summed in float64."""
    total = np.zeros(view.table.dim, np.float64)
    for _, rows in view.blocks():
        total += rows.sum(axis=0, dtype=np.float64)
    return total / len(view.table)


def principal(view: View, n: int, center: bool = True, progress: Progress | None = None) -> Principal:
    """The top ``n`` (at most V and D) principal directions of a view's rows, about their mean or about 0.

    Exact: eigenvectors of the covariance (D, D), or of the rows' products (V, V) where there are fewer rows
    than dimensions, summed in float64 over blocks of rows. Variances are sums of squares over V.
    """
    table = view.table
    mean = mean_row(view) if center else np.zeros(table.dim)
    if len(table) < table.dim:
        rows = np.concatenate([block.astype(np.float64) for _, block in view.blocks()]) - mean
        squares, left = _top(rows @ rows.T, n)
        directions = left.T @ rows
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(float).tiny)
        total = float(np.square(rows).sum())
    else:
        sums = np.zeros((table.dim, table.dim))
        for start, block in view.blocks():
            for first in range(0, len(block), ROWS_AT_ONCE):
                rows = block[first : first + ROWS_AT_ONCE] - mean
                sums += rows.T @ rows
            if progress is not None:
                progress(start + len(block), len(table))
        squares, vectors = _top(sums, n)
        directions = vectors.T
        total = float(np.trace(sums))
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.where(directions[np.arange(n), largest] < 0, -1.0, 1.0)[:, None]
    return Principal(mean, directions, np.maximum(squares, 0) / len(table), total / len(table))


def _top(symmetric: Float[Array, "N N"], n: int) -> tuple[Float[Array, " n"], Float[Array, "N n"]]:
    """The ``n`` largest eigenvalues and their eigenvectors (columns), largest first."""
    values, vectors = np.linalg.eigh(symmetric)
    return values[::-1][:n], vectors[:, ::-1][:, :n]


def _count(remove: SupportsIndex) -> int:
    try:
        count = -1 if isinstance(remove, bool) else operator.index(remove)
    except TypeError:
        count = -1
    if count < 0:
        raise ShapeError(f"remove must be a whole number of directions from 0 on, found {remove!r}")
    return count
