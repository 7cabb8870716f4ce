"""What ``tokenspace.nn.ops`` computes, in torch's own differentiable operations.

It serves wherever kernels can't: under function transforms, on other devices, for the gradient of a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenspace.nn.ids import INDEX_DTYPES
from tokenspace.nn.kernel_calls import How, Left

_LOW_32 = 0xFFFFFFFF


def embed(
    tables: Sequence[Any],
    ids: Sequence[Tensor],
    gamma: Tensor | None,
    beta: Tensor | None,
    seed: int | Tensor,
    how: How,
) -> Tensor:
    """The input (\\*axes, D) of ids that are checked."""
    x = F.embedding(_index(ids[0]), tables[0], _row(how.padding[0]), sparse=how.sparse)
    if how.scale is not None:
        x = x * how.scale
    for table, own, row in zip(tables[1:], ids[1:], how.padding[1:], strict=True):
        x = x + F.embedding(_index(own), table, _row(row))
    if how.eps is not None:
        x = F.layer_norm(x, x.shape[-1:], gamma, beta, how.eps)
    return dropout(x, seed, how.p) if how.p else x


def embed_gradients(d_out: Tensor, left: Left, how: How, needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of gamma, beta and each table, where ``needs`` has them; None elsewhere.

    They have a graph of their own if gradients are enabled. Sixteen-bit ones are summed as torch does.
    """
    graph = torch.is_grad_enabled()
    # A sum's gradient doesn't depend on what was added, so anything of the shape will do.
    zero = torch.zeros((), dtype=d_out.dtype, device=d_out.device)
    tables = left.tables or [zero.expand(count, d_out.shape[-1]) for count in left.rows]
    with torch.enable_grad():
        # A view each: one tensor may stand in several places, and each place has its own gradient.
        own = [
            value.view_as(value).requires_grad_() if value is not None and needed else value
            for value, needed in zip((left.gamma, left.beta, *tables), needs, strict=True)
        ]
        out = embed(own[2:], left.ids, own[0], own[1], 0 if left.seed is None else left.seed, how)
        wanted = [value for value, needed in zip(own, needs, strict=True) if needed and value is not None]
        found = iter(torch.autograd.grad(out, wanted, d_out, create_graph=graph))
    return [next(found) if needed else None for needed in needs]


def dropout(x: Tensor, seed: int | Tensor, p: float) -> Tensor:
    """``x`` (\\*axes, D) with what ``kernels.dropout`` drops for this seed at zero, the rest over 1 - p."""
    rows = x.numel() // x.shape[-1] if x.numel() else 0
    kept = is_kept(seed, rows, x.shape[-1], p, x.device).view(x.shape)
    return torch.where(kept, x * (1.0 / (1.0 - p) if p < 1.0 else 0.0), 0.0)


def is_kept(seed: int | Tensor, rows: int, width: int, p: float, device: torch.device) -> Tensor:
    """``kernels.dropout``'s hash of seed, row and column (rows, width), in int64 arithmetic that wraps."""
    mixed = torch.arange(1, rows + 1, device=device).unsqueeze(1) * _signed(0x9E3779B97F4A7C15) + seed
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(0x94D049BB133111EB)
    mixed = mixed ^ _shifted(mixed, 31)
    first, second = mixed & _LOW_32, _shifted(mixed, 32)
    column = torch.arange(width, device=device) ^ first
    column = ((column ^ (column >> 16)) * 0x7FEB352D) & _LOW_32
    column = ((column ^ (column >> 15)) + second) & _LOW_32
    column = (column * 0x846CA68B) & _LOW_32
    return (column ^ (column >> 16)) >= round(p * 2**32)


def _shifted(x: Tensor, count: int) -> Tensor:
    """``x`` shifted right as an unsigned number: torch's own shift repeats the sign."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64)


def _index(ids: Tensor) -> Tensor:
    return ids if ids.dtype in INDEX_DTYPES else ids.long()


def _row(padding: int) -> int | None:
    return None if padding < 0 else padding
