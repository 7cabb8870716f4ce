"""Options of torch's optimizers: each is honored or refused by name, however it is passed."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.errors import ShapeError
from tokenspace.optim import SparseAdagrad, SparseAdamW, SparseRowWiseAdagrad, SparseSGD

OURS = {
    "SGD": (SparseSGD, torch.optim.SGD, {}),
    "Adagrad": (SparseAdagrad, torch.optim.Adagrad, {}),
    "row-wise Adagrad": (SparseRowWiseAdagrad, None, {}),
    "AdamW": (SparseAdamW, torch.optim.AdamW, {}),
    "AdamW, exact": (SparseAdamW, torch.optim.AdamW, {"exact": True}),
}
WAYS = ("constructor", "group", "added group", "later", "copied", "loaded")
pytestmark = pytest.mark.filterwarnings("ignore::tokenspace.optim.DenseGradientWarning")


def ones(dtype=torch.float32):
    weight = torch.nn.Parameter(torch.ones(3, 2, dtype=dtype))
    weight.grad = torch.sparse_coo_tensor(
        torch.tensor([[0, 2]]),
        torch.tensor([[1.0, -2.0], [3.0, 4.0]], dtype=dtype),
        (3, 2),
        is_coalesced=True,
        check_invariants=False,
    )
    return weight


def optimizer_with(kind, weight, way, options, always):
    """An optimizer over ``weight`` whose ``options`` are set in one of the ``WAYS``."""
    if way == "constructor":
        return kind([weight], **always, **options)
    if way == "group":
        return kind([{"params": [weight], **options}], **always)
    optimizer = kind([torch.nn.Parameter(torch.ones(1))], **always)
    if way == "added group":
        optimizer.add_param_group({"params": [weight], **options})
        return optimizer
    optimizer = kind([weight], **always)
    if way == "loaded":
        state = optimizer.state_dict()
        state["param_groups"][0].update(options)
        optimizer.load_state_dict(state)
        return optimizer
    if way == "copied":
        optimizer.__setstate__(copy.copy(optimizer.__getstate__()))
    optimizer.param_groups[0].update(options)
    return optimizer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OURS)
def test_maximize_ascends(name, way):
    kind, _, always = OURS[name]
    descended, ascended = ones(), ones()
    kind([descended], lr=0.1, weight_decay=0.0, **always).step()
    optimizer_with(kind, ascended, way, {"maximize": True}, {"lr": 0.1, "weight_decay": 0.0, **always}).step()
    torch.testing.assert_close(ascended - 1, 1 - descended)
    assert (ascended != 1).any()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("amsgrad", True), ("foreach", True), ("fused", True), ("capturable", True), ("differentiable", True),
        ("momentum", 0.9), ("nesterov", True), ("dampening", 0.1), ("momentum_decay", 0.1), ("rho", 0.9),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OURS)
def test_what_is_not_there_is_refused_by_name(name, way, option, value):
    kind, _, always = OURS[name]
    weight = ones()
    before = weight.detach().clone()
    if way == "loaded" and option in ("foreach", "fused", "capturable"):  # how torch computed, not what
        optimizer = optimizer_with(kind, weight, way, {option: value}, always)
        optimizer.step()
        assert option not in optimizer.param_groups[0]
        return
    with pytest.raises(ShapeError, match=f"{option}={value}"):
        optimizer_with(kind, weight, way, {option: value}, always).step()
    assert torch.equal(weight.detach(), before)


def options_of_torch():
    """Each option that a torch optimizer puts into its groups, with a value that is switched on."""
    found = {}
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
            group = kind([torch.nn.Parameter(torch.ones(2, 2))]).param_groups[0]
            found |= {name: value or 1 for name, value in group.items() if name != "params"}
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OURS)
def test_each_option_of_torchs_optimizers_is_honored_or_refused(name, way):
    kind, _, always = OURS[name]
    own = set(kind([ones()]).defaults)
    others = {option: value for option, value in options_of_torch().items() if option not in own}
    assert {"ns_steps", "beta2_decay", "d", "line_search_fn", "history_size", "adjust_lr_fn"} <= others.keys()
    for option, value in others.items():
        if option == "decoupled_weight_decay" and kind is SparseAdamW:
            continue  # what it does
        if way == "loaded" and option in ("foreach", "fused", "capturable"):
            continue
        with pytest.raises(ShapeError, match=f"{option}="):
            optimizer_with(kind, ones(), way, {option: value}, always).step()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "constructor"])
def test_keys_of_schedulers_and_callers_are_kept(name, way):
    kind, _, always = OURS[name]
    keys = {"initial_lr": 0.1, "max_lr": 0.2, "min_lr": 0.1, "swa_lr": 0.1, "name": "table", "lr_scale": 2.0}
    optimizer = optimizer_with(kind, ones(), way, keys, always)
    optimizer.step()
    assert keys.items() <= optimizer.param_groups[-1].items()


@pytest.mark.parametrize("name", OURS)
def test_options_that_are_off_and_labels_are_taken(name):
    kind, torchs, always = OURS[name]
    off = {"foreach": None, "fused": None, "differentiable": False, "amsgrad": False, "momentum": 0}
    kind([ones()], **off, **always).step()
    kind([{"params": [ones()], **off, "name": "table", "lr_scale": 0.5}], **always).step()
    if torchs is not None:
        state = torchs([ones()], maximize=True).state_dict()
        optimizer = kind([ones()], **always)
        optimizer.load_state_dict(state)
        assert optimizer.param_groups[0]["maximize"] is True
        torchs([ones()]).load_state_dict(optimizer.state_dict())


def test_an_option_of_no_optimizer_is_a_type_error_as_in_torch():
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight_deacy'"):
        SparseAdamW([ones()], weight_deacy=0.1)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("value", [1, None, "yes"])
def test_maximize_is_a_bool(name, value):
    kind, _, always = OURS[name]
    with pytest.raises(ShapeError, match="maximize must be True or False"):
        kind([ones()], maximize=value, **always)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("value", [-0.1, float("nan"), "0.1", None, True, torch.ones(2)], ids=str)
def test_a_rate_that_is_set_later_is_checked_at_the_step(name, value):
    kind, _, always = OURS[name]
    weight = ones()
    optimizer = kind([weight], **always)
    optimizer.param_groups[0]["lr"] = value
    with pytest.raises(ShapeError, match="lr"):
        optimizer.step()
    assert (weight == 1).all()
    del optimizer.param_groups[0]["lr"]
    with pytest.raises(ShapeError, match="lacks 'lr'"):
        optimizer.step()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([name for name, (_, torchs, _) in OURS.items() if torchs is not None]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    maximize=st.booleans(),
    decay=st.sampled_from([0.0, 0.1]),
    rate=st.sampled_from([0.05, torch.tensor(0.05)]),
    seed=st.integers(0, 2**31),
)
def test_dense_gradients_do_what_torch_does_under_any_options(name, dtype, maximize, decay, rate, seed):
    kind, torchs, always = OURS[name]
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(6, 4, dtype=dtype, generator=generator)
    mine, theirs = torch.nn.Parameter(numbers.clone()), torch.nn.Parameter(numbers.clone())
    ours = kind([mine], lr=rate, weight_decay=decay, maximize=maximize, **always)
    other = torchs([theirs], lr=float(rate), weight_decay=decay, maximize=maximize)
    for _ in range(4):
        mine.grad = torch.randn(6, 4, dtype=dtype, generator=generator)
        theirs.grad = mine.grad.clone()
        ours.step()
        other.step()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@settings(max_examples=40, deadline=None)
@given(
    maximize=st.lists(st.booleans(), min_size=2, max_size=6),
    decay=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**31),
)
def test_exact_steps_of_sparse_gradients_follow_torch_when_maximize_changes(maximize, decay, seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(5, 3, generator=generator)
    mine, theirs = torch.nn.Parameter(numbers.clone()), torch.nn.Parameter(numbers.clone())
    ours = SparseAdamW([mine], lr=0.05, weight_decay=decay, exact=True)
    other = torch.optim.AdamW([theirs], lr=0.05, weight_decay=decay)
    for ascend in maximize:
        ours.flush()
        gradient = torch.zeros(5, 3)
        row = torch.randint(5, (1,), generator=generator)
        gradient[row] = torch.randn(1, 3, generator=generator)
        mine.grad, theirs.grad = gradient.to_sparse(1), gradient
        ours.param_groups[0]["maximize"] = other.param_groups[0]["maximize"] = ascend
        ours.step()
        other.step()
    ours.flush()
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
