"""Divergence: rows that have grown beyond all use, found while a run trains and before anything is saved."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array, Float

LARGEST = 1000.0  # of any number in a matrix; trained rows stay below 10
_GROWTH = 10.0  # times the largest number that training began with, where that is more
_SHARE = 0.01  # of the time, at most, goes into looking
_ROWS_AT_ONCE = 16_384


class Diverged(ShapeError):
    """Training left the numbers that mean anything; the message names the setting to lower."""


class Limit:
    """The largest magnitude that the numbers of a run's matrices may have.

    >>> limit = Limit([np.ones((2, 3), np.float32)])
    >>> limit.excess([np.full((2, 3), 5.0, np.float32)]), limit.excess([np.float32([[1e6, 0]])])
    ('', 'a row holds 1e+06, and 1,000 is the most that makes sense')
    """

    def __init__(self, start: Iterable[Float[Array, ...]]) -> None:
        self._largest = max(LARGEST, _GROWTH * max(map(magnitude, start), default=0.0))
        self._due = 0.0

    def is_due(self) -> bool:
        """Return whether it is time to look again, so that looking costs a hundredth of the run."""
        return time.perf_counter() >= self._due

    def excess(self, matrices: Iterable[Float[Array, ...]]) -> str:
        """Return what is wrong with the matrices, in words; empty if nothing is."""
        began = time.perf_counter()
        found = ""
        for matrix in matrices:
            largest = magnitude(matrix)
            if math.isnan(largest) or math.isinf(largest):
                found = "a row holds NaN or infinity"
            elif largest > self._largest:
                found = f"a row holds {largest:.3g}, and {self._largest:,.0f} is the most that makes sense"
            if found:
                break
        now = time.perf_counter()
        self._due = now + (now - began) / _SHARE
        return found


def magnitude(matrix: Float[Array, ...]) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 for an empty matrix.

    >>> magnitude(np.float32([[1, -3]])), magnitude(np.float32([[1, np.nan]]))
    (3.0, nan)
    """
    largest = 0.0
    for first in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = matrix[first : first + _ROWS_AT_ONCE]
        with np.errstate(invalid="ignore"):
            high, low = float(rows.max(initial=0.0)), float(rows.min(initial=0.0))
        if math.isnan(high) or math.isnan(low):
            return math.nan
        largest = max(largest, high, -low)
    return largest
