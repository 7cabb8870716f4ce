"""The transformer's input in one pass: every number of the output is written once.

    s[n] = scale · E[ids[n]] + T1[ids1[n]] + T2[ids2[n]] + …
    x[n] = dropout(gamma · (s[n] - mean[n]) · rstd[n] + beta)       where the recipe has LayerNorm and dropout

A row is put together in a scratch row that stays in the cache and leaves it once. Done operation by
operation, as eager frameworks do, each step reads and writes the whole (N, D) in memory. Each product and sum
is rounded to the table's type, as it would be then, so that sums have the same bits either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from tokenspace.kernels import memory, vector
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.dropout import Dropout, drop_row, settings
from tokenspace.kernels.half import bits, computed_in, narrow, rounded, widen
from tokenspace.kernels.threads import cut, share_ranges

Added = Sequence[tuple[np.ndarray, np.ndarray]]
"""Tables (R, D) with ids (M,) each: row n of the input takes row ids[n % M]; M divides N."""

STREAMED = 1 << 24  # bytes of an output that is past most caches anyway: it is written around them


class Norm(NamedTuple):
    """LayerNorm's gamma and beta (D,), None for 1 and 0; eps is added to the variance (Ba et al. 2016)."""

    gamma: np.ndarray | None
    beta: np.ndarray | None
    eps: float


class Summing(NamedTuple):
    """The arguments of `sum_row` that stay the same from row to row."""

    weight: np.ndarray
    ids: np.ndarray
    scale: np.floating
    tables: tuple[np.ndarray, ...]
    table_ids: tuple[np.ndarray, ...]


class Embedded(NamedTuple):
    """The output (N, D); for LayerNorm's backward, each row's mean and 1 / standard deviation (N,)."""

    out: np.ndarray
    mean: np.ndarray | None
    rstd: np.ndarray | None


def embed(
    weight: np.ndarray,
    ids: np.ndarray,
    scale: float | None = None,
    added: Added = (),
    norm: Norm | None = None,
    dropout: Dropout | None = None,
    *,
    out: np.ndarray | None = None,
    threads: int = 1,
) -> Embedded:
    """Rows (N, D) of the table ``weight`` (V, D) for ``ids`` (N,), with what the recipe does to them.

    All tables, gamma, beta and ``out`` are C-contiguous and of one type. Ids are not checked here: an id
    outside its table reads memory that is not its own.

    >>> weight, position = np.eye(3, dtype=np.float32), np.full((2, 3), 0.5, np.float32)
    >>> embed(weight, np.array([2, 0, 1, 1]), scale=2.0, added=[(position, np.arange(2))]).out
    array([[0.5, 0.5, 2.5],
           [2.5, 0.5, 0.5],
           [0.5, 2.5, 0.5],
           [0.5, 2.5, 0.5]], dtype=float32)
    """
    wide = computed_in(weight)
    shape = (len(ids), weight.shape[1])
    out = memory.empty(shape, weight.dtype) if out is None else out
    sums = summing(weight, ids, scale, added)
    if norm is None:
        mean = rstd = gamma = beta = np.empty(0, wide)
        eps = wide(-1)
    else:
        mean, rstd = np.empty(len(ids), wide), np.empty(len(ids), wide)
        gamma, beta, eps = norm_parameters(norm, weight)
    seed, threshold, factor = settings(dropout or Dropout(0.0, 0), wide)
    streamed = out.nbytes >= STREAMED and vector.can_stream(out)
    period = min((len(own) for own in sums.table_ids), default=len(ids))
    arguments = (period, sums, gamma, beta, eps, mean, rstd, seed, threshold, factor, streamed, bits(out))
    share_ranges(lambda start, stop: _embed(start, stop, *arguments), cut(period, out.size), threads)
    return Embedded(out, None, None) if norm is None else Embedded(out, mean, rstd)


def summing(weight: np.ndarray, ids: np.ndarray, scale: float | None, added: Added) -> Summing:
    """What `sum_row` takes."""
    tables = tuple(bits(table) for table, _ in added)
    table_ids = tuple(np.ascontiguousarray(own, np.int64) for _, own in added)
    factor = computed_in(weight)(1.0 if scale is None else scale)
    return Summing(bits(weight), np.ascontiguousarray(ids, np.int64), factor, tables, table_ids)


def norm_parameters(norm: Norm, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.floating]:
    """Gamma, beta and eps as compiled code takes them: (D,) arrays of the type that it computes in."""
    wide, width = computed_in(weight), weight.shape[1]
    gamma = np.ones(width, wide) if norm.gamma is None else norm.gamma.astype(wide, copy=False)
    beta = np.zeros(width, wide) if norm.beta is None else norm.beta.astype(wide, copy=False)
    return gamma, beta, wide(norm.eps)


@kernel
def _embed(start, stop, period, sums, gamma, beta, eps, mean, rstd, seed, threshold, factor, streamed, out):
    weight, ids, scale, tables, table_ids = sums
    scratch = np.empty((1, out.shape[1]), gamma.dtype)  # two axes: what vector.load takes
    row = scratch[0]
    for first in range(start, stop):
        # The texts' rows for one position follow each other: the position's row stays in the nearest cache.
        for n in range(first, out.shape[0], period):
            sum_row(weight, ids[n], scale, tables, table_ids, n, row)
            if eps >= 0:
                mean[n], rstd[n] = moments(row, eps)
                for z in range(row.shape[0]):
                    row[z] = rounded((row[z] - mean[n]) * rstd[n] * gamma[z] + beta[z], out)
            if threshold > 0:
                drop_row(row, n, seed, threshold, factor, out)
            if streamed:
                vector.stream_row(scratch, out, n)
            else:
                for z in range(row.shape[0]):
                    out[n, z] = narrow(row[z], out)
    vector.fence()


def sum_row(weight, i, scale, tables, table_ids, n, row):
    """row = scale · weight[i] + the row of each table for position n, rounded as the table is.

    Exists inside kernels only. Up to two tables (BERT's) take one loop: a loop each would go over the row
    again.
    """
    raise NotImplementedError("sum_row is for compiled code")


@overload(sum_row)
def _sum_row(weight, i, scale, tables, table_ids, n, row):
    if len(tables) == 0:

        def scaled(weight, i, scale, tables, table_ids, n, row):
            for z in range(row.shape[0]):
                row[z] = rounded(widen(weight[i, z]) * scale, weight)

        return scaled

    if len(tables) == 1:

        def one_added(weight, i, scale, tables, table_ids, n, row):
            first, j = tables[0], table_ids[0][n % table_ids[0].shape[0]]
            for z in range(row.shape[0]):
                row[z] = rounded(rounded(widen(weight[i, z]) * scale, weight) + widen(first[j, z]), weight)

        return one_added

    def two_or_more_added(weight, i, scale, tables, table_ids, n, row):
        first, j = tables[0], table_ids[0][n % table_ids[0].shape[0]]
        second, k = tables[1], table_ids[1][n % table_ids[1].shape[0]]
        for z in range(row.shape[0]):
            x = rounded(rounded(widen(weight[i, z]) * scale, weight) + widen(first[j, z]), weight)
            row[z] = rounded(x + widen(second[k, z]), weight)
        for more in range(2, len(tables)):
            table, m = tables[more], table_ids[more][n % table_ids[more].shape[0]]
            for z in range(row.shape[0]):
                row[z] = rounded(row[z] + widen(table[m, z]), weight)

    return two_or_more_added


@kernel(fastmath={"reassoc", "contract"})
def moments(row, eps):
    """The mean of a row, and 1 / sqrt(variance + eps), the variance being about that mean."""
    total = row[0] * 0
    for z in range(row.shape[0]):
        total += row[z]
    mean = total / row.dtype.type(row.shape[0])
    total = mean * 0
    for z in range(row.shape[0]):
        total += (row[z] - mean) * (row[z] - mean)
    return mean, 1 / np.sqrt(total / row.dtype.type(row.shape[0]) + eps)
