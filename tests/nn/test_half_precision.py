"""Sixteen-bit tables: gradients are summed wide and rounded once, where torch's own sums stand still."""

import pytest
import torch

from tokenspace.nn import (
    LearnedPositionalEmbedding,
    SegmentEmbedding,
    TokenEmbedding,
    TransformerInput,
    dispatch,
)

N, D = 5000, 3
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def upstream(dtype, *axes):
    torch.manual_seed(0)
    return (torch.rand(*axes, D) * 0.01 + 0.001).to(dtype)


def rounded_sum(d_out, scale=1.0):
    return (d_out.double().reshape(-1, D).sum(0) * scale).to(d_out.dtype)


@halves
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [None, 3.0])
def test_5000_equal_ids_get_the_float64_sum_rounded_once(dtype, sparse, scale):
    module = TokenEmbedding(4, D, sparse=sparse, scale=scale, dtype=dtype)
    d_out = upstream(dtype, N)
    module(torch.full((N,), 2)).backward(d_out)
    found = module.weight.grad.to_dense()
    assert found.dtype == dtype
    assert torch.equal(found[2], rounded_sum(d_out, scale or 1.0))
    assert not found[[0, 1, 3]].any()


@halves
def test_ones_are_counted(dtype):
    """torch's own sums of ones stand still, at 256 in bfloat16 and 2,048 in float16: here is the proof."""
    stalls = {torch.bfloat16: 256, torch.float16: 2048}[dtype]
    module, ids = TokenEmbedding(4, D, dtype=dtype), torch.full((N,), 2)
    module(ids).sum().backward()
    assert (module.weight.grad[2] == torch.tensor(float(N), dtype=dtype)).all()
    module.weight.grad = None
    with dispatch.torch_only():
        module(ids).sum().backward()
    assert (module.weight.grad[2] == stalls).all()


@halves
@pytest.mark.parametrize("kind", [LearnedPositionalEmbedding, SegmentEmbedding])
def test_position_and_segment_tables_by_themselves(dtype, kind):
    module = kind(4, D, dtype=dtype)
    d_out = upstream(dtype, N)
    module(torch.full((N,), 1)).backward(d_out)
    assert torch.equal(module.weight.grad[1], rounded_sum(d_out))


@halves
def test_all_tables_of_an_input_at_once(dtype):
    layer = TransformerInput(
        TokenEmbedding(4, D, dtype=dtype),
        LearnedPositionalEmbedding(2, D, dtype=dtype),
        SegmentEmbedding(2, D, dtype=dtype),
        extras={"role": SegmentEmbedding(40, D, dtype=dtype)},
    )
    d_out = upstream(dtype, N, 2)
    ids, segments = torch.full((N, 2), 3), torch.tensor([[0, 1]]).expand(N, 2)
    layer(ids, segment_ids=segments, extra_ids={"role": torch.full((N, 2), 39)}).backward(d_out)
    assert torch.equal(layer.token.weight.grad[3], rounded_sum(d_out))
    assert torch.equal(layer.extras["role"].weight.grad[39], rounded_sum(d_out))
    for t in (0, 1):
        assert torch.equal(layer.position.weight.grad[t], rounded_sum(d_out[:, t]))
        assert torch.equal(layer.segment.weight.grad[t], rounded_sum(d_out[:, t]))


@halves
def test_through_layer_norm_to_within_its_own_rounding(dtype):
    torch.manual_seed(0)
    narrow = TransformerInput(
        TokenEmbedding(4, 8, dtype=dtype), layer_norm=torch.nn.LayerNorm(8, dtype=dtype)
    )
    wide = TransformerInput(TokenEmbedding(4, 8), layer_norm=torch.nn.LayerNorm(8)).double()
    wide.load_state_dict(narrow.state_dict())
    ids = torch.randint(0, 4, (1, N))
    d_out = (torch.rand(1, N, 8) * 0.01).to(dtype)
    narrow(ids).backward(d_out)
    wide(ids).backward(d_out.double())
    for ours, exact in zip(narrow.parameters(), wide.parameters(), strict=True):
        error = (ours.grad.double() - exact.grad).abs().max() / exact.grad.abs().max()
        assert error < 4 * torch.finfo(dtype).eps


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@halves
@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_too(dtype, sparse):
    torch.compiler.reset()
    module = TokenEmbedding(4, D, sparse=sparse, dtype=dtype)
    d_out = upstream(dtype, N)
    torch.compile(module, fullgraph=True)(torch.full((N,), 2)).backward(d_out)
    assert torch.equal(module.weight.grad.to_dense()[2], rounded_sum(d_out))
