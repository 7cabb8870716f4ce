"""NumPy arrays as tensors and tensors as NumPy arrays, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from tokenspace.shapes import Array


def tensor_of(array: Array, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of ``array`` (a memory map as well), in ``dtype`` if one is given.

    bfloat16, which NumPy knows from ml_dtypes alone, goes over as its bits.

    >>> tensor_of(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    tensor([ 1.5000, -2.0000], dtype=torch.bfloat16)
    """
    return tensor_over(np.array(array)).to(dtype)


def tensor_over(array: Array) -> Tensor:
    """A tensor in the memory of ``array``, which it keeps alive.

    It is no view of another tensor, so autograd lets the caller change it in place.
    """
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_over(tensor: Tensor) -> Array:
    """The numbers of a tensor on the CPU as an array in the same memory; bfloat16 is ml_dtypes'.

    >>> array_over(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    array([1.5, -2], dtype=bfloat16)
    """
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
