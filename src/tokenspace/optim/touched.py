"""Some rows of a parameter and their gradients, as arrays for a kernel or as tensors for torch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from tokenspace.nn.arrays import array_over
from tokenspace.optim.gradients import DTYPES, RowGradient, wide
from tokenspace.shapes import Array


class Touched(NamedTuple):
    """``d`` (U, \\*axes) are the gradients of the rows ``ids`` (U,), or of all rows if that is None."""

    weight: Tensor
    ids: Tensor | None
    d: Tensor

    @classmethod
    def by(cls, weight: Tensor, gradient: Tensor | RowGradient) -> Touched:
        if isinstance(gradient, RowGradient):
            return cls(weight, gradient.ids, gradient.values)
        return cls(weight, None, gradient.detach().resolve_neg())

    def fits_kernels(self) -> bool:
        """Whether the kernels take it: plain numbers on the CPU, rows one after the other."""
        tensors = (self.weight, self.d)
        plain = all(type(tensor) in (Tensor, Parameter) for tensor in tensors)
        return plain and self.weight.is_contiguous() and all(t.is_cpu and t.dtype in DTYPES for t in tensors)

    def rows(self) -> np.ndarray:
        return np.arange(len(self.gradients())) if self.ids is None else array_over(self.ids)

    def gradients(self) -> Array:
        """``d`` as (U, D)."""
        return array_of(self.d.contiguous())

    def read(self, state: Tensor | None = None) -> Tensor:
        """The touched rows of the weight, or of a state of it, in the type to compute in."""
        tensor = self.weight if state is None else state
        return (tensor if self.ids is None else tensor.index_select(0, self.ids)).to(wide(tensor.dtype))

    def write(self, rows: Tensor, state: Tensor | None = None) -> None:
        """Put them back, rounded to the type of the weight or state."""
        tensor = self.weight if state is None else state
        if self.ids is None:
            tensor.copy_(rows)
        else:
            tensor.index_copy_(0, self.ids, rows.to(tensor.dtype))


def array_of(tensor: Tensor) -> Array:
    """A contiguous tensor (V, \\*axes) on the CPU as (V, D); a vector has rows of one number."""
    if tensor.ndim != 2:
        tensor = tensor.view(tensor.shape[0] if tensor.ndim else 1, math.prod(tensor.shape[1:]))
    return array_over(tensor)


def wrote(weight: Tensor) -> None:
    """Tell autograd that a kernel has changed it, as torch's own operations would."""
    torch.autograd.graph.increment_version(weight)
