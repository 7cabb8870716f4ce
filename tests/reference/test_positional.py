import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.reference import (
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    convert_layout,
    position_ids,
    positions_from_mask,
    sinusoidal,
)

LAYOUTS = ["paper", "halves", "tensor2tensor"]
WIDTHS = [1, 2, 3, 4, 5, 8, 9]


def by_formula(position: int, width: int, layout: str, base: float) -> list[float]:
    """One row, one number at a time."""
    half = width // 2
    if layout == "tensor2tensor":
        angles = [position / base ** (i / max(half - 1, 1)) for i in range(half)]
        return [*map(math.sin, angles), *map(math.cos, angles), *[0.0] * (width % 2)]
    angles = [position / base ** (2 * i / width) for i in range((width + 1) // 2)]
    sines, cosines = [math.sin(a) for a in angles], [math.cos(a) for a in angles[:half]]
    if layout == "halves":
        return sines + cosines
    return [sines[c // 2] if c % 2 == 0 else cosines[c // 2] for c in range(width)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_sinusoids_are_the_formula(layout, width, base):
    positions = [0, 1, 7, 511, 100_000]
    expected = [by_formula(p, width, layout, base) for p in positions]
    found = sinusoidal(positions, width, layout, base, dtype=np.float64)
    assert found == pytest.approx(np.array(expected), abs=1e-9)


def test_far_positions_keep_float32s_precision():
    """Angles taken in float32 would be off by 4e-3 at position 100,000."""
    far = sinusoidal([99_999], 64)
    assert far.dtype == np.float32
    assert far == pytest.approx(np.array([by_formula(99_999, 64, "paper", 10_000.0)]), abs=1e-7)


def test_positions_of_any_shape(rng):
    positions = rng.integers(0, 100, (2, 3, 4))
    assert sinusoidal(positions, 6).shape == (2, 3, 4, 6)
    assert np.array_equal(sinusoidal(positions, 6)[1, 2, 3], sinusoidal(positions[1, 2, 3], 6))
    assert sinusoidal([], 6).shape == (0, 6)
    assert sinusoidal(np.zeros((2, 0)), 5, "halves").shape == (2, 0, 5)


@given(st.integers(1, 33), st.sampled_from(["paper", "halves"]), st.sampled_from(["paper", "halves"]))
def test_converters_lead_from_layout_to_layout_and_back(width, source, target):
    positions = np.arange(9)
    source_rows = sinusoidal(positions, width, source)
    target_rows = convert_layout(source_rows, source, target)
    assert np.array_equal(target_rows, sinusoidal(positions, width, target))
    assert np.array_equal(convert_layout(target_rows, target, source), source_rows)


@pytest.mark.parametrize("other", ["paper", "halves"])
def test_tensor2tensor_has_other_frequencies(other):
    rows = sinusoidal(np.arange(9), 8, "tensor2tensor")
    for source, target in (("tensor2tensor", other), (other, "tensor2tensor")):
        with pytest.raises(ShapeError, match="can't be reordered"):
            convert_layout(rows, source, target)
    ours = np.sort(sinusoidal([3], 8, "tensor2tensor", dtype=np.float64))
    theirs = np.sort(sinusoidal([3], 8, other, dtype=np.float64))
    assert abs(ours - theirs).max() > 1e-3  # no order of one's columns gives the other's
    assert np.array_equal(convert_layout(rows, "tensor2tensor", "tensor2tensor"), rows)


@pytest.mark.parametrize("width", [4, 8, 512])
def test_tensor2tensor_is_halves_with_a_larger_base(width):
    positions = np.arange(50)
    base = 10_000.0 ** (width / (width - 2))
    assert sinusoidal(positions, width, "halves", base) == pytest.approx(
        sinusoidal(positions, width, "tensor2tensor"), abs=1e-6
    )


@pytest.mark.parametrize("width", [0, -1, 2.5, True, "4"])
def test_sinusoids_need_a_width(width):
    for make in (SinusoidalPositionalEncoding, lambda width: sinusoidal([0], width)):
        with pytest.raises(ShapeError, match="embedding_dimension must be an integer, 1 or more"):
            make(width)


@pytest.mark.parametrize("base", [0.0, -1, np.nan, np.inf, "ten", True])
def test_sinusoids_need_a_base(base):
    for make in (SinusoidalPositionalEncoding, lambda width, base: sinusoidal([0], width, base=base)):
        with pytest.raises(ShapeError, match="base must be a positive, finite number"):
            make(4, base=base)


@pytest.mark.parametrize("dtype", [np.int32, bool, "foo"])
def test_sinusoids_are_floats(dtype):
    for make in (SinusoidalPositionalEncoding, lambda width, dtype: sinusoidal([0], width, dtype=dtype)):
        with pytest.raises(ShapeError, match="dtype must be a floating-point type"):
            make(4, dtype=dtype)


@pytest.mark.parametrize("positions", [[[0, 1], [2]], "a"], ids=["ragged", "text"])
def test_sinusoids_need_numbers(positions):
    with pytest.raises(ShapeError, match="positions must be"):
        sinusoidal(positions, 4)


@pytest.mark.parametrize("ids", [[[0, -1]], [[0.5]]])
def test_the_sinusoidal_layer_takes_counts(ids):
    with pytest.raises(TokenIdError, match="position id"):
        SinusoidalPositionalEncoding(4).forward(ids)


def test_the_sinusoidal_layer_has_nothing_to_learn():
    layer = SinusoidalPositionalEncoding(5, "tensor2tensor", base=100.0)
    assert np.array_equal(layer.forward([[3]])[0], sinusoidal([3], 5, "tensor2tensor", 100.0))
    assert layer.position_ids((1, 2), start=3).tolist() == [[3, 4]]
    assert layer.backward(np.ones((1, 1, 5))) is None
    assert layer.parameters() == layer.gradients() == {}


class TestPositionIds:
    @pytest.mark.parametrize("start", [0, 5, np.array([5, 5])])
    def test_they_count_from_the_start(self, start):
        first = int(np.max(start))
        assert position_ids((2, 3), start).tolist() == [[first, first + 1, first + 2]] * 2

    def test_each_text_may_have_its_own_start(self):
        assert position_ids((2, 2), np.array([0, 7])).tolist() == [[0, 1], [7, 8]]

    @pytest.mark.parametrize(
        "start",
        [
            -1,
            np.array([0, 1, 2]),
            1.7,
            np.array([0.0, 1.0]),
            True,
            "1",
            None,
            [[0], [1]],
            [],
            2**63,
            [[0], 1],
        ],
    )
    def test_a_start_is_a_count_per_text(self, start, rng):
        learned = LearnedPositionalEmbedding(9, 2, rng)
        for call in (position_ids, learned.position_ids, SinusoidalPositionalEncoding(2).position_ids):
            with pytest.raises(ShapeError, match="start is one count"):
                call((2, 2), start)
        with pytest.raises(ShapeError, match="start is one count"):
            positions_from_mask([[1, 1], [1, 1]], 1, start)

    @pytest.mark.parametrize("shape", [5, (2,), (2, 3, 4), (2.0, 3), (-1, 3), (True, 3), "ab"])
    def test_the_shape_of_ids_is_two_counts(self, shape, rng):
        padded = LearnedPositionalEmbedding(9, 2, rng, offset=2, padding_id=1)
        for call in (position_ids, padded.position_ids):
            with pytest.raises(ShapeError, match=r"is \(B, T\), two counts"):
                call(shape)

    @pytest.mark.parametrize("padding_id", [1.0, -1, True, [1], "1"])
    def test_the_padding_id_is_one_count(self, padding_id):
        with pytest.raises(ShapeError, match="padding_id must be an integer, 0 or more"):
            positions_from_mask([[1, 1]], padding_id)

    @pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
    def test_padding_is_skipped_on_either_side(self, dtype):
        mask = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype)
        assert positions_from_mask(mask, padding_id=1).tolist() == [
            [1, 1, 2, 3],
            [2, 3, 1, 1],
            [2, 1, 3, 1],
            [1, 1, 1, 1],
        ]

    @given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(0, 12), st.integers(0, 3))
    def test_decoding_token_by_token_gives_the_positions_of_the_whole(self, mask, cut, padding_id):
        whole = positions_from_mask([mask], padding_id)
        head, tail = np.array([mask[:cut]], int), np.array([mask[cut:]], int)
        parts = [
            positions_from_mask(head, padding_id),
            positions_from_mask(tail, padding_id, start=head.sum(1)),
        ]
        assert np.array_equal(np.concatenate(parts, axis=1), whole)

    @pytest.mark.parametrize("mask", [[1, 1], [[0, 2]], [[0.5]], [[-1]], [[np.nan]], [["1"]], [[1], [1, 0]]])
    def test_a_mask_is_zeros_and_ones(self, mask, rng):
        with pytest.raises(ShapeError, match="attention mask"):
            positions_from_mask(mask, 1)
        for layer in (SinusoidalPositionalEncoding(2), LearnedPositionalEmbedding(9, 2, rng)):
            with pytest.raises(ShapeError, match="attention mask"):  # though neither reads it
                layer.position_ids(np.shape(mask) if len(mask) == 1 else (2, 2), attention_mask=mask)

    @pytest.mark.parametrize("padding_id", [None, 1])
    def test_a_mask_has_the_shape_of_the_ids(self, padding_id, rng):
        layer = LearnedPositionalEmbedding(9, 2, rng, offset=2, padding_id=padding_id)
        for encoding in (layer, SinusoidalPositionalEncoding(2)):
            with pytest.raises(ShapeError, match=r"must be \(2, 3\), as the ids are; found \(1, 3\)"):
                encoding.position_ids((2, 3), attention_mask=[[1, 1, 0]])


class TestLearned:
    def test_the_offset_counts_against_the_length(self, rng):
        roberta = LearnedPositionalEmbedding(514, 4, rng, offset=2, padding_id=1)
        assert roberta.usable_length == 512
        assert roberta.position_ids((2, 512))[1, [0, -1]].tolist() == [2, 513]
        with pytest.raises(ShapeError, match=r"513 positions are needed .* holds 512"):
            roberta.position_ids((2, 513))

    def test_padding_needs_no_position(self, rng):
        opt = LearnedPositionalEmbedding(6, 4, rng, offset=2, padding_id=1)
        mask = [[0, 0, 0, 1, 1, 1, 1]]
        assert opt.position_ids((1, 7), attention_mask=mask).tolist() == [[1, 1, 1, 2, 3, 4, 5]]

    def test_without_a_padding_id_the_mask_changes_nothing(self, rng):
        bart = LearnedPositionalEmbedding(6, 4, rng, offset=2)
        assert bart.position_ids((1, 3), attention_mask=[[0, 1, 1]]).tolist() == [[2, 3, 4]]

    def test_the_start_counts_against_the_length(self, rng):
        gpt2 = LearnedPositionalEmbedding(8, 4, rng)
        assert gpt2.position_ids((1, 1), start=7).tolist() == [[7]]
        with pytest.raises(
            ShapeError, match="9 positions are needed and this table of 8 rows holds 8; shorten"
        ):
            gpt2.position_ids((1, 2), start=7)

    def test_no_tokens_need_no_positions(self, rng):
        assert LearnedPositionalEmbedding(8, 4, rng).position_ids((2, 0)).shape == (2, 0)

    def test_a_position_outside_the_table(self, rng):
        with pytest.raises(TokenIdError, match="1 of 2 position ids is outside this table of 4 rows"):
            LearnedPositionalEmbedding(4, 2, rng).forward([[0, 4]])

    def test_gradient_sums_over_the_texts_as_torchs_does(self, rng, numeric_gradient):
        weight, ids = rng.normal(size=(6, 3)), [[2, 3, 4], [2, 3, 1]]
        layer = LearnedPositionalEmbedding.from_weight(weight, offset=2, padding_id=1)
        upstream = rng.normal(size=(2, 3, 3))
        theirs = torch.nn.Embedding.from_pretrained(torch.tensor(weight), freeze=False, padding_idx=1)
        theirs(torch.tensor(ids)).backward(torch.tensor(upstream))
        layer.forward(ids)
        gradient = layer.backward(upstream)
        assert gradient == pytest.approx(theirs.weight.grad.numpy())
        expected = numeric_gradient(lambda: float((layer.forward(ids) * upstream).sum()), layer.weight)
        expected[1] = 0  # the padding row
        assert gradient == pytest.approx(expected, abs=1e-7)

    def test_the_padding_row_starts_at_zero(self, rng):
        layer = LearnedPositionalEmbedding(6, 4, rng, offset=2, padding_id=1)
        assert not layer.weight[1].any()
        assert layer.weight[[0, 2]].all()

    @pytest.mark.parametrize("offset", [-1, 4, 1.5, 1.0, True, "1", None])
    def test_the_offset_is_a_count_that_leaves_rows(self, offset, rng):
        for make in (
            lambda: LearnedPositionalEmbedding(4, 2, rng, offset=offset),
            lambda: LearnedPositionalEmbedding.from_weight(np.zeros((4, 2)), offset=offset),
        ):
            with pytest.raises(ShapeError, match=r"the offset (is|must be an integer)"):
                make()

    def test_positions_start_behind_the_padding_row(self, rng):
        with pytest.raises(ShapeError, match="start at the offset 2"):
            LearnedPositionalEmbedding.from_weight(np.zeros((4, 2)), offset=1, padding_id=1)
