"""How surely a score is known: rank correlation, and 95 % intervals for what the evaluations report."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array, ArrayLike, Float

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
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's ρ (1904): the product-moment correlation of the ranks, ties sharing their mean rank.

    None where it is not defined: fewer than two values, or all values of one side equal.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    left, right = np.asarray(a), np.asarray(b)
    if left.ndim != 1 or left.shape != right.shape:
        raise ShapeError(
            f"a rank correlation needs two lists of one length, found shapes {left.shape} and {right.shape}"
        )
    if left.size < 2:
        return None
    x, y = (mean_ranks(side) - (side.size + 1) / 2 for side in (left, right))
    spread = math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, float(x @ y) / spread)) if spread > 0 else None


def spearman_interval(rho: float, n: int) -> Interval | None:
    """Where the ρ of ``n`` pairs may truly lie: Fisher's z = artanh ρ with the variance (1 + ρ²/2) / (n - 3)
    that Bonett & Wright (2000, Psychometrika 65:1) give for Spearman's coefficient.

    None where the formula says nothing: n ≤ 3, or |ρ| = 1.

    >>> low, high = spearman_interval(0.666, 337)
    >>> round(low, 3), round(high, 3)
    (0.595, 0.727)
    """
    if n <= 3 or abs(rho) >= 1:
        return None
    half = _Z * math.sqrt((1 + rho * rho / 2) / (n - 3))
    return Interval(math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))


def share_interval(hits: int, n: int) -> Interval | None:
    """Where the share of which ``hits`` of ``n`` is a sample may truly lie (Wilson 1927). None if n = 0.

    >>> low, high = share_interval(9, 10)
    >>> round(low, 3), round(high, 3)
    (0.596, 0.982)
    """
    if n == 0:
        return None
    share, z2 = hits / n, _Z * _Z
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low = 0.0 if hits == 0 else center - half  # where rounding would leave 1e-17
    high = 1.0 if hits == n else center + half
    return Interval(low, high)


def mean_interval(values: Float[Array, " N"]) -> Interval | None:
    """Where the mean of which ``values`` are a sample may truly lie: mean ± 1.96 s / √n, the large-sample
    interval (n of a hundred or more), s with n - 1. None for fewer than two values.

    >>> low, high = mean_interval(np.array([0.0, 1.0] * 50))
    >>> round(low, 3), round(high, 3)
    (0.402, 0.598)
    """
    if values.size < 2:
        return None
    center = float(values.mean())
    half = _Z * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Interval(center - half, center + half)
