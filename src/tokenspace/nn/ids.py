"""Token ids in torch: the contract of ``tokenspace.ids``, held where a tensor's values can be read for free.

=====================================  ===============================================================
ids on                                 what an id outside the table does
=====================================  ===============================================================
CPU: eager, no_grad, vmap, functional  ``TokenIdError`` before any row is read
CPU: torch.compile, torch.export       ``TokenIdError`` when the compiled code runs
CUDA and other devices                 torch's own kernel stops with a device-side assertion; nothing is
                                       read back, so nothing waits (``synchronize=True`` reads, and raises
                                       ``TokenIdError``)
meta                                   nothing: there are no values
=====================================  ===============================================================
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokenspace.errors import TokenIdError
from tokenspace.ids import checked_ids

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
    if ids.is_meta or not (ids.is_cpu or synchronize):
        return _indices(ids, what)
    if torch.compiler.is_compiling() or type(ids) is not Tensor or _is_wrapped(ids):
        return _check_ids(ids, rows, what)
    _raise_outside(ids, rows, what)
    return ids if ids.dtype in INDEX_DTYPES else ids.long()


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


def _raise_outside(ids: Tensor, rows: int, what: str) -> None:
    values = ids.detach().cpu()
    if values.dtype == torch.bfloat16:  # numpy has none; no float is an id anyway
        values = values.float()
    checked_ids(values.numpy(), rows, what)


def _is_wrapped(ids: Tensor) -> bool:
    """Whether vmap or another transform holds the ids: only an operator sees their values then."""
    return torch._C._functorch.is_functorch_wrapped_tensor(ids)


def _indices(ids: Tensor, what: str) -> Tensor:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenIdError(
            f"{what}s must be integers, found {str(ids.dtype).removeprefix('torch.')}; "
            "convert them where they are made: a rounded id selects another token's row"
        )
    return ids if ids.dtype in INDEX_DTYPES else ids.long()
