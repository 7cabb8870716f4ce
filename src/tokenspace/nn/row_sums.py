"""A lookup by torch's own call, whose gradient a kernel sums.

For tables that torch reads as fast as a kernel does, and whose gradient it would sum wrongly or slowly: in 16
bits, row-sparse with repeated rows, or into a large table of fresh zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tokenspace.nn import dispatch, kernel_calls, plain
from tokenspace.nn.kernel_calls import How, Left


def lookup(weight: Tensor, ids: Tensor, padding: int, scale: float | None, sparse: bool) -> Tensor:
    """The rows (\\*axes, D) of ids (\\*axes), times ``scale``; errors are torch's.

    ``dispatch.kernels_sum`` must have said yes. ``padding`` is the row that gets no gradient, or -1.

    >>> weight = torch.nn.Parameter(torch.eye(2, dtype=torch.bfloat16))
    >>> lookup(weight, torch.tensor([1, 1]), -1, None, False).sum().backward()
    >>> weight.grad.tolist()
    [[0.0, 0.0], [2.0, 2.0]]
    """
    return _Lookup.apply(weight, ids, padding, scale, sparse)


HELD_NUMBERS = 1 << 17
"""A row-sparse gradient of fewer numbers is held while autograd stores it. Autograd then stores a copy, which
stays coalesced. Otherwise that mark is lost, and checking the ids takes longer than copying the numbers."""


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, ids: Tensor, padding: int, scale: float | None, sparse: bool
    ) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.given = weight.shape[0], padding, scale, sparse
        x = torch.embedding(weight, ids)
        return x if scale is None else x.mul_(scale)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
        (ids,) = ctx.saved_tensors
        rows, padding, scale, sparse = ctx.given
        found: Tensor | None
        if dispatch.is_plain_gradient(d_out):
            found = kernel_calls.row_sums(d_out, ids, rows, padding, scale, sparse)
            if sparse and d_out.numel() < HELD_NUMBERS:
                ctx.held = found
        else:
            left = Left([], [ids], None, None, None, None, None, [rows])
            how = How(scale, None, 0.0, [padding], ["id"], sparse)
            found = plain.embed_gradients(d_out, left, how, [False, False, True])[2]
        return found, None, None, None, None
