"""Arguments and attributes of torch's modules: each is honored or refused, at first and later."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)
from tokenspace.table import Table
from tokenspace.vocab import Vocab

KINDS = (TokenEmbedding, LearnedPositionalEmbedding, SegmentEmbedding)
UNSUPPORTED = {"max_norm": 0.5, "norm_type": 1.0, "scale_grad_by_freq": True}
IDS = torch.tensor([[1, 2, 2], [0, 4, 1]])


@pytest.mark.parametrize("value", UNSUPPORTED.items(), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_does_inside_the_forward_is_refused_however_it_is_set(kind, value):
    name, value = value
    module = kind(5, 4)
    with pytest.raises(ShapeError, match=f"{name}={value}"):
        setattr(module, name, value)
    assert getattr(module, name) == getattr(torch.nn.Embedding(5, 4), name)
    with pytest.raises(ShapeError, match=f"{name}={value}"):
        kind.from_pretrained(torch.ones(5, 4), **{name: value})
    with pytest.raises(ShapeError, match=f"{name}={value}"):
        TokenEmbedding(5, 4, **{name: value})
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with pytest.raises(ShapeError, match=name):
            setattr(twin, name, value)


def test_arguments_are_torchs_by_name_and_by_place():
    weight = torch.randn(5, 4)
    given = (5, 4, 1, None, 2.0, False, False, weight, True, None, None)
    ours, torchs = TokenEmbedding(*given), torch.nn.Embedding(*given)
    assert torch.equal(ours(IDS), torchs(IDS))
    assert ours.weight.requires_grad is torchs.weight.requires_grad is False
    assert ours.weight.data_ptr() == weight.data_ptr()
    given = (weight, False, 1, None, 2.0, False, True)
    ours, torchs = TokenEmbedding.from_pretrained(*given), torch.nn.Embedding.from_pretrained(*given)
    assert (ours.padding_idx, ours.sparse, ours.weight.requires_grad) == (1, True, True)
    for module in (ours, torchs):
        module.weight.grad = None
        module(IDS).sum().backward()
        assert_close(module.weight.grad.to_dense()[1:3].sum(1), torch.tensor([0.0, 8.0]))
    assert not TokenEmbedding(5, 4, _freeze=True).weight.requires_grad


@pytest.mark.parametrize("weight", [torch.ones(4, 4), torch.ones(5, 4, dtype=torch.int64), [[1.0]]], ids=str)
def test_a_weight_that_does_not_fit(weight):
    with pytest.raises(ShapeError, match=r"_weight|a table is"):
        TokenEmbedding(5, 4, _weight=weight)


class TestFrom:
    table = Table(np.eye(3, dtype=np.float32), Vocab(["a", "b", "c"]))

    @pytest.mark.parametrize("freeze", [True, False])
    def test_a_table_may_be_frozen(self, freeze):
        assert TokenEmbedding.from_table(self.table, freeze=freeze).weight.requires_grad is not freeze
        assert TokenEmbedding.from_table(self.table).weight.requires_grad

    @pytest.mark.parametrize(
        "name", ["num_embeddings", "embedding_dim", "_weight", "_freeze"]
    )  # fmt: skip
    @pytest.mark.parametrize("kind", KINDS)
    def test_what_they_set_themselves(self, kind, name):
        with pytest.raises(ShapeError, match=f"takes {name} from"):
            kind.from_pretrained(torch.ones(5, 4), **{name: 3})
        with pytest.raises(ShapeError, match=f"takes {name} from"):
            kind.from_table(self.table, **{name: 3})
        with pytest.raises(ShapeError, match="takes embeddings from the table"):
            kind.from_table(self.table, embeddings=torch.ones(2, 2))

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_nobody_knows(self, kind):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'sclae'; .* has the options"):
            kind.from_pretrained(torch.ones(5, 4), sclae=2.0)
        with pytest.raises(TypeError, match="unexpected keyword argument 'vocab'"):
            kind.from_table(self.table, vocab=3)

    def test_what_is_no_tensor(self):
        with pytest.raises(ShapeError, match="found list"):
            TokenEmbedding.from_pretrained([[1.0]])

    def test_a_subclass_may_take_options_of_its_own(self):
        class Named(TokenEmbedding):
            def __init__(self, *sizes, label="", **options):
                super().__init__(*sizes, **options)
                self.label = label

        assert Named.from_pretrained(torch.ones(5, 4), label="x").label == "x"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("padding_idx", -1, TokenIdError), ("padding_idx", 5, TokenIdError),
        ("padding_idx", 1.5, TokenIdError), ("num_embeddings", 6, ShapeError),
        ("num_embeddings", 0, ShapeError), ("embedding_dim", 5, ShapeError),
        ("sparse", 1, ShapeError), ("sparse", None, ShapeError), ("scale", "cube", ShapeError),
        ("scale", float("nan"), ShapeError), ("scale_dtype", torch.int32, ShapeError),
        ("freeze_padding", True, ShapeError), ("padding_on_load", "drop", ShapeError),
        ("initializer", 3, ShapeError),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_values_that_are_set_later(kind, name, value, error):
    module = kind(5, 4)
    before = getattr(module, name)
    with pytest.raises(error):
        setattr(module, name, value)
    assert getattr(module, name) is before


class TestHonoredLater:
    def test_padding_idx(self):
        module, torchs = TokenEmbedding(5, 4), torch.nn.Embedding(5, 4)
        for each in (module, torchs):
            each.padding_idx = 2
            each(IDS).sum().backward()
        assert torch.equal(module.weight.grad, torchs.weight.grad)
        module.padding_idx = None
        module.weight.grad = None
        module(IDS).sum().backward()
        assert (module.weight.grad[2] == 2).all()

    def test_sparse(self):
        module = TokenEmbedding(5, 4)
        module.sparse = True
        module(IDS).sum().backward()
        assert module.weight.grad.is_coalesced()
        module.weight.grad, module.sparse = None, False
        module(IDS).sum().backward()
        assert not module.weight.grad.is_sparse

    def test_sizes_that_the_table_has(self):
        module = TokenEmbedding(5, 4)  # as transformers resizes one
        module.weight.data = torch.ones(7, 4)
        module.num_embeddings = 7
        assert module(torch.tensor([6])).sum() == 4

    def test_scale(self):
        module = TokenEmbedding(5, 4, scale_dtype=torch.bfloat16)
        module.scale = "sqrt"
        assert_close(module(IDS), module.weight[IDS] * 2)
        module.scale = 1.001
        assert module.scale == 1.0  # in bfloat16
        module.scale_dtype, module.scale = None, 1.001
        assert module.scale == 1.001
        module.scale_dtype = torch.bfloat16
        assert module.scale == 1.0

    def test_a_frozen_padding_row_moves_and_thaws(self):
        module = TokenEmbedding(5, 4, padding_idx=0, freeze_padding=True)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)

        def moved():
            before = module.weight.detach().clone()
            optimizer.zero_grad()
            module.weight.sum().backward()
            optimizer.step()
            return (module.weight != before).any(1).tolist()

        assert moved() == [False, True, True, True, True]
        module.padding_idx = 3
        assert moved() == [True, True, True, False, True]
        with pytest.raises(ShapeError, match="needs the padding_idx"):
            module.padding_idx = None
        module.freeze_padding = False
        assert moved() == [True] * 5
        module.freeze_padding = True
        assert moved() == [True, True, True, False, True]

    def test_positions(self):
        module = LearnedPositionalEmbedding(9, 4)
        module.offset = 2
        module.padding_idx = 1
        mask = torch.tensor([[1, 1, 0]])
        assert module.position_ids((1, 3), attention_mask=mask).tolist() == [[2, 3, 1]]
        for name, value in {"offset": 3, "padding_idx": 2, "padding_from": "both"}.items():
            with pytest.raises(ShapeError):
                setattr(module, name, value)
        module.padding_idx = None
        with pytest.raises(ShapeError, match="a table of 9 rows allows 0 to 8"):
            module.offset = 9

    @pytest.mark.parametrize("max_positions", [None, 6])
    def test_a_sinusoidal_encoding(self, max_positions):
        module = SinusoidalPositionalEncoding(4, max_positions=max_positions)
        module(torch.arange(5))
        module.layout, module.base, module.embedding_dim = "halves", 100.0, 6
        expected = SinusoidalPositionalEncoding(6, "halves", 100.0)(torch.arange(5))
        assert torch.equal(module(torch.arange(5)), expected)
        module.max_positions = 3
        with pytest.raises(TokenIdError):
            module(torch.tensor([3]))
        for name, value in {"layout": "x", "base": 0, "embedding_dim": 0, "max_positions": 1.5}.items():
            with pytest.raises(ShapeError):
                setattr(module, name, value)

    def test_a_head(self):
        embedding = TokenEmbedding(5, 4)
        head, hidden = LMHead(embedding), torch.randn(2, 4)
        plain = head(hidden)
        head.hidden_scale, head.logit_scale, head.soft_cap = "rsqrt", 3, 2.0
        assert_close(head(hidden), 2 * torch.tanh(plain * 1.5 / 2))
        for name, value in {"hidden_scale": "sqrt", "logit_scale": float("inf"), "soft_cap": 0}.items():
            with pytest.raises(ShapeError, match=name):
                setattr(head, name, value)
        head.weight = embedding.weight  # as transformers ties
        with pytest.raises(ShapeError, match="a tied head has no weight of its own"):
            head.weight = torch.nn.Parameter(torch.ones(5, 4))
        untied = LMHead.untied(5, 4)
        untied.weight = embedding.weight
        assert_close(untied(hidden), plain)

    def test_a_projection_put_in_before_the_sum(self):
        layer = TransformerInput(TokenEmbedding(5, 4), position=LearnedPositionalEmbedding(6, 4))
        layer.position = LearnedPositionalEmbedding(6, 8)
        layer.projection = Projection(4, 8)
        expected = TransformerInput(layer.token, layer.position, projection=layer.projection)(IDS)
        assert torch.equal(layer(IDS), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantization_takes_torchs_module_made_of_ours():
    """What docs/nn.md says: TokenEmbedding is left as it is, and its rows go over."""
    quantization = pytest.importorskip("torch.ao.quantization")
    token = TokenEmbedding(50, 8)
    spec = {torch.nn.Embedding: quantization.float_qparams_weight_only_qconfig}
    left = quantization.quantize_dynamic(torch.nn.Sequential(token), spec)
    assert isinstance(left[0], TokenEmbedding)
    plain = torch.nn.Embedding.from_pretrained(token.weight.detach(), padding_idx=token.padding_idx)
    quantized = quantization.quantize_dynamic(torch.nn.Sequential(plain), spec)
    assert_close(quantized(IDS), token(IDS).detach(), rtol=0, atol=0.01)
