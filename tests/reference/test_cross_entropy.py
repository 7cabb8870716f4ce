import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError, TokenspaceError
from tokenspace.reference import CrossEntropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize(
    "labels", [[[0, 4], [2, 2]], [[0, -100], [-100, 3]], [[1, 1], [1, -100]]], ids=["all", "some", "repeated"]
)
def test_loss_and_gradient_match_torch_and_finite_differences(smoothing, labels, rng, numeric_gradient):
    logits = rng.normal(size=(2, 2, 5)) * 3
    theirs = torch.tensor(logits, requires_grad=True)
    their_loss = torch.nn.functional.cross_entropy(
        theirs.reshape(-1, 5), torch.tensor(labels).reshape(-1), label_smoothing=smoothing
    )
    their_loss.backward()
    ours = CrossEntropy(label_smoothing=smoothing)
    assert ours.forward(logits, labels) == pytest.approx(their_loss.item())
    gradient = ours.backward()
    assert gradient == pytest.approx(theirs.grad.numpy())
    expected = numeric_gradient(lambda: ours.forward(logits, labels), logits)
    assert gradient == pytest.approx(expected, abs=1e-7)


def test_large_logits_do_not_overflow():
    loss = CrossEntropy()
    assert loss.forward(np.array([[1e4, 0.0], [-1e4, -1e4]], np.float32), [1, 0]) == pytest.approx(
        (1e4 + np.log(2)) / 2
    )
    assert np.isfinite(loss.backward()).all()


@pytest.mark.parametrize("labels", [[-100, -100], np.zeros(0, np.int64)], ids=["ignored", "empty"])
def test_nothing_to_count_is_zero(labels):
    loss = CrossEntropy()
    assert repr(loss.forward(np.ones((len(labels), 3)), labels)) == "0.0"  # not -0.0
    assert not loss.backward().any()


def test_an_ignored_position_is_not_looked_at():
    loss = CrossEntropy(ignore_index=2)
    value = loss.forward(np.array([[0.0, 0.0, 0.0], [np.nan, np.inf, 0.0]]), np.array([1, 2], np.uint8))
    assert value == pytest.approx(np.log(3))
    assert not loss.backward()[1].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_logit_shows_in_the_loss(value):
    assert np.isnan(CrossEntropy().forward(np.array([[value, 0.0]]), [1]))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_masked_row_is_out_of_the_distribution(smoothing):
    masked, plain = CrossEntropy(label_smoothing=smoothing), CrossEntropy(label_smoothing=smoothing)
    assert masked.forward(np.array([[-np.inf, 1.0, 2.0]]), [2]) == pytest.approx(
        plain.forward(np.array([[1.0, 2.0]]), [1])
    )
    assert masked.backward()[0].tolist() == [0, *plain.backward()[0].tolist()]
    with pytest.raises(TokenIdError, match="masked out of the logits"):
        masked.forward(np.array([[-np.inf, 1.0, 2.0]]), [0])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 3]], r"1 of 2 labels is outside .* first is 3 at batch 0, position 1"),
        ([[-1, -100]], r"first is -1 at batch 0, position 0"),
        ([[1.0, 2.0]], "labels must be integers"),
    ],
)
def test_a_label_is_a_row_or_ignored(labels, message):
    with pytest.raises(TokenIdError, match=message):
        CrossEntropy().forward(np.zeros((1, 2, 3)), labels)


def test_a_sure_and_right_answer_costs_nothing():
    assert repr(CrossEntropy().forward([[0.0, -1e4]], [0])) == "0.0"


@pytest.mark.parametrize("logits", [5.0, np.ones((2, 0))], ids=["no axis", "no rows"])
def test_logits_have_an_axis_of_rows(logits):
    with pytest.raises(ShapeError, match=r"logits are \(\*axes, V\)"):
        CrossEntropy().forward(logits, np.zeros(np.shape(logits)[:-1], np.int64))


def test_ragged_labels_are_refused():
    with pytest.raises(TokenIdError, match="labels must form a rectangular array"):
        CrossEntropy().forward(np.zeros((2, 2, 3)), [[0, 1], [2]])


@pytest.mark.parametrize("value", [1.5, "a", None, True])
def test_the_ignored_label_is_an_integer(value):
    with pytest.raises(ShapeError, match="ignore_index must be an integer"):
        CrossEntropy(ignore_index=value)


@pytest.mark.parametrize("value", [1.0, -0.1, np.nan, "a", True])
def test_label_smoothing_is_a_share(value):
    with pytest.raises(ShapeError, match="label_smoothing must be"):
        CrossEntropy(label_smoothing=value)


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match="one label per position"):
        CrossEntropy().forward(np.zeros((2, 3)), [1])
    with pytest.raises(TokenspaceError, match="needs a forward"):
        CrossEntropy().backward()
