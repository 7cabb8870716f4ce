"""The backward of `lookup.embed`: from the gradient of its output to what each part of the input gets.

    d      = d_out · mask / (1 - p)                                               dropout
    dx     = rstd · (a - mean(a) - y · mean(a · y)),  a = d · gamma               LayerNorm (Ba et al. 2016)
    dgamma = sum over n of d · y,  dbeta = sum over n of d                        y = (s - mean) · rstd
    dT[j]  = sum of dx[n] over every n that took row j                            each added table

``dx`` is also the gradient of scale · E[ids]; `gradient.segment_sum` makes the token table's of it. The sums
s are computed again from the tables rather than kept: that reads what the forward read, and holds no second
(N, D) between forward and backward.

One pass reads d_out, writes dx, and adds up on the way what the positions and the tables of few rows get: the
rows for one position follow each other, so that their sum stays in the cache. Partial sums belong to pieces
of the work that are cut by the batch's shape alone: the same bits at any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenspace.kernels import memory, vector
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.dropout import Dropout, is_kept, row_keys, settings
from tokenspace.kernels.gradient import adds_in, group, segment_sum
from tokenspace.kernels.half import bits, computed_in, narrow, widen
from tokenspace.kernels.lookup import (
    STREAMED,
    Added,
    Norm,
    norm_parameters,
    sum_row,
    summing,
)
from tokenspace.kernels.threads import cut, share

_FEW = 16  # rows of a table whose gradient is added up during the pass


class InputGradient(NamedTuple):
    """What each part gets.

    - dx: (N, D), the gradient of each position's sum; ``d_out`` itself where nothing came after the sum
    - added: one (R, D) an added table, None where none was needed
    - gamma, beta: (D,), None without a LayerNorm
    """

    dx: np.ndarray
    added: list[np.ndarray | None]
    gamma: np.ndarray | None
    beta: np.ndarray | None


def input_gradient(
    d_out: np.ndarray,
    weight: np.ndarray,
    ids: np.ndarray,
    scale: float | None = None,
    added: Added = (),
    norm: Norm | None = None,
    dropout: Dropout | None = None,
    mean: np.ndarray | None = None,
    rstd: np.ndarray | None = None,
    *,
    needed: Sequence[bool] | None = None,
    out: Sequence[np.ndarray | None] | None = None,
    threads: int = 1,
) -> InputGradient:
    """The gradients for ``d_out`` (N, D), a C-contiguous array of the tables' type, which stays as it is.

    The other arguments are those of `lookup.embed`, with the ``mean`` and ``rstd`` that it returned.
    ``needed``: which of the added tables want a gradient, all if left out. ``out``: an array of zeros (R, D)
    for each of these, which is written and returned.

    >>> weight, position = np.eye(3, dtype=np.float32), np.zeros((2, 3), np.float32)
    >>> d_out = np.arange(12, dtype=np.float32).reshape(4, 3)
    >>> input_gradient(d_out, weight, np.array([2, 0, 1, 1]), added=[(position, np.arange(2))]).added
    [array([[ 6.,  8., 10.],
           [12., 14., 16.]], dtype=float32)]
    """
    needed = [True] * len(added) if needed is None else needed
    out = [None] * len(added) if out is None else out
    plan = _planned(d_out, ids, added, needed)
    if norm is None and dropout is None and not plan.in_pass:
        return InputGradient(d_out, _added(plan, d_out, added, needed, out, threads), None, None)
    wide, sums_in, width = computed_in(d_out), adds_in(d_out), d_out.shape[1]
    dx = d_out if norm is None and dropout is None else memory.empty(d_out.shape, d_out.dtype)
    if norm is None:
        mean = rstd = gamma = np.empty(0, wide)
        eps = wide(-1)
    else:
        gamma, _, eps = norm_parameters(norm, weight)
    seed, threshold, factor = settings(dropout or Dropout(0.0, 0), wide)
    cuts, pieces = plan.cuts, len(plan.cuts) - 1
    parameters = np.zeros((pieces, 2, width if norm else 0), sums_in)
    streamed = dx is not d_out and dx.nbytes >= STREAMED and vector.can_stream(dx)
    arguments = (
        plan.period, summing(weight, ids, scale, added), gamma, eps, mean, rstd, seed, threshold, factor,
        streamed, dx is not d_out, plan.few_ids, bits(d_out), bits(dx),
    )  # fmt: skip
    share(
        lambda _, k: _through(cuts[k], cuts[k + 1], *arguments, plan.by_position, plan.few[k], parameters[k]),
        pieces,
        threads,
    )
    tables = _added(plan, dx, added, needed, out, threads)
    if norm is None:
        return InputGradient(dx, tables, None, None)
    totals = _rounded_sum(parameters, weight.dtype)
    return InputGradient(dx, tables, *totals)


class _Plan(NamedTuple):
    """Where each added table's gradient is summed, and the memory for what is summed during the pass."""

    period: int  # positions whose rows follow each other: the M of the tables that the texts share
    cuts: list[int]  # of the period, into pieces that may each have a thread
    by_position: np.ndarray  # (period, D), or (0, D) if no table needs it
    few_ids: np.ndarray  # (F, N): rows of ``few``, for the F tables of few rows
    few: np.ndarray  # (pieces, rows of all F tables, D)
    first_rows: dict[int, int]  # of each of those tables in ``few``

    @property
    def in_pass(self) -> bool:
        return bool(len(self.by_position) or len(self.few_ids))


def _planned(d_out: np.ndarray, ids: np.ndarray, added: Added, needed: Sequence[bool]) -> _Plan:
    n, width = d_out.shape
    period = min((len(own) for _, own in added), default=n)
    cuts = cut(period, d_out.size)
    shared = any(wanted and len(own) == period < n for (_, own), wanted in zip(added, needed, strict=True))
    first_rows: dict[int, int] = {}
    rows = 0
    for k, (table, own) in enumerate(added):
        if needed[k] and len(own) == n and not (len(own) == period < n) and len(table) <= _FEW:
            first_rows[k] = rows
            rows += len(table)
    few_ids = np.empty((len(first_rows), n), np.int64)
    for f, (k, first) in enumerate(first_rows.items()):
        np.add(added[k][1], first, out=few_ids[f])
    sums_in = adds_in(d_out)
    return _Plan(
        period,
        cuts,
        memory.empty((period if shared else 0, width), sums_in),
        few_ids,
        np.zeros((len(cuts) - 1, rows, width), sums_in),
        first_rows,
    )


def _added(
    plan: _Plan,
    dx: np.ndarray,
    added: Added,
    needed: Sequence[bool],
    out: Sequence[np.ndarray | None],
    threads: int,
) -> list[np.ndarray | None]:
    few = _rounded_sum(plan.few, dx.dtype)
    gradients: list[np.ndarray | None] = []
    for k, (table, own) in enumerate(added):
        if not needed[k]:
            gradients.append(None)
            continue
        gradient = out[k]
        if gradient is None:
            gradient = memory.empty(table.shape, table.dtype)
            gradient.fill(0)
        gradients.append(gradient)
        if k in plan.first_rows:
            first = plan.first_rows[k]
            gradient[:] = few[first : first + len(table)]
        else:
            d = plan.by_position if len(plan.by_position) == len(own) < len(dx) else dx
            if len(own) not in (len(d), 0):  # ids of another period than the shortest
                own = np.tile(own, len(d) // len(own))
            groups = group(own)
            segment_sum(d, groups, out=gradient, rows=groups.ids, threads=threads)
    return gradients


def _rounded_sum(partial: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The sum (R, D) of partial sums (pieces, R, D), in order, rounded once."""
    pieces, rows, width = partial.shape
    out = np.zeros((rows, width), dtype)
    groups = group(np.tile(np.arange(rows), pieces))
    return segment_sum(partial.reshape(pieces * rows, width), groups, out=out, rows=groups.ids)


@kernel
def _through(
    start, stop, period, sums, gamma, eps, mean, rstd, seed, threshold, factor, streamed, writes, few_ids,
    d_out, dx, by_position, few, parameters,
):  # fmt: skip
    weight, ids, scale, tables, table_ids = sums
    width = d_out.shape[1]
    scratch, y = np.empty((1, width), gamma.dtype), np.empty(width, gamma.dtype)
    d = scratch[0]
    for first in range(start, stop):
        for z in range(width if by_position.shape[0] > 0 else 0):
            by_position[first, z] = 0
        for n in range(first, d_out.shape[0], period):
            if n + period < d_out.shape[0]:
                vector.prefetch_row(d_out, n + period)
            if threshold > 0:
                _through_dropout(d_out[n], n, seed, threshold, factor, d)
            else:
                for z in range(width):
                    d[z] = widen(d_out[n, z])
            if eps >= 0:
                sum_row(weight, ids[n], scale, tables, table_ids, n, y)
                _through_norm(d, y, gamma, mean[n], rstd[n], parameters[0], parameters[1])
            if by_position.shape[0] > 0:
                _add(by_position[first], d)
            for f in range(few_ids.shape[0]):
                _add(few[few_ids[f, n]], d)
            if streamed:
                vector.stream_row(scratch, dx, n)
            elif writes:
                for z in range(width):
                    dx[n, z] = narrow(d[z], dx)
    vector.fence()


@kernel
def _add(total, d):
    for z in range(d.shape[0]):
        total[z] += d[z]


@kernel
def _through_dropout(d_out, n, seed, threshold, factor, d):
    first, second = row_keys(seed, n)
    for z in range(d.shape[0]):
        d[z] = widen(d_out[z]) * factor if is_kept(first, second, z, threshold) else factor * 0


@kernel(fastmath={"reassoc", "contract"})
def _through_norm(d, s, gamma, mean, rstd, d_gamma, d_beta):
    """The gradient ``d`` of gamma · y + beta, in place that of the sums ``s``; its shares of gamma and beta.

    ``s`` is overwritten with y = (s - mean) · rstd.
    """
    width = d.dtype.type(d.shape[0])
    total, along = d[0] * 0, d[0] * 0
    for z in range(d.shape[0]):
        y = (s[z] - mean) * rstd
        s[z] = y
        total += d[z] * gamma[z]
        along += d[z] * gamma[z] * y
    total, along = total / width, along / width
    for z in range(d.shape[0]):
        d_gamma[z] += d[z] * s[z]
    for z in range(d.shape[0]):
        d_beta[z] += d[z]
    for z in range(d.shape[0]):
        d[z] = (d[z] * gamma[z] - total - s[z] * along) * rstd
