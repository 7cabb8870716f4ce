"""Our modules under torch's tracers and per-sample gradients, beside ``torch.nn.Embedding``."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

from tokenspace.errors import TokenspaceError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)

IDS = torch.tensor([[1, 2, 3], [0, 5, 9]])
SCALES = [None, 2.0, "sqrt"]


class Classifier(torch.nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding, self.linear = embedding, torch.nn.Linear(4, 2)

    def forward(self, ids):
        return self.linear(self.embedding(ids))


class Decoder(torch.nn.Module):
    """A layer and a head that is tied to its table."""

    def __init__(self):
        super().__init__()
        self.layer = TransformerInput(
            TokenEmbedding(10, 4),
            position=LearnedPositionalEmbedding(8, 4),
            segment=SegmentEmbedding(2, 4),
            layer_norm=torch.nn.LayerNorm(4),
        )
        self.head = LMHead(self.layer.token)

    def forward(self, ids, mask):
        return self.head(self.layer(ids, attention_mask=mask))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_symbolic_trace_calls_the_module(scale, sparse):
    module = Classifier(TokenEmbedding(10, 4, padding_idx=0, scale=scale, sparse=sparse))
    graph = torch.fx.symbolic_trace(module)
    theirs = torch.fx.symbolic_trace(Classifier(torch.nn.Embedding(10, 4)))
    assert [node.op for node in graph.graph.nodes] == [node.op for node in theirs.graph.nodes]
    for copied in (graph, copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert torch.equal(copied(IDS), module(IDS))
    with pytest.raises(IndexError, match="the first is 10"):
        graph(IDS + 1)


@pytest.mark.parametrize("scale", SCALES)
def test_a_symbolic_trace_of_the_table_itself(scale):
    embedding = TokenEmbedding(10, 4, padding_idx=0, scale=scale)
    torch.testing.assert_close(torch.fx.symbolic_trace(embedding)(IDS), embedding(IDS))


class Writes(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, ids, out):
        self.part(ids, out=out)
        return out


PARTS_WITH_OUT = {
    "table": lambda: TokenEmbedding(10, 4, scale="sqrt"),
    "positions": lambda: LearnedPositionalEmbedding(10, 4),
    "segments": lambda: SegmentEmbedding(10, 4),
    "layer": lambda: TransformerInput(TokenEmbedding(10, 4), SinusoidalPositionalEncoding(4)),
}


@pytest.mark.parametrize("make", PARTS_WITH_OUT.values(), ids=PARTS_WITH_OUT)
def test_a_symbolic_trace_keeps_out(make):
    part = make()
    with torch.no_grad():
        expected = part(IDS)
        out = torch.zeros(2, 3, 4)
        assert torch.equal(torch.fx.symbolic_trace(Writes(part))(IDS, out), expected)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("scale_dtype", [None, "weight", torch.bfloat16])
@pytest.mark.parametrize("scale", [*SCALES, 0.3])
def test_a_symbolic_trace_of_the_table_itself_keeps_out_and_scale(scale, scale_dtype):
    embedding = TokenEmbedding(10, 3, scale=scale, scale_dtype=scale_dtype)
    graph, out = torch.fx.symbolic_trace(embedding), torch.zeros(2, 3, 3)
    with torch.no_grad():
        assert torch.equal(graph(IDS), embedding(IDS))
        assert graph(IDS, out) is out
        assert torch.equal(out, embedding(IDS))
        assert torch.equal(graph.bfloat16()(IDS), copy.deepcopy(embedding).bfloat16()(IDS))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TransformerInput(TokenEmbedding(10, 4)),
        lambda: SinusoidalPositionalEncoding(4),
        lambda: LMHead(TokenEmbedding(10, 4)),
        lambda: LMHead.untied(10, 4),
    ],
    ids=["layer", "sinusoidal", "tied head", "untied head"],
)
def test_a_symbolic_trace_of_another_part_itself_says_what_to_trace(make):
    module = make()
    with pytest.raises(TokenspaceError, match=f"enter a {type(module).__name__}.*trace a module that calls"):
        torch.fx.symbolic_trace(module)


def test_a_symbolic_trace_of_a_layer_and_its_tied_head():
    module, mask = Decoder(), torch.ones(2, 3)
    mask = mask.long()
    graph = torch.fx.symbolic_trace(module)
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["layer", "head"]
    assert torch.equal(graph(IDS, mask), module(IDS, mask))
    copied = copy.deepcopy(graph)
    assert copied.head.weight is copied.layer.token.weight


def test_a_symbolic_trace_of_a_sinusoidal_encoding():
    module = torch.nn.Sequential(SinusoidalPositionalEncoding(4), torch.nn.Linear(4, 2))
    assert torch.equal(torch.fx.symbolic_trace(module)(IDS), module(IDS))


@pytest.mark.parametrize("scale", SCALES)
def test_gradients_of_each_sample(scale):
    module = Classifier(TokenEmbedding(10, 4, scale=scale))  # with a padding row torch's own are wrong
    call_for_per_sample_grads(module)(IDS).square().sum().backward()
    found = module.embedding.weight.grad_sample
    for sample, ids in zip(found, IDS, strict=True):
        (expected,) = torch.autograd.grad(module(ids[None]).square().sum(), module.embedding.weight)
        torch.testing.assert_close(sample, expected)
    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def loss(parameters, ids):
        return torch.func.functional_call(module, parameters, (ids[None],)).square().sum()

    by_func = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, IDS)
    torch.testing.assert_close(by_func["embedding.weight"], found)


TRACERS = {
    "jit.trace": lambda module: torch.jit.trace(module, IDS),
    "export": lambda module: torch.export.export(module, (IDS,)).module(),
    "make_fx": lambda module: torch.fx.experimental.proxy_tensor.make_fx(module)(IDS),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("trace", TRACERS.values(), ids=TRACERS)
def test_tracers_that_run_the_module(trace):
    module = Classifier(TokenEmbedding(10, 4, padding_idx=0, scale="sqrt"))
    torch.testing.assert_close(trace(module)(IDS), module(IDS))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_second_derivatives():
    module = TokenEmbedding(10, 4, padding_idx=0, scale=2.0, dtype=torch.float64)

    def squared(weight):
        return torch.func.functional_call(module, {"weight": weight}, (IDS,)).square()

    weight = module.weight.detach().requires_grad_()
    assert torch.autograd.gradcheck(squared, (weight,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(squared, (weight,))
