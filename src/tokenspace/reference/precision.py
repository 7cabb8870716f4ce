"""The precision of the arithmetic: float32 at least, whatever the table is stored in."""

from __future__ import annotations

import numpy as np

from tokenspace.shapes import Array, ArrayLike, Float


def widened(values: ArrayLike) -> Float[Array, "*axes"]:
    """Return ``values`` in the precision to compute in: float64 stays, everything else becomes float32.

    bfloat16 has 8 bits of precision: a sum of ones in it stops growing at 256. An array that is wide enough
    is returned itself, not a copy.

    >>> widened(np.ones(3, np.float16)).dtype, widened(np.ones(3, np.float64)).dtype
    (dtype('float32'), dtype('float64'))
    """
    array = np.asarray(values)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
