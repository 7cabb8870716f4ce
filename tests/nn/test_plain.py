"""Where kernels can't compute, torch's own operations do, with the same numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from tokenspace.nn import TokenEmbedding

V, D = 7, 4
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler


def weight_and_ids():
    torch.manual_seed(0)
    return torch.randn(V, D), torch.tensor([[1, 1, 0], [6, 3, 1]])


def call(weight, ids):
    module = TokenEmbedding.from_pretrained(torch.zeros(V, D), scale=2.0)
    return torch.func.functional_call(module, {"weight": weight}, (ids,))


@compiles
def test_function_transforms():
    weight, ids = weight_and_ids()

    def loss(weight, ids):
        return call(weight, ids).square().sum()

    gradient = torch.func.grad(loss)(weight, ids)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, ids)
    torch.testing.assert_close(each.sum(0), gradient)
    leaf = weight.clone().requires_grad_()
    loss(leaf, ids).backward()
    torch.testing.assert_close(gradient, leaf.grad)
    _, tangent = torch.func.jvp(lambda w: call(w, ids), (weight,), (torch.ones(V, D),))
    assert (tangent == 2).all()
    hessian = torch.func.hessian(lambda w: loss(w, ids[:1, :1]))(weight)
    assert hessian.sum() == 8 * D


@compiles
def test_forward_mode():
    weight, ids = weight_and_ids()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weight, torch.ones(V, D))
        tangent = torch.autograd.forward_ad.unpack_dual(call(dual, ids)).tangent
    assert (tangent == 2).all()


def test_fake_and_meta_tensors():
    weight, ids = weight_and_ids()
    with FakeTensorMode() as mode:
        assert call(mode.from_tensor(weight), mode.from_tensor(ids)).shape == (2, 3, D)
    assert call(weight.to("meta"), ids.to("meta")).is_meta


def test_a_subclass_sees_the_operations():
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    weight, ids = weight_and_ids()
    assert torch.equal(call(weight.as_subclass(Watching), ids).as_subclass(torch.Tensor), weight[ids] * 2)
    assert F.embedding in seen


def test_a_mode_that_watches_operations():
    from torch.utils.flop_counter import FlopCounterMode

    weight, ids = weight_and_ids()
    with FlopCounterMode(display=False):
        assert torch.equal(call(weight, ids), weight[ids] * 2)


def test_tracing_records_torch_s_operations(recwarn):
    module = TokenEmbedding(V, D)
    traced = torch.jit.trace(module, torch.tensor([[1, 2]]), check_trace=False)
    assert torch.equal(traced(torch.tensor([[6, 0, 1]])), module(torch.tensor([[6, 0, 1]])))


@pytest.mark.parametrize(
    "arrange", [lambda w: w.T.contiguous().T, lambda w: torch.stack([w, w])[:, 1:].flatten(0, 1)[: V - 1]]
)
def test_rows_that_do_not_follow_each_other(arrange):
    weight, _ = weight_and_ids()
    weight = arrange(weight)
    ids = torch.tensor([[1, 5]])
    assert torch.equal(call(weight, ids), weight[ids] * 2)


def test_a_table_made_in_inference_mode():
    with torch.inference_mode():
        weight = torch.randn(V, D)
        assert call(weight, torch.tensor([1])).is_inference()
    assert torch.equal(call(weight, torch.tensor([1])), weight[[1]] * 2)


def test_float8_is_torch_s_to_refuse_or_take():
    weight = torch.ones(V, D).to(torch.float8_e4m3fn)
    try:
        expected = F.embedding(torch.tensor([1]), weight)
    except (RuntimeError, NotImplementedError):
        with pytest.raises((RuntimeError, NotImplementedError)):
            TokenEmbedding.from_pretrained(weight)(torch.tensor([1]))
    else:
        found = TokenEmbedding.from_pretrained(weight)(torch.tensor([1]))
        assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
