"""A training loop's company: schedules, gradient scaling, frozen rows, projections, tied heads, compiling."""

import copy
import math
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

from tokenspace.errors import ShapeError
from tokenspace.nn import LMHead, TokenEmbedding
from tokenspace.optim import (
    DenseGradientWarning,
    SparseAdagrad,
    SparseAdamW,
    SparseRowWiseAdagrad,
    SparseSGD,
    clip_grad_norm_,
)

V, D = 30, 8
MAKERS = {
    "SGD": lambda p, **k: SparseSGD(p, **{"lr": 0.1, **k}),
    "Adagrad": lambda p, **k: SparseAdagrad(p, **{"lr": 0.1, **k}),
    "row-wise Adagrad": lambda p, **k: SparseRowWiseAdagrad(p, **{"lr": 0.1, **k}),
    "AdamW": lambda p, **k: SparseAdamW(p, **{"lr": 0.1, **k}),
    "AdamW, exact": lambda p, **k: SparseAdamW(p, **{"lr": 0.1, **k}, exact=True),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def table(**options):
    torch.manual_seed(0)
    return TokenEmbedding(V, D, sparse=True, **options)


# torch's clone of a sparse tensor says nothing of its invariants, and warns of that once a process
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")


def go(module, optimizer, ids):
    optimizer.zero_grad()
    module(torch.tensor(ids)).square().sum().backward()
    optimizer.step()


def weights(module, optimizer):
    getattr(optimizer, "flush", lambda: None)()
    return module.weight.detach().clone()


@EVERY
def test_schedules_are_followed(make):
    scheduled, by_hand = table(), table()
    first, second = make(scheduled.parameters()), make(by_hand.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(first, T_max=8)
    for k in range(8):
        second.param_groups[0]["lr"] = 0.1 * (1 + math.cos(math.pi * k / 8)) / 2
        for module, optimizer in ((scheduled, first), (by_hand, second)):
            go(module, optimizer, [k, k + 1])
        schedule.step()
    torch.testing.assert_close(weights(scheduled, first), weights(by_hand, second))


@EVERY
def test_a_rate_may_be_a_tensor(make):
    plain, with_tensor = table(), table()
    rate = torch.tensor([0.05])
    first, second = make(plain.parameters(), lr=0.05), make(with_tensor.parameters(), lr=rate)
    for k in range(3):
        go(plain, first, [k, 2])
        go(with_tensor, second, [k, 2])
        first.param_groups[0]["lr"] *= 0.5
        rate *= 0.5
    torch.testing.assert_close(weights(plain, first), weights(with_tensor, second))


@EVERY
def test_gradients_are_scaled_back_and_infinite_ones_skip_the_step(make):
    scaled, plain = table(), table()
    first, second = make(scaled.parameters()), make(plain.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for k in range(4):
        ids = torch.tensor([k, 7, k])
        first.zero_grad()
        loss = scaled(ids).square().sum()
        if k == 2:
            loss = loss * math.inf
        scaler.scale(loss).backward()
        scaler.unscale_(first)
        if k != 2:
            assert float(scaled.weight.grad._values().abs().max()) < 10
        scaler.step(first)
        scaler.update()
        if k != 2:
            go(plain, second, [k, 7, k])
    assert scaler.get_scale() == 512.0
    torch.testing.assert_close(weights(scaled, first), weights(plain, second))


@EVERY
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_frozen_padding_row_stays_and_the_others_do_not_notice(make, decay):
    frozen, plain = table(padding_idx=3, freeze_padding=True), table(padding_idx=3)
    optimizers = [make(module.parameters(), weight_decay=decay) for module in (frozen, plain)]
    for module in (frozen, plain):
        with torch.no_grad():
            module.weight[3] = 1.0
    for k in range(5):
        for module, optimizer in zip((frozen, plain), optimizers, strict=True):
            go(module, optimizer, [k, 3, 9])
    first, second = (weights(m, o) for m, o in zip((frozen, plain), optimizers, strict=True))
    assert torch.equal(first[3], torch.ones(D))
    others = torch.arange(V) != 3
    torch.testing.assert_close(first[others], second[others])


def test_an_exact_frozen_row_under_a_tied_head_and_lookups_that_alternate():
    module = table(padding_idx=3, freeze_padding=True)
    head = LMHead(module)
    optimizer = SparseAdamW(module.parameters(), lr=0.1, weight_decay=0.5, exact=True)
    with torch.no_grad():
        module.weight[3] = 1.0
    for k in range(6):
        optimizer.zero_grad()
        if k % 2:
            head.loss(torch.randn(4, D), torch.tensor([1, 2, 5, 6])).backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DenseGradientWarning)
                optimizer.step()
        else:
            go(module, optimizer, [k, 3])
    assert torch.equal(weights(module, optimizer)[3], torch.ones(D))


@EVERY
def test_rows_are_projected_between_steps(make):
    module = table()
    optimizer = make(module.parameters())
    dense = torch.nn.Parameter(module.weight.detach().clone())
    reference = torch.optim.AdamW([dense], lr=0.1)
    for k in range(5):
        ids = torch.tensor([k, k + 1, 9])
        go(module, optimizer, ids.tolist())
        module.project_(0.5, ids)
        assert float(module.weight[ids].detach().norm(dim=1).max()) <= 0.5 + 1e-6
        if optimizer.defaults.get("exact"):
            reference.zero_grad()
            F.embedding(ids, dense).square().sum().backward()
            reference.step()
            with torch.no_grad():
                dense[ids] *= (0.5 / dense[ids].norm(dim=1, keepdim=True)).clamp(max=1.0)
    if optimizer.defaults.get("exact"):
        torch.testing.assert_close(weights(module, optimizer), dense.detach(), atol=1e-6, rtol=0)


@EVERY
def test_a_closure_is_called_with_gradients_and_its_loss_returned(make):
    module = table()
    optimizer = make(module.parameters())
    called = []

    def closure():
        optimizer.zero_grad()
        loss = module(torch.tensor([1, 2])).square().sum()
        loss.backward()
        called.append(loss.item())
        return loss

    with torch.no_grad():
        first = optimizer.step(closure)
    assert first.requires_grad
    assert first.item() == called[0]
    assert optimizer.step(closure).item() < called[0]


@EVERY
def test_a_compiled_step_and_lookup(make):
    eager, compiled = table(), table()
    optimizers = [make(module.parameters()) for module in (eager, compiled)]
    loss = torch.compile(lambda ids: compiled(ids).square().sum(), backend="aot_eager")
    step = torch.compile(optimizers[1].step, backend="aot_eager")
    for k in range(3):
        ids = [k, 5, 5]
        go(eager, optimizers[0], ids)
        optimizers[1].zero_grad()
        loss(torch.tensor(ids)).backward()
        step()
    torch.testing.assert_close(weights(compiled, optimizers[1]), weights(eager, optimizers[0]))
    torch._dynamo.reset()


@EVERY
def test_a_tied_table_is_updated_whole_and_that_is_said_once(make):
    module = table()
    head = LMHead(module)
    optimizer = make(module.parameters())
    before = module.weight.detach().clone()

    def step():
        optimizer.zero_grad()
        head.loss(module(torch.tensor([1, 2, 3])), torch.tensor([2, 3, 4])).backward()
        optimizer.step()

    with pytest.warns(DenseGradientWarning, match="30 × 8 table is dense: a tied head") as said:
        step()
    assert [warning.filename for warning in said] == [__file__]
    assert (module.weight != before).all()
    step()  # filterwarnings = error


def test_dense_layers_beside_a_sparse_table_are_nothing_to_warn_of():
    model = torch.nn.Sequential(table(), torch.nn.Linear(D, V), torch.nn.LayerNorm(V))
    optimizer = SparseAdamW(model.parameters())
    go(model, optimizer, [1, 2])
    go(model, optimizer, [3])


def test_a_table_that_becomes_dense_beside_others_is_named():
    model = torch.nn.ModuleList([table(), table()])
    optimizer = SparseAdamW(model.parameters())
    for module in model:
        module(torch.tensor([1])).sum().backward()
    optimizer.step()
    model[1].weight.grad = torch.ones(V, D)
    with pytest.warns(DenseGradientWarning):
        optimizer.step()
    model[0].weight.grad = torch.ones(V, D)
    with pytest.warns(DenseGradientWarning):
        optimizer.step()
    optimizer.step()


def test_a_whole_small_model_clipped_scheduled_and_trained():
    """Exactly: the same losses as torch's dense run of the same model."""

    def losses(sparse):
        torch.manual_seed(0)
        token = TokenEmbedding(V, D, sparse=sparse)
        model = torch.nn.Sequential(token, torch.nn.LayerNorm(D), torch.nn.Linear(D, V))
        make = (
            (lambda p: SparseAdamW(p, 0.05, exact=True)) if sparse else (lambda p: torch.optim.AdamW(p, 0.05))
        )
        clip = clip_grad_norm_ if sparse else torch.nn.utils.clip_grad_norm_
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
        found = []
        for k in range(30):
            ids = torch.randint(V, (12,), generator=torch.Generator().manual_seed(k))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids[:-1]), ids[1:])
            loss.backward()
            norm = clip(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            found.append((loss.item(), norm.item()))
        return torch.tensor(found)

    torch.testing.assert_close(losses(True), losses(False), atol=1e-5, rtol=1e-5)


# Settings that are none


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SparseSGD(p, lr=-0.1), "lr must be 0 or more; found -0.1"),
        (lambda p: SparseSGD(p, lr="fast"), "lr must be a finite number"),
        (lambda p: SparseSGD(p, lr=torch.ones(2)), "lr must be a finite number"),
        (lambda p: SparseSGD(p, lr=math.nan), "lr must be a finite number"),
        (lambda p: SparseSGD(p, weight_decay=-1), "weight_decay must be 0 or more"),
        (lambda p: SparseAdagrad(p, lr_decay=-1), "lr_decay must be 0 or more"),
        (
            lambda p: SparseAdagrad(p, initial_accumulator_value=-1),
            "initial_accumulator_value must be 0 or more",
        ),
        (lambda p: SparseRowWiseAdagrad(p, eps=-1), "eps must be 0 or more"),
        (lambda p: SparseAdamW(p, eps=0.0), "eps must be more than 0"),
        (
            lambda p: SparseAdamW(p, betas=(0.9, 1.0)),
            r"betas must be two numbers, each at least 0 and below 1",
        ),
        (lambda p: SparseAdamW(p, betas=(-0.1, 0.9)), "betas must be 0 or more"),
        (lambda p: SparseAdamW(p, betas=0.9), "betas must be two numbers"),
        (
            lambda p: SparseAdamW(p, lr=2.0, weight_decay=0.5),
            r"lr · weight_decay must stay below 1; found 2 · 0.5",
        ),
        (lambda p: SparseAdamW(p, exact="yes"), "exact must be True or False; found 'yes'"),
        (lambda p: SparseSGD([{"params": p, "lr": None}]), "lr must be a finite number"),
    ],
)
def test_settings_that_are_none_are_refused(make, message):
    with pytest.raises(ShapeError, match=message):
        make(list(table().parameters()))


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_parameters_are_floats(dtype):
    with pytest.raises(ShapeError, match=f"trains dense tensors of floats .* found {dtype}"):
        SparseSGD([torch.nn.Parameter(torch.zeros(2, 2, dtype=dtype), requires_grad=dtype != torch.int64)])


def test_a_group_that_is_refused_is_not_added():
    optimizer = SparseSGD(table().parameters())
    with pytest.raises(ShapeError):
        optimizer.add_param_group({"params": table().parameters(), "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_a_schedule_that_leaves_the_allowed_settings_is_told_at_the_step_and_nothing_moves():
    module = table()
    optimizer = SparseAdamW(
        [{"params": module.parameters()}, {"params": [torch.nn.Parameter(torch.ones(1))]}]
    )
    optimizer.param_groups[1]["lr"] = -1.0
    module(torch.tensor([1])).sum().backward()
    before = module.weight.detach().clone()
    with pytest.raises(ShapeError, match="lr must be 0 or more"):
        optimizer.step()
    assert torch.equal(module.weight.detach(), before)


@pytest.mark.parametrize("kind", ["elements", "beyond"])
def test_gradients_that_are_not_row_sparse_are_refused(kind):
    module = table()
    if kind == "beyond":  # torch's own checks would see this, where they are on
        values = torch.ones(1, D)
        gradient = torch.sparse_coo_tensor(torch.tensor([[V]]), values, (V, D), check_invariants=False)
        message = "rows 30 to 30, its table 30 rows"
    else:
        gradient, message = torch.ones(V, D).to_sparse_coo(), "found torch.sparse_coo, sparse in 2 axes"
    module.weight.grad = gradient
    before = copy.deepcopy(module.weight.detach())
    with pytest.raises(ShapeError, match=message):
        SparseSGD(module.parameters()).step()
    assert torch.equal(module.weight.detach(), before)


def test_without_torch_the_room_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tokenspace\n"
        "try:\n    tokenspace.optim\n"
        "except tokenspace.MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "tokenspace.optim needs packages that are not installed; "
        "run: pip install 'torch>=2.13' 'numba>=0.61'\n"
    )
