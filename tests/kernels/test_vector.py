"""Each named operation against NumPy."""

import numba
import numpy as np
import pytest

from tokenspace.kernels import vector
from tokenspace.kernels.vector import aligned_zeros, fma, load, padded_width, prefetch, splat, store, total


@numba.njit
def copy(source, row, column, target):
    prefetch(source, row, column)
    store(target, 1, 16, load(source, row, column))


@numba.njit
def fill(target, number):
    store(target, 0, 0, splat(number))


@numba.njit
def multiply_add(x, y, z, target):
    store(target, 0, 0, fma(load(x, 0, 0), load(y, 0, 0), load(z, 0, 0)))


@numba.njit
def add_lanes(x):
    return total(load(x, 0, 0))


def test_load_and_store_move_sixteen_numbers(rng):
    source, target = rng.random((3, 48), np.float32), np.zeros((2, 32), np.float32)
    copy(source, 2, 32, target)
    expected = np.zeros((2, 32), np.float32)
    expected[1, 16:] = source[2, 32:]
    np.testing.assert_array_equal(target, expected)


def test_splat_fills_every_lane():
    target = np.zeros((1, 32), np.float32)
    fill(target, np.float32(0.1))
    np.testing.assert_array_equal(target[0], [np.float32(0.1)] * 16 + [0.0] * 16)


def test_fma_rounds_once():
    x = np.full((1, 16), 1 + 2**-12, np.float32)
    z = np.full((1, 16), -(1 + 2**-11), np.float32)
    target = np.zeros((1, 16), np.float32)
    multiply_add(x, x, z, target)
    np.testing.assert_array_equal(target, np.float32(2**-24))  # a product rounded first would give 0


def test_total_adds_halves(rng):
    x = (rng.random((1, 16)) * 10.0 ** rng.integers(-6, 6, 16)).astype(np.float32)
    lanes = x[0]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    assert add_lanes(x) == lanes[0]


@numba.njit
def add_lanes_of_sixteen(x, first, target):
    store(target, 0, 0, vector.totals(x, first))


def test_totals_are_the_totals_of_sixteen_rows_in_their_order(rng):
    x = (rng.random((20, 16)) * 10.0 ** rng.integers(-6, 6, (20, 16))).astype(np.float32)
    target = np.zeros((1, 16), np.float32)
    add_lanes_of_sixteen(x, 3, target)
    assert target[0].tolist() == [add_lanes(row[None]) for row in x[3:19]]


@numba.njit
def arithmetic(x, y, target):
    store(target, 0, 0, vector.add(load(x, 0, 0), load(y, 0, 0)))
    store(target, 1, 0, vector.subtract(load(x, 0, 0), load(y, 0, 0)))
    store(target, 2, 0, vector.multiply(load(x, 0, 0), load(y, 0, 0)))


def test_add_subtract_and_multiply_round_as_numpy_does(rng):
    x, y = rng.normal(size=(2, 1, 16)).astype(np.float32)
    target = np.zeros((3, 16), np.float32)
    arithmetic(x, y, target)
    np.testing.assert_array_equal(target, np.concatenate([x + y, x - y, x * y]))


@numba.njit
def bound(x, low, high, target):
    store(target, 0, 0, vector.bounded(load(x, 0, 0), low, high))


def test_bounded_lanes_lie_between_the_bounds_and_nan_is_the_lower():
    x = np.linspace(-4, 4, 16, dtype=np.float32)[None]
    x[0, 3:6] = np.nan, np.inf, -np.inf
    target = np.zeros((1, 16), np.float32)
    bound(x, np.float32(-2), np.float32(3), target)
    np.testing.assert_array_equal(target, np.clip(np.where(np.isnan(x), -2, x), -2, 3))


@numba.njit
def keep_first(x, count, target):
    store(target, 0, 0, vector.first_lanes(load(x, 0, 0), count))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 100])
def test_lanes_after_the_first_ones_are_zero_whatever_they_held(count):
    x = np.full((1, 16), np.nan, np.float32)
    x[0, :count] = 1
    target = np.ones((1, 16), np.float32)
    keep_first(x, count, target)
    assert target[0].tolist() == [1.0] * min(count, 16) + [0.0] * (16 - min(count, 16))


@numba.njit
def interpolate(pieces, x, target):
    first, second = vector.between(pieces, load(x, 0, 0))
    store(target, 0, 0, first)
    store(target, 1, 0, second)


def test_between_is_two_functions_piece_by_piece(rng):
    pieces = rng.normal(size=(5, 4)).astype(np.float32)
    x = np.append(rng.random(13) * 5, [0, 5, 4]).astype(np.float32)[None]  # 5: the end of the last piece
    target = np.zeros((2, 16), np.float32)
    interpolate(pieces, x, target)
    i = np.minimum(x[0].astype(int), 4)
    rest = x[0] - i.astype(np.float32)
    np.testing.assert_array_equal(target[0], pieces[i, 0] + rest * pieces[i, 1])
    np.testing.assert_array_equal(target[1], pieces[i, 2] + rest * pieces[i, 3])


@pytest.mark.parametrize(("rows", "width"), [(0, 16), (1, 16), (5, 112)])
def test_aligned_zeros_are_zeros_on_a_cache_line(rows, width):
    matrix = aligned_zeros(rows, width)
    assert matrix.shape == (rows, width)
    assert matrix.flags.c_contiguous
    assert not matrix.any()
    assert matrix.ctypes.data % 64 == 0 or not rows


def test_padded_width_is_the_next_multiple_of_sixteen():
    assert [padded_width(width) for width in (1, 16, 17, 300)] == [16, 16, 32, 304]


@numba.njit
def streamed(source, target):
    scratch = np.empty((1, source.shape[1]), np.float32)
    for row in range(source.shape[0]):
        vector.prefetch_row(source, min(row + 1, source.shape[0] - 1))
        scratch[0] = source[row]
        vector.stream_row(scratch, target, row)
    vector.fence()


def test_a_streamed_row_arrives_whole(rng):
    source = rng.standard_normal((50, 48)).astype(np.float32)
    target = vector.aligned_zeros(50, 48)
    streamed(source, target)
    np.testing.assert_array_equal(target, source)


def test_what_can_be_streamed():
    aligned = vector.aligned_zeros(4, 32)
    assert vector.can_stream(aligned)
    assert not vector.can_stream(aligned.reshape(-1)[1:97].reshape(3, 32))  # off the boundary
    assert not vector.can_stream(aligned.reshape(16, 8))  # half a vector
    assert not vector.can_stream(aligned.view(np.float64))
