from __future__ import annotations

import numpy as np
import pytest

from tokenspace.errors import TableFormatError
from tokenspace.rounding import read_from, rounded


def test_rows_that_float32_can_not_hold_are_told_and_rounded_to_the_nearest() -> None:
    exact = np.array([[1.0, 0.5], [0.1, 1.0], [np.nan, -np.inf], [2**-150, 1e-60], [-0.0, 3e38]])
    weight, changed = rounded(exact, "x.npy")
    assert weight.dtype == np.float32
    assert np.array_equal(weight, exact.astype(np.float32), equal_nan=True)
    assert np.signbit(weight[4, 0])
    assert changed.tolist() == [False, True, False, True, True]
    assert read_from(changed) == {"rounded_from": "float64", "rounded_rows": 3}


def test_the_other_byte_order_and_columns_are_the_same_numbers() -> None:
    exact = np.asfortranarray(np.array([[1.0, 0.1], [0.5, 2.0]], ">f8"))
    weight, changed = rounded(exact, "x.npy")
    assert weight.tolist() == exact.astype(np.float32).tolist()
    assert changed.tolist() == [True, False]


def test_a_row_counts_once_over_several_matrices() -> None:
    assert read_from(np.array([True, False, True]), np.array([True, True, False]))["rounded_rows"] == 3
    assert read_from(np.array([False, False])) == {"rounded_from": "float64"}


@pytest.mark.parametrize("large", [1e300, -3.5e38])
def test_what_is_too_large_is_told_as_that_with_its_row(large: float) -> None:
    exact = np.zeros((20_000, 1))
    exact[17_000] = large
    with pytest.raises(TableFormatError, match=r"x\.npy: row 17,000 holds -?[\d.e+]+, too large for float32"):
        rounded(exact, "x.npy")
    with pytest.raises(TableFormatError, match="row 17,005 holds"):
        rounded(exact, "x.npy", first_row=5)
