"""The angle between vectors, in numbers that neither overflow nor divide by zero."""

from __future__ import annotations

import math

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array, ArrayLike, Float

SMALL = 1e-15  # from this length down, squares may underflow in float32


def norms(rows: Float[Array, "N D"]) -> Float[Array, " N"]:
    """Each row's Euclidean length, in the rows' type: 0 or infinite where squares leave it."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.sqrt(np.einsum("nd,nd->n", rows, rows))


def unit_rows(rows: ArrayLike) -> Float[Array, "*axes D"]:
    """Scale each row (the last axis) to Euclidean length 1; an all-zero row stays zero.

    The result is new, float32 or wider, so that squares of float16 rows don't overflow. Rows whose squares
    would overflow or vanish in that type are first divided by their largest number.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    >>> unit_rows(np.array([60000.0, 60000.0], np.float16))
    array([0.70710677, 0.70710677], dtype=float32)
    """
    given = np.asarray(rows)
    result = np.array(given, dtype=np.result_type(given.dtype, np.float32), ndmin=1)
    unit = result.reshape(math.prod(result.shape[:-1]), result.shape[-1])
    lengths = norms(unit)
    odd = ~((lengths > SMALL) & (lengths < 1e15))  # zero, lost to underflow, overflowed, or not a number
    if odd.any():
        largest = np.abs(unit[odd]).max(axis=-1, keepdims=True, initial=0)
        unit[odd] /= np.where(largest > 0, largest, 1)
        lengths[odd] = norms(unit[odd])
        lengths[lengths == 0] = 1
    unit /= lengths[:, None]
    return result


def cosine(a: ArrayLike, b: ArrayLike) -> float | Float[Array, "*axes"]:
    """cos(a, b) = a·b / (‖a‖ ‖b‖) along the last axis, in float64; 0 where either is all zeros.

    Two vectors give a number, arrays of them broadcast: (N, D) with (D,) gives (N,).

    >>> round(cosine([0.8, 0.3, 0.5], [0.7, 0.4, 0.5]), 4)
    0.9903
    >>> cosine([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], [0.0, 1.0])
    array([0., 1., 0.])
    """
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[-1]:
        raise ShapeError(
            f"a cosine needs two vectors of one width, found shapes {left.shape} and {right.shape}"
        )
    cosines = np.clip(np.einsum("...d,...d->...", unit_rows(left), unit_rows(right)), -1.0, 1.0)
    return float(cosines) if cosines.ndim == 0 else cosines
