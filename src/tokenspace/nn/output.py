"""The ``out=`` of a forward: memory of the caller's, written instead of new memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tokenspace.errors import ShapeError


def checked_output(
    out: Tensor, shape: tuple[int, ...], dtype: torch.dtype, sources: Iterable[Tensor], needs_gradient: bool
) -> Tensor:
    """``out``, if a result of this shape and type may be written to it; ``ShapeError`` otherwise.

    ``sources`` are what the result is computed from: ``out`` may share no memory with them.
    ``needs_gradient``: whether any of them would get one.

    >>> checked_output(torch.empty(2, 3), (2, 4), torch.float32, (), False)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: out must be (2, 4), torch.float32, contiguous, on cpu; found (2, 3), \
torch.float32, contiguous, on cpu
    """
    if not isinstance(out, Tensor):
        raise ShapeError(f"out must be a tensor to write to, found {type(out).__name__}")
    sources = list(sources)
    device = sources[0].device if sources else out.device
    found = (tuple(out.shape), out.dtype, out.is_contiguous(), out.device)
    expected = (tuple(shape), dtype, True, device)
    if found != expected:
        raise ShapeError(f"out must be {_described(*expected)}; found {_described(*found)}")
    if torch.is_grad_enabled() and (needs_gradient or out.requires_grad):
        raise ShapeError(
            "out can't be written where a gradient is needed: autograd keeps results, and this one would be "
            "overwritten; call it under torch.no_grad() or torch.inference_mode(), or leave out away"
        )
    if any(_overlap(out, source) for source in sources):
        raise ShapeError(
            "out shares memory with a table or with ids that the result is made from; give it its own"
        )
    return out


def written(x: Tensor, out: Tensor, sources: Iterable[Tensor]) -> Tensor:
    """``out``, with ``x`` copied into it where `checked_output` allows that."""
    return checked_output(out, tuple(x.shape), x.dtype, [x, *sources], x.requires_grad).copy_(x)


def _described(shape: tuple[int, ...], dtype: torch.dtype, contiguous: bool, device: torch.device) -> str:
    return f"{shape}, {dtype}, {'contiguous' if contiguous else 'not contiguous'}, on {device}"


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether they may share bytes: compiled code, which sees no addresses, is not asked."""
    if torch.compiler.is_compiling() or a.device != b.device or a.is_meta:
        return False
    (a_start, a_end), (b_start, b_end) = _span(a), _span(b)
    return a_start < b_end and b_start < a_end


def _span(tensor: Tensor) -> tuple[int, int]:
    if not tensor.numel():
        return 0, 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
