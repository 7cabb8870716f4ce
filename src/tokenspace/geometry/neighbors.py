"""The rows of a table nearest to a word: exact, one block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, SupportsIndex, get_args

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.geometry.cosine import unit_rows
from tokenspace.geometry.rows import dots
from tokenspace.geometry.transform import View, seen
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.table import Table

Metric = Literal["cosine", "dot", "l2"]


class Hit(NamedTuple):
    """A row that answers a query; the higher its score, the better."""

    token: str
    id: int
    score: float


def neighbors(
    table: Table | View,
    query: str | int | ArrayLike,
    k: int = 10,
    metric: Metric = "cosine",
    center: bool = False,
    exclude_query: bool = True,
    remove: SupportsIndex = 0,
) -> list[Hit]:
    """The ``k`` rows nearest to ``query`` (a word, an id, or a vector; see ``resolve``), best first.

    ``metric``: ``cosine``; ``dot``, the inner product; ``l2``, minus the Euclidean distance, so that higher
    is nearer here too. ``center`` first subtracts the mean row from every row and from the query, which takes
    out the direction that all tokens share; ``remove`` also takes out that many directions in which they
    vary most (Mu & Viswanath 2018; see ``Transform``). For many queries of one table, make a ``View`` of it.

    Equal scores come in id order, and equal rows score equal wherever they lie. The query's own rows are left
    out unless ``exclude_query`` is False. Special, unused and byte tokens compete like any other: what lies
    near is a fact about the table. Rows that no token names (``[unused-row-N]``) don't. Fewer than ``k`` hits
    if there are no more rows.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 0], [0.8, 0.6], [0, -1]], np.float32), Vocab(["cat", "dog", "of"]))
    >>> neighbors(table, "cat", k=1)
    [Hit(token='dog', id=1, score=0.800000011920929)]
    """
    check_metric(metric)
    view = seen(table, center, remove)
    found, target = view.vector(query)
    scores = np.empty(len(view.table), np.float32)
    if metric == "cosine":
        target = unit_rows(target)
        for start, rows in view.unit_blocks():
            scores[start : start + len(rows)] = np.clip(dots(rows, target), -1, 1)
    else:
        for start, rows in view.blocks():
            if metric == "l2":
                apart = rows - target
                block = -np.sqrt(dots(apart, apart))
            else:
                block = dots(rows, target)
            scores[start : start + len(rows)] = block
    return best(view.table, scores, k, found.ids if exclude_query else ())


def check_metric(metric: str) -> None:
    """``ShapeError`` if there is no such metric."""
    if metric not in get_args(Metric):
        raise ShapeError(f"metric {metric!r} is not known; allowed: {', '.join(get_args(Metric))}")


def check_k(k: int) -> None:
    """``ShapeError`` unless at least one row is asked for."""
    if isinstance(k, bool) or k < 1:
        raise ShapeError(f"k must be at least 1, found {k}")


def best(table: Table, scores: Float[Array, " V"], k: int, excluded: Iterable[int]) -> list[Hit]:
    """The ``k`` best-scored rows that are neither ``excluded`` nor placeholders: by score, then by id."""
    check_k(k)
    competes = np.ones(len(scores), bool)
    competes[list(excluded)] = False
    competes[table.vocab.placeholders()] = False
    ids = np.flatnonzero(competes)
    if k < ids.size:
        kth = np.partition(scores[ids], ids.size - k)[ids.size - k]
        ids = ids[scores[ids] >= kth]  # all that tie for the last place, so that the id decides
    order = np.lexsort((ids, -scores[ids]))[:k]
    return [Hit(table.vocab[i], i, float(scores[i])) for i in ids[order].tolist()]
