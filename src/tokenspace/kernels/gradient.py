"""The gradient of a lookup: equal ids brought together, and the rows that stand at them summed.

    dE[v] = scale · sum of d[n] over every n with ids[n] = v

`group` sorts the N ids of a batch (a stable radix sort: its cost depends on N and on the number of digits,
not on V); `segment_sum` then reads each of the N rows once and writes U rows. Nothing is as large as the
table, unless a dense (V, D) gradient is asked for.

Sums are taken in float32, or in float64 for float64 and 16-bit rows, and rounded once. Their order is fixed
by the ids alone: a group's rows are added in chunks of up to 256, within each chunk and then over the chunks.
So the bits are the same at any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.kernels import memory, vector
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.half import bits, narrow, widen
from tokenspace.kernels.threads import cut, share_ranges

CHUNK = 256
"""Rows that are added in one go, by one thread."""
ALONE = 1 << 19
"""Up to so many numbers are added by one thread: waking a second one would take longer."""
AHEAD = 8
"""A row is asked for so many rows before it is added."""


class Groups(NamedTuple):
    """Where each distinct id stands: ``order[starts[u] : starts[u + 1]]`` are the positions of ``ids[u]``.

    - ids: (U,) int64, ascending
    - starts: (U + 1,) int64
    - order: (N,) int64, the positions by id, and by position where ids are equal; without those of padding
    """

    ids: np.ndarray
    starts: np.ndarray
    order: np.ndarray


def group(ids: np.ndarray, padding: int | None = None) -> Groups:
    """The groups of equal ids (N,), which are at least 0; positions of the id ``padding`` are left out.

    >>> groups = group(np.array([7, 3, 7, 0]), padding=0)
    >>> groups.ids, groups.starts, groups.order
    (array([3, 7]), array([0, 1, 3]), array([1, 0, 2]))
    """
    ids = np.ascontiguousarray(ids, np.int64)
    order = np.empty(len(ids), np.int64)
    keys = np.empty(len(ids), np.int64)
    return Groups(*_group(ids, -1 if padding is None else padding, keys, order))


def segment_sum(
    d: np.ndarray,
    groups: Groups,
    *,
    scale: float = 1.0,
    out: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    threads: int = 1,
) -> np.ndarray:
    """The sum of the rows of ``d`` (N, D) in each group, times ``scale``: (U, D), of the type of ``d``.

    ``out`` is written and returned. With ``rows`` (U,), group u goes to ``out[rows[u]]``: with ``groups.ids``
    and an ``out`` (V, D) of zeros, that is the table's dense gradient.

    >>> d = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]], np.float32)
    >>> segment_sum(d, group(np.array([5, 1, 5])))
    array([[ 10.,  20.],
           [101., 202.]], dtype=float32)
    """
    if out is None:
        out = memory.empty((len(groups.ids), d.shape[1]), d.dtype)
    if rows is None:
        rows = np.arange(len(groups.ids))
    sums_in = adds_in(d)
    if threads == 1 or d.size <= ALONE:
        _sum_groups(bits(d), groups.order, groups.starts, rows, sums_in(scale), bits(out))
        return out
    first, target = _chunks(groups.starts, CHUNK)
    shared = int(-target.min(initial=0))  # chunks whose group has others
    partial = memory.empty((shared, d.shape[1]), sums_in)
    cuts = np.searchsorted(first, cut(len(groups.order), d.size)).tolist()
    arguments = (bits(d), groups.order, first, target, rows, sums_in(scale), bits(out), partial)
    share_ranges(lambda start, stop: _sum_chunks(start, stop, *arguments), cuts, threads)
    if shared:
        _sum_partial(groups.starts, first, target, rows, sums_in(scale), bits(out), partial)
    return out


def fill_sums(
    d: np.ndarray, groups: Groups, *, scale: float = 1.0, out: np.ndarray, threads: int = 1
) -> np.ndarray:
    """The table's dense gradient: `segment_sum` in the rows ``groups.ids`` of ``out`` (V, D), 0 elsewhere.

    ``out`` may hold anything before: each of its rows is written once.

    >>> d = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]], np.float32)
    >>> fill_sums(d, group(np.array([2, 1, 2])), out=np.full((4, 2), np.nan, np.float32))
    array([[  0.,   0.],
           [ 10.,  20.],
           [101., 202.],
           [  0.,   0.]], dtype=float32)
    """
    arguments = (bits(d), *groups, adds_in(d)(scale), bits(out))
    share_ranges(lambda first, end: _fill_rows(first, end, *arguments), cut(len(out), out.size), threads)
    return out


def fills_well(groups: Groups, rows: int) -> bool:
    """Return whether `fill_sums` is faster than `segment_sum` into zeros, for a table of ``rows`` rows.

    It is if more than an eighth of the rows get a sum. A group of many positions is left to `segment_sum`,
    which shares it between threads; `fill_sums` gives each group to one.
    """
    return 8 * len(groups.ids) > rows and int(np.diff(groups.starts).max(initial=0)) <= 4 * CHUNK


def adds_in(d: np.ndarray) -> type[np.floating]:
    """The type that rows of ``d`` are summed in: 16-bit rows in float64, so that the sum is rounded once."""
    return np.float32 if d.dtype == np.float32 else np.float64


@kernel
def _sort(ids, padding, keys, order):
    """Fill keys and order with the ids but padding and their positions, by id; return how many there are."""
    used, highest = 0, 0
    for n in range(ids.shape[0]):
        if ids[n] != padding:
            keys[used], order[used] = ids[n], n
            highest = max(highest, ids[n])
            used += 1
    digit_bits = 11
    digits = 1 << digit_bits
    other_keys, other_order = np.empty(used, np.int64), np.empty(used, np.int64)
    shift = 0
    while highest >> shift:
        place = np.zeros(digits + 1, np.int64)
        for n in range(used):
            place[((keys[n] >> shift) & (digits - 1)) + 1] += 1
        for digit in range(digits):
            place[digit + 1] += place[digit]
        for n in range(used):
            digit = (keys[n] >> shift) & (digits - 1)
            other_keys[place[digit]], other_order[place[digit]] = keys[n], order[n]
            place[digit] += 1
        for n in range(used):
            keys[n], order[n] = other_keys[n], other_order[n]
        shift += digit_bits
    return used


@kernel
def _group(ids, padding, keys, order):
    used = _sort(ids, padding, keys, order)
    distinct, starts = _boundaries(keys[:used])
    return distinct, starts, order[:used]


@kernel
def _boundaries(keys):
    """The distinct keys of sorted ones, and where each starts, with the end after the last."""
    distinct, starts = np.empty(keys.shape[0], np.int64), np.empty(keys.shape[0] + 1, np.int64)
    found = 0
    for n in range(keys.shape[0]):
        if n == 0 or keys[n] != keys[n - 1]:
            distinct[found], starts[found] = keys[n], n
            found += 1
    starts[found] = keys.shape[0]
    return distinct[:found], starts[: found + 1]


@kernel
def _chunks(starts, size):
    """Cut each group into chunks: (first, target), of C + 1 and C numbers.

    Chunk c adds ``order[first[c] : first[c + 1]]``. ``target[c]`` is its group u if it is the group's only
    chunk; else -1 - p, p being the row of the partial sums that is its own.
    """
    count = 0
    for u in range(starts.shape[0] - 1):
        count += (starts[u + 1] - starts[u] + size - 1) // size
    first, target = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    chunk, partial = 0, 0
    for u in range(starts.shape[0] - 1):
        alone = starts[u + 1] - starts[u] <= size
        for start in range(starts[u], starts[u + 1], size):
            first[chunk] = start
            if alone:
                target[chunk] = u
            else:
                partial += 1
                target[chunk] = -partial
            chunk += 1
    first[count] = starts[-1]
    return first, target


@kernel
def _sum_chunks(start, stop, d, order, first, target, rows, scale, out, partial):
    total = np.empty(d.shape[1], partial.dtype)
    for chunk in range(start, stop):
        if target[chunk] >= 0:
            _sum_group(d, order, first[chunk], first[chunk + 1], scale, out, rows[target[chunk]], total)
        else:
            _add_up(d, order, first[chunk], first[chunk + 1], total)
            row = -1 - target[chunk]
            for z in range(d.shape[1]):
                partial[row, z] = total[z]


@kernel
def _sum_groups(d, order, starts, rows, scale, out):
    """The sums of all groups on one thread, with the bits of `_sum_chunks` and `_sum_partial`."""
    total, chunk = np.empty(d.shape[1], type(scale)), np.empty(d.shape[1], type(scale))
    for u in range(starts.shape[0] - 1):
        start, stop = starts[u], starts[u + 1]
        if stop - start <= CHUNK:
            _sum_group(d, order, start, stop, scale, out, rows[u], total)
            continue
        for z in range(d.shape[1]):
            total[z] = 0
        for begin in range(start, stop, CHUNK):
            _add_up(d, order, begin, min(begin + CHUNK, stop), chunk)
            for z in range(d.shape[1]):
                total[z] += chunk[z]
        for z in range(d.shape[1]):
            out[rows[u], z] = narrow(total[z] * scale, out)


@kernel
def _fill_rows(first, end, d, ids, starts, order, scale, out):
    """Write the rows first … end - 1 of ``out``: the sums of the groups, and zeros between them."""
    u, last = np.searchsorted(ids, first), np.searchsorted(ids, end)
    row = first
    while u < last:
        out[row : ids[u]] = 0
        _sum_groups(d, order, starts[u : u + 2], ids[u : u + 1], scale, out)
        row = ids[u] + 1
        u += 1
    out[row:end] = 0


@kernel
def _sum_group(d, order, start, stop, scale, out, row, total):
    """out[row] = scale · the sum of d[order[start:stop]], a single row being its own."""
    if stop - start == 1 and scale == 1:
        alone = order[start]
        _fetch(d, order, start + AHEAD)
        for z in range(d.shape[1]):
            out[row, z] = narrow(widen(d[alone, z]), out)
        return
    _add_up(d, order, start, stop, total)
    for z in range(d.shape[1]):
        out[row, z] = narrow(total[z] * scale, out)


@kernel
def _add_up(d, order, start, stop, total):
    """total = the sum of d[order[start:stop]], four rows at a time as (a + b) + (c + d)."""
    a = order[start]
    _fetch(d, order, start + AHEAD)
    for z in range(d.shape[1]):
        total[z] = widen(d[a, z])
    at = start + 1
    while at + 4 <= stop:
        a, b, c, e = order[at], order[at + 1], order[at + 2], order[at + 3]
        for ahead in range(at + AHEAD, at + AHEAD + 4):
            _fetch(d, order, ahead)
        for z in range(d.shape[1]):
            total[z] += (widen(d[a, z]) + widen(d[b, z])) + (widen(d[c, z]) + widen(d[e, z]))
        at += 4
    while at < stop:
        a = order[at]
        _fetch(d, order, at + AHEAD)
        for z in range(d.shape[1]):
            total[z] += widen(d[a, z])
        at += 1


@kernel
def _fetch(d, order, at):
    """Ask for the row that is added ``AHEAD`` places later: it may lie anywhere."""
    if at < order.shape[0]:
        vector.prefetch_row(d, order[at])


@kernel
def _sum_partial(starts, first, target, rows, scale, out, partial):
    """Add the partial sums of the groups that have several chunks, in order."""
    total = np.empty(partial.shape[1], partial.dtype)
    chunk, u = 0, 0
    while chunk < target.shape[0]:
        if target[chunk] >= 0:
            chunk += 1
            continue
        while starts[u + 1] <= first[chunk]:
            u += 1
        for z in range(partial.shape[1]):
            total[z] = 0
        while chunk < target.shape[0] and first[chunk] < starts[u + 1]:
            for z in range(partial.shape[1]):
                total[z] += partial[-1 - target[chunk], z]
            chunk += 1
        for z in range(partial.shape[1]):
            out[rows[u], z] = narrow(total[z] * scale, out)
