import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cosine as scipy_distance

from tokenspace.errors import ShapeError
from tokenspace.geometry import cosine, unit_rows

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_cosine_is_one_minus_scipys_distance(rng):
    a, b = rng.normal(size=(2, 20, 7))
    expected = [1 - scipy_distance(x, y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(cosine(a, b), expected, atol=1e-15)
    np.testing.assert_allclose(cosine(a, b[0])[0], expected[0], atol=1e-15)


def test_two_vectors_give_a_plain_number():
    assert type(cosine([1, 2], [2, 1])) is float
    assert cosine([1, 2], [2, 1]) == pytest.approx(0.8)


def test_a_zero_row_has_cosine_zero_and_stays_zero():
    assert cosine([0.0, 0.0], [1.0, 2.0]) == 0
    assert cosine([0.0, 0.0], [0.0, 0.0]) == 0
    assert unit_rows(np.zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_largest_numbers_of_a_type_do_not_overflow(dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    rows = np.array([[largest, largest], [largest, 0], [0, 0]], dtype)
    expected = [[0.5**0.5, 0.5**0.5], [1, 0], [0, 0]]
    np.testing.assert_allclose(unit_rows(rows).astype(np.float64), expected, rtol=1e-6)
    assert cosine(rows[0], rows[1]) == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_smallest_numbers_of_a_type_do_not_vanish(dtype):
    smallest = np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(unit_rows(np.array([smallest, -smallest])), [0.5**0.5, -(0.5**0.5)], rtol=1e-6)


@given(arrays(np.float32, (4, 3), elements=finite))
def test_unit_rows_have_length_one_or_zero(rows):
    lengths = np.linalg.norm(unit_rows(rows).astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, (rows != 0).any(axis=1), atol=1e-6)


@given(arrays(np.float32, 5, elements=finite), arrays(np.float32, 5, elements=finite))
def test_cosine_is_symmetric_and_between_minus_one_and_one(a, b):
    assert -1 <= cosine(a, b) <= 1
    assert cosine(a, b) == cosine(b, a)


def test_the_argument_is_left_as_it_was():
    rows = np.array([[3.0, 4.0]], np.float32)
    unit_rows(rows)
    assert rows.tolist() == [[3, 4]]


@pytest.mark.parametrize(("a", "b"), [([1, 2], [1, 2, 3]), (1, [1]), ([[1, 2]], 2)], ids=str)
def test_widths_must_agree(a, b):
    with pytest.raises(ShapeError, match="two vectors of one width"):
        cosine(a, b)
