"""float64 to float32, the most that a table holds: which rows that changes, and what is too large for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array, Float

_ROWS_AT_ONCE = 16_384
LARGEST = float(np.finfo(np.float32).max)


def rounded(matrix: Array, origin: object, first_row: int = 0) -> tuple[Float[Array, "V D"], Array]:
    """``matrix`` (V, D) of float64, whatever its byte order, as float32; and which rows are other now: (V,)
    of bool.

    NaN and infinity stay what they are. A finite number that float32 can't hold is a ``TableFormatError``
    that names ``origin``, its file, and the row, counted from ``first_row``.

    >>> weight, changed = rounded(np.array([[0.5, 1.0], [0.1, 1.0]]), "x.npy")
    >>> weight.dtype, changed.tolist()
    (dtype('float32'), [False, True])
    """
    weight = np.empty(matrix.shape, np.float32)
    changed = np.empty(len(matrix), bool)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        exact = np.asarray(matrix[rows], np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            weight[rows] = exact
        new = weight[rows]
        large = np.isinf(new) & np.isfinite(exact)
        if large.any():
            row, column = np.argwhere(large)[0].tolist()
            raise TableFormatError(
                f"{origin}: row {first_row + start + row:,} holds {exact[row, column]:.6g}, too large for "
                f"float32, which is the most that a table holds (to {LARGEST:.6g}); scale the numbers down"
            )
        changed[rows] = ((new != exact) & ~np.isnan(exact)).any(axis=1)
    return weight, changed


def read_from(*changed: Array) -> dict[str, Any]:
    """What ``provenance["read_from"]`` says of it, for one matrix or several of the same rows: the numbers'
    type before, and, if there are any, in how many rows one changed.

    >>> read_from(np.array([False, True]), np.array([False, True])), read_from(np.array([False]))
    ({'rounded_from': 'float64', 'rounded_rows': 1}, {'rounded_from': 'float64'})
    """
    rows = int(np.logical_or.reduce(changed).sum())
    return {"rounded_from": "float64", **({"rounded_rows": rows} if rows else {})}
