"""A table's rows in float32, one block at a time: what every search and every sum over a table reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.geometry.cosine import norms
from tokenspace.mapped import release
from tokenspace.shapes import Array, Float
from tokenspace.table import Table, check_finite, check_unchanged

LARGEST = 1e15  # sums of squares of such numbers still lie in float32, whatever the width
BLOCK = 2**22  # numbers held as float32 at a time: 16 MB


def row_blocks(table: Table) -> Iterator[tuple[int, Float[Array, "N D"]]]:
    """(first id, rows in float32) over the whole table, a block at a time. Of a large table that is mapped,
    one block is in memory: don't keep what was yielded.

    ``TableFormatError`` at the first block with NaN or infinity: such a row would rank nowhere, silently.
    """
    for start, rows in unchecked_blocks(table):
        check_finite(table, rows, start)
        yield start, rows


def comparable_blocks(table: Table) -> Iterator[tuple[int, Float[Array, "N D"]]]:
    """``row_blocks`` of numbers whose products stay in float32; ``TableFormatError`` for larger ones."""
    for start, rows in unchecked_blocks(table):
        check_comparable(table, rows, start, norms(rows))
        yield start, rows


def unchecked_blocks(table: Table) -> Iterator[tuple[int, Float[Array, "N D"]]]:
    """``row_blocks`` of a table whose rows were checked before."""
    step = max(1, BLOCK // table.dim)
    for start in range(0, len(table), step):
        check_unchanged(table)
        stored = table.weight[start : start + step]
        yield start, np.asarray(stored, np.float32)
        release(stored, table.weight)


def check_comparable(
    table: Table, rows: Float[Array, "N D"], start: int, lengths: Float[Array, " N"]
) -> None:
    """What ``comparable_blocks`` refuses of ``rows``, from row ``start`` on, whose ``norms`` are known: each
    tells of all the row's numbers.
    """
    if (lengths <= LARGEST).all():
        return
    check_finite(table, rows, start)
    if (largest := float(np.abs(rows).max())) > LARGEST:
        raise TableFormatError(
            f"rows {start:,} to {start + len(rows) - 1:,} of the table hold a number of size "
            f"{largest:.3g}; above {LARGEST:.0e} its products leave float32: scale the table down"
        )


def dots(rows: Float[Array, "N D"], target: Float[Array, "*N D"]) -> Float[Array, " N"]:
    """Each row's inner product with ``target``: one vector, or one per row.

    Not ``rows @ target``: BLAS may sum the same row in another order where it stands elsewhere in the block,
    and two equal rows would then differ in the last bit.
    """
    return np.einsum("...d,...d->...", rows, target)
