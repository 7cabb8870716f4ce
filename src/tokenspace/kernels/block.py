"""Part of a row in registers: n vectors of ``vector.py``, neighbors in a matrix, as one value.

How many they are belongs to a block's type, so each operation is a run of instructions without a loop. It is
said by a tuple of n members, whatever they are (``like``), which may come from outside a kernel.

==================================  ========================================================================
``ask(m, row, column, like)``       a hint that ``m[row, column : column + 16·n]`` is needed soon, for the
                                    second-level cache: the first has no room for what comes next
``zero(like)``                      n vectors of zeros
``take(m, row, column, like)``      the numbers ``m[row, column : column + 16·n]``
``put(m, row, column, block)``      write them back
``scale_add(x, m, row, column, b)`` the block ``b + x·m[row, column …]``: a ``fma`` of each part, x a vector
``dot(b, m, row, column, v)``       the vector v plus the products of b and ``m[row, column …]``: one ``fma``
                                    after another; ``total`` then makes it one number
==================================  ========================================================================

Rows are best cut into equal blocks of at most eight vectors: two blocks and what they are multiplied with
then fit the 32 registers of AVX-512 (``block_size``, ``row_width``).
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from tokenspace.kernels.vector import LANES, fused, intrinsic, lanes, padded_width, prefetch_line, read, write

MOST_VECTORS = 8


def block_size(width: int) -> int:
    """How many vectors each block has when a row of ``width`` numbers is cut into as few as can be.

    >>> block_size(100), block_size(128), block_size(300)
    (7, 8, 7)
    """
    vectors = padded_width(width) // LANES
    blocks = -(-vectors // MOST_VECTORS)
    return -(-vectors // blocks)


def row_width(width: int) -> int:
    """The width of a row of ``width`` numbers once it is filled up to whole blocks.

    >>> row_width(100), row_width(128), row_width(300)
    (112, 128, 336)
    """
    block = LANES * block_size(width)
    return -(-width // block) * block


@intrinsic
def zero(typing, like):
    signature = types.UniTuple(lanes, like.count)(like)

    def generate(context, builder, signature, arguments):
        nothing = context.get_constant_null(lanes)
        return context.make_tuple(builder, signature.return_type, [nothing] * like.count)

    return signature, generate


@intrinsic
def take(typing, matrix, row, column, like):
    signature = types.UniTuple(lanes, like.count)(matrix, types.int64, types.int64, like)

    def generate(context, builder, signature, arguments):
        matrix, row, column, _ = arguments
        parts = _parts(context, builder, signature.args[0], matrix, row, column, like.count)
        return context.make_tuple(builder, signature.return_type, parts)

    return signature, generate


@intrinsic
def ask(typing, matrix, row, column, like):
    signature = types.void(matrix, types.int64, types.int64, like)

    def generate(context, builder, signature, arguments):
        matrix, row, column, _ = arguments
        for n in range(like.count):
            prefetch_line(
                context, builder, signature.args[0], matrix, row, _after(builder, column, n), level=2
            )
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def put(typing, matrix, row, column, block):
    signature = types.void(matrix, types.int64, types.int64, block)

    def generate(context, builder, signature, arguments):
        matrix, row, column, parts = arguments
        for n in range(block.count):
            part = builder.extract_value(parts, n)
            write(context, builder, signature.args[0], matrix, row, _after(builder, column, n), part)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def scale_add(typing, x, matrix, row, column, block):
    signature = block(lanes, matrix, types.int64, types.int64, block)

    def generate(context, builder, signature, arguments):
        x, matrix, row, column, sums = arguments
        parts = _parts(context, builder, signature.args[1], matrix, row, column, block.count)
        sums = [fused(builder, x, part, builder.extract_value(sums, n)) for n, part in enumerate(parts)]
        return context.make_tuple(builder, signature.return_type, sums)

    return signature, generate


@intrinsic
def dot(typing, block, matrix, row, column, vector):
    signature = lanes(block, matrix, types.int64, types.int64, lanes)

    def generate(context, builder, signature, arguments):
        factors, matrix, row, column, vector = arguments
        parts = _parts(context, builder, signature.args[1], matrix, row, column, block.count)
        for n, part in enumerate(parts):
            vector = fused(builder, builder.extract_value(factors, n), part, vector)
        return vector

    return signature, generate


def _parts(context, builder, matrix_type, matrix, row, column, count):
    return [
        read(context, builder, matrix_type, matrix, row, _after(builder, column, n)) for n in range(count)
    ]


def _after(builder, column, vectors):
    return builder.add(column, ir.IntType(64)(LANES * vectors))
