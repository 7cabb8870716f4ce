"""The padding row: zero at first, without a gradient from the lookup, or frozen whatever happens."""

import copy
import pickle
from functools import partial

import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import LMHead, TokenEmbedding
from tokenspace.nn.initializers import normal_, truncated_normal_

V, D = 7, 4

INITIALIZERS = {
    "default": normal_,
    "truncated": partial(truncated_normal_, std=0.02, corrected=True),
    "ones": torch.nn.init.ones_,
}


class TestPaddingRow:
    @pytest.mark.parametrize("initializer", INITIALIZERS.values(), ids=INITIALIZERS)
    def test_is_zero_after_any_initializer_again_and_again(self, initializer):
        module = TokenEmbedding(V, D, padding_idx=2, initializer=initializer)
        for _ in range(2):
            assert not module.weight[2].any()
            assert module.weight[[0, 1, 3, 4, 5, 6]].all()
            with torch.no_grad():
                module.weight[2] = 5.0
            module.reset_parameters()

    @pytest.mark.parametrize("assign", [False, True])
    def test_is_kept_or_zeroed_by_a_load_as_was_chosen(self, assign):
        saved = {"weight": torch.ones(V, D)}
        for choice, expected in (("keep", 1.0), ("zero", 0.0)):
            module = TokenEmbedding(V, D, padding_idx=2, padding_on_load=choice)
            module.load_state_dict(saved, assign=assign)
            assert (module.weight[2] == expected).all()
            assert module.weight.sum() == (V - 1 + expected) * D
        assert (saved["weight"] == 1).all()

    def test_of_another_shape_is_torch_s_to_refuse(self):
        module = TokenEmbedding(V, D, padding_idx=6, padding_on_load="zero")
        with pytest.raises(RuntimeError, match="size mismatch"):
            module.load_state_dict({"weight": torch.ones(3, D)})

    def test_stays_zero_through_a_hundred_steps(self):
        torch.manual_seed(0)
        module = TokenEmbedding(V, D, padding_idx=0)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.1)
        before = module.weight.detach().clone()
        for _ in range(100):
            optimizer.zero_grad()
            (module(torch.tensor([[0, 1, 2, 0]])) - 1).square().sum().backward()
            optimizer.step()
        assert not module.weight[0].any()
        assert (module.weight[1:3] != before[1:3]).all()

    def test_without_freezing_a_tied_head_does_train_it(self):
        module = TokenEmbedding(V, D, padding_idx=0)
        optimizer = torch.optim.AdamW(module.parameters())
        tied_loss(module).backward()
        optimizer.step()
        assert module.weight[0].any()

    @pytest.mark.parametrize("bad", [7, -1, 1.5, [0]])
    def test_must_be_a_row(self, bad):
        with pytest.raises(TokenIdError):
            TokenEmbedding(V, D, padding_idx=bad)

    def test_freezing_needs_one(self):
        with pytest.raises(ShapeError, match="needs the padding_idx"):
            TokenEmbedding(V, D, freeze_padding=True)

    def test_loading_takes_no_third_way(self):
        with pytest.raises(ShapeError, match="'keep' or 'zero'"):
            TokenEmbedding(V, D, padding_on_load="drop")


def tied_loss(module):
    """A plain product with the table: every row gets a gradient, the padding row too."""
    hidden = module(torch.tensor([[0, 1, 2, 2]]))
    return torch.nn.functional.cross_entropy((hidden @ module.weight.T)[0], torch.tensor([1, 2, 0, 0]))


OPTIMIZERS = {
    "adamw": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5),
    "adamw fused": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5, fused=True),
    "sgd, momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.5),
    "adam, l2": partial(torch.optim.Adam, lr=0.1, weight_decay=0.5, foreach=True),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1, weight_decay=0.5),
}


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "to float64": lambda module: module.to(torch.float64),
    "swapped": lambda module: swapped(module),
    "to_empty": lambda module: to_empty_and_back(module),
    "loaded by assignment": lambda module: loaded(module, assign=True),
    "loaded": lambda module: loaded(module, assign=False),
    "rows added": lambda module: (module.add_rows(3), module)[1],
    "frozen whole, then trained": lambda module: module.requires_grad_(False).requires_grad_(True),
}


def swapped(module):
    """Converted as torch converts sharded tables: the Parameter stays, what it holds is swapped."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return module.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


class TestFrozenPaddingRow:
    """A row of 0.25s: decay and momentum would move it, as they wouldn't a row of zeros."""

    def frozen(self):
        torch.manual_seed(0)
        module = TokenEmbedding(V, D, padding_idx=1, freeze_padding=True)
        with torch.no_grad():
            module.weight[1] = 0.25
        return module

    def check(self, module, optimizer, steps):
        others = module.weight.detach().clone()
        for _ in range(steps):
            optimizer.zero_grad()
            tied_loss(module).backward()
            assert not module.weight.grad[1].any()
            optimizer.step()
            assert (module.weight[1] == 0.25).all()
        assert (module.weight[[0, 2]] != others[[0, 2]]).all()

    def test_holds_under_our_own_head_whose_loss_never_predicts_it(self):
        module = self.frozen()
        head = LMHead(module, bias=True)
        optimizer = torch.optim.AdamW([*module.parameters(), *head.parameters()], lr=0.1, weight_decay=0.5)
        ids = torch.tensor([[0, 1, 2, 2]])
        before = module.weight.detach().clone()
        for _ in range(100):
            optimizer.zero_grad()
            loss = head.loss(module(ids), torch.tensor([[2, 3, 0, -100]]))
            loss.backward()
            optimizer.step()
        assert loss.isfinite()
        assert torch.equal(module.weight[1], before[1])
        assert (module.weight[[0, 2, 3]] != before[[0, 2, 3]]).all()

    @pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
    def test_holds_through_a_hundred_steps_under_a_tied_head(self, make):
        module = self.frozen()
        self.check(module, make(module.parameters()), 100)

    def test_momentum_gathered_before_does_not_move_it(self):
        module = self.frozen()
        module_not_frozen = TokenEmbedding.from_pretrained(module.weight.data, freeze=False, padding_idx=1)
        weight = module_not_frozen.weight
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        tied_loss(module_not_frozen).backward()
        optimizer.step()
        module_not_frozen.freeze_padding = True
        module_not_frozen.weight = weight
        row = weight[1].detach().clone()
        for _ in range(3):
            optimizer.zero_grad()
            tied_loss(module_not_frozen).backward()
            optimizer.step()
        assert torch.equal(weight[1], row)

    @pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
    def test_holds_whatever_became_of_the_module(self, change):
        module = change(self.frozen())
        self.check(module, torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5), 3)

    def test_a_table_that_is_not_trained_stays_so(self):
        rows = torch.ones(V, D)
        module = TokenEmbedding.from_pretrained(rows, freeze=True, padding_idx=1, freeze_padding=True)
        assert not module.weight.requires_grad

    def test_sparse_gradients(self):
        module = TokenEmbedding(V, D, padding_idx=1, freeze_padding=True, sparse=True)
        module(torch.tensor([1, 1, 2])).sum().backward()
        assert module.weight.grad.is_sparse
        assert torch.equal(module.weight.grad.to_dense().any(dim=1).nonzero(), torch.tensor([[2]]))
        torch.optim.SparseAdam(module.parameters(), lr=0.1).step()
        assert not module.weight[1].any()

    def test_an_optimizer_of_other_parameters_touches_nothing(self):
        module, other = self.frozen(), torch.nn.Parameter(torch.ones(2))
        loss = tied_loss(module)
        other.grad = torch.ones(2)
        torch.optim.SGD([other], lr=0.1).step()
        loss.backward()  # a row written in between would stop autograd here

    def test_an_edit_by_hand_stays(self):
        module = self.frozen()
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        with torch.no_grad():
            module.weight[1] = 2.0
        tied_loss(module).backward()
        optimizer.step()
        assert (module.weight[1] == 2.0).all()


def to_empty_and_back(module):
    saved = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.to("meta").to_empty(device="cpu").load_state_dict(saved)
    return module


def loaded(module, assign):
    fresh = TokenEmbedding(V, D, padding_idx=1, freeze_padding=True)
    fresh.load_state_dict(
        {name: t.clone().requires_grad_() for name, t in module.state_dict().items()}, assign=assign
    )
    return fresh


def sharing(row, other_row, *, frozen):
    """Two modules over one table, of which the first holds ``row``."""
    first = TokenEmbedding(V, D, padding_idx=row, freeze_padding=True)
    second = TokenEmbedding(V, D, padding_idx=other_row, freeze_padding=frozen)
    return first, second


def share(first, second):
    second.weight = first.weight
    second.freeze_padding = True


@pytest.mark.parametrize("frozen", [True, False])
def test_two_modules_that_share_a_table_hold_one_row(frozen):
    first, second = sharing(2, 5, frozen=frozen)
    with pytest.raises(ShapeError, match="row 2 of this table is frozen already"):
        share(first, second)
    optimizer = torch.optim.SGD([first.weight], lr=0.1, weight_decay=0.5)
    with torch.no_grad():
        first.weight[2] = 1.0
    first.weight.sum().backward()
    optimizer.step()
    assert (first.weight[2] == 1).all()


def test_two_modules_that_share_a_table_may_hold_the_same_row():
    first, second = sharing(2, 2, frozen=True)
    second.weight = first.weight
    first.padding_idx = 3  # one's own row may move
    copied, unpickled = copy.deepcopy(first), pickle.loads(pickle.dumps(first))
    assert copied.padding_idx == unpickled.padding_idx == 3


@pytest.mark.parametrize("freeze_first", [True, False])
def test_a_table_without_the_frozen_row_is_refused(freeze_first):
    module = TokenEmbedding(V, D, padding_idx=5, freeze_padding=freeze_first)
    before = module.weight
    short = torch.nn.Linear(D, 3)
    with pytest.raises(ShapeError, match="the frozen padding_idx is 5, and this table has 3 rows"):
        share(short, module)
    assert module.weight is before or not module.freeze_padding
