"""Inputs of a few tokens: torch's own operations, unless these would be wrong or slow."""

import pytest
import torch

from tokenspace.nn import (
    LearnedPositionalEmbedding,
    SegmentEmbedding,
    TokenEmbedding,
    TransformerInput,
    kernel_calls,
    ops,
)


@pytest.fixture(autouse=True)
def as_installed(monkeypatch):
    monkeypatch.setattr(ops, "SMALL_INPUT", 1 << 14)


@pytest.fixture
def calls(monkeypatch):
    """The calls of the forward kernel."""
    made, forward = [], kernel_calls.forward

    def counted(*args, **kwargs):
        made.append(args)
        return forward(*args, **kwargs)

    monkeypatch.setattr(kernel_calls, "forward", counted)
    return made


def layer(rows=100, width=32, dtype=torch.float32):
    torch.manual_seed(0)
    return TransformerInput(
        TokenEmbedding(rows, width, dtype=dtype),
        position=LearnedPositionalEmbedding(600, width, dtype=dtype),
        segment=SegmentEmbedding(2, width, dtype=dtype),
    )


@pytest.mark.parametrize(("tokens", "kernels"), [(1, 0), (512, 0), (513, 1)])
def test_a_few_tokens_are_torchs_and_have_the_same_bits(tokens, kernels, calls):
    made = layer()
    ids = torch.arange(tokens).unsqueeze(0) % 100
    with torch.no_grad():
        found = made(ids)
        assert len(calls) == kernels
        with ops.torch_only():
            assert torch.equal(made(ids), found)
        assert torch.equal(made.token(ids), made.token.weight[ids])


@pytest.mark.parametrize(
    "changed", [{"dtype": torch.bfloat16}, {"dtype": torch.float16}, {"rows": 5_000}, {"sparse": True}]
)
def test_gradients_that_torch_would_sum_wrongly_or_slowly_are_the_kernels(changed, calls):
    sparse = changed.pop("sparse", False)
    made = layer(**changed)
    made.token.sparse = sparse
    made(torch.zeros((1, 8), dtype=torch.int64)).sum().backward()
    assert len(calls) == 1
    assert made.token.weight.grad.is_sparse == sparse
    assert float(made.token.weight.grad.to_dense()[0, 0]) == 8.0


def test_without_a_gradient_a_large_table_is_torchs_too(calls):
    with torch.no_grad():
        layer(rows=5_000)(torch.zeros((1, 8), dtype=torch.int64))
    assert not calls


def test_out_is_always_the_kernels(calls):
    ids, out = torch.zeros((1, 4), dtype=torch.int64), torch.empty(1, 4, 32)
    with torch.no_grad():
        layer()(ids, out=out)
    assert len(calls) == 1
