"""Every strategy is held to its statistics: mean, standard deviation, bounds, independence."""

import itertools
import math

import numpy as np
import pytest

from tokenspace import initializers
from tokenspace.errors import ShapeError, TableFormatError, TokenIdError
from tokenspace.initializers import TRUNCATED_STD, from_pretrained
from tokenspace.reference import Embedding, LMHead
from tokenspace.table import Table
from tokenspace.vocab import Vocab

V, D = 4_000, 96
XAVIER_STD = math.sqrt(2 / (V + D))

# strategy, its standard deviation, the bound no draw passes
STRATEGIES = {
    "normal": (lambda rng, **kw: initializers.normal((V, D), rng, **kw), D**-0.5, math.inf),
    "normal std 0.02": (lambda rng, **kw: initializers.normal((V, D), rng, std=0.02, **kw), 0.02, math.inf),
    "truncated": (
        lambda rng, **kw: initializers.truncated_normal((V, D), rng, std=0.02, **kw),
        0.01759,
        0.04,
    ),
    "truncated corrected": (
        lambda rng, **kw: initializers.truncated_normal((V, D), rng, std=0.02, corrected=True, **kw),
        0.02,
        0.04 / TRUNCATED_STD,
    ),
    "truncated default": (
        lambda rng, **kw: initializers.truncated_normal((V, D), rng, **kw),
        TRUNCATED_STD * D**-0.5,
        2 * D**-0.5,
    ),
    "xavier uniform": (
        lambda rng, **kw: initializers.xavier_uniform((V, D), rng, **kw),
        XAVIER_STD,
        math.sqrt(6 / (V + D)),
    ),
    "xavier normal": (lambda rng, **kw: initializers.xavier_normal((V, D), rng, **kw), XAVIER_STD, math.inf),
    "word2vec": (
        lambda rng, **kw: initializers.word2vec_uniform((V, D), rng, **kw),
        1 / (D * math.sqrt(12)),
        0.5 / D,
    ),
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def drawn(strategy, seed=0, **kw):
    return STRATEGIES[strategy][0](np.random.default_rng(seed), **kw)


@each_strategy
def test_mean_and_standard_deviation(strategy):
    weight, std = drawn(strategy), STRATEGIES[strategy][1]
    assert weight.shape == (V, D)
    assert weight.dtype == np.float32
    assert weight.std(dtype=np.float64) == pytest.approx(std, rel=0.01)
    assert abs(weight.mean(dtype=np.float64)) < 5 * std / math.sqrt(V * D)


@each_strategy
def test_draws_fill_the_range_up_to_the_bound_and_no_further(strategy):
    weight, (_, std, bound) = drawn(strategy), STRATEGIES[strategy]
    largest = float(abs(weight).max())
    if math.isinf(bound):
        assert largest > 4 * std  # tails that no cut has taken
    else:
        assert 0.99 * bound < largest <= bound * (1 + 1e-6)


@each_strategy
def test_rows_and_columns_are_independent(strategy):
    weight, std = drawn(strategy), STRATEGIES[strategy][1]
    noise = 6 / math.sqrt(V * D)
    assert abs(np.mean(weight[:-1] * weight[1:]) / std**2) < noise
    assert abs(np.mean(weight[:, :-1] * weight[:, 1:]) / std**2) < noise
    assert len(np.unique(weight)) > 0.9 * V * D or strategy in ("xavier uniform", "word2vec")
    assert np.unique(weight, axis=0).shape == (V, D)


@each_strategy
def test_one_seed_gives_one_table_and_another_seed_another(strategy):
    assert np.array_equal(drawn(strategy, seed=7), drawn(strategy, seed=7))
    assert not np.isclose(drawn(strategy, seed=7), drawn(strategy, seed=8)).all(axis=1).any()


@each_strategy
def test_the_padding_row_is_zero_and_the_others_are_untouched(strategy):
    padded, plain = drawn(strategy, padding_id=3), drawn(strategy)
    assert not padded[3].any()
    assert plain[3].all()
    plain[3] = 0
    assert np.array_equal(padded, plain)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(STRATEGIES, 2)))
def test_no_two_strategies_coincide(one, other):
    """They differ in standard deviation or in the length of their tails."""
    (a, a_tail), (b, b_tail) = (
        (weight.std(), abs(weight).max() / weight.std()) for weight in (drawn(one), drawn(other))
    )
    same_family = {one, other} in (
        {"normal", "normal std 0.02"},
        {"normal", "xavier normal"},
        {"normal std 0.02", "xavier normal"},
    )
    assert abs(a / b - 1) > 0.05 or abs(a_tail / b_tail - 1) > 0.15
    if same_family:
        assert abs(a / b - 1) > 0.05


def test_the_constant_of_the_cut_normal_distribution():
    phi = math.exp(-2) / math.sqrt(2 * math.pi)
    assert pytest.approx(math.sqrt(1 - 4 * phi / math.erf(math.sqrt(2))), abs=1e-8) == TRUNCATED_STD


each_initializer = pytest.mark.parametrize(
    "initializer",
    [
        initializers.normal,
        initializers.truncated_normal,
        initializers.xavier_uniform,
        initializers.xavier_normal,
        initializers.word2vec_uniform,
    ],
)


@pytest.mark.parametrize(
    "shape",
    [
        (0, 4),
        (4, 0),
        (-1, 4),
        (4,),
        (2, 3, 4),
        5,
        None,
        "ab",
        (True, 2),
        (2.0, 4),
        ("2", 4),
        np.array([2.0, 4.0]),
    ],
)
@each_initializer
def test_a_shape_is_two_positive_integers(initializer, shape, rng):
    with pytest.raises(ShapeError, match="two positive integers"):
        initializer(shape, rng)


@pytest.mark.parametrize("std", [0.0, -0.1, math.nan, math.inf, "1", True, 1e39, 1e-60])
@pytest.mark.parametrize("initializer", [initializers.normal, initializers.truncated_normal])
def test_a_standard_deviation_is_positive_and_finite(initializer, std, rng):
    with pytest.raises(ShapeError, match="positive, finite"):
        initializer((4, 4), rng, std=std)


@pytest.mark.parametrize("padding_id", [4, -1, 1.0, True, "a", [0, 1], [0], []])
@each_initializer
def test_a_padding_id_is_one_row(initializer, padding_id, rng):
    with pytest.raises(TokenIdError, match="padding id"):
        initializer((4, 4), rng, padding_id=padding_id)


@pytest.mark.parametrize("rng", [0, None, np.random.RandomState(0), np.random])
@each_initializer
def test_draws_need_a_generator(initializer, rng):
    with pytest.raises(ShapeError, match=r"rng must be a numpy.random.Generator; found .* make one with"):
        initializer((4, 4), rng)


@pytest.mark.parametrize("shape", [[3, 4], np.array([3, 4]), (np.uint8(3), np.int64(4))])
def test_any_two_integers_are_a_shape(shape, rng):
    assert initializers.normal(shape, rng, std=np.float32(0.5), padding_id=np.uint8(2)).shape == (3, 4)


@pytest.mark.parametrize(("std", "expected"), [(1.0, 74.5), (None, 7.45), (0.02, 7.03)])
def test_where_a_tied_head_starts(std, expected, rng):
    """Cross entropy of random labels for normalized hidden states, V 1,000, D 512; ln V is 6.91.

    The expected values come from one smaller sample. Logits of variance s² give ln V + s²/2 on average,
    as long as exp(s²) is small beside V.
    """
    head = LMHead(Embedding.from_weight(initializers.normal((1_000, 512), rng, std=std)))
    hidden, labels = rng.standard_normal((4_096, 512)), rng.integers(0, 1_000, 4_096)
    loss = head.loss(hidden, labels)
    assert loss == pytest.approx(expected, rel=0.02)
    variance = 512 * (std or 512**-0.5) ** 2
    if variance <= 1:
        assert loss == pytest.approx(math.log(1_000) + variance / 2, rel=0.003)


class TestFromPretrained:
    @pytest.fixture
    def pretrained(self, rng):
        return Table(rng.normal(3.0, 0.5, (4, 64)).astype(np.float16), Vocab(["the", "Cat", "cat", "Paris"]))

    def test_matched_rows_are_copied_and_the_others_drawn(self, pretrained, rng):
        vocab = Vocab(["[PAD]", "cat", "paris", "the", *map(str, range(500))])
        weight, report = from_pretrained(vocab, pretrained, rng, padding_id=0)
        assert weight.dtype == np.float32
        assert np.array_equal(weight[1], pretrained["cat"])
        assert np.array_equal(weight[3], pretrained["the"])
        assert not weight[0].any()
        copied = np.stack([pretrained["cat"], pretrained["the"]])
        assert weight[4:].std() == pytest.approx(copied.std(), rel=0.02)
        assert abs(weight[4:].mean()) < 0.02
        assert report[:3] == (2, 0, 504)
        assert report.unmatched[:3] == ("[PAD]", "paris", "0")

    def test_case_is_ignored_only_when_asked_and_only_without_an_exact_match(self, pretrained, rng):
        vocab = Vocab(["cat", "CAT", "paris", "rome"])
        weight, report = from_pretrained(vocab, pretrained, rng, ignore_case=True)
        assert np.array_equal(weight[0], pretrained.lookup(2))
        assert np.array_equal(weight[1], pretrained.lookup(1))  # the first that differs by case
        assert np.array_equal(weight[2], pretrained.lookup(3))
        assert report == (3, 2, 4, ("rome",))

    def test_the_first_of_duplicate_rows_is_copied(self, rng):
        weight, _ = from_pretrained(
            Vocab(["a"]), Table(np.array([[1], [2]], np.float32), Vocab(["a", "a"])), rng
        )
        assert weight[0, 0] == 1

    @pytest.mark.parametrize(("std", "expected"), [(None, 0.125), (0.02, 0.02)])
    def test_the_spread_of_drawn_rows(self, pretrained, rng, std, expected):
        weight, report = from_pretrained(Vocab(list(map(str, range(900)))), pretrained, rng, std=std)
        assert report.matched == 0
        assert weight.std() == pytest.approx(expected, rel=0.02)

    def test_another_width_is_refused(self, pretrained, rng):
        with pytest.raises(ShapeError, match="width 64, this table 100"):
            from_pretrained(Vocab(["cat"]), pretrained, rng, embedding_dimension=100)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_row_that_is_not_finite_is_refused_if_it_would_be_copied(self, value, rng):
        table = Table(np.array([[1, 1], [2, value], [1, 3]], np.float16), Vocab(["a", "b", "c"]))
        with pytest.raises(TableFormatError, match="row 1 of the table, token 'b', holds NaN or infinity"):
            from_pretrained(Vocab(["c", "a", "b"]), table, rng)
        weight, report = from_pretrained(Vocab(["c", "a", "d"]), table, rng)
        assert np.isfinite(weight).all()
        assert report.matched == 2

    def test_arguments_are_checked_before_anything_is_read(self, pretrained, rng):
        vocab = Vocab(["cat"])
        with pytest.raises(ShapeError, match="Generator"):
            from_pretrained(vocab, pretrained, 0)
        with pytest.raises(TokenIdError, match="padding id"):
            from_pretrained(vocab, pretrained, rng, padding_id=[0])
        with pytest.raises(ShapeError, match="std must be a positive, finite number"):
            from_pretrained(vocab, pretrained, rng, std=math.nan)
        with pytest.raises(ShapeError, match="embedding_dimension must be an integer"):
            from_pretrained(vocab, pretrained, rng, embedding_dimension=64.0)

    def test_large_rows_have_a_spread(self, rng):
        table = Table(np.array([[1e30, -1e30]], np.float32), Vocab(["a"]))  # squares overflow in float32
        weight, _ = from_pretrained(Vocab(["a", "b"]), table, rng)
        assert 1e28 < abs(weight[1]).max() < 1e31
