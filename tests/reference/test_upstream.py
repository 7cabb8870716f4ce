"""Every part's backward: it comes after a forward, and takes a gradient of that forward's shape alone."""

import numpy as np
import pytest

from tokenspace.errors import ShapeError, TokenspaceError
from tokenspace.reference import (
    CrossEntropy,
    Dropout,
    Embedding,
    LayerNorm,
    LearnedPositionalEmbedding,
    LMHead,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TransformerInput,
)

IDS, HIDDEN = [[1, 0, 1], [0, 0, 1]], np.ones((2, 3, 4))
PARTS = {
    "embedding": (lambda rng: Embedding(5, 4, rng), IDS),
    "segment": (lambda rng: SegmentEmbedding(2, 4, rng), IDS),
    "learned": (lambda rng: LearnedPositionalEmbedding(6, 4, rng), IDS),
    "sinusoidal": (lambda rng: SinusoidalPositionalEncoding(4), IDS),
    "layer norm": (lambda rng: LayerNorm(4), HIDDEN),
    "projection": (lambda rng: Projection(4, 5, rng), HIDDEN),
    "dropout": (lambda rng: Dropout(0.5, rng), HIDDEN),
    "head": (lambda rng: LMHead(Embedding(5, 4, rng)), HIDDEN),
    "bare": (lambda rng: TransformerInput(Embedding(5, 4, rng)), IDS),
    "bert": (
        lambda rng: TransformerInput(
            Embedding(5, 4, rng),
            LearnedPositionalEmbedding(6, 4, rng),
            SegmentEmbedding(2, 4, rng),
            layer_norm=LayerNorm(4),
            projection=Projection(4, 6, rng),
            dropout=Dropout(0.5, rng),
        ),
        IDS,
    ),
}
each_part = pytest.mark.parametrize(("make", "given"), PARTS.values(), ids=PARTS)


def misfits(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes that NumPy would stretch over ``shape``, and some that it would not."""
    batch, length, width = shape
    stretched = [(1, length, width), (batch, 1, width), (batch, length, 1), (length, width), (width,), ()]
    return [
        *stretched,
        (1, *shape),
        (batch * length, width),
        (length, batch, width),
        (batch, length, width + 1),
    ]


@each_part
def test_a_gradient_of_another_shape_is_refused(make, given, rng):
    part = make(rng)
    output = part.forward(given)
    for shape in misfits(output.shape):
        with pytest.raises(ShapeError) as refusal:
            part.backward(np.ones(shape))
        assert f"has shape {shape}, what the forward returned {output.shape}" in str(refusal.value)
    assert not any(gradient.any() for gradient in getattr(part, "gradients", dict)().values())
    part.backward(np.ones(output.shape))


@each_part
def test_what_is_no_gradient_is_refused(make, given, rng):
    part = make(rng)
    part.forward(given)
    for values in ([[1.0], [1.0, 2.0]], "up"):
        with pytest.raises(ShapeError, match="a gradient must be"):
            part.backward(values)


@pytest.mark.parametrize("name", ["dropout", "bare", "bert"])
def test_training_is_no_exception(name, rng):
    make, given = PARTS[name]
    part = make(rng)
    shape = part.forward(given, training=True).shape
    with pytest.raises(ShapeError, match="must be equal"):
        part.backward(np.ones((1, *shape[1:])))


@each_part
def test_backward_without_forward_is_one_error_everywhere(make, given, rng):
    with pytest.raises(TokenspaceError) as refusal:
        make(rng).backward(np.ones((2, 3, 4)))
    assert str(refusal.value) == "backward needs a forward to go back through; call forward first"


def test_a_loss_without_forward_says_the_same(rng):
    for backward in (CrossEntropy().backward, LMHead(Embedding(5, 4, rng)).backward):
        with pytest.raises(TokenspaceError, match="backward needs a forward to go back through"):
            backward()
