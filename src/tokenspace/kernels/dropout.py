"""Dropout without a stored mask: whether a number is dropped is a hash of the seed and its place.

    y[n, z] = x[n, z] / (1 - p) where hash(seed, n, z) >= p · 2**32, else 0

Each number is dropped with probability p (Srivastava et al. 2014), as far as a hash can be told from chance.
The backward asks the hash again instead of a mask of N·D bytes, and the mask is the same at any number of
threads and in whatever order rows are done. The seed and a row's place are mixed as in SplitMix64 (Steele,
Lea and Flood 2014), which gives two keys; a multiply and xor-shift hash of the column goes between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.kernels import memory
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.half import bits, computed_in, narrow, rounded, widen
from tokenspace.kernels.threads import cut, share_ranges


class Dropout(NamedTuple):
    """p: the share to drop, 0 to 1. seed: any 64-bit integer."""

    p: float
    seed: int


def dropout(x: np.ndarray, drop: Dropout, *, out: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """``x`` (N, D) with a share ``drop.p`` of its numbers zero and the others divided by 1 - p.

    It is linear and its own backward: the gradient goes through the same call. ``out`` may be ``x``.

    >>> x = np.ones((2, 8), np.float32)
    >>> dropout(x, Dropout(0.5, seed=1))
    array([[0., 0., 2., 0., 0., 0., 2., 2.],
           [0., 0., 2., 2., 0., 2., 2., 0.]], dtype=float32)
    """
    out = memory.empty(x.shape, x.dtype) if out is None else out
    seed, threshold, factor = settings(drop, computed_in(x))
    arguments = (bits(x), seed, threshold, factor, bits(out))
    share_ranges(lambda start, stop: _drop(start, stop, *arguments), cut(len(x), x.size), threads)
    return out


def fill_factors(drop: Dropout, out: np.ndarray) -> None:
    """Fill ``out`` (N, D), float32 or float64, with what `dropout` multiplies by: 0 or 1 / (1 - p).

    >>> out = np.empty((2, 8), np.float32)
    >>> fill_factors(Dropout(0.5, seed=1), out)
    >>> out
    array([[0., 0., 2., 0., 0., 0., 2., 2.],
           [0., 0., 2., 2., 0., 2., 2., 0.]], dtype=float32)
    """
    _fill_factors(drop.seed, *_threshold_and_factor(drop.p), out)


def settings(drop: Dropout, dtype: type[np.floating]) -> tuple[np.uint64, np.uint64, np.floating]:
    """What compiled code takes: the seed's bits, the threshold of the hash, and the factor 1 / (1 - p)."""
    threshold, factor = _threshold_and_factor(drop.p)
    return np.uint64(drop.seed & (2**64 - 1)), np.uint64(threshold), dtype(factor)


def _threshold_and_factor(p: float) -> tuple[int, float]:
    return round(p * 2**32), 1.0 / (1.0 - p) if p < 1.0 else 0.0


@kernel
def _fill_factors(seed, threshold, factor, out):
    for n in range(out.shape[0]):
        first, second = row_keys(np.uint64(seed), n)
        for z in range(out.shape[1]):
            out[n, z] = factor if is_kept(first, second, z, np.uint64(threshold)) else 0.0


@kernel
def _drop(start, stop, x, seed, threshold, factor, out):
    for n in range(start, stop):
        first, second = row_keys(seed, n)
        for z in range(x.shape[1]):
            kept = is_kept(first, second, z, threshold)
            out[n, z] = narrow(widen(x[n, z]) * factor if kept else factor * 0, out)


@kernel
def drop_row(row, n, seed, threshold, factor, like):
    """Drop from ``row`` (D,), row ``n``, in place; what is kept is rounded to the type of ``like``."""
    first, second = row_keys(seed, n)
    for z in range(row.shape[0]):
        kept = is_kept(first, second, z, threshold)
        row[z] = rounded(row[z] * factor, like) if kept else factor * 0


@kernel
def row_keys(seed, n):
    """Two 32-bit keys for a row: the halves of a SplitMix64 output."""
    mixed = np.uint64(seed + np.uint64(n + 1) * np.uint64(0x9E3779B97F4A7C15))
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    mixed = np.uint64(mixed ^ (mixed >> np.uint64(31)))
    return np.uint32(mixed), np.uint32(mixed >> np.uint64(32))


@kernel
def is_kept(first, second, z, threshold):
    """Whether column ``z`` of the row with these keys is kept."""
    mixed = np.uint32(np.uint32(z) ^ first)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x7FEB352D))
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(15))) + second)
    mixed = np.uint32(mixed * np.uint32(0x846CA68B))
    mixed = np.uint32(mixed ^ (mixed >> np.uint32(16)))
    return np.uint64(mixed) >= threshold
