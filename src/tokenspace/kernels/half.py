"""Sixteen-bit floats inside kernels, which compute in float32 or float64 only.

numba knows neither type, so their bits travel as integers, and the type of the integer says which they are:

=============  ==================  =======================================
an array of    travels as          widened to
=============  ==================  =======================================
float32        itself              itself
float64        itself              itself
bfloat16       its uint16 bits     float32: the same bits, 16 zeros after
float16        its int16 bits      float32
=============  ==================  =======================================

``widen(x)`` is exact. ``narrow(value, like)`` rounds once, to nearest, ties to even, as IEEE 754 and torch
do: a float64 too, which plain code would round to float32 first, and then again. For float16 that is one
instruction where the CPU has it (``HAS_FLOAT16``); the rest is integer arithmetic and selections, so that
loops over it vectorize on every CPU, with the same bits on each.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import ml_dtypes
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import config
from numba.extending import overload

from tokenspace.kernels.compiled import kernel

_BITS: dict[np.dtype, type[np.integer]] = {
    np.dtype(np.float16): np.int16,
    np.dtype(ml_dtypes.bfloat16): np.uint16,
}
_SIGN, _INFINITY = np.uint32(0x80000000), np.uint32(0x7F800000)

_intrinsic: Any = extending.intrinsic  # its types know the definition, not the call

HAS_FLOAT16 = getattr(config, "CPU_NAME", None) is None and bool(
    llvmlite.binding.get_host_cpu_features().get("f16c")
)
"""Whether kernels are compiled for an x86 CPU that converts float16 (all since 2013 do)."""


def bits(array: np.ndarray) -> np.ndarray:
    """The array as kernels take it: float32 and float64 as they are, 16-bit floats as their bits, no copy.

    >>> import ml_dtypes
    >>> bits(np.array([1.0, -2.0], ml_dtypes.bfloat16)), bits(np.array([1.0], np.float16)).dtype
    (array([16256, 49152], dtype=uint16), dtype('int16'))
    """
    short = _BITS.get(array.dtype)
    return array if short is None else array.view(short)


def computed_in(array: np.ndarray) -> type[np.floating]:
    """The type that kernels compute in for this array: float64 for float64, float32 for all others."""
    return np.float64 if array.dtype == np.float64 else np.float32


def widen(x: Any) -> Any:
    """A number of a table, as the float32 or float64 that it stands for. Exists inside kernels only."""
    raise NotImplementedError("widen is for compiled code")


def narrow(value: Any, like: Any) -> Any:
    """``value`` rounded to the type of the array ``like``. Exists inside kernels only."""
    raise NotImplementedError("narrow is for compiled code")


def rounded(value: Any, like: Any) -> Any:
    """``value`` rounded to the type of the array ``like``, and widened again. Exists inside kernels only."""
    raise NotImplementedError("rounded is for compiled code")


@overload(widen)
def _widen(x):
    if x == types.uint16:
        return lambda x: _widened_bfloat16(x)
    if x == types.int16:
        return (lambda x: _widened_by_cpu(x)) if HAS_FLOAT16 else (lambda x: widened_float16(x))
    return lambda x: x


@overload(narrow)
def _narrow(value, like):
    if like.dtype == types.uint16:
        return lambda value, like: _narrowed_bfloat16(_sticky(value))
    if like.dtype == types.int16:
        if HAS_FLOAT16:
            return lambda value, like: _narrowed_by_cpu(_sticky(value))
        return lambda value, like: narrowed_float16(_sticky(value))
    if like.dtype == types.float32:
        return lambda value, like: np.float32(value)
    return lambda value, like: value


@overload(rounded)
def _rounded(value, like):
    if like.dtype in (types.uint16, types.int16):
        return lambda value, like: widen(narrow(value, like))
    return lambda value, like: value


@kernel
def _widened_bfloat16(x):
    return np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)


@kernel
def _narrowed_bfloat16(value):
    pattern = np.float32(value).view(np.uint32)
    odd = np.uint32((pattern >> np.uint32(16)) & np.uint32(1))
    near = np.uint32(pattern + np.uint32(0x7FFF) + odd)  # carries into the exponent where it must
    quiet = np.uint32(pattern | np.uint32(0x400000))  # a NaN's bits could round to infinity's
    is_nan = np.uint32(pattern & ~_SIGN) > _INFINITY
    return np.uint16((quiet if is_nan else near) >> np.uint32(16))


@_intrinsic
def _widened_by_cpu(typing, x):
    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.int16), generate


@_intrinsic
def _narrowed_by_cpu(typing, value):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.int16(types.float32), generate


@kernel
def widened_float16(x):
    pattern = np.uint32(np.uint16(x))
    magnitude = np.uint32(pattern & np.uint32(0x7FFF))
    # Exponent biases are 15 and 127. Below 2**-14 there is no hidden bit: the number counts 2**-24ths.
    normal = np.uint32((magnitude << np.uint32(13)) + np.uint32(112 << 23))
    small = np.float32(np.float32(np.int32(magnitude)) * np.float32(2.0**-24)).view(np.uint32)
    special = np.uint32((magnitude << np.uint32(13)) | _INFINITY)
    wide = small if magnitude < np.uint32(0x400) else normal
    wide = special if magnitude >= np.uint32(0x7C00) else wide
    return np.uint32(wide | np.uint32((pattern & np.uint32(0x8000)) << np.uint32(16))).view(np.float32)


@kernel
def narrowed_float16(value):
    pattern = np.float32(value).view(np.uint32)
    sign = np.uint32((pattern & _SIGN) >> np.uint32(16))
    magnitude = np.uint32(pattern & ~_SIGN)
    odd = np.uint32((magnitude >> np.uint32(13)) & np.uint32(1))
    near = np.uint32((magnitude - np.uint32(112 << 23) + np.uint32(0xFFF) + odd) >> np.uint32(13))
    # Below 2**-14 one step is 2**-24: adding 0.5, whose own steps are 2**-24, lets the addition round.
    small = np.uint32(np.float32(magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32))
    small = np.uint32(small - np.uint32(0x3F000000))
    narrowed = small if magnitude < np.uint32(0x38800000) else near
    narrowed = np.uint32(0x7C00) if magnitude >= np.uint32(0x47800000) else narrowed
    narrowed = np.uint32(0x7E00) if magnitude > _INFINITY else narrowed
    return np.int16(np.uint16(narrowed | sign))


def _sticky(value: Any) -> Any:
    """A float32 that rounds to any shorter type as ``value`` does. Exists inside kernels only."""
    raise NotImplementedError("_sticky is for compiled code")


@overload(_sticky)
def _round_to_odd(value):
    if value != types.float64:
        return lambda value: value

    def round_to_odd(value):
        # Boldo and Melquiond 2008: cut toward zero, and set the last bit if anything was cut. At least two
        # bits longer than what comes next, such a number is never mistaken for a tie.
        near = np.float32(value)
        pattern = near.view(np.uint32)
        cut = np.float64(near) != value and value == value
        beyond = abs(np.float64(near)) > abs(value)
        toward_zero = np.uint32(pattern - np.uint32(1)) if beyond else pattern
        return np.uint32(toward_zero | np.uint32(1)).view(np.float32) if cut else near

    return round_to_odd
