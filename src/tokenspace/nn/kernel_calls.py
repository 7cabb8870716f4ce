"""Tensors to the kernels and back: no copies, but of ids and gradients that lie apart in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenspace.errors import ShapeError
from tokenspace.kernels import dropout as dropouts
from tokenspace.kernels import gradient, input_gradient, lookup
from tokenspace.kernels.dropout import Dropout
from tokenspace.nn import memory, pending_rows
from tokenspace.nn.arrays import array_over, tensor_of
from tokenspace.nn.ids import checked_indices
from tokenspace.shapes import Array


class How(NamedTuple):
    """How an input is made: all that is no tensor.

    No eps: no LayerNorm. ``padding`` has a row for each table, or -1; ``names`` what errors call its ids, or
    nothing where they need no check; ``sparse`` is about the first table's gradient.
    """

    scale: float | None
    eps: float | None
    p: float
    padding: Sequence[int]
    names: Sequence[str]
    sparse: bool


class Left(NamedTuple):
    """What a forward leaves to its backward.

    ``tables`` are there with a LayerNorm only, whose input is computed again; ``rows`` are their numbers of
    rows. Kernels take the seed as a number.
    """

    tables: Sequence[Tensor]
    ids: Sequence[Tensor]
    gamma: Tensor | None
    beta: Tensor | None
    seed: Any
    mean: Tensor | None
    rstd: Tensor | None
    rows: Sequence[int]


@torch._disable_dynamo
def forward(
    tables: Sequence[Tensor],
    ids: Sequence[Tensor],
    gamma: Tensor | None,
    beta: Tensor | None,
    seed: int,
    how: How,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The input (\\*axes, D), and the mean and 1 / standard deviation (N,) of a LayerNorm."""
    # Every id is checked before any row is read or brought up to date.
    indices = [
        checked_indices(own, table.shape[0], name)
        for table, own, name in zip(tables, ids, how.names, strict=True)
    ]
    for table, own in zip(tables, ids, strict=True):
        pending_rows.read(table, own)
    arrays = [array_over(table) for table in tables]
    shape = (*ids[0].shape, arrays[0].shape[1])
    out = memory.empty(shape, tables[0].dtype) if out is None else out
    made = lookup.embed(
        arrays[0],
        indices[0],
        how.scale,
        list(zip(arrays[1:], indices[1:], strict=True)),
        _norm(gamma, beta, how),
        Dropout(how.p, seed) if how.p else None,
        out=array_over(out).reshape(-1, shape[-1]),
        threads=torch.get_num_threads(),
    )
    if made.mean is None or made.rstd is None:
        return out, None, None
    return out, tensor_of(made.mean), tensor_of(made.rstd)


def check_fit(
    tables: Sequence[Tensor], ids: Sequence[Tensor], gamma: Tensor | None, beta: Tensor | None
) -> None:
    """``ShapeError`` unless these belong together, as kernels take for granted.

    >>> check_fit([torch.ones(3, 2), torch.ones(3, 4)], [torch.tensor([1]), torch.tensor([1])], None, None)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: tables must be (R, 2) of torch.float32, as the first is; found (3, 4) of \
torch.float32
    """
    width, dtype, positions = tables[0].shape[-1], tables[0].dtype, ids[0].numel()
    for table in tables:
        if table.ndim != 2 or table.shape[1] != width or table.dtype != dtype:
            found = f"{tuple(table.shape)} of {table.dtype}"
            raise ShapeError(f"tables must be (R, {width}) of {dtype}, as the first is; found {found}")
    for parameter in (gamma, beta):
        if parameter is not None and (parameter.shape != (width,) or parameter.dtype != dtype):
            found = f"{tuple(parameter.shape)} of {parameter.dtype}"
            raise ShapeError(f"a LayerNorm's parameters must be ({width},) of {dtype}; found {found}")
    for own in ids[1:]:
        if positions and (not own.numel() or positions % own.numel()):
            raise ShapeError(
                f"{own.numel():,} ids don't serve {positions:,} positions: one must divide the other"
            )


@torch._disable_dynamo
def gradients(d_out: Tensor, left: Left, how: How, needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of gamma, beta and each table where ``needs`` has them, None elsewhere.

    The first table's is row-sparse if ``how.sparse``: ids ascending, each once. Of gamma and beta None, too,
    where there are none.
    """
    threads = torch.get_num_threads()
    d = _rows_of(d_out)
    # Checked again: autograd can't see what is written to ids through NumPy, and kernels trust them.
    names = how.names or [""] * len(left.ids)
    indices = [
        checked_indices(own, rows, name or "id")
        for own, rows, name in zip(left.ids, left.rows, names, strict=True)
    ]
    if how.eps is None and not how.p and not any(needs[3:]):
        made = input_gradient.InputGradient(d, [], None, None)
        added: list[Tensor | None] = [None] * (len(indices) - 1)
    else:
        added = [
            memory.zeros((rows, d.shape[1]), d_out.dtype) if needed else None
            for rows, needed in zip(left.rows[1:], needs[3:], strict=True)
        ]
        made = _input_gradient(d, indices, left, how, added, threads)
    token = None
    if needs[2]:
        token = _row_sums(
            made.dx, indices[0], left.rows[0], how.padding[0], how.scale, how.sparse, d_out.dtype
        )
    for table, padding in zip(added, how.padding[1:], strict=True):
        if table is not None and padding >= 0:
            table[padding] = 0
    return [
        _tensor(made.gamma) if needs[0] else None,
        _tensor(made.beta) if needs[1] else None,
        token,
        *added,
    ]


def _input_gradient(
    d: Array,
    indices: Sequence[Array],
    left: Left,
    how: How,
    added: Sequence[Tensor | None],
    threads: int,
) -> input_gradient.InputGradient:
    if left.tables:
        arrays = [array_over(table) for table in left.tables]
    else:  # of added ones the shape counts; memory that nobody touches costs nothing
        arrays = [np.empty((n, d.shape[1]), d.dtype) for n in (1, *left.rows[1:])]
    return input_gradient.input_gradient(
        d,
        arrays[0],
        indices[0],
        how.scale,
        list(zip(arrays[1:], indices[1:], strict=True)),
        _norm(left.gamma, left.beta, how),
        Dropout(how.p, left.seed) if how.p else None,
        None if left.mean is None or how.eps is None else array_over(left.mean),
        None if left.rstd is None or how.eps is None else array_over(left.rstd),
        needed=[table is not None for table in added],
        out=[None if table is None else array_over(table) for table in added],
        threads=threads,
    )


def row_sums(
    d_out: Tensor, ids: Tensor, rows: int, padding: int, scale: float | None, sparse: bool
) -> Tensor:
    """The gradient (rows, D) of a table of which ``ids`` (\\*axes) picked rows, as `gradients` gives it."""
    indices = checked_indices(ids, rows, "id")
    return _row_sums(_rows_of(d_out), indices, rows, padding, scale, sparse, d_out.dtype)


def _row_sums(
    d: Array, ids: Array, rows: int, padding: int, scale: float | None, sparse: bool, dtype: torch.dtype
) -> Tensor:
    groups = gradient.group(ids, padding if padding >= 0 else None)
    factor, threads = 1.0 if scale is None else scale, torch.get_num_threads()
    if sparse:
        values = memory.empty((len(groups.ids), d.shape[1]), dtype)
        gradient.segment_sum(d, groups, scale=factor, out=array_over(values), threads=threads)
        made = torch.from_numpy(
            groups.ids
        ).clone()  # `tensor_of` takes three times as long, which few rows feel
        return row_sparse(made, values, rows)
    if gradient.fills_well(groups, rows):
        dense = memory.empty((rows, d.shape[1]), dtype)
        gradient.fill_sums(d, groups, scale=factor, out=array_over(dense), threads=threads)
    else:
        dense = memory.zeros((rows, d.shape[1]), dtype)
        out = array_over(dense)
        gradient.segment_sum(d, groups, scale=factor, out=out, rows=groups.ids, threads=threads)
    return dense


def row_sparse(ids: Tensor, values: Tensor, rows: int) -> Tensor:
    """The (V, D) sparse tensor with ``values`` (U, D) in the rows ``ids`` (U,), ascending and distinct."""
    return torch.sparse_coo_tensor(
        ids.unsqueeze(0), values, (rows, values.shape[1]), is_coalesced=True, check_invariants=False
    )


def _norm(gamma: Tensor | None, beta: Tensor | None, how: How) -> lookup.Norm | None:
    if how.eps is None:
        return None
    gamma_array = None if gamma is None else array_over(gamma)
    return lookup.Norm(gamma_array, None if beta is None else array_over(beta), how.eps)


def _rows_of(d: Tensor) -> Array:
    """``d`` (\\*axes, D) as an array (N, D) without gaps; copied if it has some, as an expanded one has."""
    shape = (d.numel() // d.shape[-1] if d.shape[-1] else 0, d.shape[-1])
    if d.is_contiguous() and not d.is_neg():
        return array_over(d).reshape(shape)
    return array_over(memory.empty(tuple(d.shape), d.dtype).copy_(d.detach())).reshape(shape)


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else tensor_of(array)


def dropout_factors(x: Tensor, seed: int, p: float) -> Tensor:
    """The factors of `dropout`, 0 or 1 / (1 - p), as a tensor of the shape (\\*axes, D) and type of ``x``."""
    factors = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    if factors.numel():
        dropouts.fill_factors(Dropout(p, seed), factors.numpy().reshape(-1, x.shape[-1]))
    return factors


@torch._disable_dynamo
def dropout(x: Tensor, seed: int, p: float) -> Tensor:
    """``x`` (\\*axes, D), dropped from; the same call makes the gradient of its own."""
    out, rows = memory.empty(tuple(x.shape), x.dtype), _rows_of(x)
    dropouts.dropout(
        rows, Dropout(p, seed), out=array_over(out).reshape(rows.shape), threads=torch.get_num_threads()
    )
    return out
