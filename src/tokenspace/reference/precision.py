"""The precision of the arithmetic: float32 at least, whatever the table is stored in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.shapes import Array, ArrayLike, Float

_FLOATS = ("float", "bfloat")  # how the names of dtypes begin, ml_dtypes' float8_… among them
_NUMBERS = (*_FLOATS, "int", "uint", "bool")


def widened(values: ArrayLike, what: str = "the input") -> Float[Array, "*axes"]:
    """Return ``values`` in the precision to compute in: float64 stays, everything else becomes float32.

    bfloat16 has 8 bits of precision: a sum of ones in it stops growing at 256. An array that is wide enough
    is returned itself, not a copy. ``ShapeError`` as for `checked_numbers`.

    >>> widened(np.ones(3, np.float16)).dtype, widened(np.ones(3, np.float64)).dtype
    (dtype('float32'), dtype('float64'))
    """
    array = checked_numbers(values, what)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def checked_numbers(values: ArrayLike, what: str) -> np.ndarray:
    """``values`` as an array, uncopied; ``ShapeError`` unless they are real numbers in a rectangular one."""
    array = _rectangular(values, what)
    if not array.dtype.name.startswith(_NUMBERS):
        raise ShapeError(f"{what} must be real numbers; found {array.dtype}")
    return array


def checked_parameter(values: ArrayLike, what: str, *axes: str) -> Float[Array, "*axes"]:
    """``values`` as an array, uncopied; ``ShapeError`` unless it has these axes, none empty, of floats.

    >>> checked_parameter([1, 2], "a bias", "D")
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: a bias is a (D) array of floats, at least one; found shape (2,), int64
    """
    array = _rectangular(values, what)
    if array.ndim != len(axes) or not array.size or not array.dtype.name.startswith(_FLOATS):
        raise ShapeError(
            f"{what} is a ({', '.join(axes)}) array of floats, at least one; "
            f"found shape {array.shape}, {array.dtype}"
        )
    return array


def checked_float_dtype(dtype: Any, what: str) -> np.dtype:
    """``dtype`` as a NumPy dtype; ``ShapeError`` unless it is a floating-point one: others would cut numbers.

    >>> checked_float_dtype("float16", "dtype")
    dtype('float16')
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if not found.name.startswith(_FLOATS):
        raise ShapeError(f"{what} must be a floating-point type, such as numpy.float32; found {dtype!r}")
    return found


def _rectangular(values: ArrayLike, what: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:  # ragged lists
        raise ShapeError(f"{what} must be a rectangular array of numbers ({error})") from None
