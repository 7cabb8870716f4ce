"""The loop's own parts; what it learns is tested with skipgram, where it goes on with runs."""

import numpy as np
import pytest

from tokenspace.train import divergence, training


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("width", [1, 5, 16])
def test_columns_are_moved_together_in_the_matrixs_own_memory(rng, monkeypatch, at_once, width):
    monkeypatch.setattr(training, "_ROWS_AT_ONCE", at_once)
    matrix = rng.normal(size=(10, 16)).astype(np.float32)
    expected = matrix[:, :width].copy()
    moved = training._compacted(matrix, width)
    np.testing.assert_array_equal(moved, expected)
    assert moved.flags.c_contiguous
    assert np.shares_memory(moved, matrix)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_found_wherever_it_lies(monkeypatch, value):
    monkeypatch.setattr(divergence, "_ROWS_AT_ONCE", 2)
    matrix = np.zeros((5, 2), np.float32)
    limit = divergence.Limit([matrix])
    assert not limit.excess([matrix])
    for place in np.ndindex(5, 2):
        spoiled = matrix.copy()
        spoiled[place] = value
        assert limit.excess([spoiled]) == "a row holds NaN or infinity"
