"""``out=``: the result in memory of the caller's."""

import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    Projection,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    dispatch,
)

V, D, B, T = 9, 4, 2, 3
IDS = torch.tensor([[1, 2, 8], [0, 0, 3]])

MODULES = {
    "lookup": lambda: TokenEmbedding(V, D, scale="sqrt"),
    "bfloat16": lambda: TokenEmbedding(V, D, scale="sqrt", scale_dtype="weight", dtype=torch.bfloat16),
    "input": lambda: TransformerInput(
        TokenEmbedding(V, D), LearnedPositionalEmbedding(5, D), layer_norm=torch.nn.LayerNorm(D)
    ),
    "sinusoidal": lambda: TransformerInput(TokenEmbedding(V, D), SinusoidalPositionalEncoding(D)),
    "projection last": lambda: TransformerInput(TokenEmbedding(V, D), projection=Projection(D, 6)),
    "projection first": lambda: TransformerInput(
        TokenEmbedding(V, D), LearnedPositionalEmbedding(5, 6), projection=Projection(D, 6)
    ),
    "by parts": lambda: hooked(TransformerInput(TokenEmbedding(V, D), LearnedPositionalEmbedding(5, D))),
}


def hooked(layer):
    layer.token.register_forward_hook(lambda module, args, out: out * 2)
    return layer


@pytest.fixture(params=MODULES.values(), ids=MODULES)
def module(request):
    torch.manual_seed(0)
    return request.param()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, dispatch.torch_only])
def test_is_written_and_returned(module, context):
    with torch.no_grad(), context():
        expected = module(IDS)
        out = torch.full_like(expected, 7.0)
        version = out._version if not out.is_inference() else None
        assert module(IDS, out=out) is out
        assert torch.equal(out, expected)
        assert version is None or out._version > version


def test_where_nothing_is_trained_gradients_may_be_on(module):
    module.requires_grad_(False)
    out = torch.empty_like(module(IDS))
    assert torch.equal(module(IDS, out=out), module(IDS))
    assert not out.requires_grad


def test_a_gradient_needs_a_result_of_its_own(module):
    out = torch.full_like(module(IDS), 7.0, requires_grad=False)
    with pytest.raises(ShapeError, match="where a gradient is needed"):
        module(IDS, out=out)
    assert (out == 7).all()
    module.requires_grad_(False)
    with pytest.raises(ShapeError, match="where a gradient is needed"):
        module(IDS, out=out.requires_grad_())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: out[:1],
        lambda out: out.double(),
        lambda out: out.to("meta"),
        lambda out: out.transpose(0, 1).contiguous().transpose(0, 1),
        lambda out: torch.cat([out, out], dim=-1)[..., : out.shape[-1]],
        lambda out: out.tolist(),
    ],
    ids=["shape", "type", "device", "transposed", "gaps", "list"],
)
def test_one_that_does_not_fit_is_refused(module, spoil):
    with torch.no_grad():
        out = spoil(module(IDS))
        with pytest.raises(ShapeError, match="out must be"):
            module(IDS, out=out)


def test_one_that_lies_in_a_table_is_refused(module):
    with torch.no_grad():
        for weight in [each for each in module.parameters() if each.ndim == 2]:
            shape = module(IDS).shape
            if weight.numel() < shape.numel() or weight.dtype != module(IDS).dtype:
                continue
            before = weight.clone()
            out = weight.view(-1)[-shape.numel() :].view(shape)
            with pytest.raises(ShapeError, match="shares memory with a table"):
                module(IDS, out=out)
            assert torch.equal(weight, before)


def test_one_that_lies_in_the_ids_is_refused():
    layer = TransformerInput(TokenEmbedding(V, D), LearnedPositionalEmbedding(5, D))
    numbers = torch.zeros(B * T * D)
    ids = numbers.view(torch.int64)[: B * T].view(B, T)
    for module in (layer, layer.token):
        with torch.no_grad(), pytest.raises(ShapeError, match="with a table or with ids"):
            module(ids, out=numbers.view(B, T, D))
    assert not numbers.any()


def test_a_bad_id_writes_nothing():
    module, out = TokenEmbedding(V, D), torch.full((1, 2, D), 7.0)
    with torch.no_grad(), pytest.raises(TokenIdError):
        module(torch.tensor([[1, V]]), out=out)
    assert (out == 7).all()


def test_of_no_ids():
    module, out = TokenEmbedding(V, D), torch.empty(0, 3, D)
    with torch.no_grad():
        assert module(torch.empty(0, 3, dtype=torch.int64), out=out) is out


def test_on_meta_only_the_shape_is_checked():
    module = TokenEmbedding(V, D, device="meta").requires_grad_(False)
    out = torch.empty(B, T, D, device="meta")
    assert module(IDS.to("meta"), out=out) is out
