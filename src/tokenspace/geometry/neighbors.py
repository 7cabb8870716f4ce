"""The rows of a table nearest to a word: exact, one block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.geometry.compose import resolve
from tokenspace.geometry.cosine import unit_rows
from tokenspace.mapped import release
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.table import Table, check_finite

LARGEST = 1e15  # sums of squares of such numbers still lie in float32, whatever the width
BLOCK = 2**22  # numbers held as float32 at a time: 16 MB

Metric = Literal["cosine", "dot", "l2"]


class Hit(NamedTuple):
    """A row that answers a query; the higher its score, the better."""

    token: str
    id: int
    score: float


def neighbors(
    table: Table,
    query: str | int | ArrayLike,
    k: int = 10,
    metric: Metric = "cosine",
    center: bool = False,
    exclude_query: bool = True,
) -> list[Hit]:
    """The ``k`` rows nearest to ``query`` (a word, an id, or a vector; see ``resolve``), best first.

    ``metric``: ``cosine``; ``dot``, the inner product; ``l2``, minus the Euclidean distance, so that higher
    is nearer here too. ``center`` first subtracts the mean row from every row and from the query, which takes
    out the direction that all tokens share (Mu & Viswanath 2018, algorithm 1, step 1).

    Equal scores come in id order, and equal rows score equal wherever they lie. The query's own rows are left
    out unless ``exclude_query`` is False. Special, unused and byte tokens compete like any other: what lies
    near is a fact about the table. Rows that no token names (``[unused-row-N]``) don't. Fewer than ``k`` hits
    if there are no more rows.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 0], [0.8, 0.6], [0, -1]], np.float32), Vocab(["cat", "dog", "of"]))
    >>> neighbors(table, "cat", k=1)
    [Hit(token='dog', id=1, score=0.800000011920929)]
    """
    found = resolve(table, query)
    mean = _mean_row(table) if center else np.zeros(table.dim, np.float32)
    target = found.vector - mean
    if metric == "cosine":
        target = unit_rows(target)
    elif metric not in ("dot", "l2"):
        raise ShapeError(f"metric {metric!r} is not known; allowed: cosine, dot, l2")
    scores = np.empty(len(table), np.float32)
    for start, rows in comparable_blocks(table):
        if center:
            rows = rows - mean
        if metric == "l2":
            apart = rows - target
            block = -np.sqrt(dots(apart, apart))
        elif metric == "dot":
            block = dots(rows, target)
        else:
            block = np.clip(dots(unit_rows(rows), target), -1, 1)
        scores[start : start + len(rows)] = block
    return best(table, scores, k, found.ids if exclude_query else ())


def row_blocks(table: Table) -> Iterator[tuple[int, Float[Array, "N D"]]]:
    """(first id, rows in float32) over the whole table, a block at a time. Of a large table that is mapped,
    one block is in memory: don't keep what was yielded.

    ``TableFormatError`` at the first block with NaN or infinity: such a row would rank nowhere, silently.
    """
    step = max(1, BLOCK // table.dim)
    for start in range(0, len(table), step):
        stored = table.weight[start : start + step]
        rows = np.asarray(stored, np.float32)
        check_finite(table, rows, start)
        yield start, rows
        release(stored, table.weight)


def comparable_blocks(table: Table) -> Iterator[tuple[int, Float[Array, "N D"]]]:
    """``row_blocks`` of numbers whose products stay in float32; ``TableFormatError`` for larger ones."""
    for start, rows in row_blocks(table):
        if (largest := float(np.abs(rows).max())) > LARGEST:
            raise TableFormatError(
                f"rows {start:,} to {start + len(rows) - 1:,} of the table hold a number of size "
                f"{largest:.3g}; above {LARGEST:.0e} its products leave float32: scale the table down"
            )
        yield start, rows


def dots(rows: Float[Array, "N D"], target: Float[Array, "*N D"]) -> Float[Array, " N"]:
    """Each row's inner product with ``target``: one vector, or one per row.

    Not ``rows @ target``: BLAS may sum the same row in another order where it stands elsewhere in the block,
    and two equal rows would then differ in the last bit.
    """
    return np.einsum("...d,...d->...", rows, target)


def best(table: Table, scores: Float[Array, " V"], k: int, excluded: Iterable[int]) -> list[Hit]:
    """The ``k`` best-scored rows that are neither ``excluded`` nor placeholders: by score, then by id."""
    if isinstance(k, bool) or k < 1:
        raise ShapeError(f"k must be at least 1, found {k}")
    competes = np.ones(len(scores), bool)
    competes[list(excluded)] = False
    competes[table.vocab.placeholders()] = False
    ids = np.flatnonzero(competes)
    if k < ids.size:
        kth = np.partition(scores[ids], ids.size - k)[ids.size - k]
        ids = ids[scores[ids] >= kth]  # all that tie for the last place, so that the id decides
    order = np.lexsort((ids, -scores[ids]))[:k]
    return [Hit(table.vocab[i], i, float(scores[i])) for i in ids[order].tolist()]


def _mean_row(table: Table) -> Float[Array, " D"]:
    total = np.zeros(table.dim, np.float64)
    for _, rows in comparable_blocks(table):
        total += rows.sum(axis=0, dtype=np.float64)
    return (total / len(table)).astype(np.float32)
