"""Row-sparse gradients as optimizers find them in ``weight.grad``."""

import copy

import pytest
import torch

from tokenspace.nn import TokenEmbedding

V, D = 9, 4
IDS = torch.tensor([[3, 0, 3], [8, 1, 0]])


def gradient(module, ids=IDS):
    module(ids).square().sum().backward()
    return module.weight.grad


@pytest.fixture
def module():
    torch.manual_seed(0)
    return TokenEmbedding(V, D, padding_idx=0, sparse=True, scale=3.0, initializer=torch.nn.init.normal_)


CHANGES = {
    "as made": lambda module: module,
    "deepcopy": copy.deepcopy,
    "another type": lambda module: module.double(),
    "a new parameter": lambda module: (
        setattr(module, "weight", torch.nn.Parameter(module.weight.data.clone())), module)[1],
    "rows added": lambda module: (module.add_rows(2), module)[1],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_say_that_their_rows_are_distinct_and_in_order(module, change):
    module = change(module)
    found = gradient(module)
    assert found.is_coalesced()
    assert found.indices()[0].tolist() == [1, 3, 8]
    twin = TokenEmbedding.from_pretrained(module.weight.data, freeze=False, padding_idx=0, scale=3.0)
    torch.testing.assert_close(found.to_dense(), gradient(twin))


def test_asked_for_by_hand_they_say_so_too(module):
    (found,) = torch.autograd.grad(module(IDS).sum(), module.weight)
    assert found.is_coalesced()


def test_that_are_added_to_others_are_the_sum(module):
    once = gradient(module).to_dense()
    twice = gradient(module, IDS[:1])
    torch.testing.assert_close(twice.to_dense()[1], once[1])
    torch.testing.assert_close(twice.to_dense()[3], 2 * once[3])
    assert twice.coalesce().indices()[0].tolist() == [1, 3, 8]


def test_of_rows_in_disorder_are_not_called_coalesced(module):
    ids = torch.tensor([5, 2, 2])
    torch.nn.functional.embedding(ids, module.weight, sparse=True).sum().backward()
    found = module.weight.grad
    assert not found.is_coalesced()
    assert found.to_dense()[2].tolist() == [2.0] * D


def test_torch_s_sparse_adam_takes_them_as_it_takes_its_own(module):
    plain = torch.nn.Embedding(V, D, padding_idx=0, sparse=True)
    plain.load_state_dict(module.state_dict())
    for each, scale in ((module, 1.0), (plain, 3.0)):
        optimizer = torch.optim.SparseAdam(each.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            ((each(IDS - step % 2 * (IDS > 0)) * scale) ** 2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(module.weight, plain.weight)


def test_a_table_that_is_not_trained_stays_so():
    module = TokenEmbedding.from_pretrained(torch.ones(V, D), sparse=True)
    assert not module.weight.requires_grad
    assert module.requires_grad_(True).weight.requires_grad
    assert gradient(module).is_coalesced()


def test_a_frozen_padding_row_is_left_out_however_it_is_reached():
    module = TokenEmbedding(V, D, padding_idx=0, freeze_padding=True, sparse=True)
    torch.nn.functional.embedding(IDS, module.weight, sparse=True).sum().backward()
    assert module.weight.grad.coalesce().indices()[0].tolist() == [1, 3, 8]
