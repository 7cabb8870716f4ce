"""Each operation on blocks against NumPy, for the widths a block can have."""

import numba
import numpy as np
import pytest

from tokenspace.kernels import block, vector


@numba.njit
def move(source, row, column, target, like):
    block.ask(source, row, column, like)
    block.put(target, 1, 16, block.take(source, row, column, like))
    block.put(target, 0, 16, block.zero(like))


@numba.njit
def add_scaled(x, m, row, column, target, like):
    moved = block.scale_add(vector.splat(x), m, row, column, block.take(target, 0, 0, like))
    block.put(target, 0, 0, moved)


@numba.njit
def multiply(x, m, row, column, target, like):
    sums = block.dot(block.take(x, 0, 0, like), m, row, column, vector.load(target, 0, 0))
    vector.store(target, 0, 0, sums)


def exactly(x, y, z):
    """x·y + z rounded once: the product of two float32 is exact in float64, the sum in longdouble."""
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


@pytest.mark.parametrize("vectors", [1, 2, 7, 8])
def test_take_put_and_zero_move_neighbors(vectors, rng):
    wide = 16 * vectors
    source, target = rng.random((3, wide + 32), np.float32), np.ones((2, wide + 32), np.float32)
    move(source, 2, 16, target, (0,) * vectors)
    expected = np.ones_like(target)
    expected[0, 16 : 16 + wide] = 0
    expected[1, 16 : 16 + wide] = source[2, 16 : 16 + wide]
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("vectors", [1, 2, 7, 8])
def test_scale_add_rounds_once(vectors, rng):
    wide = 16 * vectors
    m = rng.normal(size=(2, wide + 16)).astype(np.float32)
    before = rng.normal(size=(1, wide)).astype(np.float32)
    target, x = before.copy(), np.float32(0.3)
    add_scaled(x, m, 1, 16, target, (0,) * vectors)
    np.testing.assert_array_equal(target[0], exactly(m[1, 16:], x, before[0]))


@pytest.mark.parametrize("vectors", [1, 2, 7, 8])
def test_dot_adds_the_parts_products_in_their_order(vectors, rng):
    wide = 16 * vectors
    x = rng.normal(size=(1, wide)).astype(np.float32)
    m = rng.normal(size=(2, wide + 16)).astype(np.float32)
    before = rng.normal(size=(1, 16)).astype(np.float32)
    target, sums = before.copy(), before[0]
    multiply(x, m, 1, 16, target, (0,) * vectors)
    for start in range(0, wide, 16):
        sums = exactly(x[0, start : start + 16], m[1, 16 + start : 32 + start], sums)
    np.testing.assert_array_equal(target[0], sums)


def test_rows_are_cut_into_as_few_equal_blocks_as_can_be():
    sizes = [block.block_size(width) for width in (1, 16, 17, 128, 129, 300, 768, 65_536)]
    assert sizes == [1, 1, 2, 8, 5, 7, 8, 8]
    assert [block.row_width(width) for width in (1, 100, 128, 129, 300, 768)] == [16, 112, 128, 160, 336, 768]
