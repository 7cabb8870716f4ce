"""Ids, labels and tables that are no plain tensors: torch's own result, and the same errors."""

import contextlib

import pytest
import torch
import torch.utils._pytree as pytree

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import LMHead, TokenEmbedding, TransformerInput

IDS = torch.tensor([[1, 2, 3], [0, 5, 9]])


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class Wrapper(torch.Tensor):
    """A subclass that holds another tensor and sees each operation."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.wrapped = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Wrapper, lambda each: each.wrapped, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


def jagged(*texts):
    return torch.nested.nested_tensor([torch.tensor(text) for text in texts], layout=torch.jagged)


SUBCLASSES = {"plain": lambda ids: ids.as_subclass(Plain), "wrapper": Wrapper}


@pytest.mark.parametrize("make", SUBCLASSES.values(), ids=SUBCLASSES)
def test_ids_of_a_subclass(make):
    embedding = TokenEmbedding(10, 4, padding_idx=0, scale=2.0)
    found = embedding(make(IDS))
    assert type(found) is type(make(IDS))
    assert torch.equal(getattr(found, "wrapped", found).as_subclass(torch.Tensor), embedding(IDS))
    with pytest.raises(TokenIdError, match="the first is 11 at batch 0, position 1"):
        embedding(make(torch.tensor([[1, 11]])))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_jagged_ids(dtype):
    ids = jagged([1, 2, 3], [4], [2, 0])
    ours = TokenEmbedding(10, 4, padding_idx=0)
    theirs = torch.nn.Embedding.from_pretrained(ours.weight.detach().clone(), freeze=False, padding_idx=0)
    found, expected = ours(ids.to(dtype)), theirs(ids)
    assert torch.equal(found.values(), expected.values())
    assert torch.equal(found.offsets(), expected.offsets())
    found.values().square().sum().backward()
    expected.values().square().sum().backward()
    assert torch.equal(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("bad", [10, -1])
def test_jagged_ids_outside_the_table(bad):
    with pytest.raises(TokenIdError, match=f"1 of 3 token ids .* the first is {bad} at position 1"):
        TokenEmbedding(10, 4)(jagged([1, bad], [3]))


@pytest.mark.parametrize("chunked", [True, False])
def test_a_loss_of_jagged_texts(chunked):
    head = LMHead(TokenEmbedding(10, 4), bias=True)
    texts = [[1, 2, -100], [4]]
    labels = jagged(*texts)
    hidden = torch.nested.nested_tensor_from_jagged(torch.randn(4, 4), labels.offsets())
    hidden = hidden.detach().requires_grad_()
    loss = head.loss(
        hidden, torch.nested.nested_tensor_from_jagged(labels.values(), hidden.offsets()), chunked=chunked
    )
    flat = hidden.values().detach().requires_grad_()
    expected = torch.nn.functional.cross_entropy(head(flat), torch.tensor([1, 2, -100, 4]))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, hidden)[0].values(), torch.autograd.grad(expected, flat)[0]
    )
    with pytest.raises(TokenIdError, match="label"):
        head.loss(hidden, torch.nested.nested_tensor_from_jagged(labels.values() + 20, hidden.offsets()))


def test_jagged_ids_in_a_layer_without_positions():
    layer = TransformerInput.from_recipe("llama", vocab_size=20, d_model=8)
    ids = jagged([1, 2, 3], [4])
    assert torch.equal(layer(ids).values(), layer.token(ids).values())
    with contextlib.suppress(TokenIdError):
        layer(jagged([20]))
        pytest.fail("an id outside the table was read")


def test_jagged_labels_of_equal_lengths_built_apart_say_what_to_do():
    hidden = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(1, 4)], layout=torch.jagged)
    labels = jagged([1, 2], [3])
    head = LMHead(TokenEmbedding(10, 4))
    with pytest.raises(ShapeError, match=r"nested_tensor_from_jagged\(labels.values\(\), hidden.off"):
        head.loss(hidden, labels)
    head.loss(hidden, torch.nested.nested_tensor_from_jagged(labels.values(), hidden.offsets()))
