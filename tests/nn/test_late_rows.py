"""Whoever reads or writes rows has postponed steps done first (``nn.pending_rows``)."""

import copy
import pickle

import pytest
import torch

from tokenspace.nn import LMHead, SegmentEmbedding, TokenEmbedding, TransformerInput, dispatch, pending_rows

V, D = 6, 4


class Late:
    """An optimizer that postpones: it owes each row, once, 1 more."""

    def __init__(self, weight):
        self.weight, self.owed = weight, torch.ones(len(weight), 1)
        pending_rows.keep(weight, self.catch_up)

    def catch_up(self, ids):
        ids = torch.arange(len(self.owed)) if ids is None else ids.reshape(-1).long().unique()
        rows = self.weight.detach().numpy()  # as kernels write: unseen by autograd
        rows[ids.numpy()] += self.owed[ids].numpy()
        self.owed[ids] = 0


@pytest.fixture
def module():
    return TokenEmbedding.from_pretrained(torch.zeros(V, D), freeze=False)


@pytest.fixture
def late(module):
    return Late(module.weight)


def test_a_lookup_asks_for_its_rows_alone(module, late):
    out = module(torch.tensor([[1, 3, 1]], dtype=torch.uint8))
    assert (out == 1).all()
    assert late.owed[:, 0].tolist() == [1, 0, 1, 0, 1, 1]
    out.sum().backward()  # what was written in between is no change to autograd
    assert module.weight.grad[1].tolist() == [2.0] * D


def test_every_table_of_an_input(module):
    layer = TransformerInput(
        module, segment=SegmentEmbedding.from_pretrained(torch.zeros(2, D), freeze=False)
    )
    keepers = [Late(module.weight), Late(layer.segment.weight)]
    with torch.no_grad():
        assert (layer(torch.tensor([[1, 5]])) == 2).all()
    assert [keeper.owed.sum() for keeper in keepers] == [V - 2, 1]


def test_a_bad_id_is_told_before_any_row_is_written(module, late):
    with pytest.raises(IndexError):
        module(torch.tensor([1, V]))
    assert late.owed.sum() == V


READS = {
    "state dict": lambda module: module.state_dict()["weight"],
    "state dict of a model": lambda module: torch.nn.ModuleDict({"a": module}).state_dict()["a.weight"],
    "deepcopy": lambda module: copy.deepcopy(module).weight,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)).weight,
    "another type": lambda module: module.to(torch.float64).weight,
    "head": lambda module: LMHead(module)(torch.ones(1, D)) / D,
    "torch's own operations": lambda module: read_by_torch(module),
    "function transforms": lambda module: torch.func.functional_call(
        module, {"weight": module.weight.detach()}, (torch.arange(V),)
    ),
    "grad of a function": lambda module: squared_gradient(module) / 2,
    "vmap": lambda module: torch.vmap(module)(torch.arange(V).view(2, 3)),
}


def read_by_torch(module):
    with dispatch.torch_only():
        return module(torch.arange(V))


def squared_gradient(module):
    def loss(weight):
        return torch.func.functional_call(module, {"weight": weight}, (torch.arange(V),)).square().sum()

    return torch.func.grad(loss)(module.weight)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_who_reads_the_table_reads_what_was_meant(module, late, read):
    assert (read(module) == 1).all()


def test_a_head_s_loss(module, late):
    hidden, labels = torch.randn(3, D), torch.tensor([1, 2, 3])
    found = LMHead(module).loss(hidden, labels)
    assert late.owed.sum() == 0
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(hidden @ module.weight.T, labels))


WRITES = {
    "reset": (lambda module: module.reset_parameters(), None),
    "load": (lambda module: module.load_state_dict({"weight": torch.full((V, D), 5.0)}), 5.0),
    "load by assignment": (
        lambda module: module.load_state_dict({"weight": torch.full((V, D), 5.0)}, assign=True),
        5.0,
    ),
    "padding": (lambda module: (setattr(module, "padding_idx", 2), module.zero_padding_row()), None),
    "projection": (lambda module: module.project_(0.5), 0.25),
    "new rows": (lambda module: module.add_rows(1, torch.ones(1, D)), 1.0),
}


@pytest.mark.parametrize(("write", "expected"), WRITES.values(), ids=WRITES)
def test_who_writes_the_table_has_the_last_word(module, late, write, expected):
    write(module)
    assert late.owed.sum() == 0
    after = module.weight.detach().clone()
    module(torch.arange(V))
    assert torch.equal(module.weight, after)
    assert expected is None or (after == expected).all()
