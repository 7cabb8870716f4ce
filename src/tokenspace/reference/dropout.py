"""Dropout, inverted: what is kept in training is scaled up, so that evaluation needs no change.

forward    y = x · m / (1 - rate),  m is 1 with probability 1 - rate, else 0
backward   dx = dy · m / (1 - rate)
"""

from __future__ import annotations

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.initializers import Generator, Real, checked_rng, real
from tokenspace.reference.precision import widened
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float


class Dropout:
    """Zero each number with probability ``rate`` in training (Srivastava et al. 2014, section 10).

    ``rng`` draws the masks: the same seed and the same calls drop the same numbers. ``ShapeError`` for a rate
    outside [0, 1) or no generator. A NaN or Inf stays visible where it is dropped too (as NaN).

    >>> dropout = Dropout(0.5, np.random.default_rng(0))
    >>> dropout.forward(np.ones(6), training=True)
    array([2., 0., 0., 0., 2., 2.])
    >>> dropout.forward(np.ones(6))
    array([1., 1., 1., 1., 1., 1.])
    """

    def __init__(self, rate: Real, rng: Generator):
        self.rate = real("the dropout rate", rate)
        if not 0.0 <= self.rate < 1.0:
            raise ShapeError(f"the dropout rate must be at least 0 and under 1; found {rate!r}")
        self.rng = checked_rng(rng)
        self._factor: np.ndarray | None = None
        self._output_shape: tuple[int, ...] | None = None

    def forward(self, x: ArrayLike, training: bool = False) -> Float[Array, "*axes"]:
        """Drop in training; return ``x`` itself in evaluation."""
        x = widened(x)
        self._output_shape = x.shape
        if not training or self.rate == 0.0:
            self._factor = None
            return x
        kept = self.rng.random(x.shape) >= self.rate
        self._factor = (kept / (1.0 - self.rate)).astype(x.dtype)
        return x * self._factor

    def backward(self, upstream_gradient: ArrayLike) -> Float[Array, "*axes"]:
        """The input's gradient, through the mask of the last forward."""
        upstream_gradient = checked_gradient(upstream_gradient, self._output_shape)
        return upstream_gradient if self._factor is None else upstream_gradient * self._factor
