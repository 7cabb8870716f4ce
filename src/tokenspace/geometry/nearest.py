"""The nearest rows of many rows at once, by matrix products of blocks of queries and blocks of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, SupportsIndex

import numpy as np

from tokenspace.geometry.scores import Metric, check_k, check_metric, exact_scores
from tokenspace.geometry.transform import Progress, View, mean_row, seen
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Float, Int
from tokenspace.table import Table

NUMBERS_AT_ONCE = 2**22  # of rows that are scored exactly
HELD = 1 << 30  # bytes of rows in float32 that more than one pass may keep
QUERIES = 1_024  # rows that are asked about in one pass over the table
SLACK = 8  # candidates beyond k: float32 products may exchange those that are all but equal
SAMPLED = 4  # of the first block every fourth column tells what is far from being near


class Nearest(NamedTuple):
    """For each of N rows the ids (N, K) of the nearest others, best first, and their scores (N, K).

    Where a table has fewer rows, the id is -1 and the score NaN.
    """

    ids: Int[Array, "N K"]
    scores: Float[Array, "N K"]


def nearest(
    table: Table | View,
    ids: ArrayLike | None = None,
    k: int = 10,
    metric: Metric = "cosine",
    center: bool = False,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
    unnamed: bool = False,
) -> Nearest:
    """The ``k`` rows nearest to each row of ``ids`` (N,), by default to every row of the table.

    What ``neighbors`` would answer to each id; switches and scores are its own, and so are the rows that
    don't compete: the row itself and, but for ``unnamed``, those that no token names. Of rows whose scores
    differ only by float32 rounding any may be taken.
    ``progress(done, total)`` hears of rows done.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32), Vocab(["cat", "dog", "of"]))
    >>> nearest(table, k=1).ids
    array([[1],
           [0],
           [1]], dtype=int32)
    """
    check_metric(metric)
    check_k(k)
    view = seen(table, center, remove)
    rows = len(view.table)
    asked = np.arange(rows) if ids is None else checked_ids(ids, rows).reshape(-1).astype(np.int64)
    search = _Search(view, min(k, rows), metric, unnamed)
    if len(asked) > QUERIES and 4 * view.table.weight.size <= HELD:
        search.hold()
    found, scores = np.full((len(asked), k), -1, np.int32), np.full((len(asked), k), np.nan, np.float32)
    for start in range(0, len(asked), QUERIES):
        batch = slice(start, start + QUERIES)
        found[batch, : search.k], scores[batch, : search.k] = search(asked[batch])
        if progress is not None:
            progress(min(start + QUERIES, len(asked)), len(asked))
    return Nearest(found, scores)


class _Search:
    def __init__(self, view: View, k: int, metric: Metric, unnamed: bool):
        self._view, self.k, self._metric = view, k, metric
        self._unnamed = np.empty(0, np.int64) if unnamed else view.table.vocab.placeholders()
        # Distances from anywhere are the same; from amid the rows their squares lose no digits.
        self._origin = mean_row(view).astype(np.float32) if metric == "l2" else None
        self._held: list[tuple[int, Float[Array, "rows D"]]] | None = None

    def hold(self) -> None:
        """Keep the rows as they are compared, for many passes."""
        self._held = [(start, rows.copy()) for start, rows in self._blocks()]

    def _blocks(self) -> Iterable[tuple[int, Float[Array, "rows D"]]]:
        if self._held is not None:
            return self._held
        if self._origin is not None:
            return ((start, rows - self._origin) for start, rows in self._view.blocks())
        return self._view.unit_blocks() if self._metric == "cosine" else self._view.blocks()

    def __call__(self, ids: Int[Array, " N"]) -> tuple[Int[Array, "N K"], Float[Array, "N K"]]:
        """The ids and scores of the ``k`` best for each of ``ids``; -1 and NaN where there are no more."""
        view = self._view
        targets = view.units(ids) if self._metric == "cosine" else view.rows(ids)
        compared = targets if self._origin is None else targets - self._origin
        pool = _Pool(len(ids), self.k + SLACK)
        room = np.empty(0, np.float32)  # one place for all products: fresh pages cost as much as they do
        for start, rows in self._blocks():
            if room.size < len(ids) * len(rows):
                room = np.empty(len(ids) * len(rows), np.float32)
            scores = np.matmul(compared, rows.T, out=room[: len(ids) * len(rows)].reshape(len(ids), -1))
            if self._metric == "l2":  # half of |target|² less the squared distance: ranks as distances do
                scores -= np.einsum("nd,nd->n", rows, rows) / 2
            here = np.flatnonzero((ids >= start) & (ids < start + len(rows)))
            scores[here, ids[here] - start] = -np.inf
            unnamed = self._unnamed[(self._unnamed >= start) & (self._unnamed < start + len(rows))]
            scores[:, unnamed - start] = -np.inf
            pool.offer(start, scores)
        return self._settled(targets, pool)

    def _settled(
        self, targets: Float[Array, "N D"], pool: _Pool
    ) -> tuple[Int[Array, "N K"], Float[Array, "N K"]]:
        """The candidates scored as ``neighbors`` scores, and the ``k`` best of them by score, then by id."""
        found = np.full((len(targets), self.k), -1, np.int32)
        scores = np.full((len(targets), self.k), np.nan, np.float32)
        at = np.repeat(np.arange(len(targets)), np.diff(pool.starts))
        exact = np.empty(len(at), np.float64)
        step = max(1, NUMBERS_AT_ONCE // targets.shape[1])
        for start in range(0, len(at), step):
            part = slice(start, start + step)
            exact[part] = exact_scores(self._view.rows(pool.ids[part]), targets[at[part]], self._metric)
        order = np.lexsort((pool.ids, -exact, at))
        place = np.arange(len(at)) - pool.starts[at]
        kept = place < self.k
        found[at[kept], place[kept]] = pool.ids[order][kept]
        scores[at[kept], place[kept]] = exact[order][kept]
        return found, scores


class _Pool:
    """The ``size`` best candidates of each of ``queries`` so far.

    They lie end to end: those of query q are ``ids[starts[q]:starts[q + 1]]``, best first.
    """

    def __init__(self, queries: int, size: int):
        self._size = size
        self.starts = np.zeros(queries + 1, np.int64)
        self.ids = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._least = np.full(queries, -np.inf, np.float32)

    def offer(self, start: int, scores: Float[Array, "N rows"]) -> None:
        """Take the rows from ``start`` on as candidates, by their scores for each query."""
        least = self._least
        if not self.ids.size:  # what some columns hold is far already for most of the others
            columns = scores[:, ::SAMPLED]
            if columns.shape[1] > self._size:
                least = np.partition(columns, -self._size, axis=1)[:, -self._size]
        flat = np.flatnonzero(scores >= least[:, None])
        values = scores.reshape(-1)[flat]
        flat, values = flat[values > -np.inf], values[values > -np.inf]
        if not flat.size:
            return
        query, column = np.divmod(flat, scores.shape[1])
        at = np.concatenate([np.repeat(np.arange(len(least)), np.diff(self.starts)), query])
        ids = np.concatenate([self.ids, column + start])
        values = np.concatenate([self._scores, values])
        order = np.lexsort((ids, -values, at))
        first = np.searchsorted(at[order], np.arange(len(least)))
        order = order[np.arange(len(order)) - first[at[order]] < self._size]
        self.ids, self._scores = ids[order], values[order]
        self.starts = np.searchsorted(at[order], np.arange(len(least) + 1))
        full = np.diff(self.starts) == self._size
        self._least[full] = self._scores[self.starts[1:][full] - 1]
