"""How surely a score is known: rank correlation, and 95 % intervals for what the evaluations report."""

from __future__ import annotations

import math
import operator
from statistics import NormalDist
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array, ArrayLike, Float, Int

LEVEL = 0.95
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)  # 1.96


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


def mean_ranks(values: ArrayLike) -> Float[Array, " N"]:
    """Each value's rank from 1; values that tie share the mean of their ranks (Kendall 1945, "mid-ranks").

    >>> mean_ranks([30, 10, 20, 20])
    array([4. , 1. , 2.5, 2.5])
    """
    _, place, counts = np.unique(_numbers(values, "ranks"), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's ρ (1904): the product-moment correlation of the ranks, ties sharing their mean rank.

    None where it is not defined: fewer than two values, or all values of one side equal. ``ShapeError`` for
    lists of two lengths, and for NaN, which has no rank.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    left, right = (_numbers(side, "a rank correlation") for side in (a, b))
    if left.ndim != 1 or left.shape != right.shape:
        raise ShapeError(
            f"a rank correlation needs two lists of one length, found shapes {left.shape} and {right.shape}"
        )
    if left.size < 2:
        return None
    x, y = (mean_ranks(side) - (side.size + 1) / 2 for side in (left, right))
    spread = math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, float(x @ y) / spread)) if spread > 0 else None


def spearman_interval(rho: float, n: SupportsIndex) -> Interval | None:
    """Where the ρ of ``n`` pairs may truly lie: Fisher's z = artanh ρ with the variance (1 + ρ²/2) / (n - 3)
    that Bonett & Wright (2000, Psychometrika 65:1) give for Spearman's coefficient.

    None where the formula says nothing: n ≤ 3, or |ρ| = 1. ``ShapeError`` for a ρ outside -1 … 1.

    >>> low, high = spearman_interval(0.666, 337)
    >>> round(low, 3), round(high, 3)
    (0.595, 0.727)
    """
    n = _count("n", n)
    if not -1 <= rho <= 1:
        raise ShapeError(f"a correlation lies from -1 to 1, found {rho!r}")
    if n <= 3 or abs(rho) == 1:
        return None
    half = _Z * math.sqrt((1 + rho * rho / 2) / (n - 3))
    return Interval(math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))


def share_interval(hits: SupportsIndex, n: SupportsIndex) -> Interval | None:
    """Where the share of which ``hits`` of ``n`` is a sample may truly lie (Wilson 1927). None if n = 0.
    ``ShapeError`` unless 0 ≤ hits ≤ n.

    >>> low, high = share_interval(9, 10)
    >>> round(low, 3), round(high, 3)
    (0.596, 0.982)
    """
    hits, n = _count("hits", hits), _count("n", n)
    if hits > n:
        raise ShapeError(f"hits are some of n, found {hits:,} of {n:,}; were the two exchanged?")
    if n == 0:
        return None
    share, z2 = hits / n, _Z * _Z
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if hits == 0 else center - half  # where rounding would leave 1e-17
    high = 1.0 if hits == n else center + half
    return Interval(low, high)


def mean_interval(values: ArrayLike) -> Interval | None:
    """Where the mean of which ``values`` are a sample may truly lie: mean ± 1.96 s / √n, the large-sample
    interval (n of a hundred or more), s with n - 1. None for fewer than two values.
    ``ShapeError`` if the values are no list of numbers, or hold NaN.

    >>> low, high = mean_interval([0.0, 1.0] * 50)
    >>> round(low, 3), round(high, 3)
    (0.402, 0.598)
    """
    numbers = _numbers(values, "a mean")
    if numbers.ndim != 1:
        raise ShapeError(f"a mean's interval needs one list of numbers, found the shape {numbers.shape}")
    if numbers.size < 2:
        return None
    center = float(numbers.mean())
    half = _Z * float(numbers.std(ddof=1)) / math.sqrt(numbers.size)
    return Interval(center - half, center + half)


def _numbers(values: ArrayLike, what: str) -> Float[Array, "*axes"] | Int[Array, "*axes"]:
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of several lengths
        raise ShapeError(f"{what} needs one list of numbers ({error})") from None
    if array.size == 0:
        return array.astype(np.float64)
    if array.dtype.kind == "V":  # bfloat16, float8: numbers that NumPy itself doesn't know
        array = array.astype(np.float32)
    if array.dtype.kind not in "iuf":
        raise ShapeError(f"{what} needs numbers, found {array.dtype} (first value: {array.flat[0]!r})")
    if np.isnan(array).any():
        raise ShapeError(
            f"{what} needs numbers, found NaN at {int(np.isnan(array).argmax()):,}; leave it out"
        )
    return array


def _count(name: str, value: Any) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ShapeError(f"{name} must be a whole number from 0 on, found {value!r}")
    return number
