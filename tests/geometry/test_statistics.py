import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tokenspace.errors import ShapeError
from tokenspace.geometry.statistics import (
    mean_interval,
    mean_ranks,
    share_interval,
    spearman,
    spearman_interval,
)

values = st.integers(-3, 3)  # few, so that many tie


@given(st.lists(values, min_size=1, max_size=30))
def test_ranks_are_scipys(numbers):
    np.testing.assert_array_equal(mean_ranks(numbers), stats.rankdata(numbers))


@given(st.lists(st.tuples(values, values), min_size=2, max_size=30))
def test_spearman_is_scipys(pairs):
    a, b = zip(*pairs, strict=True)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert spearman(a, b) is None
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_spearman_needs_two_lists_of_one_length():
    assert spearman([], []) is None
    assert spearman([1], [2]) is None
    with pytest.raises(ShapeError, match="two lists of one length"):
        spearman([1, 2], [1, 2, 3])


def test_spearmans_interval_by_hand():
    low, high = spearman_interval(0.5, 103)
    z, half = 0.5 * math.log(1.5 / 0.5), 1.959964 * math.sqrt(1.125 / 100)
    assert math.atanh(low) == pytest.approx(z - half, abs=1e-6)
    assert math.atanh(high) == pytest.approx(z + half, abs=1e-6)


def test_spearmans_interval_holds_the_truth_19_times_in_20(rng):
    r = 0.7
    truth = 6 / math.pi * math.asin(r / 2)  # ρ of a bivariate normal whose correlation is r
    held = 0
    for _ in range(1000):
        x = rng.normal(size=60)
        y = r * x + math.sqrt(1 - r * r) * rng.normal(size=60)
        low, high = spearman_interval(spearman(x, y), 60)
        held += low <= truth <= high
    assert 0.93 <= held / 1000 <= 0.97


@pytest.mark.parametrize(("rho", "n"), [(0.5, 3), (1.0, 50), (-1.0, 50)])
def test_no_interval_where_the_formula_says_nothing(rho, n):
    assert spearman_interval(rho, n) is None


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilsons_interval_is_scipys(counts):
    hits, n = counts
    wanted = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert share_interval(hits, n) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_no_share_of_nothing():
    assert share_interval(0, 0) is None


def test_a_means_interval_is_scipys(rng):
    numbers = rng.normal(size=100)
    wanted = stats.norm.interval(0.95, numbers.mean(), stats.sem(numbers))
    assert mean_interval(numbers) == pytest.approx(wanted)
    assert mean_interval(numbers[:1]) is None
    assert mean_interval(list(numbers)) == mean_interval(numbers)
    assert mean_interval([]) is None


NAN = math.nan


@pytest.mark.parametrize(
    ("score", "arguments", "message"),
    [
        (spearman, ([1, NAN, 2], [1, 2, 3]), "a rank correlation needs numbers, found NaN at 1"),
        (spearman, ([1, 2, 3], [1, 2, NAN]), "found NaN"),
        (spearman, (["a", "b"], [1, 2]), "a rank correlation needs numbers, found <U1"),
        (spearman, ([[1, 2], [3]], [1, 2]), "a rank correlation needs one list of numbers"),
        (mean_ranks, ([1, NAN],), "found NaN"),
        (mean_interval, ([1, NAN],), "a mean needs numbers, found NaN"),
        (mean_interval, ([[1, 2], [3, 4]],), "needs one list of numbers, found the shape"),
        (mean_interval, (["a", "b"],), "a mean needs numbers"),
        (share_interval, (5, 3), "found 5 of 3; were the two exchanged"),
        (share_interval, (-1, 3), "hits must be a whole number from 0 on, found -1"),
        (share_interval, (0, -3), "n must be a whole number from 0 on, found -3"),
        (share_interval, (True, 3), "found True"),
        (spearman_interval, (NAN, 10), "a correlation lies from -1 to 1, found nan"),
        (spearman_interval, (1.5, 10), "found 1.5"),
        (spearman_interval, (-1.5, 2), "found -1.5"),
        (spearman_interval, (0.5, -1), "n must be a whole number"),
    ],
)
def test_what_has_no_statistics(score, arguments, message):
    with pytest.raises(ShapeError, match=message):
        score(*arguments)


def test_numpys_counts_are_counts():
    assert share_interval(np.uint8(3), np.uint8(200)) == share_interval(3, 200)
    assert spearman_interval(0.5, np.int8(100)) == spearman_interval(0.5, 100)
