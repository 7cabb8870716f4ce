import ml_dtypes
import numpy as np
import pytest

from tokenspace.errors import ShapeError
from tokenspace.reference.precision import widened


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int64, np.bool_, ">f4"])
def test_narrow_numbers_become_float32(dtype):
    wide = widened(np.array([0, 1], dtype))
    assert wide.dtype == np.float32
    assert wide.dtype.isnative
    assert wide.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_numbers_are_not_copied(dtype):
    array = np.ones(3, dtype)
    assert widened(array) is array


@pytest.mark.parametrize(
    "values", ["a", [None], [1 + 2j], [[1, 2], [3]]], ids=["text", "None", "complex", "ragged"]
)
def test_what_is_no_array_of_real_numbers_is_refused(values):
    with pytest.raises(ShapeError, match="the input must be"):
        widened(values)
