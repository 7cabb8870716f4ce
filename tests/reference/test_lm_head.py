import copy

import ml_dtypes
import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError, TokenspaceError
from tokenspace.reference import Embedding, LMHead

V, D = 5, 3
OPTIONS = {
    "plain": {},
    "bias": {"bias": True},
    "t5": {"hidden_scale": "rsqrt"},
    "cohere": {"logit_scale": 0.0625, "bias": True},
    "gemma 2": {"soft_cap": 3.0},
    "all": {"bias": True, "hidden_scale": 0.5, "logit_scale": 2.0, "soft_cap": 2.0},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def made(rng, options, **embedding):
    options = dict(options)
    if options.get("bias"):
        options["bias"] = rng.normal(size=V)
    return LMHead(Embedding.from_weight(rng.normal(size=(V, D)), **embedding), **options)


def torch_logits(head, hidden, weight, bias):
    scores = (head.hidden_scale * hidden) @ weight.T
    scores = (scores if bias is None else scores + bias) * head.logit_scale
    return scores if head.soft_cap is None else head.soft_cap * torch.tanh(scores / head.soft_cap)


@each_option
@pytest.mark.parametrize("axes", [(2, 3), (4,), (), (2, 0)], ids=["batch", "one text", "one", "empty"])
def test_logits_and_gradients_match_torch(options, axes, rng):
    head = made(rng, options)
    hidden, upstream = rng.normal(size=(*axes, D)), rng.normal(size=(*axes, V))
    leaf = {name: torch.tensor(array, requires_grad=True) for name, array in head.parameters().items()}
    their_hidden = torch.tensor(hidden, requires_grad=True)
    theirs = torch_logits(head, their_hidden, leaf["weight"], leaf.get("bias"))
    theirs.backward(torch.tensor(upstream))
    kept = upstream.copy()
    assert head.forward(hidden) == pytest.approx(theirs.detach().numpy())
    assert head.backward(upstream) == pytest.approx(their_hidden.grad.numpy())
    assert np.array_equal(upstream, kept)
    assert set(head.gradients()) == set(leaf)
    for name, gradient in head.gradients().items():
        assert gradient == pytest.approx(leaf[name].grad.numpy()), name


@each_option
@pytest.mark.parametrize("frozen", [False, True])
def test_the_loss_gradients_match_finite_differences(options, frozen, rng, numeric_gradient):
    head = made(rng, options, padding_id=0 if frozen else None, freeze_padding=frozen)
    hidden, labels = rng.normal(size=(2, 3, D)), [[1, 2, 2], [4, -100, 3]]

    def f() -> float:
        return head.loss(hidden, labels, label_smoothing=0.1)

    expected = {name: numeric_gradient(f, array) for name, array in head.parameters().items()}
    expected_hidden = numeric_gradient(f, hidden)
    f()
    assert head.backward() == pytest.approx(expected_hidden, abs=1e-7)
    for name, gradient in head.gradients().items():
        assert gradient == pytest.approx(expected[name], abs=1e-7), name


@pytest.mark.parametrize("scale", [None, "sqrt"])
def test_a_tied_tables_gradient_is_the_lookups_part_and_the_heads(scale, rng, numeric_gradient):
    """A one-layer language model: look the ids up, score the next ones with the same table."""
    weight, ids, labels = rng.normal(size=(V, D)), [[0, 1, 1, 2]], [[1, 1, 2, 4]]
    tied = Embedding.from_weight(weight, scale=scale)
    head = LMHead(tied)

    def loss() -> float:
        return head.loss(tied.forward(ids), labels)

    expected = numeric_gradient(loss, weight)
    loss()
    lookup_part = tied.backward(head.backward())
    assert tied.gradient == pytest.approx(expected, abs=1e-7)

    untied = LMHead.untied(weight.copy())
    untied.loss(tied.forward(ids), labels)
    untied.backward()
    head_part = untied.embedding.gradient
    assert tied.gradient == pytest.approx(lookup_part + head_part)
    assert lookup_part[4].tolist() == [0, 0, 0]  # never read
    assert head_part.all()  # but scored, as every row is


def test_a_tied_head_shares_its_table_through_copies_and_steps(rng):
    embedding = Embedding(V, D, rng)
    head = LMHead(embedding)
    assert head.weight is embedding.weight
    head.loss(rng.normal(size=(2, D)), [0, 1])
    head.backward()
    assert embedding.step(0.1).tolist() == list(range(V))
    assert head.weight is embedding.weight
    one, two = copy.deepcopy((embedding, head))
    assert two.weight is one.weight


def test_the_inputs_scale_plays_no_part_in_the_head(rng):
    weight, hidden = rng.normal(size=(V, D)), rng.normal(size=(2, D))
    scaled = LMHead(Embedding.from_weight(weight, scale="sqrt"))
    assert np.array_equal(scaled.forward(hidden), LMHead.untied(weight).forward(hidden))


def test_t5_divides_by_the_root_of_the_width(rng):
    weight, hidden = rng.normal(size=(V, 64)), rng.normal(size=(2, 64))
    t5 = LMHead.untied(weight, hidden_scale="rsqrt")
    assert t5.forward(hidden) == pytest.approx(hidden @ weight.T / 8)


def test_a_soft_cap_bounds_the_logits(rng):
    head = LMHead.untied(rng.normal(size=(V, D)) * 100, soft_cap=30.0)
    logits = head.forward(rng.normal(size=(50, D)) * 100)
    assert 29 < abs(logits).max() <= 30


class TestPadding:
    def test_a_padding_row_is_trained_by_the_head_unless_it_is_frozen(self, rng):
        for frozen in (False, True):
            head = made(rng, {}, padding_id=2, freeze_padding=frozen)
            head.loss(rng.normal(size=(4, D)), [0, 1, 3, 4])
            head.backward()
            assert head.embedding.gradient[2].any() != frozen

    def test_a_frozen_rows_logit_is_masked(self, rng):
        head = made(rng, {"soft_cap": 5.0}, padding_id=2, freeze_padding=True)
        logits = head.forward(rng.normal(size=(4, D)))
        assert (logits[:, 2] == -np.inf).all()
        assert np.isfinite(logits[:, [0, 1, 3, 4]]).all()
        with pytest.raises(TokenIdError, match="frozen padding row"):
            head.loss(rng.normal(size=(1, D)), [2])

    def test_a_gradient_at_the_masked_logit_goes_nowhere(self, rng):
        head = made(rng, {"bias": True}, padding_id=2, freeze_padding=True)
        head.forward(rng.normal(size=(1, D)))
        upstream = np.zeros((1, V))
        upstream[0, 2] = 1.0
        assert not head.backward(upstream).any()
        assert not head.gradients()["bias"].any()
        assert upstream[0, 2] == 1.0


def test_every_label_ignored_is_a_loss_of_zero_without_gradient(rng):
    head = made(rng, {})
    assert head.loss(rng.normal(size=(2, D)), [-100, -100]) == 0.0
    assert not head.backward().any()
    assert not head.embedding.gradient.any()


def test_a_narrow_table_scores_in_float32(rng):
    weight = rng.normal(size=(V, D)).astype(ml_dtypes.bfloat16)
    head = LMHead.untied(weight, bias=np.ones(V, ml_dtypes.bfloat16))
    logits = head.forward(rng.normal(size=(2, D)).astype(ml_dtypes.bfloat16))
    assert logits.dtype == np.float32
    head.backward(np.ones((2, V), ml_dtypes.bfloat16))
    assert head.embedding.gradient.dtype == head.bias_gradient.dtype == np.float32


def test_gradients_add_up_until_they_are_forgotten(rng):
    head = made(rng, {"bias": True})
    for _ in range(2):
        head.forward(rng.normal(size=(3, D)))
        head.backward(np.ones((3, V)))
    assert head.gradients()["bias"].tolist() == [6] * V
    head.zero_gradient()
    assert head.gradients() == {}


def test_what_does_not_fit(rng):
    head = made(rng, {})
    with pytest.raises(ShapeError, match="width 3"):
        head.forward(np.ones((2, 4)))
    head.loss(np.ones((2, D)), [0, 1])
    head.forward(np.ones((2, D)))
    with pytest.raises(TokenspaceError, match=r"call loss"):  # an older loss is not this forward's
        head.backward()
    with pytest.raises(ShapeError, match="one number per row"):
        LMHead.untied(np.ones((V, D)), bias=np.ones(4))
    with pytest.raises(ShapeError, match=r"a bias is a \(V\) array of floats"):
        LMHead.untied(np.ones((V, D)), bias=["a"] * V)
    with pytest.raises(TokenIdError, match="label"):
        head.loss(np.ones((1, D)), [V])


@pytest.mark.parametrize("value", [np.nan, np.inf, "foo", True, [1.0]])
@pytest.mark.parametrize("name", ["hidden_scale", "logit_scale"])
def test_scales_are_finite_numbers(name, value):
    with pytest.raises(ShapeError, match=f"{name} must be"):
        LMHead.untied(np.ones((V, D)), **{name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "foo", True, 1e39, 1e-60])
def test_a_soft_cap_is_positive_and_finite(value):
    with pytest.raises(ShapeError, match="soft_cap must be a positive, finite number"):
        LMHead.untied(np.ones((V, D)), soft_cap=value)
