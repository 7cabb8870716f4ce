"""Sixteen float32 lanes at once, with the same bits on every CPU.

A compiler is free to vectorize a loop for the CPU it finds, and then sums in another order. So kernels that
must repeat themselves bit by bit use these few operations, whose order of additions is written down:

==========================  ====================================================================
``load(m, row, column)``    the 16 numbers ``m[row, column : column + 16]``
``store(m, row, column, v)``  write them back
``splat(x)``                ``x`` in each lane
``fma(x, y, z)``            ``x·y + z`` a lane, rounded once (IEEE 754 fusedMultiplyAdd)
``add``, ``subtract``, ``multiply``  of two vectors, lane by lane
``bounded(v, low, high)``   each lane brought into ``low … high``; NaN becomes ``low``
``first_lanes(v, n)``       the first n lanes, 0 in the others
``total(v)``                the sum of the lanes: halves are added until one number is left (8, 4, 2, 1)
``totals(m, row)``          the totals of the 16 rows ``m[row … row+15, :16]``, each added in that same order
``between(pieces, v)``      ``pieces[i, 0] + f·pieces[i, 1]`` and ``pieces[i, 2] + f·pieces[i, 3]``: i the
                            whole part of a lane ≥ 0 (at most the last row), f the rest
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

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, overload, register_model

from tokenspace.kernels.compiled import kernel

intrinsic: Any = extending.intrinsic  # its types know the definition, not the call

LANES = 16
_FLOAT, _WORD, _INDEX = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="lanes(16 x float32)")


lanes = _Lanes()


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
    signature = lanes(matrix, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        return read(context, builder, signature.args[0], *arguments)

    return signature, generate


@intrinsic
def store(typing, matrix, row, column, vector):
    signature = types.void(matrix, types.int64, types.int64, lanes)

    def generate(context, builder, signature, arguments):
        write(context, builder, signature.args[0], *arguments)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def splat(typing, number):
    def generate(context, builder, signature, arguments):
        return _splat(builder, _VECTOR, arguments[0])

    return lanes(types.float32), generate


@intrinsic
def fma(typing, x, y, z):
    def generate(context, builder, signature, arguments):
        return fused(builder, *arguments)

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def add(typing, x, y):
    return lanes(lanes, lanes), lambda context, builder, signature, both: builder.fadd(*both)


@intrinsic
def subtract(typing, x, y):
    return lanes(lanes, lanes), lambda context, builder, signature, both: builder.fsub(*both)


@intrinsic
def multiply(typing, x, y):
    return lanes(lanes, lanes), lambda context, builder, signature, both: builder.fmul(*both)


@intrinsic
def bounded(typing, vector, low, high):
    def generate(context, builder, signature, arguments):
        vector, *bounds = arguments
        low, high = (_splat(builder, _VECTOR, bound) for bound in bounds)
        vector = builder.select(builder.fcmp_ordered(">", vector, low), vector, low)
        return builder.select(builder.fcmp_ordered("<", vector, high), vector, high)

    return lanes(lanes, types.float32, types.float32), generate


@intrinsic
def first_lanes(typing, vector, count):
    def generate(context, builder, signature, arguments):
        vector, count = arguments
        numbers = ir.VectorType(ir.IntType(64), LANES)
        inside = builder.icmp_signed(
            "<", ir.Constant(numbers, list(range(LANES))), _splat(builder, numbers, count)
        )
        return builder.select(inside, vector, ir.Constant(_VECTOR, None))

    return lanes(lanes, types.int64), generate


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
        return builder.extract_element(vector, _WORD(0))

    return types.float32(lanes), generate


@intrinsic
def totals(typing, matrix, row):
    """In four rounds the vectors are joined in pairs, and each round adds the halves of what is left."""
    signature = lanes(matrix, types.int64)

    def generate(context, builder, signature, arguments):
        matrix, row = arguments
        rows = (builder.add(row, _INDEX(n)) for n in range(LANES))
        vectors = [read(context, builder, signature.args[0], matrix, row, _INDEX(0)) for row in rows]
        part = LANES  # lanes that each sum still takes up
        while part > 1:
            half = part // 2
            low = [start + lane for start in range(0, 2 * LANES, part) for lane in range(half)]
            high = [lane + half for lane in low]
            vectors = [
                builder.fadd(_shuffled(builder, a, b, low), _shuffled(builder, a, b, high))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            part = half
        return vectors[0]

    return signature, generate


@intrinsic
def between(typing, pieces, places):
    """Each lane's row of four numbers is read at once, which is quicker than the CPU's own gathering."""
    signature = types.UniTuple(lanes, 2)(pieces, lanes)

    def generate(context, builder, signature, arguments):
        pieces, places = arguments
        whole, four = ir.VectorType(_WORD, LANES), ir.VectorType(_FLOAT, 4)
        array = context.make_array(signature.args[0])(context, builder, pieces)
        last = builder.sub(builder.extract_value(array.shape, 0), _INDEX(1))
        last = _splat(builder, whole, builder.trunc(last, _WORD))
        index = builder.fptosi(places, whole)
        index = builder.select(builder.icmp_signed("<", index, last), index, last)
        rest = builder.fsub(places, builder.sitofp(index, _VECTOR))
        addresses = ir.VectorType(_INDEX, LANES)
        begin = _splat(builder, addresses, builder.ptrtoint(array.data, _INDEX))
        row_bytes = builder.mul(builder.extract_value(array.shape, 1), _INDEX(4))
        steps = builder.mul(builder.sext(index, addresses), _splat(builder, addresses, row_bytes))
        rows = builder.add(begin, steps)
        joined = []
        for lane in range(LANES):
            address = builder.inttoptr(builder.extract_element(rows, _WORD(lane)), four.as_pointer())
            joined.append(builder.load(address, align=4))
        while len(joined) > 2:
            both = list(range(8 * LANES // len(joined)))
            joined = [_shuffled(builder, a, b, both) for a, b in zip(joined[::2], joined[1::2], strict=True)]
        first, second = joined
        columns = [_shuffled(builder, first, second, list(range(n, 4 * LANES, 4))) for n in range(4)]
        values = [builder.fadd(columns[n], builder.fmul(rest, columns[n + 1])) for n in (0, 2)]
        return context.make_tuple(builder, signature.return_type, values)

    return signature, generate


@intrinsic
def prefetch(typing, matrix, row, column):
    def generate(context, builder, signature, arguments):
        matrix, row, column = arguments
        prefetch_line(context, builder, signature.args[0], matrix, row, column, level=1)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64), generate


@intrinsic
def _stream(typing, matrix, row, column, vector):
    signature = types.void(matrix, types.int64, types.int64, lanes)

    def generate(context, builder, signature, arguments):
        *place, vector = arguments
        address = _element(context, builder, signature.args[0], *place)
        stored = builder.store(vector, builder.bitcast(address, _VECTOR.as_pointer()), align=64)
        stored.set_metadata("nontemporal", builder.module.add_metadata([_WORD(1)]))
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
def _probe(matrix, pieces):
    both = between(pieces, bounded(totals(matrix, 0), np.float32(0), np.float32(1)))
    store(matrix, 0, 0, first_lanes(fma(both[0], multiply(both[1], splat(np.float32(1))), both[1]), 4))


def compiles() -> bool:
    """Whether these operations can be compiled here; who needs them and has another way may ask first."""
    try:
        _probe(np.zeros((LANES, LANES), np.float32), np.zeros((1, 4), np.float32))
    except (numba.core.errors.NumbaError, NotImplementedError, RuntimeError, TypeError, AttributeError):
        return False  # this numba or its LLVM has changed
    return True


@kernel
def prefetch_row(matrix, row):
    """Ask for all cache lines of ``matrix[row]``: a row is too short for the CPU to see a pattern in it."""
    for column in range(0, matrix.shape[1], 64 // matrix.itemsize):
        prefetch(matrix, row, column)


def read(context, builder, matrix_type, matrix, row, column):
    """The 16 numbers from matrix[row, column] on, in the code that is being made."""
    address = _element(context, builder, matrix_type, matrix, row, column)
    return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)


def write(context, builder, matrix_type, matrix, row, column, vector):
    """The reverse of ``read``."""
    address = _element(context, builder, matrix_type, matrix, row, column)
    builder.store(vector, builder.bitcast(address, _VECTOR.as_pointer()), align=4)


def prefetch_line(context, builder, matrix_type, matrix, row, column, level):
    """Ask for the line of matrix[row, column], for the caches from ``level`` on, in the code being made."""
    pointer = ir.IntType(8).as_pointer()
    function_type = ir.FunctionType(ir.VoidType(), [pointer, _WORD, _WORD, _WORD])
    function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
    address = _element(context, builder, matrix_type, matrix, row, column)
    reading, locality, data = _WORD(0), _WORD(4 - level), _WORD(1)
    builder.call(function, [builder.bitcast(address, pointer), reading, locality, data])


def fused(builder, x, y, z):
    """x·y + z of three vectors, rounded once, in the code that is being made."""
    function_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.fma.v16f32")
    return builder.call(function, [x, y, z])


def _splat(builder, vector_type, number):
    first = builder.insert_element(ir.Constant(vector_type, ir.Undefined), number, _WORD(0))
    return _shuffled(builder, first, first, [0] * LANES)


def _shuffled(builder, first, second, order):
    mask = ir.Constant(ir.VectorType(_WORD, len(order)), order)
    return builder.shuffle_vector(first, second, mask)
