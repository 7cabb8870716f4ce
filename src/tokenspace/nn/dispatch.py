"""Which way a call goes: to a kernel of ours, or to torch's own operations.

It is asked once a call, and costs a microsecond or two. Kernels need plain memory on a CPU that nothing
watches (`on_kernels`). Where they could go, sizes decide: a kernel makes a whole input in one pass, but its
call costs tens of microseconds, and where all fits the caches torch's operations are as fast a pass.

The thresholds come from ``benchmarks/every_size.py``; docs/speed.md has its figures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from tokenspace.nn import pending_rows

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

PLAIN = (Tensor, torch.nn.Parameter)

_kernels_are_off = False


@contextlib.contextmanager
def torch_only() -> Iterator[None]:
    """Within it, ``tokenspace.nn`` computes with torch's own operations alone, in the whole process.

    To compare, or to find out whether a kernel is to blame. Sums have the same bits either way, and dropout
    drops the same numbers.

    >>> from tokenspace.nn import TokenEmbedding
    >>> embedding, ids = TokenEmbedding(5, 3), torch.tensor([1, 4])
    >>> with torch_only():
    ...     expected = embedding(ids)
    >>> torch.equal(embedding(ids), expected)
    True
    """
    global _kernels_are_off
    before, _kernels_are_off = _kernels_are_off, True
    try:
        yield
    finally:
        _kernels_are_off = before


def on_kernels(tensors: Sequence[Tensor], ids: Sequence[Tensor] = ()) -> bool:
    """Whether kernels may read these tensors: on a CPU, without gaps, of one type, not `is_watched`.

    Tensors without numbers are torch's: a table of no rows, or of no width.
    """
    compiling = torch.compiler.is_compiling()
    if _kernels_are_off or is_watched(compiling):
        return False
    dtype = tensors[0].dtype
    if dtype not in DTYPES:
        return False
    for tensor in tensors:
        if tensor.dtype != dtype or not tensor.numel() or not tensor.is_contiguous():
            return False
        if not is_plain(tensor, compiling):
            return False
        if not compiling and (tensor.is_neg() or (tensor.is_inference() and torch.is_grad_enabled())):
            return False
    return all(is_plain(own, compiling) for own in ids)


KEPT_BYTES = 1 << 25
"""Larger blocks glibc's malloc gives back to the system when they are freed, and each call gets fresh pages,
zeroed by the system at the first touch. Smaller ones are used again, as our pool's are."""
SUMMED_BYTES = 5 << 22  # an input of several rows added up, without a gradient
NORMED_BYTES = 3 << 22  # the same with a LayerNorm
DROPPED_NUMBERS = 1 << 18
"""A megabyte of factors is sooner read again than drawn again."""


def torch_looks_up(weight: Tensor | None, ids: Tensor, width: int, *, sparse: bool) -> bool:
    """Return whether torch's own call reads the rows of a lookup. `kernels_sum` decides about its gradient.

    torch checks the ids of plain tensors on a CPU itself; its error is made a ``TokenIdError`` afterwards.
    """
    if weight is None or is_compiling() or type(weight) not in PLAIN or _is_observed(ids, (weight,)):
        return False
    if ids.numel() * width * weight.itemsize < KEPT_BYTES:
        return True
    return torch.is_grad_enabled() and weight.requires_grad and _sums_well(weight, sparse)


def kernels_sum(weight: Tensor, sparse: bool) -> bool:
    """Return whether a kernel sums the gradient of a lookup whose rows torch reads (``nn.row_sums``)."""
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and not _sums_well(weight, sparse)
        and weight.is_cpu
        and weight.dtype in DTYPES
        and weight.ndim == 2
        and weight.numel() > 0
        and not (_kernels_are_off or is_watched(False))
    )


def is_plain_gradient(d_out: Tensor) -> bool:
    """Return whether a kernel may read this gradient: a plain CPU tensor, unwatched, that needs none."""
    return (
        not (torch.is_grad_enabled() and d_out.requires_grad)
        and not is_compiling()
        and not is_watched(False)
        and is_plain(d_out, False)
        and torch._C._dispatch_keys(d_out).has(torch._C.DispatchKey.CPU)  # it stands for no batch of them
    )


def torch_makes(tables: Sequence[Tensor], ids: Tensor, normed: bool, sparse: bool) -> bool:
    """Whether torch's own operations make the input (``nn.unfused``).

    ``tables`` are the tokens' table and all other parameters; ``normed`` says that there is a LayerNorm.
    """
    if is_compiling() or _is_observed(ids, tables):
        return False
    token = tables[0]
    if torch.is_grad_enabled() and any_requires_grad(*tables):
        return not sparse and token.nbytes < KEPT_BYTES
    size = ids.numel() * token.shape[-1] * token.itemsize
    return size < (NORMED_BYTES if normed else SUMMED_BYTES)


def factors_are_kept(x: Tensor) -> bool:
    """Return whether dropout keeps its factors for the backward. For a large ``x`` it draws them again.

    In 16 bits the factors would be rounded.
    """
    return x.numel() <= DROPPED_NUMBERS and x.dtype in (torch.float32, torch.float64)


def _is_observed(ids: Tensor, tables: Sequence[Tensor]) -> bool:
    """Whether torch's call alone would be wrong: a function transform or a trace is at work, the ids are no
    plain tensor, or an optimizer has postponed steps of these tables.
    """
    return (
        type(ids) is not Tensor
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or (bool(pending_rows._KEPT) and any(map(pending_rows.is_kept, tables)))
    )


def _sums_well(table: Tensor, sparse: bool) -> bool:
    """Whether torch's gradient of a lookup is exact enough, and fast enough.

    torch adds 16-bit numbers in 16 bits, and writes a whole table of zeros at each step.
    """
    return not sparse and table.dtype in (torch.float32, torch.float64) and table.nbytes < KEPT_BYTES


def is_watched(compiling: bool) -> bool:
    """Whether something must see each operation: vmap, grad, a fake mode, forward-mode gradients, a trace."""
    if torch._C._are_functorch_transforms_active():
        return True
    return not compiling and bool(
        torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


def is_plain(tensor: Tensor, compiling: bool) -> bool:
    if not tensor.is_cpu or tensor.layout != torch.strided:
        return False
    if type(tensor) in PLAIN:
        return True
    return compiling and isinstance(tensor, (FakeTensor, FunctionalTensor))  # they stand for plain ones


def unwatched(*tensors: Tensor) -> bool:
    """Whether these are plain tensors on a CPU, and nothing watches operations."""
    compiling = torch.compiler.is_compiling()
    return not is_watched(compiling) and all(is_plain(tensor, compiling) for tensor in tensors)


def any_requires_grad(*tensors: Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)
