"""Ids, labels and tables that are no plain tensors: torch's own result, and the same errors."""

import contextlib

import pytest
import torch
import torch.utils._pytree as pytree

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import LMHead, SinusoidalPositionalEncoding, TokenEmbedding, TransformerInput
from tokenspace.optim import SparseAdamW, clip_grad_norm_

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


LAYOUTS = (torch.jagged, torch.strided)
TEXTS = [[1, 2, 3], [4], [2, 0]]
FLAT = torch.tensor([1, 2, 3, 4, 2, 0])

prototype = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")


def nested(texts, layout):
    return torch.nested.nested_tensor([torch.tensor(text) for text in texts], layout=layout)


def flat(texts):
    return torch.cat(list(texts.unbind()))


@prototype
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_nested_ids_are_looked_up_and_trained(layout, sparse):
    ours = TokenEmbedding(10, 4, padding_idx=0, scale=2.0, sparse=sparse)
    theirs = torch.nn.Embedding.from_pretrained(ours.weight.detach().clone(), freeze=False, padding_idx=0)
    with torch.no_grad():
        assert torch.equal(flat(ours(nested(TEXTS, layout))), 2.0 * flat(theirs(nested(TEXTS, layout))))
    found = ours(nested(TEXTS, layout))
    assert found.layout == layout
    assert [text.shape for text in found.unbind()] == [(3, 4), (1, 4), (2, 4)]
    flat(found).square().sum().backward()
    (2.0 * theirs(FLAT)).square().sum().backward()
    assert torch.equal(ours.weight.grad.to_dense(), theirs.weight.grad)
    total = clip_grad_norm_(ours.parameters(), 1.0)
    torch.testing.assert_close(total, theirs.weight.grad.norm())
    if sparse:
        before = ours.weight.detach().clone()
        SparseAdamW(ours.parameters(), lr=0.1).step()
        assert (ours.weight[1:5] != before[1:5]).all()


@prototype
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nested_ids_outside_the_table(layout):
    with pytest.raises(TokenIdError, match=r"1 of 6 token ids .* the first is 4 at position 3"):
        TokenEmbedding(4, 4)(nested(TEXTS, layout))


@prototype
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nested_ids_elsewhere(layout):
    texts = nested(TEXTS, layout)
    table, same = (TokenEmbedding(10, 4, _weight=torch.arange(40.0).view(10, 4)) for _ in range(2))
    assert torch.equal(table.project_(1.0, texts).weight, same.project_(1.0, FLAT).weight)
    encoding = SinusoidalPositionalEncoding(4)
    assert torch.equal(flat(encoding(texts)), encoding(FLAT))
    for family in ("bert", "gpt2", "original"):
        with pytest.raises(ShapeError, match=r"takes no nested tensor.*to_padded_tensor"):
            TransformerInput.from_recipe(family, vocab_size=20, d_model=8)(texts)


@prototype
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("chunked", [True, False])
def test_a_head_of_nested_texts(layout, chunked):
    head = LMHead(TokenEmbedding(10, 4), bias=True)
    rows, labels = torch.randn(6, 4), nested(TEXTS, layout)
    if layout == torch.jagged:
        hidden = torch.nested.nested_tensor_from_jagged(rows, labels.offsets())
    else:
        hidden = torch.nested.as_nested_tensor(list(rows.split([3, 1, 2])))
    torch.testing.assert_close(flat(head(hidden)), head(rows))
    expected = torch.nn.functional.cross_entropy(head(rows), FLAT)
    torch.testing.assert_close(head.loss(hidden, labels, chunked=chunked), expected)
    for other in (FLAT, nested(TEXTS[:2], layout), nested([[1, 2], [4], [2, 0]], layout)):
        with pytest.raises(ShapeError, match="one label per position"):
            head.loss(hidden, other, chunked=chunked)
    with pytest.raises(ShapeError, match="one label per position"):
        head.loss(rows, labels, chunked=chunked)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("fullgraph", [True, False])
def test_jagged_ids_compile(fullgraph):
    ours = TokenEmbedding(10, 4, padding_idx=0)
    head = LMHead(ours)
    texts = jagged(*TEXTS)
    compiled = torch.compile(lambda ids: ours(ids), fullgraph=fullgraph, backend="aot_eager")
    assert torch.equal(compiled(texts).values(), ours(FLAT))
    loss = torch.compile(lambda ids: head.loss(ours(ids), ids), fullgraph=fullgraph, backend="aot_eager")
    torch.testing.assert_close(loss(texts), head.loss(ours(FLAT), FLAT))
    with pytest.raises(TokenIdError, match="1 of 2 token ids"):
        compiled(jagged([10], [1]))


OTHERS = {
    "COO": lambda ids: ids.to_sparse(),
    "CSR": lambda ids: ids.to_sparse_csr(),
    "quantized": lambda ids: torch.quantize_per_tensor(ids.float(), 1.0, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:.*quantize")
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("texts", [2, 5000])
def test_ids_and_labels_must_be_dense(make, texts):
    ids = make(torch.tensor([[1, 0, 2]]).expand(texts, 3).contiguous())
    with pytest.raises(TokenIdError, match="token ids must be a dense tensor"):
        TokenEmbedding(10, 4)(ids)
    with pytest.raises(TokenIdError, match="labels must be a dense tensor"):
        LMHead(TokenEmbedding(10, 4)).loss(torch.zeros(texts, 3, 4), ids)
