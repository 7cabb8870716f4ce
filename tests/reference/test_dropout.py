import numpy as np
import pytest

from tokenspace.errors import ShapeError
from tokenspace.reference import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_what_is_kept_is_scaled_up_so_that_the_mean_stays(rate, rng):
    y = Dropout(rate, rng).forward(np.ones((500, 200), np.float32), training=True)
    assert y.dtype == np.float32
    assert np.unique(y) == pytest.approx([0, 1 / (1 - rate)])
    assert (y == 0).mean() == pytest.approx(rate, abs=0.006)
    assert y.mean(dtype=np.float64) == pytest.approx(1, abs=0.03)


def test_evaluation_and_rate_zero_change_nothing_and_draw_nothing(rng):
    x, state = np.ones((2, 3)), rng.bit_generator.state
    for dropout, training in ((Dropout(0.5, rng), False), (Dropout(0.0, rng), True)):
        assert np.array_equal(dropout.forward(x, training), x)
        assert np.array_equal(dropout.backward(x), x)
    assert rng.bit_generator.state == state


def test_backward_goes_through_the_same_mask(rng, numeric_gradient):
    x, upstream = rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
    kept = upstream.copy()
    dropout = Dropout(0.4, rng)

    def f() -> float:
        dropout.rng = np.random.default_rng(3)
        return float((dropout.forward(x, training=True) * upstream).sum())

    expected = numeric_gradient(f, x)
    f()
    assert dropout.backward(upstream) == pytest.approx(expected, abs=1e-7)
    assert (expected == 0).any()
    assert np.array_equal(upstream, kept)


def test_a_seed_fixes_the_masks_and_each_call_has_its_own():
    def masks(seed: int) -> np.ndarray:
        dropout = Dropout(0.5, np.random.default_rng(seed))
        return np.stack([dropout.forward(np.ones(64), training=True) for _ in range(2)])

    assert np.array_equal(masks(1), masks(1))
    assert not np.array_equal(masks(1), masks(2))
    assert not np.array_equal(masks(1)[0], masks(1)[1])


def test_an_evaluation_after_training_forgets_the_mask(rng):
    dropout = Dropout(0.5, rng)
    dropout.forward(np.ones(64), training=True)
    dropout.forward(np.ones(64))
    assert dropout.backward(np.ones(64)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_inf_stay_visible_where_they_are_dropped(value, rng):
    assert not np.isfinite(Dropout(0.5, rng).forward(np.full(64, value), training=True)).any()


@pytest.mark.parametrize("rate", [1.0, -0.1, 1.5, float("nan"), "0.1", True])
def test_a_rate_is_at_least_zero_and_under_one(rate, rng):
    with pytest.raises(ShapeError, match="the dropout rate must be"):
        Dropout(rate, rng)


def test_masks_need_a_generator():
    with pytest.raises(ShapeError, match=r"Generator; found 0: make one"):
        Dropout(0.1, 0)
