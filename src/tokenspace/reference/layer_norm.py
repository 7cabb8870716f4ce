"""Layer normalization (Ba, Kiros and Hinton 2016, equations 3 and 4).

forward    y = weight · x̂ + bias,  x̂ = (x - mean) / sqrt(variance + eps), both over a token's D numbers
backward   dx = (g - mean(g) - x̂ · mean(g · x̂)) / sqrt(variance + eps),  g = weight · dy
"""

from __future__ import annotations

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.initializers import Real, Whole, real, whole
from tokenspace.reference.precision import checked_parameter, widened
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float


class LayerNorm:
    """Normalize each token's vector to mean 0 and variance 1, then stretch and shift by learned numbers.

    ``bias`` is None where a family has none (ModernBERT). ``eps`` keeps the root from 0: 1e-12 in BERT, 1e-5
    in GPT-2 and in torch's default. Gradients add up until `zero_gradient`. ``ShapeError`` unless width and
    ``eps`` are positive.

    >>> LayerNorm(2).forward([[1.0, 3.0]])
    array([[-1.,  1.]])
    """

    def __init__(self, embedding_dimension: Whole, eps: Real = 1e-12):
        width = whole("embedding_dimension", embedding_dimension, 1)
        self._hold(np.ones(width, np.float32), np.zeros(width, np.float32), eps)

    @classmethod
    def from_weight(cls, weight: ArrayLike, bias: ArrayLike | None = None, eps: Real = 1e-12) -> LayerNorm:
        """Hold existing arrays (D,) of floats, uncopied; ``ShapeError`` if their shapes differ."""
        self = cls.__new__(cls)
        bias = None if bias is None else checked_parameter(bias, "a bias", "D")
        self._hold(checked_parameter(weight, "a weight", "D"), bias, eps)
        return self

    def _hold(self, weight: np.ndarray, bias: np.ndarray | None, eps: Real) -> None:
        if bias is not None and weight.shape != bias.shape:
            raise ShapeError(f"weight and bias are (D,) each; found {weight.shape} and {bias.shape}")
        self.weight = weight
        self.bias = bias
        self.eps = real("eps", eps, positive=True)
        self._output_shape: tuple[int, ...] | None = None
        self.zero_gradient()

    @property
    def embedding_dimension(self) -> int:
        """D."""
        return self.weight.shape[0]

    def forward(self, x: ArrayLike) -> Float[Array, "*axes D"]:
        """Normalize the last axis; ``ShapeError`` unless it is D wide."""
        x = widened(x)
        if x.shape[-1:] != self.weight.shape:
            raise ShapeError(
                f"this LayerNorm takes vectors of width {self.embedding_dimension:,}; found shape {x.shape}"
            )
        self._output_shape = x.shape
        centered = x - x.mean(axis=-1, keepdims=True)
        self._inverse_std = 1.0 / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + self.eps)
        self._normalized = centered * self._inverse_std
        y = self._normalized * widened(self.weight)
        return y if self.bias is None else y + widened(self.bias)

    def backward(self, upstream_gradient: ArrayLike) -> Float[Array, "*axes D"]:
        """The input's gradient; adds to the gradients of weight and bias."""
        upstream_gradient = checked_gradient(upstream_gradient, self._output_shape)
        per_token = tuple(range(upstream_gradient.ndim - 1))
        self._d_weight += (upstream_gradient * self._normalized).sum(axis=per_token)
        if self._d_bias is not None:
            self._d_bias += upstream_gradient.sum(axis=per_token)
        g = upstream_gradient * widened(self.weight)
        mean_g = g.mean(axis=-1, keepdims=True)
        mean_gx = (g * self._normalized).mean(axis=-1, keepdims=True)
        return (g - mean_g - self._normalized * mean_gx) * self._inverse_std

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
