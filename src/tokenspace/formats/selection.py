"""Some rows of a table: the first so many, or those of given ids, in the order given."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Int
from tokenspace.table import Table

ROWS_TAKEN, RENUMBERED = "rows_taken", "rows_renumbered"  # keys of provenance


def checked_limit(limit: Any) -> int | None:
    """``limit`` as a whole number from 1 on, or None; ``ShapeError`` for anything else."""
    if limit is None:
        return None
    try:
        number = 0 if isinstance(limit, (bool, np.bool_)) else operator.index(limit)
    except TypeError:
        number = 0
    if number < 1:
        raise ShapeError(f"limit is a number of rows, a whole number from 1 on; found {limit!r}")
    return number


def needed(rows: slice | ArrayLike) -> int | None:
    """How many rows must be read from the start to have ``rows``; None: all."""
    if isinstance(rows, slice):
        ends = (rows.start or 0, rows.stop, rows.step or 1)
        forward = all(isinstance(end, int) for end in ends) and min(ends) >= 0
        return max(rows.stop, 1) if forward else None
    ids = np.asarray(rows)
    return int(ids.max()) + 1 if ids.size and ids.dtype.kind in "iu" and ids.max() >= 0 else None


def selected(table: Table, rows: slice | ArrayLike) -> Table:
    """The table of these rows alone, numbered anew from 0 in the order given.

    Its tokenizer stays only if all rows do, in order: it would give ids that mean other rows. A slice with
    step 1 of a mapped table stays mapped; other rows are copied. ``TokenIdError`` for an id without a row,
    ``ShapeError`` if no row is named.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 2], [3, 4], [5, 6]], np.float32), Vocab(["a", "b", "c"]))
    >>> list(selected(table, [2, 0]).vocab), selected(table, slice(1, None)).weight.tolist()
    (['c', 'a'], [[3.0, 4.0], [5.0, 6.0]])
    """
    ids = _ids(rows, len(table))
    if not ids.size:
        raise ShapeError(f"rows={rows!r} selects no row; a table has at least one")
    chain = bool(np.all(np.diff(ids) == 1))
    part = slice(int(ids[0]), int(ids[-1]) + 1) if chain else ids
    whole = chain and ids.size == len(table)
    return Table(
        table.weight[part],
        table.vocab.take(ids),
        table.tokenizer if whole else None,
        None if table.output is None else table.output[part],
        table.provenance if whole else table.provenance | _taken(ids, chain),
        table.subwords,
    )


def _taken(ids: Int[Array, " K"], chain: bool) -> dict[str, Any]:
    """For provenance: how many rows these are, and whether their ids are no longer what they were."""
    return {ROWS_TAKEN: ids.size} | ({} if chain and ids[0] == 0 else {RENUMBERED: True})


def _ids(rows: slice | ArrayLike, total: int) -> Int[Array, " K"]:
    if isinstance(rows, slice):
        try:
            return np.arange(total)[rows]
        except (TypeError, ValueError):
            raise ShapeError(f"rows is {rows!r}; a slice is of whole numbers, its step not 0") from None
    ids = checked_ids(rows, total)
    if ids.ndim != 1:
        raise TokenIdError(f"rows is a list of ids, found an array of shape {ids.shape}")
    return np.asarray(ids, np.int64)
