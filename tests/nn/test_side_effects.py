"""A forward, a backward and a step leave no mark on the caller's tensors, and return tensors like torch's.

``Tensor.numpy`` and ``torch.from_numpy`` make storages that can't be resized: FSDP, ``out=`` and the addition
of sparse gradients then fail, in code of the caller's.
"""

import contextlib

import numpy as np
import pytest
import torch

from tokenspace import Table, Vocab
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    torch_only,
)
from tokenspace.optim import SparseAdagrad, SparseAdamW, SparseRowWiseAdagrad, SparseSGD, clip_grad_norm_

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
OPTIMIZERS = {
    "sgd": lambda params: SparseSGD(params, lr=0.1),
    "adagrad": lambda params: SparseAdagrad(params, lr=0.1),
    "row-wise adagrad": lambda params: SparseRowWiseAdagrad(params, lr=0.1),
    "adamw": lambda params: SparseAdamW(params, lr=0.1),
    "exact adamw": lambda params: SparseAdamW(params, lr=0.1, exact=True),
}


def can_resize(tensor):
    if tensor.layout == torch.sparse_coo:
        return can_resize(tensor._indices()) and can_resize(tensor._values())
    return tensor.untyped_storage().resizable()


def layer(dtype, rows=50, width=8, length=16, dropout=0.5):
    return TransformerInput(
        TokenEmbedding(rows, width, padding_idx=0, dtype=dtype),
        position=LearnedPositionalEmbedding(length, width, dtype=dtype),
        segment=SegmentEmbedding(2, width, dtype=dtype),
        layer_norm=torch.nn.LayerNorm(width, dtype=dtype),
        dropout=torch.nn.Dropout(dropout),
    )


@pytest.mark.parametrize("integer", INTEGERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", [contextlib.nullcontext, torch_only], ids=["kernels", "torch"])
def test_a_layer_marks_nothing(dtype, integer, way):
    module = layer(dtype)
    ids = torch.randint(50, (3, 16)).to(integer)
    segment_ids, position_ids = torch.zeros(3, 16, dtype=integer), torch.arange(16).to(integer)
    gradient = torch.randn(3, 16, 8, dtype=dtype)
    with way():
        y = module(ids, segment_ids=segment_ids, position_ids=position_ids)
        y.backward(gradient)
    given = [ids, segment_ids, position_ids, gradient, *module.parameters()]
    made = [y, *(parameter.grad for parameter in module.parameters())]
    assert all(can_resize(tensor) for tensor in [*given, *made])


@pytest.mark.parametrize("rows", [30, 5000])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_lookup_marks_nothing(dtype, sparse, rows):
    embedding, ids = TokenEmbedding(rows, 64, sparse=sparse, dtype=dtype), torch.randint(30, (40, 60))
    out = torch.empty(40, 60, 64, dtype=dtype)
    with torch.no_grad():
        embedding(ids, out=out)
    embedding(ids).sum().backward()
    embedding.project_(1.0, ids=ids)
    assert all(can_resize(each) for each in (embedding.weight, embedding.weight.grad, ids, out))


def test_ids_can_be_drawn_anew_in_another_size():
    embedding, ids = TokenEmbedding(10, 4), torch.tensor([[1, 2]])
    embedding(ids)
    torch.randint(0, 10, (12,), out=ids.resize_(0))
    assert embedding(ids).shape == (12, 4)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_loss_marks_nothing(chunked):
    head = LMHead(TokenEmbedding(20, 4), bias=True)
    hidden, labels = torch.randn(2, 5, 4), torch.randint(20, (2, 5))
    head.loss(hidden, labels, chunked=chunked).backward()
    assert all(can_resize(each) for each in (hidden, labels, *head.parameters(), head.weight))


def test_a_sinusoidal_lookup_marks_nothing():
    encoding, ids = SinusoidalPositionalEncoding(8, max_positions=100), torch.arange(100)
    assert can_resize(encoding(ids))
    assert can_resize(ids)
    assert can_resize(encoding.rows)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [40, 40_000])
def test_an_optimizer_marks_nothing(make, dtype, rows):
    embedding = TokenEmbedding(rows, 16, sparse=True, dtype=dtype)
    optimizer = make(embedding.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        embedding(torch.randint(rows, (30,))).sum().backward()
        clip_grad_norm_(embedding.parameters(), 0.1)
        optimizer.step()
    state = [value for value in optimizer.state[embedding.weight].values() if isinstance(value, torch.Tensor)]
    assert all(can_resize(each) for each in (embedding.weight, embedding.weight.grad, *state))


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "more than a megabyte"])
def test_an_output_and_a_gradient_can_lose_and_regain_their_memory(size):
    embedding = TokenEmbedding(size, 16)
    y = embedding(torch.arange(size))
    y.sum().backward()
    for tensor in (y.detach(), embedding.weight.grad):
        expected = tensor.clone()
        storage = tensor.untyped_storage()
        storage.resize_(0)
        storage.resize_(expected.untyped_storage().nbytes())
        assert torch.equal(tensor.copy_(expected), expected)
        assert tensor.resize_(size * 2, 16).shape == (size * 2, 16)


def test_a_tables_rows_become_a_parameter_that_can_be_resized():
    table = Table(np.ones((3, 4), np.float32), Vocab(["a", "b", "c"]))
    assert can_resize(TokenEmbedding.from_table(table).weight)


@pytest.mark.parametrize("way", [contextlib.nullcontext, torch_only], ids=["kernels", "torch"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "batches",
    [
        [[[0, 0]], [[1, 2]]],
        [[[0]], [[0, 0]], [[3, 1]]],
        [[[1, 2]], [[0, 0]]],
        [[], [[4]]],
        [[[1, 2]], [[0, 0]], [[2, 9]]],
    ],
    ids=["first without rows", "two without rows", "second without rows", "empty", "three"],
)
def test_sparse_gradients_accumulate_as_torch_does(batches, dtype, way):
    ours = TokenEmbedding(10, 4, padding_idx=0, sparse=True, dtype=dtype)
    theirs = torch.nn.Embedding(10, 4, padding_idx=0, sparse=True, dtype=dtype)
    if dtype == torch.float16 and len(batches) == 3 and batches[0] == [[1, 2]]:
        pytest.skip("torch adds no two sparse float16 tensors that both have rows")
    with way():
        for batch in batches:
            ids = torch.tensor(batch, dtype=torch.int64)
            ours(ids).sum().backward()
            theirs(ids).sum().backward()
    assert torch.equal(ours.weight.grad.to_dense(), theirs.weight.grad.to_dense())
    expected = torch.linalg.vector_norm(theirs.weight.grad.to_dense().float())
    torch.testing.assert_close(clip_grad_norm_(ours.parameters(), 1.0).float(), expected)
    torch.testing.assert_close(
        torch.linalg.vector_norm(ours.weight.grad.to_dense().float()),
        torch.tensor(1.0),
        rtol=0.02,
        atol=0.0,
    )


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_step_after_a_micro_batch_without_rows_is_the_step_without_it(make, dtype):
    stepped = []
    for batches in ([[0, 0], [1, 2]], [[1, 2]]):
        torch.manual_seed(0)
        embedding = TokenEmbedding(10, 4, padding_idx=0, sparse=True, dtype=dtype)
        optimizer = make(embedding.parameters())
        for batch in batches:
            embedding(torch.tensor([batch])).square().sum().backward()
        optimizer.step()
        stepped.append(embedding.state_dict()["weight"])
    assert torch.equal(*stepped)
