"""NumPy arrays as tensors and tensors as NumPy arrays, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array


def tensor_of(array: Array, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of ``array`` (a memory map as well), in ``dtype`` if one is given.

    Its storage is torch's own, and can be resized; that of ``torch.from_numpy`` can't.

    >>> tensor_of(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    tensor([ 1.5000, -2.0000], dtype=torch.bfloat16)
    """
    checked_dtype(dtype)
    copied = torch.empty(array.shape, dtype=_torch_type(array.dtype), device="cpu")
    array_over(copied)[...] = array
    return copied.to(dtype)


def checked_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """Return ``dtype``; ``ShapeError`` unless it is a floating-point ``torch.dtype``, or None.

    >>> checked_dtype("float32")
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: dtype must be a floating-point torch.dtype, such as torch.float32; found \
'float32'
    """
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return dtype
    raise ShapeError(f"dtype must be a floating-point torch.dtype, such as torch.float32; found {dtype!r}")


def array_over(tensor: Tensor) -> Array:
    """The numbers of a tensor on the CPU as an array in the same memory; bfloat16 is ml_dtypes'.

    The array keeps the tensor alive and leaves no mark on it. ``Tensor.numpy`` would forbid every later
    resize of the storage, which FSDP, ``out=`` and the addition of sparse gradients rely on.

    >>> tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    >>> array_over(tensor).dtype.name, array_over(tensor).astype(float)
    ('bfloat16', array([ 1.5, -2. ]))
    >>> tensor.untyped_storage().resizable()
    True
    """
    array = np.asarray(_Memory(tensor))
    return array.view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else array


def _torch_type(dtype: np.dtype) -> torch.dtype:
    return _TORCH_TYPES[dtype if dtype.isnative else dtype.newbyteorder("=")]


_TYPES = {
    dtype: np.dtype(str(dtype).removeprefix("torch.")).str
    for dtype in (
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    )
} | {torch.bfloat16: np.dtype(np.uint16).str}
_TORCH_TYPES = {np.dtype(kind): own for own, kind in _TYPES.items() if own != torch.bfloat16} | {
    np.dtype(ml_dtypes.bfloat16): torch.bfloat16
}


class _Memory:
    """The memory of a tensor, in the form that NumPy asks for: ``__array_interface__``."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        if tensor.is_neg() or tensor.is_conj():
            raise ShapeError(
                "this tensor stores negated or conjugated numbers; call resolve_neg() or clone()"
            )
        self._tensor = tensor
        strides = None
        if not tensor.is_contiguous():
            strides = tuple(step * tensor.element_size() for step in tensor.stride())
        self.__array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": _TYPES[tensor.dtype],
            "data": (tensor.data_ptr(), False),
            "strides": strides,
            "version": 3,
        }
