"""NumPy arrays as tensors, bit for bit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tokenspace.shapes import Array


def tensor_of(array: Array, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of ``array`` (a memory map as well), in ``dtype`` if one is given.

    bfloat16, which NumPy knows from ml_dtypes alone, goes over as its bits.

    >>> import ml_dtypes
    >>> tensor_of(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    tensor([ 1.5000, -2.0000], dtype=torch.bfloat16)
    """
    copied = np.array(array)
    if copied.dtype.name == "bfloat16":
        return torch.from_numpy(copied.view(np.uint16)).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(copied).to(dtype)
