import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.kernels.gradient import ALONE, CHUNK, fill_sums, fills_well, group, segment_sum
from tokenspace.reference import Embedding

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2**40), max_size=60) | st.lists(st.integers(0, 4), max_size=60),
    st.none() | st.integers(0, 4),
)
def test_groups_are_a_stable_sort(ids, padding):
    ids = np.array(ids, np.int64)
    groups = group(ids, padding)
    kept = np.flatnonzero(ids != (-1 if padding is None else padding))
    np.testing.assert_array_equal(groups.order, kept[np.argsort(ids[kept], kind="stable")])
    distinct, counts = np.unique(ids[kept], return_counts=True)
    np.testing.assert_array_equal(groups.ids, distinct)
    np.testing.assert_array_equal(np.diff(groups.starts), counts)


def test_any_integer_dtype_is_grouped():
    np.testing.assert_array_equal(group(np.array([200, 3, 200], np.uint8)).ids, [3, 200])
    np.testing.assert_array_equal(group(np.array([9, 8, 9], np.int32)[::2]).ids, [9])


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 3 * CHUNK),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 3),
    st.none() | st.integers(0, 3),
    st.sampled_from([1.0, 2.5]),
    st.integers(0, 2**32),
)
def test_sums_equal_the_reference(n, width, vocabulary, threads, padding, scale, seed):
    rng = np.random.default_rng(seed)
    padding = None if padding is None or padding >= vocabulary else padding
    ids = np.minimum(rng.zipf(1.3, n) - 1, vocabulary - 1)
    d = rng.standard_normal((n, width))
    reference = Embedding.from_weight(np.zeros((vocabulary, width)), scale=scale, padding_id=padding)
    reference.forward(ids)
    expected = reference.backward(d)
    groups = group(ids, padding)
    np.testing.assert_allclose(
        segment_sum(d, groups, scale=scale, threads=threads), expected[groups.ids], rtol=1e-12, atol=1e-12
    )
    dense = np.zeros((vocabulary, width), np.float32)
    segment_sum(d.astype(np.float32), groups, scale=scale, out=dense, rows=groups.ids, threads=threads)
    np.testing.assert_allclose(dense, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_the_same_at_any_thread_count(dtype, rng):
    ids = np.minimum(rng.zipf(1.2, 8_000) - 1, 999)
    d = rng.standard_normal((8_000, 70)).astype(dtype)
    assert d.size > ALONE
    one = segment_sum(d, group(ids), threads=1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(
            segment_sum(d, group(ids), threads=threads).view(np.uint8), one.view(np.uint8)
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "scale"), [(1_000, 1.0), (1_000, 2.5), (9_000, 1.0)])
def test_rows_that_are_filled_in_order_have_the_bits_of_sums_into_zeros(dtype, rows, scale, rng):
    ids = rng.integers(0, rows, 8_000)
    ids[:600] = rows // 2  # more than two chunks
    ids[600:700] = 0  # padding
    d, groups = rng.standard_normal((8_000, 70)).astype(dtype), group(ids, padding=0)
    expected = np.zeros((rows, 70), dtype)
    segment_sum(d, groups, scale=scale, out=expected, rows=groups.ids, threads=2)
    for threads in (1, 2, 3):
        found = np.full((rows, 70), np.nan, dtype)
        fill_sums(d, groups, scale=scale, out=found, threads=threads)
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_rows_are_filled_where_many_are_hit_and_none_most_of_the_time():
    spread, hot = group(np.arange(1_000)), group(np.repeat(np.arange(1_000), [9_000] + 999 * [1]))
    assert fills_well(spread, 2_000)
    assert not fills_well(spread, 20_000)
    assert not fills_well(hot, 2_000)


def test_rows_of_a_wider_type_are_rounded():
    d = np.array([[1.0 + 2.0**-30, 3.0]])
    out = np.zeros((1, 2), ml_dtypes.bfloat16)
    segment_sum(d, group(np.array([0])), out=out, rows=np.array([0]))
    assert out.tolist() == [[1.0, 3.0]]


@pytest.mark.parametrize("dtype", DTYPES[2:])
@pytest.mark.parametrize("copies", [1, 255, 5_000])
def test_16_bit_sums_are_the_float64_sum_rounded_once(dtype, copies, rng):
    d = rng.standard_normal((copies, 64)).astype(dtype)
    wide = d.astype(np.float64).sum(axis=0)
    found = segment_sum(d, group(np.full(copies, 3)))[0].astype(np.float64)
    step = np.spacing(np.abs(found).astype(np.float32)) * 2.0 ** (13 if dtype == np.float16 else 16)
    assert (np.abs(found - wide) <= step / 2 * (1 + 1e-9)).all()
    assert segment_sum(np.ones((copies, 2), dtype), group(np.zeros(copies)))[0, 0] == dtype(copies)


def test_the_gradient_that_comes_in_stays_as_it_is(rng):
    d = rng.standard_normal((3_000, 8)).astype(np.float32)
    before = d.copy()
    segment_sum(d, group(np.zeros(3_000)), scale=3.0, threads=2)
    np.testing.assert_array_equal(d, before)


def test_nan_and_infinity_reach_their_rows_only():
    d = np.ones((4, 2), np.float32)
    d[0, 0], d[1, 1] = np.nan, np.inf
    np.testing.assert_array_equal(
        segment_sum(d, group(np.array([5, 6, 5, 7]))), [[np.nan, 2], [1, np.inf], [1, 1]]
    )


def test_no_ids_no_rows():
    assert segment_sum(np.empty((0, 5), np.float32), group(np.empty(0, np.int64))).shape == (0, 5)
    all_padding = group(np.zeros(10, np.int64), padding=0)
    assert segment_sum(np.ones((10, 5), np.float32), all_padding).shape == (0, 5)
