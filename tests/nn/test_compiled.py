"""Compiled and exported: one graph, the same numbers and errors, gradients included."""

import functools

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.testing._internal.two_tensor import TwoTensor

from tokenspace.errors import TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    dispatch,
    pending_rows,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's own compiler
]
V, D = 11, 6


@pytest.fixture(params=["aot_eager", "inductor"])
def compiled(request):
    torch.compiler.reset()
    return functools.partial(torch.compile, fullgraph=True, backend=request.param)


def bert(dtype=torch.float32, p=0.0, **options):
    torch.manual_seed(0)
    return TransformerInput(
        TokenEmbedding(V, D, padding_idx=0, scale="sqrt", scale_dtype="weight", dtype=dtype, **options),
        LearnedPositionalEmbedding(20, D, dtype=dtype),
        SegmentEmbedding(2, D, dtype=dtype),
        layer_norm=torch.nn.LayerNorm(D, dtype=dtype),
        dropout=torch.nn.Dropout(p),
    )


def gradients(layer):
    return {name: each.grad for name, each in layer.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_the_same_bits_as_eager_code(compiled, dtype):
    layer = bert(dtype)
    ids, segments = torch.tensor([[1, 0, 3], [4, 4, 10]]), torch.tensor([[0, 0, 1], [1, 1, 1]])
    found = compiled(layer)(ids, segment_ids=segments)
    found.sum().backward()
    ours = gradients(layer)
    layer.zero_grad()
    expected = layer(ids, segment_ids=segments)
    expected.sum().backward()
    assert torch.equal(found, expected)
    for name, gradient in gradients(layer).items():
        assert torch.equal(ours[name], gradient), name


def test_any_shape_with_one_graph(compiled):
    layer = bert()
    fast = compiled(layer, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch, length in ((2, 3), (5, 7), (3, 11)):
            ids = torch.randint(0, V, (batch, length))
            assert torch.equal(fast(ids), layer(ids))
            fast(ids).sum().backward()
    with pytest.raises(TokenIdError, match="the first is 11 at batch 0, position 0"):
        fast(torch.full((2, 4), V))


def test_dropout_differs_from_call_to_call_and_repeats_with_the_seed(compiled):
    layer = bert(p=0.5)
    fast, ids = compiled(layer), torch.randint(0, V, (4, 20))
    torch.manual_seed(0)
    one, two = fast(ids), fast(ids)
    torch.manual_seed(0)
    assert torch.equal(fast(ids), one)
    assert not torch.equal(one == 0, two == 0)
    assert 0.35 < (one == 0).float().mean() < 0.65
    one.sum().backward()  # the mask of the forward that it belongs to
    kept = (one != 0).float() * 2
    torch.testing.assert_close(layer.layer_norm.bias.grad, kept.sum((0, 1)))


@pytest.mark.parametrize("padding", [None, 0])
def test_row_sparse_gradients_are_coalesced(compiled, padding):
    module = TokenEmbedding(V, D, padding_idx=padding, sparse=True, scale=2.0)
    for ids in (torch.tensor([[3, 0, 3], [9, 0, 0]]), torch.tensor([[0, 0, 0], [0, 0, 0]])):
        module.zero_grad()
        out = compiled(module)(ids)
        out.sum().backward()
        found = module.weight.grad
        assert found.is_coalesced()
        expected = [each for each in (0, 3, 9) if each in ids and each != padding]
        assert found.indices()[0].tolist() == expected
        dense = torch.zeros(V, D).index_add_(0, ids.flatten(), torch.full((6, D), 2.0))
        if padding is not None:
            dense[padding] = 0
        assert torch.equal(found.to_dense(), dense)


def test_a_whole_input_with_row_sparse_gradients(compiled):
    layer = bert(sparse=True)
    ids = torch.tensor([[3, 0, 3], [9, 0, 0]])
    compiled(layer)(ids).square().sum().backward()
    found = gradients(layer)
    layer.zero_grad()
    layer(ids).square().sum().backward()
    for name, gradient in gradients(layer).items():
        torch.testing.assert_close(found[name].to_dense(), gradient.to_dense(), msg=name)


def test_function_transforms_inside(compiled):
    module, ids = TokenEmbedding(V, D, scale=2.0), torch.tensor([[1, 2], [3, 3]])

    def loss(weight, ids):
        return torch.func.functional_call(module, {"weight": weight}, (ids,)).square().sum()

    weight = module.weight.detach()
    found = compiled(torch.func.grad(loss))(weight, ids)
    torch.testing.assert_close(found, torch.func.grad(loss)(weight, ids))
    torch.compiler.reset()
    each = compiled(torch.func.vmap(torch.func.grad(loss), (None, 0)))(weight, ids)
    torch.testing.assert_close(each.sum(0), found)


def test_a_computed_position_and_a_start(compiled):
    layer = TransformerInput(TokenEmbedding(V, D), SinusoidalPositionalEncoding(D))
    fast = compiled(layer)
    for start in (0, 1, 7):
        ids = torch.tensor([[1, 2, 3]])
        torch.testing.assert_close(fast(ids, start=start), layer(ids, start=start))


def test_out_is_written(compiled):
    layer, ids = bert().eval(), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        out = torch.zeros(1, 3, D)
        compiled(lambda ids, out: layer(ids, out=out))(ids, out)
        assert torch.equal(out, layer(ids))


def test_torch_only_is_compiled_as_such(compiled):
    layer, ids = bert(), torch.tensor([[1, 2, 3]])
    fast = compiled(layer)
    with dispatch.torch_only():
        torch.testing.assert_close(fast(ids), layer(ids), rtol=1e-5, atol=1e-5)
    assert torch.equal(fast(ids), layer(ids))


def test_a_hook_on_a_part_is_compiled_in(compiled):
    layer, ids = bert(), torch.tensor([[1, 2, 3]])
    layer.segment.register_forward_hook(lambda module, args, out: out * 3)
    torch.testing.assert_close(compiled(layer)(ids), layer(ids), rtol=1e-5, atol=1e-5)


class Late:
    """An optimizer that postpones: rows get 1 more when they are asked for."""

    def __init__(self, weight):
        self.weight, self.asked = weight, []
        pending_rows.keep(weight, self.catch_up)

    def catch_up(self, ids):
        self.asked.append(None if ids is None else sorted(set(ids.flatten().tolist())))
        with torch.no_grad():
            if ids is None:
                self.weight.detach().numpy()[:] = 1.0
            else:
                self.weight.detach().numpy()[ids.flatten().numpy()] = 1.0


def test_postponed_rows_are_done_before_compiled_code_reads_them(compiled):
    module = TokenEmbedding.from_pretrained(torch.zeros(V, D), freeze=False)
    late = Late(module.weight)
    assert (compiled(module)(torch.tensor([3, 5])) == 1).all()
    assert late.asked == [[3, 5]]
    head = LMHead(module)
    model = torch.nn.ModuleDict({"token": module, "head": head})
    hidden = torch.ones(2, D)
    with torch.no_grad():
        assert (compiled(model["head"])(hidden) == D).all()
    assert late.asked[-1] is None


def test_a_subclass_of_tensors_is_computed_by_torch_s_operations():
    torch.compiler.reset()
    module, graphs, ids = TokenEmbedding(V, D, scale=2.0), [], torch.tensor([[1, 2]])
    weight = TwoTensor(torch.randn(V, D), torch.randn(V, D))

    def keep(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    fast = torch.compile(
        lambda weight: torch.func.functional_call(module, {"weight": weight}, (ids,)),
        fullgraph=True,
        backend=aot_autograd(fw_compiler=keep),
    )
    found = fast(weight)
    assert torch.equal(found.a, 2 * weight.a[ids])
    assert torch.equal(found.b, 2 * weight.b[ids])
    assert "aten.embedding" in graphs[0]
    assert "tokenspace.embed" not in graphs[0]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own look
def test_a_backward_that_is_compiled_by_itself():
    layer, ids = bert(), torch.tensor([[1, 0, 3]])
    layer(ids).square().sum().backward()
    expected = gradients(layer)
    layer.zero_grad()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        layer(ids).square().sum().backward()
    for name, gradient in gradients(layer).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_exported_for_any_shape(tmp_path):
    """Export calls each part, whose module it records, so there is a lookup a table and torch's LayerNorm."""
    layer = bert().eval()
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=20)
    program = torch.export.export(
        layer, (torch.tensor([[1, 2, 3], [4, 5, 6]]),), dynamic_shapes={"ids": {0: batch, 1: length}}
    )
    assert "tokenspace.embed" in str(program.graph)
    torch.export.save(program, tmp_path / "layer.pt2")
    again = torch.export.load(tmp_path / "layer.pt2").module()
    for shape in ((1, 5), (3, 2), (2, 20)):
        ids = torch.randint(0, V, shape)
        torch.testing.assert_close(again(ids), layer(ids), rtol=1e-6, atol=1e-6)
    with pytest.raises(TokenIdError, match="the first is 11"):
        again(torch.tensor([[11, 0]]))


@pytest.mark.filterwarnings("ignore")  # torch says which operator it didn't compile
def test_row_sparse_gradients_under_a_tied_head():
    table = TokenEmbedding(20, 8, sparse=True)
    head, ids = LMHead(table), torch.tensor([[1, 2, 3], [4, 1, 7]])

    def loss(ids):
        return head.loss(table(ids), ids)

    torch._dynamo.reset()
    torch.compile(loss, backend="aot_eager")(ids).backward()
    found, table.weight.grad = table.weight.grad, None
    loss(ids).backward()
    torch.testing.assert_close(found, table.weight.grad)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="set sparse=False on the"):
        torch.compile(loss, backend="aot_eager", fullgraph=True)(ids)
    torch._dynamo.reset()
    with torch.no_grad():
        assert torch.equal(torch.compile(loss, backend="aot_eager", fullgraph=True)(ids), loss(ids))
