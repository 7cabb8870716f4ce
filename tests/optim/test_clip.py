"""clip_grad_norm_ is torch's, on gradients that torch's refuses as well."""

import math

import pytest
import torch

from tokenspace.errors import ShapeError, TokenspaceError
from tokenspace.nn import TokenEmbedding
from tokenspace.optim import clip_grad_norm_


def sparse(ids, values, rows=5, coalesced=False):
    return torch.sparse_coo_tensor(
        torch.tensor([ids]), values, (rows, *values.shape[1:]), is_coalesced=coalesced, check_invariants=True
    )


def mixed(dtype=torch.float32):
    """Parameters with a dense gradient, a coalesced, an uncoalesced and an empty one; and dense twins."""
    torch.manual_seed(0)
    gradients = [
        torch.randn(3, 4, dtype=dtype),
        sparse([1, 4], torch.randn(2, 4, dtype=dtype), coalesced=True),
        sparse([2, 0, 2, 2], torch.randn(4, 4, dtype=dtype)),
        sparse([], torch.randn(0, 4, dtype=dtype), coalesced=True),
        torch.randn((), dtype=dtype),
    ]
    mine, theirs = [], []
    for gradient in gradients:
        for parameters in (mine, theirs):
            parameter = torch.nn.Parameter(torch.zeros(gradient.shape, dtype=dtype))
            parameter.grad = gradient.clone() if parameters is mine else gradient.to_dense()
            parameters.append(parameter)
    unused = torch.nn.Parameter(torch.zeros(2))
    return [*mine, unused], theirs


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, math.inf, "inf"], ids=str)
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_mixed_gradients(norm_type, max_norm):
    mine, theirs = mixed()
    total = clip_grad_norm_(mine, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, float(norm_type))
    torch.testing.assert_close(total, expected)
    for ours, other in zip(mine, theirs, strict=False):
        torch.testing.assert_close(ours.grad.to_dense(), other.grad)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_the_norm_is_of_summed_rows():
    table = torch.nn.Parameter(torch.zeros(5, 1))
    table.grad = sparse([1, 1, 1, 1], torch.tensor([[1.0], [1.0], [1.0], [-2.0]]))
    assert clip_grad_norm_(table, 0.5) == 1.0
    torch.testing.assert_close(table.grad.to_dense()[1], torch.tensor([0.5]))
    table.grad = sparse([1, 1], torch.tensor([[3.0], [-3.0]]))
    assert clip_grad_norm_(table, 0.5) == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_gradients_are_added_up_in_float32(dtype):
    table = torch.nn.Parameter(torch.zeros(5, 300, dtype=dtype))
    table.grad = sparse([3, 0], torch.full((2, 300), 300.0, dtype=dtype))  # squares overflow float16
    total = clip_grad_norm_([table], 1.0)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(300 * math.sqrt(600), rel=1e-2)
    assert table.grad.dtype == dtype
    assert table.grad.to_dense().float().norm().item() == pytest.approx(1.0, rel=2e-2)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("kind", ["dense", "coalesced", "repeated"])
@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 10.0, math.inf])
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (torch.float16, 6e4), (torch.bfloat16, 1e30), (torch.float32, 1e30), (torch.float32, 3e38),
        (torch.float32, 1e-30), (torch.float64, 1e200), (torch.float64, 1e-200),
    ],
)  # fmt: skip
def test_powers_that_leave_the_gradients_type(dtype, number, order, kind):
    values = torch.full((4, 3), number, dtype=torch.float64).to(dtype)
    gradient = values if kind == "dense" else sparse([1, 2, 3, 4], values, coalesced=kind == "coalesced")
    if kind == "repeated":
        gradient = sparse([2, 1, 3, 4], values)  # out of order, so not coalesced
    table = torch.nn.Parameter(torch.zeros(gradient.shape, dtype=dtype))
    table.grad = gradient.clone()
    if (order, number) == (0.5, 3e38):
        order = 0.9  # of 0.5 even the factor leaves float32
    exact = number if order == math.inf else number * 12 ** (1 / order)
    total = clip_grad_norm_([table], 1e-3, order)
    assert total.item() == pytest.approx(exact, rel=1e-2 if dtype == torch.bfloat16 else 1e-3)
    if number > 1:
        found = table.grad.to_dense().double().sum() / 12
        assert found.item() == pytest.approx(1e-3 * number / exact, rel=1e-2)
    else:
        assert torch.equal(table.grad.to_dense(), gradient.to_dense())


def test_gradients_are_scaled_where_they_are():
    table, bias = TokenEmbedding(6, 4, sparse=True), torch.nn.Parameter(torch.zeros(4))
    (table(torch.tensor([1, 1, 3])) + bias).square().sum().backward()
    before = [(p.grad, p.grad.to_dense().clone()) for p in (table.weight, bias)]
    total = clip_grad_norm_([table.weight, bias], 0.1)
    for parameter, (gradient, numbers) in zip((table.weight, bias), before, strict=True):
        assert parameter.grad is gradient
        torch.testing.assert_close(gradient.to_dense(), numbers * (0.1 / total))


def test_the_gradient_of_the_lookups_output_is_left_alone():
    """torch's sparse lookup hands it on as the values of its own."""
    table, seen = torch.nn.Embedding(6, 4, sparse=True), []
    rows = table(torch.tensor([1, 3]))
    rows.register_hook(seen.append)
    (3.0 * rows).sum().backward()
    assert seen[0].data_ptr() == table.weight.grad._values().data_ptr()
    clip_grad_norm_(table.parameters(), 0.1)
    assert (seen[0] == 3.0).all()
    assert table.weight.grad.coalesce().values().norm().item() == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_finite(bad):
    table = torch.nn.Parameter(torch.zeros(5, 2))
    table.grad = sparse([1, 2], torch.tensor([[1.0, bad], [1.0, 1.0]]), coalesced=True)
    with pytest.raises(TokenspaceError, match=r"total norm of order 2.0 is (inf|nan)"):
        clip_grad_norm_(table, 1.0, error_if_nonfinite=True)
    assert table.grad._values()[1].tolist() == [1.0, 1.0]
    total = clip_grad_norm_(table, 1.0)
    assert not math.isfinite(total)


def test_no_gradients_at_all():
    assert clip_grad_norm_([torch.nn.Parameter(torch.zeros(2))], 1.0) == 0.0
    assert clip_grad_norm_([], 1.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "max_norm must be a positive"),
        ((-1,), "max_norm"),
        (("1",), "max_norm"),
        ((1.0, 0), "norm_type"),
        ((1.0, "two"), "norm_type"),
    ],
)
def test_norms_that_are_none(arguments, message):
    with pytest.raises(ShapeError, match=message):
        clip_grad_norm_([torch.nn.Parameter(torch.zeros(2))], *arguments)
