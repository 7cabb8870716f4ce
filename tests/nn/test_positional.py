import copy
import pickle

import numpy as np
import pytest
import torch

from tokenspace import reference
from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    positional,
    positions_from_mask,
    sinusoidal,
    torch_only,
)

LAYOUTS = ("paper", "tensor2tensor", "halves")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [1, 2, 3, 6, 7, 64])
def test_the_formula_is_the_references(layout, width):
    positions = np.array([[0, 1, 7], [100, 4_095, 20_000_001]])
    found = sinusoidal(torch.tensor(positions), width, layout, dtype=torch.float64)
    expected = reference.sinusoidal(positions, width, layout, dtype=np.float64)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-8)
    assert found.shape == (2, 3, width)


def test_positions_between_the_counts_and_another_base():
    positions = np.array([0.5, 2.25])
    np.testing.assert_allclose(
        sinusoidal(torch.tensor(positions), 6, base=500.0).numpy(),
        reference.sinusoidal(positions, 6, base=500.0),
        rtol=1e-6,
    )


@pytest.mark.parametrize("max_positions", [None, 4_096])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_rows_are_rounded_once_by_whatever_way_the_type_came(dtype, max_positions):
    exact = sinusoidal(torch.arange(4_096), 64, dtype=torch.float64)
    made = SinusoidalPositionalEncoding(64, max_positions=max_positions, dtype=dtype)
    changed = SinusoidalPositionalEncoding(64, max_positions=max_positions, dtype=torch.float32).to(dtype)
    back = copy.deepcopy(changed).to(torch.bfloat16).to(dtype)
    for encoding in (made, changed, back):
        assert torch.equal(encoding(torch.arange(4_096)), exact.to(dtype))


def test_casting_positions_first_would_leave_769_rows_distinct():
    rounded_first = sinusoidal(torch.arange(4_096).bfloat16(), 64, dtype=torch.bfloat16)
    assert len(rounded_first.unique(dim=0)) == 769
    encoding = SinusoidalPositionalEncoding(64).to(torch.bfloat16)
    assert len(encoding(torch.arange(4_096)).unique(dim=0)) == 4_096


class TestSinusoidal:
    def test_nothing_is_learned_and_nothing_saved(self):
        encoding = SinusoidalPositionalEncoding(4, max_positions=8)
        assert not list(encoding.parameters())
        assert not encoding.state_dict()

    @pytest.mark.parametrize("max_positions", [None, 8])
    def test_kept_rows_are_the_computed_ones(self, max_positions):
        encoding = SinusoidalPositionalEncoding(5, "halves", max_positions=max_positions)
        ids = torch.tensor([[0, 7], [3, 3]], dtype=torch.uint8)
        np.testing.assert_allclose(encoding(ids), reference.sinusoidal(ids.numpy(), 5, "halves"), atol=1e-7)
        for twin in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
            assert torch.equal(twin(ids), encoding(ids))

    def test_kept_rows_come_back_from_meta(self):
        encoding = SinusoidalPositionalEncoding(4, max_positions=8, device="meta")
        assert encoding(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 4)
        encoding.to_empty(device="cpu")
        ids = torch.arange(8)
        assert torch.equal(encoding(ids), SinusoidalPositionalEncoding(4)(ids))

    def test_outside(self):
        with pytest.raises(TokenIdError, match="position id"):
            SinusoidalPositionalEncoding(4, max_positions=8)(torch.tensor([8]))
        for ids in (torch.tensor([-1]), torch.tensor([1.0])):
            with pytest.raises(TokenIdError, match="position id"):
                SinusoidalPositionalEncoding(4)(ids)

    def test_starts(self):
        encoding = SinusoidalPositionalEncoding(4)
        assert encoding.position_ids((2, 3), start=4).tolist() == [[4, 5, 6]]
        assert encoding.position_ids((2, 3), torch.tensor([4, 0])).tolist() == [[4, 5, 6], [0, 1, 2]]

    @pytest.mark.parametrize(
        "settings",
        [
            {"layout": "thirds"},
            {"base": 0.0},
            {"max_positions": 0},
            {"dtype": torch.int64},
            {"embedding_dim": 0},
        ],
        ids=str,
    )
    def test_refuses(self, settings):
        with pytest.raises(ShapeError):
            SinusoidalPositionalEncoding(**{"embedding_dim": 4, **settings})

    def test_repr(self):
        assert repr(SinusoidalPositionalEncoding(4, max_positions=8)) == (
            "SinusoidalPositionalEncoding(4, layout='paper', base=10000, max_positions=8)"
        )


class TestPositionsFromMask:
    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.int32], ids=str)
    def test_is_the_references(self, dtype):
        mask = np.random.default_rng(0).integers(0, 2, (5, 9))
        for start in (0, 3, np.arange(5)):
            found = positions_from_mask(torch.tensor(mask).to(dtype), 1, torch.as_tensor(start))
            np.testing.assert_array_equal(found, reference.positions_from_mask(mask, 1, start))

    @pytest.mark.parametrize(
        "mask", [torch.ones(3, dtype=torch.int64), torch.ones(1, 1, 2, 2), torch.ones(2, 2)]
    )
    def test_refuses_another_mask(self, mask):
        with pytest.raises(ShapeError, match="an attention mask is"):
            positions_from_mask(mask, 1)


class TestLearned:
    @pytest.mark.parametrize("padding_idx", [None, 1])
    def test_514_rows_hold_exactly_512_tokens(self, padding_idx):
        roberta = LearnedPositionalEmbedding(514, 4, padding_idx, offset=2)
        assert roberta.usable_length == 512
        for mask in (None, torch.ones(1, 512, dtype=torch.int64)):
            ids = roberta.position_ids((1, 512), attention_mask=mask)
            assert (ids.min(), ids.max()) == (2, 513)
            assert roberta(ids).shape == (1, 512, 4)
        mask = torch.ones(1, 513, dtype=torch.int64)
        for given in ({}, {"attention_mask": mask}, {"start": torch.tensor([0])}):
            with pytest.raises(
                ShapeError, match=r"513 positions .* 514 rows holds 512 \(2 rows stand before"
            ):
                roberta.position_ids((1, 513), **given)
        with pytest.raises(ShapeError, match="513 positions"):
            roberta.position_ids((1, 1), start=512)

    def test_padding_takes_no_positions_so_a_longer_text_may_fit(self):
        roberta = LearnedPositionalEmbedding(6, 4, padding_idx=1, offset=2)
        mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
        assert roberta.position_ids((1, 7), attention_mask=mask).tolist() == [[1, 1, 1, 2, 3, 4, 5]]

    def test_the_padding_row_gets_no_gradient(self):
        roberta = LearnedPositionalEmbedding(6, 4, padding_idx=1, offset=2)
        roberta(torch.tensor([[1, 1, 2]])).sum().backward()
        assert roberta.weight.grad.any(dim=1).tolist() == [False, False, True, False, False, False]
        assert not roberta.weight[1].any()

    @pytest.mark.parametrize(("padding_idx", "offset"), [(None, 6), (None, -1), (1, 0), (0, 2)])
    def test_offsets_that_can_not_be(self, padding_idx, offset):
        with pytest.raises(ShapeError, match="offset"):
            LearnedPositionalEmbedding(6, 4, padding_idx, offset=offset)

    def test_an_empty_batch(self):
        assert LearnedPositionalEmbedding(6, 4).position_ids((0, 3)).shape == (1, 3)
        assert LearnedPositionalEmbedding(6, 4).position_ids((2, 0)).shape == (1, 0)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_code_refuses_a_start_before_the_first_token(fullgraph):
    layer = TransformerInput.from_recipe("roberta", 20, 4).eval()
    compiled = torch.compile(layer, backend="eager", fullgraph=fullgraph)
    ids = torch.tensor([[5, 6]])
    assert torch.equal(compiled(ids, start=2), layer(ids, start=2))
    with pytest.raises(Exception, match="start must be an integer, 0 or more"):
        compiled(ids, start=-2)


def test_a_kept_row_is_read_by_a_kernel_that_stops_at_a_negative_id(monkeypatch):
    monkeypatch.setattr(positional, "check_ids", lambda ids, rows, what: ids)  # as on a device
    encoding = SinusoidalPositionalEncoding(4, max_positions=8)
    with torch_only(), pytest.raises(IndexError, match="out of range"):
        encoding(torch.tensor([-1]))


def test_the_length_is_that_of_the_rows_that_are_there():
    table = LearnedPositionalEmbedding(4, 2)
    table.weight = torch.nn.Parameter(torch.ones(6, 2))
    assert table.usable_length == 6
    assert table.position_ids((1, 6)).shape == (1, 6)


class TestSinusoidalRows:
    def test_are_kept_and_grow_as_they_are_needed(self):
        encoding = SinusoidalPositionalEncoding(6)
        twin = SinusoidalPositionalEncoding(6, max_positions=4000)
        for positions in (
            torch.arange(3),
            torch.arange(5),
            torch.tensor([7]),
            torch.tensor([2000]),
            torch.arange(100),
            torch.tensor([[3, 1]]),
        ):
            assert torch.equal(encoding(positions), twin(positions))
        assert len(encoding._kept[0]) == 100  # what lay far out was computed alone
        assert not list(encoding.state_dict())

    @pytest.mark.parametrize(
        "change",
        [
            lambda e: e.to(torch.float64),
            lambda e: e.to(torch.bfloat16),
            copy.deepcopy,
            lambda e: (setattr(e, "base", 100.0), e)[1],
            lambda e: (setattr(e, "layout", "halves"), e)[1],
        ],
    )
    def test_are_those_of_the_settings_there_are(self, change):
        encoding = SinusoidalPositionalEncoding(6)
        encoding(torch.arange(9))
        encoding = change(encoding)
        fresh = SinusoidalPositionalEncoding(
            6, layout=encoding.layout, base=encoding.base, dtype=encoding.rows.dtype
        )
        assert torch.equal(encoding(torch.arange(4)), fresh(torch.arange(4)))

    def test_kept_in_inference_they_serve_training(self):
        layer = TransformerInput(TokenEmbedding(5, 6), SinusoidalPositionalEncoding(6))
        with torch.inference_mode():
            layer(torch.tensor([[1, 2]]))
        layer(torch.tensor([[1, 2]])).sum().backward()
        assert layer.token.weight.grad is not None
