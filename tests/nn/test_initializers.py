"""The torch twins are held to the statistics of the NumPy initializers, and repeat under torch's seeds."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from tokenspace import initializers as truth
from tokenspace.errors import ShapeError
from tokenspace.models.families import FAMILIES, RECIPES
from tokenspace.nn import TransformerInput
from tokenspace.nn.initializers import (
    from_pretrained_,
    normal_,
    truncated_normal_,
    word2vec_uniform_,
    xavier_normal_,
    xavier_uniform_,
)
from tokenspace.table import Table
from tokenspace.vocab import Vocab

SHAPE = (2_000, 100)
TWINS = {
    "normal": (normal_, truth.normal),
    "normal, std": (partial(normal_, std=0.02), partial(truth.normal, std=0.02)),
    "truncated": (partial(truncated_normal_, std=0.02), partial(truth.truncated_normal, std=0.02)),
    "truncated, corrected": (
        partial(truncated_normal_, std=0.02, corrected=True),
        partial(truth.truncated_normal, std=0.02, corrected=True),
    ),
    "xavier uniform": (xavier_uniform_, truth.xavier_uniform),
    "xavier normal": (xavier_normal_, truth.xavier_normal),
    "word2vec": (word2vec_uniform_, truth.word2vec_uniform),
}
each = pytest.mark.parametrize(("ours", "numpys"), TWINS.values(), ids=TWINS)
each_ours = pytest.mark.parametrize("ours", [ours for ours, _ in TWINS.values()], ids=TWINS)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_statistics_are_the_numpy_twins(ours, numpys, dtype, rng):
    torch.manual_seed(0)
    drawn = ours(torch.empty(SHAPE, dtype=dtype)).double()
    expected = numpys(SHAPE, rng).astype(np.float64)
    std = expected.std()
    assert abs(float(drawn.mean())) < 0.01 * std
    assert math.isclose(float(drawn.std()), std, rel_tol=0.01)
    quantiles = np.linspace(0.001, 0.999, 21)
    found = np.quantile(drawn.numpy(), quantiles)
    np.testing.assert_allclose(found, np.quantile(expected, quantiles), atol=0.07 * std)
    bounded = "normal" not in getattr(numpys, "__name__", "normal")
    if bounded:
        assert float(drawn.abs().max()) <= np.abs(expected).max() * 1.01


def test_truncated_bounds_and_true_std():
    torch.manual_seed(0)
    plain = truncated_normal_(torch.empty(20_000, 64), std=0.02)
    assert float(plain.abs().max()) <= 0.04
    assert math.isclose(float(plain.std()), 0.02 * truth.TRUNCATED_STD, rel_tol=0.003)
    wide = truncated_normal_(torch.empty(20_000, 64), std=0.02, corrected=True)
    assert 0.04 < float(wide.abs().max()) <= 0.0455
    assert math.isclose(float(wide.std()), 0.02, rel_tol=0.003)


@each_ours
def test_a_seed_or_a_generator_repeats_the_draws(ours):
    def drawn(**how):
        return ours(torch.empty(50, 6), **how)

    torch.manual_seed(5)
    first = drawn()
    other = drawn()
    torch.manual_seed(5)
    assert torch.equal(first, drawn())
    assert not torch.equal(first, other)
    before = torch.get_rng_state()
    own = [drawn(generator=torch.Generator().manual_seed(9)) for _ in range(2)]
    assert torch.equal(*own)
    assert torch.equal(torch.get_rng_state(), before)


@each_ours
def test_in_place_on_a_parameter_and_nothing_on_meta(ours):
    parameter = torch.nn.Parameter(torch.zeros(5, 6))
    with torch.no_grad():
        assert ours(parameter) is parameter
    assert parameter.any(dim=1).all()
    assert ours(torch.empty(5, 6, device="meta")).is_meta


@each_ours
def test_half_precision_is_drawn_in_float32_and_rounded_once(ours):
    torch.manual_seed(0)
    wide = ours(torch.empty(100, 8))
    torch.manual_seed(0)
    assert torch.equal(ours(torch.empty(100, 8, dtype=torch.bfloat16)), wide.bfloat16())


@each_ours
@pytest.mark.parametrize("bad", [torch.empty(3), torch.empty(0, 2), torch.empty(2, 2, dtype=torch.int64)])
def test_what_is_no_table_is_refused(ours, bad):
    with pytest.raises(ShapeError, match=r"a table is \(V, D\)"):
        ours(bad)


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), "wide", True])
def test_what_is_no_std_is_refused(std):
    for draw in (normal_, truncated_normal_):
        with pytest.raises(ShapeError, match="std"):
            draw(torch.empty(3, 2), std=std)


class TestFromPretrained:
    GLOVE = Table(np.array([[1, 2], [3, 4], [5, 6]], np.float32), Vocab(["the", "Paris", "cat"]))

    def test_matched_rows_are_copied_the_others_drawn_and_counted(self):
        vocab = Vocab(["[PAD]", "cat", "paris", "the"])
        weight = torch.empty(4, 2, dtype=torch.bfloat16)
        report = from_pretrained_(weight, vocab, self.GLOVE, ignore_case=True)
        assert weight[1:].tolist() == [[5, 6], [3, 4], [1, 2]]
        assert (report.matched, report.matched_by_case, report.unmatched) == (3, 1, ("[PAD]",))

    def test_a_seed_repeats_the_drawn_rows(self):
        weights = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            weights.append(torch.empty(2, 2))
            from_pretrained_(weights[-1], Vocab(["dog", "cat"]), self.GLOVE)
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0][0], weights[2][0])

    def test_a_table_of_another_size_is_refused(self):
        with pytest.raises(ShapeError, match=r"fill a table \(2, 2\); found \(2, 3\)"):
            from_pretrained_(torch.empty(2, 3), Vocab(["dog", "cat"]), self.GLOVE)


ALL_RECIPES = {**RECIPES, **{family.name: family.recipe for family in FAMILIES}}


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_each_recipe_is_drawn_with_the_std_it_says(name):
    recipe = ALL_RECIPES[name]
    torch.manual_seed(0)
    width = 64
    layer = TransformerInput.from_recipe(name, vocab_size=4_000, d_model=width)
    cut = truth.TRUNCATED_STD if recipe.truncated else 1.0
    tables = {"token": recipe.token_std, "position": recipe.position_std}
    for part, std in tables.items():
        table = getattr(layer, part)
        if not hasattr(table, "weight"):
            continue
        drawn = [row for row in range(table.num_embeddings) if row != table.padding_idx]
        found = float(table.weight[drawn].detach().std())
        assert math.isclose(found, cut * (width**-0.5 if std is None else std), rel_tol=0.02), part
    if layer.segment is not None:
        std = recipe.segment_std or width**-0.5
        assert math.isclose(float(layer.segment.weight.detach().std()), cut * std, rel_tol=0.25)
    if layer.token.padding_idx is not None:
        assert not layer.token.weight[layer.token.padding_idx].any()


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_a_tied_head_starts_near_the_uniform_guess_where_rows_are_short(name):
    """E[cross entropy] ≈ ln V + |h|²·std²/2 for hidden states of D numbers of variance 1."""
    torch.manual_seed(0)
    rows, width = 1_000, 64
    weight = TransformerInput.from_recipe(name, vocab_size=rows, d_model=width).token.weight.detach()
    hidden = torch.randn(4_096, width)
    loss = torch.nn.functional.cross_entropy(hidden @ weight.T, torch.randint(rows, (4_096,)))
    std = float(weight.std())
    if std < 0.5:
        assert math.isclose(float(loss), math.log(rows) + width * std**2 / 2, abs_tol=0.05)
    else:  # T5's rows of N(0, 1): the head's D^-1/2 makes up for them
        assert float(loss) > 3 * math.log(rows)
        loss = torch.nn.functional.cross_entropy(
            width**-0.5 * hidden @ weight.T, torch.randint(rows, (4_096,))
        )
        assert math.isclose(float(loss), math.log(rows) + 0.5, abs_tol=0.05)


@pytest.mark.parametrize(("std", "expected"), [(1.0, 74.5), (512**-0.5, 7.45), (0.02, 7.03)])
def test_what_the_spread_of_the_rows_costs_at_the_start(std, expected):
    """ln 1,000 = 6.91: rows of N(0, 1) start ten times too high."""
    torch.manual_seed(0)
    weight = normal_(torch.empty(1_000, 512), std)
    hidden, labels = torch.randn(8_192, 512), torch.randint(1_000, (8_192,))
    loss = torch.nn.functional.cross_entropy(hidden @ weight.T, labels)
    assert math.isclose(float(loss), expected, rel_tol=0.02)
