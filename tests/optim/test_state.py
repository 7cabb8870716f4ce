"""States saved, loaded, handed to torch's optimizers and back, copied: runs go on as if nothing happened."""

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch

from tokenspace.errors import ShapeError
from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdagrad, SparseAdamW, SparseRowWiseAdagrad, SparseSGD

V, D = 40, 8
MAKERS = {
    "SGD": lambda p: SparseSGD(p, lr=0.1),
    "Adagrad": lambda p: SparseAdagrad(p, lr=0.1, lr_decay=0.1),
    "row-wise Adagrad": lambda p: SparseRowWiseAdagrad(p, lr=0.1),
    "AdamW": lambda p: SparseAdamW(p, lr=0.1),
    "AdamW, exact": lambda p: SparseAdamW(p, lr=0.1, exact=True),
}


def table(dtype=torch.float32):
    torch.manual_seed(0)
    return TokenEmbedding(V, D, sparse=True, dtype=dtype)


def train(module, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        ids = torch.randint(V, (6,), generator=torch.Generator().manual_seed(step))
        module(ids).float().square().sum().backward()
        optimizer.step()


def restored(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def finished(module, optimizer):
    if isinstance(optimizer, SparseAdamW):
        optimizer.flush()
    return module.weight.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_a_run_goes_on_from_its_saved_state(name, dtype):
    whole = table(dtype)
    optimizer = MAKERS[name](whole.parameters())
    train(whole, optimizer, range(4))
    saved = restored({"model": whole.state_dict(), "optimizer": optimizer.state_dict()})
    train(whole, optimizer, range(4, 10))

    resumed = TokenEmbedding(V, D, sparse=True, dtype=dtype)
    again = MAKERS[name](resumed.parameters())
    train(resumed, again, [99])  # whatever it did before is gone
    resumed.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, range(4, 10))
    assert torch.equal(finished(whole, optimizer), finished(resumed, again))


def test_a_state_keeps_the_precision_that_a_short_table_lacks():
    module = table(torch.bfloat16)
    optimizer = SparseAdamW(module.parameters(), exact=True)
    train(module, optimizer, range(3))
    again = SparseAdamW(module.parameters(), exact=True)
    again.load_state_dict(restored(optimizer.state_dict()))
    moment = optimizer.state[module.weight]["exp_avg"]
    assert moment.dtype == torch.float32
    assert not torch.equal(moment, moment.bfloat16().float())
    assert torch.equal(again.state[module.weight]["exp_avg"], moment)


def test_a_loaded_state_is_a_copy():
    module = table()
    optimizer, again = MAKERS["AdamW"](module.parameters()), MAKERS["AdamW"](module.parameters())
    train(module, optimizer, range(2))
    state = optimizer.state_dict()
    again.load_state_dict(state)
    before = copy.deepcopy(state)
    train(module, again, range(2))
    for name, value in before["state"][0].items():
        assert torch.equal(state["state"][0][name], value)


@pytest.mark.filterwarnings("ignore::tokenspace.optim.DenseGradientWarning")
@pytest.mark.parametrize("first", ["ours", "torchs"])
def test_exact_adamw_and_torchs_dense_one_hand_their_states_to_each_other(first):
    torch.manual_seed(0)
    start = torch.randn(V, D)

    def run(order):
        weight = torch.nn.Parameter(start.clone())
        sparse = TokenEmbedding.from_pretrained(weight.data, freeze=False, sparse=True)
        dense = TokenEmbedding.from_pretrained(weight.data, freeze=False)
        sparse.weight = dense.weight = weight
        state = None
        for n, kind in enumerate(order):
            module = sparse if kind == "ours" else dense
            make = SparseAdamW if kind == "ours" else torch.optim.AdamW
            options = {"exact": True} if kind == "ours" else {}
            optimizer = make([weight], lr=0.05, weight_decay=0.1, **options)
            if state is not None:
                optimizer.load_state_dict(state)
            train(module, optimizer, range(5 * n, 5 * n + 5))
            state = copy.deepcopy(optimizer.state_dict())
        return weight.detach()

    second = "torchs" if first == "ours" else "ours"
    torch.testing.assert_close(run([first, second, first]), run(["torchs"] * 3), atol=2e-6, rtol=0)


def test_adamws_state_has_torchs_layout():
    module = table()
    ours, torchs = SparseAdamW(module.parameters()), torch.optim.AdamW(module.parameters())
    train(module, ours, range(2))
    module.weight.grad = module.weight.grad.to_dense()
    torchs.step()
    mine, theirs = ours.state_dict(), torchs.state_dict()
    assert mine["state"][0].keys() == theirs["state"][0].keys()
    for name, value in theirs["state"][0].items():
        found = mine["state"][0][name]
        assert (found.shape, found.dtype, found.device) == (value.shape, value.dtype, value.device)
    assert {"lr", "betas", "eps", "weight_decay", "params"} <= mine["param_groups"][0].keys()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_sparse_adams_state_is_taken_over():
    ids = torch.tensor([1, 3])

    def run(*optimizers):
        module, state = table(), None
        for make in optimizers:
            optimizer = make(module.parameters())
            if state is not None:
                optimizer.load_state_dict(state)
            for _ in range(3):
                optimizer.zero_grad()
                module(ids).square().sum().backward()
                optimizer.step()
            state = copy.deepcopy(optimizer.state_dict())
        return module.weight.detach()

    ours = lambda p: SparseAdamW(p, weight_decay=0.0)  # noqa: E731
    torch.testing.assert_close(run(torch.optim.SparseAdam, ours), run(*[torch.optim.SparseAdam] * 2))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_adagrads_state_is_torchs():
    module = table()
    ours, torchs = (
        SparseAdagrad(module.parameters(), lr=0.1),
        torch.optim.Adagrad(module.parameters(), lr=0.1),
    )
    train(module, ours, range(3))
    torchs.load_state_dict(copy.deepcopy(ours.state_dict()))  # torch takes the very tensors
    before = module.weight.detach().clone()
    train(module, torchs, [7])
    expected = module.weight.detach().clone()
    with torch.no_grad():
        module.weight.copy_(before)
    train(module, ours, [7])
    torch.testing.assert_close(module.weight.detach(), expected)


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        (torch.optim.AdamW, {"amsgrad": True}, "amsgrad=True"),
        (torch.optim.Adam, {"weight_decay": 0.1}, "decoupled_weight_decay=False"),
        (torch.optim.RMSprop, {}, "alpha=0.99"),
        (torch.optim.Rprop, {}, "etas="),
        (SparseAdagrad, {}, "holds sum"),
    ],
)
def test_a_state_with_other_rules_is_refused_and_nothing_changes(optimizer, options, message):
    module = table()
    ours, other = SparseAdamW(module.parameters(), lr=0.5), optimizer(module.parameters(), **options)
    train(module, ours, range(2))
    state = ours.state[module.weight]
    sparse = isinstance(other, SparseAdagrad)
    module.weight.grad = (
        torch.ones_like(module.weight).to_sparse(1) if sparse else torch.ones_like(module.weight)
    )
    other.step()
    with pytest.raises(ShapeError, match=message):
        ours.load_state_dict(other.state_dict())
    assert ours.state[module.weight] is state
    assert ours.param_groups[0]["lr"] == 0.5


def test_the_state_of_another_shape_is_refused_before_a_step_reads_beyond_it():
    module, other = table(), TokenEmbedding(V - 1, D, sparse=True)
    for make in (MAKERS["AdamW"], MAKERS["Adagrad"], MAKERS["row-wise Adagrad"]):
        small, optimizer = make(other.parameters()), make(module.parameters())
        train_ids = torch.tensor([1])
        other(train_ids).sum().backward()
        small.step()
        with pytest.raises(ShapeError, match="another model's"):
            optimizer.load_state_dict(small.state_dict())
        assert not optimizer.state
        optimizer.state[module.weight] = small.state[other.weight]  # as a table grows under its optimizer
        before = module.weight.detach().clone()
        module(torch.tensor([V - 1])).sum().backward()
        with pytest.raises(ShapeError, match="another model's"):
            optimizer.step()
        assert torch.equal(module.weight.detach(), before)


def test_settings_that_the_state_does_not_have_stay():
    module = table()
    optimizer = SparseAdamW(module.parameters(), weight_decay=0.5, exact=True)
    optimizer.load_state_dict(torch.optim.SparseAdam(module.parameters(), lr=0.25).state_dict())
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["exact"]) == (0.25, 0.5, True)
    optimizer.load_state_dict(SparseAdamW(module.parameters(), exact=False).state_dict())
    assert group is not optimizer.param_groups[0]
    assert optimizer.param_groups[0]["exact"] is True


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))], ids=["copy", "pickle"]
)
def test_copies_train_on_alone(name, copied):
    module = table()
    optimizer = MAKERS[name](module.parameters())
    train(module, optimizer, range(4))
    other, again = copied((module, optimizer))
    assert type(again) is type(optimizer)
    train(other, again, range(4, 8))
    untouched = finished(module, optimizer).clone()
    train(module, optimizer, range(4, 8))
    assert torch.equal(finished(module, optimizer), finished(other, again))
    assert not torch.equal(untouched, module.weight.detach())


@pytest.mark.parametrize("name", MAKERS)
def test_a_table_that_grows_takes_its_state_along(name):
    """As docs/nn.md does it; and the old table is kept alive by nobody."""
    module, alone = table(), table()
    optimizer, other = MAKERS[name](module.parameters()), MAKERS[name](alone.parameters())
    for each, its in ((module, optimizer), (alone, other)):
        train(each, its, range(3))
    old = module.weight
    module.add_rows(2, torch.zeros(2, D))
    state = optimizer.state.pop(old, {})
    for group in optimizer.param_groups:
        group["params"] = [module.weight if p is old else p for p in group["params"]]
    optimizer.state[module.weight] = {
        key: torch.nn.functional.pad(value, (0,) * (2 * value.ndim - 1) + (2,)) if value.ndim else value
        for key, value in state.items()
    }
    for each, its in ((module, optimizer), (alone, other)):
        train(each, its, range(3, 6))
    torch.testing.assert_close(finished(module, optimizer)[:V], finished(alone, other), atol=1e-6, rtol=0)
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", MAKERS)
def test_groups_have_their_own_settings_and_more_can_be_added(name):
    first, second, alone = table(), table(), table()
    optimizer = MAKERS[name]([{"params": first.parameters()}])
    optimizer.add_param_group({"params": list(second.parameters()), "lr": 0.0})
    other = MAKERS[name](alone.parameters())
    for step in range(3):
        ids = torch.tensor([step, step + 1])
        for module in (first, second, alone):
            module.weight.grad = None
            module(ids).sum().backward()
        optimizer.step()
        other.step()
    assert torch.equal(finished(first, optimizer), finished(alone, other))
    assert torch.equal(finished(second, optimizer), table().weight.detach())
