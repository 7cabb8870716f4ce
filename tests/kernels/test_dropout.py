import ml_dtypes
import numpy as np
import pytest

from tokenspace.kernels.dropout import Dropout, dropout

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def kept(shape, p, seed):
    return dropout(np.ones(shape, np.float32), Dropout(p, seed)) != 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_p_is_dropped(p):
    mask = kept((2_000, 500), p, seed=3)
    share = 1 - mask.mean()
    assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / mask.size)
    for axis in (0, 1):  # no row or column is special: binomial spread, and no more
        n = mask.shape[axis]
        spread = mask.mean(axis=axis).std() / np.sqrt(p * (1 - p) / n)
        assert 0.9 < spread < 1.1


def test_masks_of_neighbors_and_of_other_seeds_are_unrelated():
    mask = kept((1_000, 400), 0.5, seed=0).astype(float)
    other = kept((1_000, 400), 0.5, seed=1).astype(float)
    for a, b in [
        (mask[1:], mask[:-1]),
        (mask[:, 1:], mask[:, :-1]),
        (mask[:, 16:], mask[:, :-16]),
        (mask, other),
        (mask[1:], other[:-1]),
    ]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_kept_is_divided_by_1_minus_p(dtype, rng):
    x = rng.standard_normal((50, 40)).astype(dtype)
    out = dropout(x, Dropout(0.25, 9))
    mask = kept(x.shape, 0.25, 9)
    wide = np.float64 if dtype == np.float64 else np.float32
    expected = np.where(mask, x.astype(wide) * wide(1 / 0.75), 0).astype(dtype)
    np.testing.assert_array_equal(out.view(np.uint8), expected.view(np.uint8))


def test_ends_of_the_range(rng):
    x = rng.standard_normal((30, 20)).astype(np.float32)
    np.testing.assert_array_equal(dropout(x, Dropout(0.0, 1)), x)
    np.testing.assert_array_equal(dropout(x, Dropout(1.0, 1)), 0 * x)


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_any_seed_and_any_number_of_threads_give_one_mask(seed, rng):
    x = rng.standard_normal((3_000, 40)).astype(np.float32)
    once = dropout(x, Dropout(0.3, seed))
    np.testing.assert_array_equal(dropout(x, Dropout(0.3, seed), threads=3), once)
    inside = x.copy()
    assert dropout(inside, Dropout(0.3, seed), out=inside) is inside
    np.testing.assert_array_equal(inside, once)


def test_nan_and_infinity_survive_where_they_are_kept():
    x = np.full((100, 100), np.nan, np.float32)
    x[:, 1::2] = np.inf
    mask = kept(x.shape, 0.5, 4)
    out = dropout(x, Dropout(0.5, 4))
    np.testing.assert_array_equal(out[mask], x[mask])
    assert (out[~mask] == 0).all()
