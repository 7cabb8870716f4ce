"""A row-sparse gradient as its distinct rows: the ids, and one summed gradient for each.

The lookup of ``tokenspace.nn`` gives it like that. torch's own leaves each position as a row of its own, and
two gradients that are added up stand one after the other. Those rows are summed here, in float32 at least and
rounded once; ``Tensor.coalesce`` would round 16-bit numbers at each addition.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tokenspace.errors import ShapeError
from tokenspace.kernels.gradient import group, segment_sum
from tokenspace.nn import memory
from tokenspace.nn.arrays import array_over, tensor_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class RowGradient(NamedTuple):
    """``values`` (U, \\*axes) belong to the rows ``ids`` (U,), int64, each once."""

    ids: Tensor
    values: Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in: float64 for float64, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def row_gradient(gradient: Tensor) -> RowGradient:
    """The rows of a sparse gradient (V, \\*axes), summed where an id is there several times.

    ``ShapeError`` for one that is sparse in other axes than the first, or names a row that isn't there.

    >>> values = torch.tensor([[1.0], [2.0], [3.0]])
    >>> row_gradient(torch.sparse_coo_tensor([[2, 0, 2]], values, (4, 1), check_invariants=True))
    RowGradient(ids=tensor([0, 2]), values=tensor([[2.], [4.]]))
    """
    if gradient.layout != torch.sparse_coo or gradient.sparse_dim() != 1:
        axes = f", sparse in {gradient.sparse_dim()} axes" if gradient.layout == torch.sparse_coo else ""
        raise ShapeError(
            f"a row-sparse gradient is a sparse COO tensor with one sparse axis, its first; found "
            f"{gradient.layout}{axes}. TokenEmbedding(sparse=True) makes the right one; to_dense() any"
        )
    ids, values = gradient._indices()[0], gradient._values().detach().resolve_neg()
    # On a device to look at the ids would be to wait for them: what a gradient says of itself must do.
    trusted = gradient.is_coalesced() and not ids.is_cpu
    found = RowGradient(ids, values) if trusted else _summed(ids, values)
    if found.ids.is_cpu and len(found.ids):  # they ascend; a device would have to wait
        low, high = int(found.ids[0]), int(found.ids[-1])
        if low < 0 or high >= len(gradient):
            raise ShapeError(
                f"this gradient has rows {low:,} to {high:,}, its table {len(gradient):,} rows; "
                "was it made by hand?"
            )
    return found


def _summed(ids: Tensor, values: Tensor) -> RowGradient:
    if not values.is_cpu or values.dtype not in DTYPES:
        distinct, places = torch.unique(ids, return_inverse=True)
        sums = values.new_zeros((len(distinct), *values.shape[1:]), dtype=wide(values.dtype))
        return RowGradient(distinct, sums.index_add_(0, places, values.to(sums.dtype)).to(values.dtype))
    given = array_over(ids)
    if bool((given[1:] > given[:-1]).all()):  # whatever the tensor says of itself
        return RowGradient(ids, values)
    groups = group(given)
    rows = array_over(values.reshape(len(values), -1))
    sums = memory.empty((len(groups.ids), rows.shape[1]), values.dtype)
    segment_sum(rows, groups, out=array_over(sums), threads=torch.get_num_threads())
    return RowGradient(tensor_of(groups.ids), sums.view(-1, *values.shape[1:]))
