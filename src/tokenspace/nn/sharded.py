"""Tables that several processes share, as ``DTensor``: each process reads and writes its own part of a row.

torch registers no distributed form of the assignment to a row (``table[row] = 0``), and to select one would
gather the whole table. The part in a process's own memory is a plain tensor, which has both.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


def is_distributed(tensor: Tensor | None) -> bool:
    """Return whether ``tensor`` is a ``DTensor``, without importing ``torch.distributed.tensor``."""
    if tensor is None or type(tensor) in (Tensor, Parameter):
        return False
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def distributed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return ``tensor``, equal in all processes, as a ``DTensor`` on the mesh of ``other`` if that is one."""
    if not is_distributed(other) or is_distributed(tensor):
        return tensor
    tensors: Any = sys.modules["torch.distributed.tensor"]
    mesh = other.device_mesh  # type: ignore[attr-defined]
    return tensors.DTensor.from_local(tensor, mesh, [tensors.Replicate()] * mesh.ndim, run_check=False)


@torch.no_grad()
def own_part(table: Any, row: int) -> tuple[Tensor, int | None]:
    """Return the part of ``table`` (V, D) in this process's memory, and the place of ``row`` in it.

    The place is None if another process holds the row. A plain table is its own part.

    >>> own_part(torch.ones(3, 2), 1)[1]
    1
    """
    if not is_distributed(table):
        return table, row
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(table.shape, table.device_mesh, table.placements)
    place = row - offset[0]
    return table.to_local(), place if 0 <= place < shape[0] else None


def without_partial(tensor: Any) -> Tensor:
    """Return ``tensor``; of a ``DTensor`` that processes have yet to add up, the sum."""
    if not is_distributed(tensor) or not any(each.is_partial() for each in tensor.placements):
        return tensor
    tensors: Any = sys.modules["torch.distributed.tensor"]
    placements = [tensors.Replicate() if each.is_partial() else each for each in tensor.placements]
    summed = tensor.redistribute(placements=placements)
    # Through a plain tensor, so that the gradient arrives summed too: torch can't turn one kind of partial
    # gradient into that of a lookup in rows that processes share.
    local = summed.to_local(grad_placements=placements)
    return tensors.DTensor.from_local(
        local, tensor.device_mesh, placements, run_check=False, shape=summed.shape, stride=summed.stride()
    )


def zeros_like(weight: Any, dtype: torch.dtype, *, by_row: bool = False) -> Tensor:
    """Return zeros shaped like a ``DTensor``, or one number a row, in the processes of its rows."""
    if not by_row:
        return torch.zeros_like(weight, dtype=dtype)
    tensors: Any = sys.modules["torch.distributed.tensor"]
    local = weight.to_local()
    zeros = torch.zeros(local.shape[:1], dtype=dtype, device=local.device)
    placements = [
        each if getattr(each, "dim", None) == 0 else tensors.Replicate() for each in weight.placements
    ]
    return tensors.DTensor.from_local(
        zeros, weight.device_mesh, placements, run_check=False, shape=weight.shape[:1], stride=(1,)
    )
