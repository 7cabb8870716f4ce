"""A change of width between table and transformer: ALBERT (128 to 768), ELECTRA, OPT-350m (512 to 1024).

    forward    y = x Wᵀ + b
    backward   dx = dy W,  dW = Σ dyᵀ x,  db = Σ dy

D is the table's width, H the transformer's.
"""

from __future__ import annotations

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.initializers import Generator, Whole, xavier_uniform
from tokenspace.reference.embedding import checked_table
from tokenspace.reference.precision import checked_parameter, widened
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float


class Projection:
    """A linear layer; ``weight`` is (H, D) as checkpoints store it, ``bias`` (H,) or None (OPT has none).

    >>> Projection.from_weight(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).forward([2.0, 5.0])
    array([2., 5., 7.])
    """

    def __init__(self, input_width: Whole, output_width: Whole, rng: Generator, *, bias: bool = True):
        weight = xavier_uniform((output_width, input_width), rng)
        self._hold(weight, np.zeros(len(weight), np.float32) if bias else None)

    @classmethod
    def from_weight(cls, weight: ArrayLike, bias: ArrayLike | None = None) -> Projection:
        """Hold existing arrays, uncopied; ``ShapeError`` if they don't fit each other."""
        self = cls.__new__(cls)
        self._hold(checked_table(weight), None if bias is None else checked_parameter(bias, "a bias", "H"))
        return self

    def _hold(self, weight: np.ndarray, bias: np.ndarray | None) -> None:
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ShapeError(f"a weight {weight.shape} takes a bias {weight.shape[:1]}; found {bias.shape}")
        self.weight = weight
        self.bias = bias
        self._output_shape: tuple[int, ...] | None = None
        self.zero_gradient()

    @property
    def input_width(self) -> int:
        """D."""
        return self.weight.shape[1]

    @property
    def output_width(self) -> int:
        """H."""
        return self.weight.shape[0]

    def forward(self, x: ArrayLike) -> Float[Array, "*axes H"]:
        """Project the last axis; ``ShapeError`` unless it is D wide."""
        x = widened(x)
        if x.shape[-1:] != (self.input_width,):
            raise ShapeError(f"this projection takes width {self.input_width:,}; found shape {x.shape}")
        self._x = x
        self._output_shape = (*x.shape[:-1], self.output_width)
        y = x @ widened(self.weight).T
        return y if self.bias is None else y + widened(self.bias)

    def backward(self, upstream_gradient: ArrayLike) -> Float[Array, "*axes D"]:
        """The input's gradient; adds to the gradients of weight and bias."""
        upstream_gradient = checked_gradient(upstream_gradient, self._output_shape)
        flat = upstream_gradient.reshape(-1, self.output_width)
        self._d_weight += flat.T @ self._x.reshape(-1, self.input_width)
        if self._d_bias is not None:
            self._d_bias += flat.sum(axis=0)
        return upstream_gradient @ widened(self.weight)

    def zero_gradient(self) -> None:
        """Forget the gradients."""
        self._d_weight = np.zeros_like(widened(self.weight))
        self._d_bias = None if self.bias is None else np.zeros_like(widened(self.bias))

    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays that training changes, by name."""
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}

    def gradients(self) -> dict[str, np.ndarray]:
        """Their gradients, under the same names."""
        if self._d_bias is None:
            return {"weight": self._d_weight}
        return {"weight": self._d_weight, "bias": self._d_bias}
