"""Sixteen float32 lanes at once, with the same bits on every CPU.

A compiler is free to vectorize a loop for the CPU it finds, and then sums in another order. So kernels that
must repeat themselves bit by bit use these few operations, whose order of additions is written down:

==========================  ====================================================================
``load(m, row, column)``    the 16 numbers ``m[row, column : column + 16]``
``store(m, row, column, v)``  write them back
``splat(x)``                ``x`` in each lane
``fma(x, y, z)``            ``x·y + z`` a lane, rounded once (IEEE 754 fusedMultiplyAdd)
``total(v)``                the sum of the lanes: halves are added until one number is left (8, 4, 2, 1)
``prefetch(m, row, column)``  a hint that the cache line holding ``m[row, column]`` is needed soon
``stream_row(scratch, m, row)``  ``m[row] = scratch[0]``, past the caches; ``m`` starts on a 64-byte boundary
``prefetch_row(m, row)``    the same for all of a row, of any type and width
``fence()``                 what was streamed before is seen by every thread before what is stored after
==========================  ====================================================================

``m`` is a C-contiguous float32 matrix whose width is a multiple of 16 (``padded_width``); nothing checks that
row and column lie inside it. The operations exist inside numba-compiled functions only. ``llvm.fma`` is one
instruction where the CPU has it and a library call, slow and equal, where it hasn't.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, overload, register_model

from tokenspace.kernels.compiled import kernel

intrinsic: Any = extending.intrinsic  # its types know the definition, not the call

LANES = 16
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="lanes(16 x float32)")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: _Lanes) -> None:
        super().__init__(manager, numba_type, _VECTOR)


def padded_width(width: int) -> int:
    """The next multiple of 16.

    >>> padded_width(100), padded_width(112)
    (112, 112)
    """
    return -(-width // LANES) * LANES


def can_stream(matrix: np.ndarray) -> bool:
    """Whether ``stream_row`` may write this matrix: float32, its rows whole lanes on 64-byte boundaries.

    >>> can_stream(aligned_zeros(2, 32)), can_stream(aligned_zeros(2, 32).astype(np.float64))
    (True, False)
    """
    return matrix.dtype == np.float32 and matrix.shape[1] % LANES == 0 and matrix.ctypes.data % 64 == 0


def aligned_zeros(rows: int, width: int) -> np.ndarray:
    """Float32 zeros (rows, width) that start on a 64-byte boundary: no load crosses a cache line.

    >>> aligned_zeros(3, 16).ctypes.data % 64
    0
    """
    line = 64
    raw = np.zeros(rows * width * 4 + line, np.uint8)
    start = -raw.ctypes.data % line
    return raw[start : start + rows * width * 4].view(np.float32).reshape(rows, width)


def _element(context, builder, matrix_type, matrix, row, column):
    """The address of matrix[row, column]."""
    array = context.make_array(matrix_type)(context, builder, matrix)
    width = builder.extract_value(array.shape, 1)
    return builder.gep(array.data, [builder.add(builder.mul(row, width), column)])


@intrinsic
def load(typing, matrix, row, column):
    signature = _lanes(matrix, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        address = _element(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)

    return signature, generate


@intrinsic
def store(typing, matrix, row, column, vector):
    signature = types.void(matrix, types.int64, types.int64, _lanes)

    def generate(context, builder, signature, arguments):
        *place, vector = arguments
        address = _element(context, builder, signature.args[0], *place)
        builder.store(vector, builder.bitcast(address, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def splat(typing, number):
    def generate(context, builder, signature, arguments):
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.IntType(32)(0))
        return _shuffled(builder, first, first, [0] * LANES)

    return _lanes(types.float32), generate


@intrinsic
def fma(typing, x, y, z):
    def generate(context, builder, signature, arguments):
        function_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.fma.v16f32")
        return builder.call(function, arguments)

    return _lanes(_lanes, _lanes, _lanes), generate


@intrinsic
def total(typing, vector):
    def generate(context, builder, signature, arguments):
        (vector,) = arguments
        width = LANES
        while width > 1:
            width //= 2
            low = _shuffled(builder, vector, vector, list(range(width)))
            high = _shuffled(builder, vector, vector, list(range(width, 2 * width)))
            vector = builder.fadd(low, high)  # no fast-math flag: nobody may reorder this
        return builder.extract_element(vector, ir.IntType(32)(0))

    return types.float32(_lanes), generate


@intrinsic
def prefetch(typing, matrix, row, column):
    signature = types.void(matrix, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        flag = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        address = _element(context, builder, signature.args[0], *arguments)
        read, keep_in_all_levels, data = flag(0), flag(3), flag(1)
        builder.call(function, [builder.bitcast(address, pointer), read, keep_in_all_levels, data])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _stream(typing, matrix, row, column, vector):
    signature = types.void(matrix, types.int64, types.int64, _lanes)

    def generate(context, builder, signature, arguments):
        *place, vector = arguments
        address = _element(context, builder, signature.args[0], *place)
        stored = builder.store(vector, builder.bitcast(address, _VECTOR.as_pointer()), align=64)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return signature, generate


def stream_row(scratch, matrix, row):
    """``matrix[row] = scratch[0]``, written around the caches. Exists inside kernels only."""
    raise NotImplementedError("stream_row is for compiled code")


@overload(stream_row)
def _stream_row(scratch, matrix, row):
    if matrix.dtype != types.float32:
        return lambda scratch, matrix, row: None  # can_stream says no

    def stream(scratch, matrix, row):
        for column in range(0, matrix.shape[1], LANES):
            _stream(matrix, row, column, load(scratch, 0, column))

    return stream


@intrinsic
def fence(typing):
    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@kernel
def prefetch_row(matrix, row):
    """Ask for all cache lines of ``matrix[row]``: a row is too short for the CPU to see a pattern in it."""
    for column in range(0, matrix.shape[1], 64 // matrix.itemsize):
        prefetch(matrix, row, column)


def _shuffled(builder, first, second, lanes):
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(first, second, mask)
