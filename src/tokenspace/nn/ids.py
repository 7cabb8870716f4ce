"""Token ids in torch: the contract of ``tokenspace.ids``, held where a tensor's values can be read for free.

=====================================  ===============================================================
ids on                                 what an id outside the table does
=====================================  ===============================================================
CPU: eager, no_grad, vmap, functional  ``TokenIdError`` before any row is read
CPU: torch.compile, torch.export       ``TokenIdError`` when the compiled code runs
CUDA                                   torch's own kernel stops with a device-side assertion; nothing is
                                       read back, so nothing waits (``synchronize=True`` reads, and raises
                                       ``TokenIdError``)
other devices                          what their kernels do
meta                                   nothing: there are no values
=====================================  ===============================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from tokenspace.errors import TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.nn.arrays import array_over
from tokenspace.nn.nested import nested_like, packed
from tokenspace.nn.subclasses import register_checks
from tokenspace.shapes import Array

INDEX_DTYPES = (torch.int64, torch.int32)
"""What torch's lookups take; other integers are widened."""


def check_ids(ids: Tensor, rows: int, what: str = "token id", *, synchronize: bool = False) -> Tensor:
    """Return ``ids`` as int32 or int64 ids that index a table of ``rows`` rows; ``TokenIdError`` otherwise.

    The words are those of ``tokenspace.ids.checked_ids``. Use what is returned: inside torch.compile the
    check is an operator of its own, and one whose result nobody reads is dropped. ``synchronize`` checks ids
    on a device too, at the price of waiting for it.

    >>> check_ids(torch.tensor([[0, 2]], dtype=torch.uint8), rows=3)
    tensor([[0, 2]])
    >>> check_ids(torch.tensor([[0, 3]]), rows=3)
    Traceback (most recent call last):
    ...
    tokenspace.errors.TokenIdError: 1 of 2 token ids is outside this table of 3 rows; the first is 3 at \
batch 0, position 1 (valid: 0 to 2). Is the tokenizer larger than the table?
    """
    if not isinstance(ids, Tensor):
        raise TokenIdError(
            f"{what}s must be a tensor, found {type(ids).__name__}; torch.tensor(...) makes one"
        )
    if ids.is_nested:
        return nested_like(check_ids(packed(ids), rows, what, synchronize=synchronize), ids)
    if ids.is_meta or not (ids.is_cpu or synchronize):
        return _indices(ids, what)
    if torch._C._get_tracing_state() is not None:  # of torch.jit.trace: checked now, and no part of the trace
        with _untraced():
            _raise_outside(ids, int(rows), what)
        return _indices(ids, what)
    if _is_hidden(ids):
        return _check_ids(ids, rows, what)
    _raise_outside(ids, rows, what)
    return ids if ids.dtype in INDEX_DTYPES else ids.long()


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)  # type: ignore[attr-defined]


@torch.library.custom_op("tokenspace::check_ids", mutates_args=())
def _check_ids(ids: Tensor, rows: int, what: str) -> Tensor:
    _raise_outside(ids, rows, what)
    return ids.to(torch.int64, copy=True)  # an operator may not return its own input


@_check_ids.register_fake
def _(ids: Tensor, rows: int, what: str) -> Tensor:
    return torch.empty_like(ids, dtype=torch.int64)


@_check_ids.register_vmap
def _(info: object, in_dims: tuple[int | None, ...], ids: Tensor, rows: int, what: str) -> tuple:
    return _check_ids(ids, rows, what), in_dims[0]


def checked_indices(ids: Tensor, rows: int, what: str) -> Array:
    """Ids on the CPU as kernels take them, checked: (N,) of int32 or int64, contiguous, N being all of them.

    Nothing is checked if ``what`` is empty. The words of the error are those of ``check_ids``.

    >>> checked_indices(torch.tensor([[0, 2]], dtype=torch.uint8), 3, "token id")
    array([0, 2])
    """
    if ids.dtype not in INDEX_DTYPES:
        if what:
            _raise_outside(ids, rows, what)
        return array_over(ids.long().contiguous()).reshape(-1)
    values = array_over(ids.contiguous()).reshape(-1)
    if what and len(values):  # a negative id is a large unsigned one, so that one pass finds both
        unsigned = np.uint64 if values.dtype == np.int64 else np.uint32
        if np.maximum.reduce(values.view(unsigned)) >= rows:
            _raise_outside(ids, rows, what)
    return values


def check_labels(
    labels: Tensor, rows: int, ignore_index: int = -100, masked: int | None = None
) -> tuple[Tensor, Tensor]:
    """Labels as int64 rows, and which of them count: (labels, counted), both shaped like ``labels``.

    A label that is ``ignore_index`` doesn't count, and is replaced by a row that can be read.
    ``TokenIdError`` for any other label outside the table, and for one that is ``masked``: a row that can't
    be predicted.

    >>> check_labels(torch.tensor([2, -100]), rows=3)
    (tensor([2, 0]), tensor([ True, False]))
    """
    if not isinstance(labels, Tensor):
        raise TokenIdError(
            f"labels must be a tensor, found {type(labels).__name__}; torch.tensor(...) makes one"
        )
    no_row = -1 if masked is None else masked
    _check_dense(labels, "label")
    if not labels.is_cpu:
        labels = _indices(labels, "label").long()
    elif _is_hidden(labels):
        labels = _check_labels(labels, rows, ignore_index, no_row)
    else:
        _raise_outside_labels(labels, rows, ignore_index, no_row)
        labels = labels.long()
    counted = labels != ignore_index
    return labels.where(counted, 1 if masked == 0 else 0), counted


@torch.library.custom_op("tokenspace::check_labels", mutates_args=())
def _check_labels(labels: Tensor, rows: int, ignore_index: int, masked: int) -> Tensor:
    _raise_outside_labels(labels, rows, ignore_index, masked)
    return labels.to(torch.int64, copy=True)


@_check_labels.register_fake
def _(labels: Tensor, rows: int, ignore_index: int, masked: int) -> Tensor:
    return torch.empty_like(labels, dtype=torch.int64)


@_check_labels.register_vmap
def _(
    info: object, in_dims: tuple[int | None, ...], labels: Tensor, rows: int, ignore_index: int, masked: int
) -> tuple:
    return _check_labels(labels, rows, ignore_index, masked), in_dims[0]


def _raise_outside_labels(labels: Tensor, rows: int, ignore_index: int, masked: int) -> None:
    _indices(labels, "label")
    values = labels.detach().long()  # first: 156 of uint8 is not the -100 that it would be compared as
    counted = values != ignore_index
    checked_ids(array_over(values.where(counted, 0)), rows, "label")
    if masked >= 0 and bool((counted & (values == masked)).any()):
        raise TokenIdError(
            f"a label is row {masked:,}, the frozen padding row, which the head never predicts; mark such "
            f"positions with {ignore_index}, which the loss ignores"
        )


def _raise_outside(ids: Tensor, rows: int, what: str) -> None:
    _check_dense(ids, what)
    values = ids.detach().cpu()
    if values.dtype == torch.bfloat16:  # numpy has none; no float is an id anyway
        values = values.float()
    checked_ids(array_over(values), rows, what)


def _check_dense(ids: Tensor, what: str) -> None:
    if ids.layout != torch.strided or ids.is_quantized:
        found = "a quantized tensor" if ids.is_quantized else f"layout {ids.layout}"
        raise TokenIdError(
            f"{what}s must be a dense tensor of integers, found {found}; "
            f"{'ids.int_repr() has the numbers' if ids.is_quantized else 'ids.to_dense() makes one'}"
        )


def _is_hidden(ids: Tensor) -> bool:
    """Whether only an operator sees the ids' values: while compiling, in vmap and grad, in a subclass."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    if type(ids) is Tensor:
        return False
    register_checks()
    return True


def _indices(ids: Tensor, what: str) -> Tensor:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenIdError(
            f"{what}s must be integers, found {str(ids.dtype).removeprefix('torch.')}; "
            "convert them where they are made: a rounded id selects another token's row"
        )
    return ids if ids.dtype in INDEX_DTYPES else ids.long()
