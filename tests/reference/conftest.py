"""Finite differences: a gradient that owes nothing to the code under test."""

from collections.abc import Callable

import numpy as np
import pytest


def numeric_gradient(f: Callable[[], float], x: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """df/dx by central differences; ``x`` is a float64 array that ``f`` reads, and is left as it was."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + eps
        above = f()
        x[index] = kept - eps
        below = f()
        x[index] = kept
        gradient[index] = (above - below) / (2 * eps)
    return gradient


@pytest.fixture(name="numeric_gradient")
def numeric_gradient_fixture():
    return numeric_gradient
