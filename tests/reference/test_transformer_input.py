import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError, TokenspaceError
from tokenspace.reference import (
    Dropout,
    Embedding,
    LayerNorm,
    LearnedPositionalEmbedding,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TransformerInput,
    sinusoidal,
)

V, D, H = 7, 4, 6
IDS = {"plain": [[1, 2, 3], [4, 5, 6]], "repeated": [[2, 2, 2], [2, 0, 0]], "single": [[3]]}


def table(rng, rows, width=D):
    return rng.normal(size=(rows, width))


def recipe(name: str, rng: np.random.Generator) -> TransformerInput:
    """The parts that a family has, all in float64."""
    token = Embedding.from_weight(table(rng, V))
    norm = LayerNorm.from_weight(rng.normal(size=D), rng.normal(size=D))
    position = LearnedPositionalEmbedding.from_weight(table(rng, 5))
    segment = SegmentEmbedding.from_weight(table(rng, 2))
    projection = Projection.from_weight(table(rng, H), rng.normal(size=H))
    dropout = Dropout(0.3, np.random.default_rng(1))
    if name == "llama":
        return TransformerInput(token)
    if name == "gpt2":
        return TransformerInput(token, position, dropout=dropout)
    if name == "paper":
        scaled = Embedding.from_weight(token.weight, scale="sqrt")
        return TransformerInput(scaled, SinusoidalPositionalEncoding(D, dtype=np.float64), dropout=dropout)
    if name == "bert":
        return TransformerInput(token, position, segment, layer_norm=norm, dropout=dropout)
    if name == "albert":
        return TransformerInput(token, position, segment, None, norm, projection, dropout)
    if name == "opt-350m":
        wide = LearnedPositionalEmbedding.from_weight(table(rng, 7, H), offset=2)
        no_bias = Projection.from_weight(projection.weight)
        return TransformerInput(token, wide, projection=no_bias, dropout=dropout)
    if name == "xlm":
        extras = {
            name: SegmentEmbedding.from_weight(table(rng, 3), name=name) for name in ("language", "role")
        }
        return TransformerInput(token, position, extras=extras, layer_norm=norm, dropout=dropout)
    raise ValueError(name)


RECIPES = ["llama", "gpt2", "paper", "bert", "albert", "opt-350m", "xlm"]
STEPS = {
    "llama": ["lookup", "output"],
    "gpt2": ["lookup", "position", "dropout", "output"],
    "paper": ["lookup", "scaled", "position", "dropout", "output"],
    "bert": ["lookup", "position", "segment", "normalized", "dropout", "output"],
    "albert": ["lookup", "position", "segment", "normalized", "dropout", "projected", "output"],
    "opt-350m": ["lookup", "projected", "position", "dropout", "output"],
    "xlm": ["lookup", "position", "language", "role", "normalized", "dropout", "output"],
}
each_recipe = pytest.mark.parametrize("name", RECIPES)


def arguments(layer: TransformerInput, ids: list, rng: np.random.Generator) -> dict:
    shape = np.shape(ids)
    given = {"ids": ids}
    if layer.segment is not None:
        given["segment_ids"] = rng.integers(0, 2, shape)
    if layer.extras:
        given["extra_ids"] = {name: rng.integers(0, 3, shape) for name in layer.extras}
    return given


def in_torch(layer: TransformerInput, given: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The same sum in torch, without dropout; returns the output and the leaves."""
    leaf = {name: torch.tensor(array, requires_grad=True) for name, array in layer.parameters().items()}
    x = leaf["token.weight"][torch.tensor(given["ids"])]
    if layer.token.scale is not None:
        x = x * layer.token.scale
    linear = torch.nn.functional.linear
    projects_first = layer.projection is not None and layer.position.embedding_dimension == H
    if projects_first:
        x = linear(x, leaf["projection.weight"])
    length = x.shape[1]
    if isinstance(layer.position, LearnedPositionalEmbedding):
        x = x + leaf["position.weight"][torch.arange(length) + layer.position.offset]
    elif layer.position is not None:
        x = x + torch.tensor(sinusoidal(np.arange(length), D, dtype=np.float64))
    if layer.segment is not None:
        x = x + leaf["segment.weight"][torch.tensor(given["segment_ids"])]
    for name in layer.extras:
        x = x + leaf[f"{name}.weight"][torch.tensor(given["extra_ids"][name])]
    if layer.layer_norm is not None:
        x = torch.nn.functional.layer_norm(
            x, (D,), leaf["layer_norm.weight"], leaf["layer_norm.bias"], layer.layer_norm.eps
        )
    if layer.projection is not None and not projects_first:
        x = linear(x, leaf["projection.weight"], leaf["projection.bias"])
    return x, leaf


@each_recipe
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_output_and_every_gradient_match_torch(name, ids, rng):
    layer = recipe(name, rng)
    given = arguments(layer, ids, rng)
    theirs, leaf = in_torch(layer, given)
    output = layer.forward(**given)
    assert output == pytest.approx(theirs.detach().numpy())
    upstream = rng.normal(size=output.shape)
    kept = upstream.copy()
    theirs.backward(torch.tensor(upstream))
    layer.backward(upstream)
    assert np.array_equal(upstream, kept)
    assert set(layer.gradients()) == set(layer.parameters()) == set(leaf)
    for parameter, gradient in layer.gradients().items():
        assert gradient == pytest.approx(leaf[parameter].grad.numpy(), abs=1e-12), parameter


@each_recipe
def test_every_gradient_matches_finite_differences_in_training(name, rng, numeric_gradient):
    layer = recipe(name, rng)
    given = arguments(layer, IDS["repeated"], rng)
    upstream = rng.normal(size=layer.forward(**given).shape)

    def f() -> float:
        if layer.dropout is not None:
            layer.dropout.rng = np.random.default_rng(5)
        return float((layer.forward(**given, training=True) * upstream).sum())

    expected = {key: numeric_gradient(f, array) for key, array in layer.parameters().items()}
    f()
    layer.backward(upstream)
    for key, gradient in layer.gradients().items():
        assert gradient == pytest.approx(expected[key], abs=1e-6), key


@each_recipe
def test_the_steps_are_the_recipes_own_in_order_and_end_in_the_output(name, rng):
    layer = recipe(name, rng)
    given = arguments(layer, IDS["plain"], rng)
    steps = layer.steps(**given)
    assert list(steps) == STEPS[name]
    assert np.array_equal(steps["output"], layer.forward(**given))
    total = steps["scaled" if name == "paper" else "projected" if name == "opt-350m" else "lookup"]
    total = total + sum(steps[key] for key in ("position", "segment", "language", "role") if key in steps)
    if layer.layer_norm is not None:
        total = layer.layer_norm.forward(total)
        assert steps["normalized"] == pytest.approx(total)
    if name == "albert":
        total = layer.projection.forward(total)
        assert steps["projected"] == pytest.approx(total)
    assert steps["output"] == pytest.approx(total)


@each_recipe
@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_tokens_give_no_vectors(name, shape, rng):
    layer = recipe(name, rng)
    given = arguments(layer, np.zeros(shape, np.int64), rng)
    output = layer.forward(**given, training=True)
    assert output.shape[:2] == shape
    layer.backward(np.zeros_like(output))
    assert not any(gradient.any() for gradient in layer.gradients().values())


@pytest.mark.parametrize("name", ["gpt2", "paper", "bert", "opt-350m"])
def test_decoding_from_a_start_gives_what_the_whole_text_gives(name, rng):
    layer = recipe(name, rng)
    whole = layer.forward([[1, 2, 3, 4, 5]])
    parts = [layer.forward([[1, 2, 3]]), layer.forward([[4]], start=3), layer.forward([[5]], start=4)]
    assert np.concatenate(parts, axis=1) == pytest.approx(whole, abs=1e-15)


def test_segments_left_out_are_all_the_first(rng):
    bert = recipe("bert", rng)
    assert np.array_equal(bert.forward([[1, 2]]), bert.forward([[1, 2]], segment_ids=[[0, 0]]))
    assert not np.array_equal(bert.forward([[1, 2]]), bert.forward([[1, 2]], segment_ids=[[0, 1]]))


def test_ids_of_one_text_serve_every_text(rng):
    bert = recipe("bert", rng)
    one = bert.forward([[1, 2], [3, 4]], segment_ids=[0, 1], position_ids=[4, 2])
    each = bert.forward([[1, 2], [3, 4]], segment_ids=[[0, 1]] * 2, position_ids=[[4, 2]] * 2)
    assert np.array_equal(one, each)


class TestPositionsThatSkipPadding:
    @pytest.fixture
    def roberta(self, rng):
        token = Embedding.from_weight(table(rng, V), padding_id=1)
        position = LearnedPositionalEmbedding.from_weight(table(rng, 6), offset=2, padding_id=1)
        return TransformerInput(token, position)

    def test_padding_is_found_by_the_token_tables_padding_id(self, roberta):
        assert roberta.position_ids([[1, 1, 5, 6], [4, 5, 6, 1]]).tolist() == [[1, 1, 2, 3], [2, 3, 4, 1]]

    def test_a_mask_has_the_last_word(self, roberta):
        assert roberta.position_ids([[1, 1, 5, 6]], attention_mask=[[0, 1, 1, 0]]).tolist() == [[1, 2, 3, 1]]

    def test_a_text_padded_on_the_left_is_the_text(self, roberta):
        padded = roberta.forward([[1, 1, 5, 6]])
        assert np.array_equal(padded[:, 2:], roberta.forward([[5, 6]]))

    def test_the_padding_rows_take_no_gradient(self, roberta):
        roberta.forward([[1, 1, 5, 6]])
        roberta.backward(np.ones((1, 4, D)))
        assert np.flatnonzero(roberta.gradients()["token.weight"].any(axis=1)).tolist() == [5, 6]
        assert np.flatnonzero(roberta.gradients()["position.weight"].any(axis=1)).tolist() == [2, 3]


def test_gradients_add_up_until_they_are_forgotten(rng):
    layer = recipe("albert", rng)
    for _ in range(2):
        layer.forward([[1, 2]])
        layer.backward(np.ones((1, 2, H)))
    assert layer.gradients()["projection.bias"].tolist() == [4] * H
    layer.zero_gradient()
    assert not any(gradient.any() for gradient in layer.gradients().values())
    recipe("paper", rng).zero_gradient()


def test_a_nan_stays_with_its_token(rng):
    layer = recipe("bert", rng)
    layer.token.weight[3, 0] = np.nan
    output = layer.forward([[1, 3, 2]])
    assert np.isnan(output[0, 1]).all()
    assert np.isfinite(output[0, [0, 2]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"ids": [[9]]}, "1 of 1 token ids"),
        ({"ids": [[1]], "segment_ids": [[2]]}, "1 of 1 segment ids"),
        ({"ids": [[1]], "position_ids": [[5]]}, "1 of 1 position ids"),
        ({"ids": [[1.0]]}, "token ids must be integers"),
        ({"ids": [[1, 2], [3]]}, "token ids must form a rectangular array"),
        ({"ids": [[1], [2]], "segment_ids": [[0], [0, 1]]}, "segment ids must form a rectangular array"),
        ({"ids": [[1], [2]], "position_ids": [[0], [0, 1]]}, "position ids must form a rectangular array"),
        ({"ids": [[1]], "segment_ids": [[0.0]]}, "segment ids must be integers"),
        ({"ids": [[1]], "position_ids": [[0.5]]}, "position ids must be integers"),
    ],
)
def test_an_error_says_which_ids_are_wrong(call, message, rng):
    with pytest.raises(TokenIdError, match=message):
        recipe("bert", rng).forward(**call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"ids": [1, 2]}, r"\(B, T\)"),
        ({"ids": [[1, 2]], "segment_ids": [[0]]}, "segment ids must be"),
        ({"ids": [[1, 2]], "position_ids": [0, 1, 2]}, "position ids must be"),
        ({"ids": [[1, 2]], "attention_mask": [[1]]}, "attention mask values must be"),
        ({"ids": [[1, 2]], "attention_mask": [[1], [1, 0]]}, "attention mask must be a rectangular array"),
        ({"ids": [[1, 2]], "start": 1.7}, "start is one count"),
        ({"ids": [[1, 2]], "extra_ids": {"role": [[0, 0]]}}, r"exactly \[\]; found \['role'\]"),
        ({"ids": [[1] * 6]}, "6 positions are needed and this table of 5 rows holds 5"),
    ],
)
def test_shapes_that_do_not_fit(call, message, rng):
    with pytest.raises(ShapeError, match=message):
        recipe("bert", rng).forward(**call)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_mask": [[1, 5]]}, "1 at tokens and 0 at padding"),
        ({"attention_mask": [[1, 5]], "position_ids": [[0, 1]]}, "1 at tokens and 0 at padding"),
        ({"attention_mask": [[1, 0, 1]]}, "attention mask values must be"),
        ({"segment_ids": [[0]]}, "segment ids must be"),
        ({"position_ids": [[0]]}, "position ids must be"),
        ({"start": -1, "position_ids": [[0, 1]]}, "start is one count"),
    ],
)
def test_what_a_recipe_has_no_use_for_is_checked_all_the_same(name, given, message, rng):
    layer = recipe(name, rng)
    with pytest.raises(ShapeError, match=message):
        layer.forward(**{**arguments(layer, [[1, 2]], rng), **given})


def test_ragged_ids_have_no_positions(rng):
    with pytest.raises(TokenIdError, match="token ids must form a rectangular array"):
        recipe("bert", rng).position_ids([[1, 2], [3]])


def test_after_a_forward_that_failed_there_is_nothing_to_go_back_through(rng):
    layer = recipe("bert", rng)
    layer.forward([[1, 2]])
    with pytest.raises(ShapeError, match="6 positions"):
        layer.forward([[1] * 6])
    with pytest.raises(TokenspaceError, match="needs a forward"):
        layer.backward(np.ones((1, 2, D)))


def test_a_gradient_that_does_not_fit_changes_no_parts_gradient(rng):
    layer = recipe("albert", rng)
    layer.forward([[1, 2]])
    with pytest.raises(ShapeError, match="must be equal"):
        layer.backward(np.ones((1, 1, H)))
    assert not any(gradient.any() for gradient in layer.gradients().values())


def test_an_extra_table_needs_its_ids(rng):
    with pytest.raises(ShapeError, match=r"exactly \['language', 'role'\]; found \['role'\]"):
        recipe("xlm", rng).forward([[1]], extra_ids={"role": [[0]]})


def test_a_recipe_without_positions_has_no_position_ids(rng):
    with pytest.raises(ShapeError, match="adds no positions"):
        recipe("llama", rng).position_ids([[1]])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"position": SinusoidalPositionalEncoding(5)}, "position has width 5 where tokens have 4"),
        ({"segment": SegmentEmbedding.from_weight(np.zeros((2, 3)))}, "segment has width 3"),
        ({"layer_norm": LayerNorm(8)}, "layer_norm has width 8"),
        ({"extras": {"role": SegmentEmbedding.from_weight(np.zeros((2, 3)))}}, "role has width 3"),
        ({"extras": {"token": SegmentEmbedding.from_weight(np.zeros((2, 4)))}}, "can't be named 'token'"),
        ({"extras": {"scaled": SegmentEmbedding.from_weight(np.zeros((2, 4)))}}, "can't be named 'scaled'"),
        ({"projection": Projection.from_weight(np.zeros((6, 3)))}, "takes width 3, tokens have 4"),
        (
            {
                "projection": Projection.from_weight(np.zeros((6, 4))),
                "position": SinusoidalPositionalEncoding(5),
            },
            "position has width 5 where tokens have 4",
        ),
    ],
)
def test_parts_that_do_not_fit(parts, message, rng):
    with pytest.raises(ShapeError, match=message):
        TransformerInput(Embedding(V, D, rng), **parts)
