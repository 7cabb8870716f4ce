"""Types of numbers by name, those that NumPy lacks among them."""

from __future__ import annotations

import functools

import numpy as np


@functools.cache
def number_type(name: str) -> np.dtype:
    """The type that NumPy calls ``name``; bfloat16 and the short floats are those of ml_dtypes.

    ml_dtypes is imported when one of its types is first asked for: that can take longer than a whole query.

    >>> number_type("float16"), number_type("bfloat16").itemsize
    (dtype('float16'), 2)
    """
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)
