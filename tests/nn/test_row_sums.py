"""Lookups that torch makes and whose gradient kernels sum: the same numbers as by kernels alone."""

import pytest
import torch
from torch.autograd import forward_ad

from tokenspace.errors import TokenIdError
from tokenspace.nn import TokenEmbedding, dispatch, kernel_calls, row_sums

pytestmark = pytest.mark.usefixtures("as_installed")
ROWS, WIDTH = 50, 24
IDS = torch.arange(3 * 400).view(3, 400) % 7


@pytest.fixture
def lookups(monkeypatch):
    """Calls of `row_sums.lookup`."""
    made, lookup = [], row_sums.lookup
    monkeypatch.setattr(row_sums, "lookup", lambda *args: made.append(args) or lookup(*args))
    return made


@pytest.fixture
def exact(monkeypatch):
    """Float64 tables are summed by kernels, too: for numerical derivatives."""
    monkeypatch.setattr(dispatch, "_sums_well", lambda table, sparse: False)


def embedding(**settings):
    torch.manual_seed(0)
    return TokenEmbedding(ROWS, WIDTH, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("settings", [{}, {"scale": 3.0, "padding_idx": 2}], ids=["plain", "scaled"])
def test_rows_and_gradients_have_the_kernels_bits(dtype, sparse, settings, exact, lookups, monkeypatch):
    d_out = torch.randn(3, 400, WIDTH).to(dtype)
    found = []
    for kept_bytes in (dispatch.KEPT_BYTES, -1):  # torch's lookup, then the kernels'
        monkeypatch.setattr(dispatch, "KEPT_BYTES", kept_bytes)
        layer = embedding(dtype=dtype, sparse=sparse, **settings)
        rows = layer(IDS)
        rows.backward(d_out)
        gradient = layer.weight.grad
        assert gradient.is_sparse == sparse
        if sparse:
            assert gradient.is_coalesced()
        found.append((rows, gradient.to_dense()))
    assert len(lookups) == 1
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("ids", [IDS.int(), IDS[:, ::3], IDS.byte(), IDS[:0], torch.tensor(4)], ids=str)
def test_any_ids(ids):
    layer = embedding(dtype=torch.bfloat16)
    layer(ids).sum().backward()
    counts = torch.bincount(ids.flatten().long(), minlength=ROWS).bfloat16()
    assert torch.equal(layer.weight.grad, counts.unsqueeze(1).expand(ROWS, WIDTH))


@pytest.mark.parametrize("sparse", [False, True])
def test_an_id_outside_the_table_is_told_in_our_words(sparse):
    layer = embedding(dtype=torch.bfloat16, sparse=sparse)
    for wrong in (ROWS, -1):
        with pytest.raises(TokenIdError, match=f"1 of 2 token ids is outside this table of {ROWS} rows"):
            layer(torch.tensor([1, wrong]))


def test_ids_written_behind_torchs_back_are_refused():
    layer, ids = embedding(dtype=torch.bfloat16), IDS.clone()
    rows = layer(ids)
    ids.numpy()[0, 0] = ROWS + 1_000_000
    with pytest.raises(TokenIdError, match="outside this table"):
        rows.sum().backward()


def test_derivatives_of_both_orders(exact, lookups):
    layer, ids = embedding(dtype=torch.float64, scale=1.5), torch.tensor([[3, 3, 1]])

    def squared(weight):
        layer.weight.data.copy_(weight.detach())
        return row_sums.lookup(weight, ids, -1, 1.5, False).pow(2)

    weight = layer.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(squared, weight, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(squared, weight)
    assert lookups


def test_a_gradient_that_is_no_plain_tensor_is_torchs(exact, monkeypatch):
    sums = []
    monkeypatch.setattr(kernel_calls, "row_sums", lambda *args: sums.append(args))
    layer, ids = embedding(dtype=torch.float64), torch.tensor([3, 3, 1])
    batch = torch.randn(4, 3, WIDTH, dtype=torch.float64)
    found = torch.autograd.grad(layer(ids), layer.weight, batch, is_grads_batched=True)[0]
    assert not sums
    assert torch.allclose(found[:, 3], batch[:, :2].sum(1))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # as torch loads its rules
def test_forward_mode_and_function_transforms_are_torchs(exact, lookups):
    layer, ids = embedding(dtype=torch.float64), torch.tensor([3, 3, 1])
    weights = {"weight": layer.weight}

    def summed(given):
        return torch.func.functional_call(layer, given, (ids,)).sum()

    by_reverse = torch.func.grad(summed)(weights)["weight"]
    assert by_reverse[3, 0] == 2.0
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(layer.weight.detach(), torch.ones_like(layer.weight))
        by_forward = forward_ad.unpack_dual(summed({"weight": dual.requires_grad_()})).tangent
    assert float(by_forward) == 3 * WIDTH
    assert not lookups


def test_a_small_row_sparse_gradient_is_stored_as_coalesced():
    weight = torch.nn.Parameter(torch.ones(4, 2))
    row_sums.lookup(weight, torch.tensor([3, 1, 3]), -1, None, True).sum().backward()
    assert weight.grad.is_coalesced()
    assert weight.grad.to_dense().tolist() == [[0, 0], [1, 1], [0, 0], [2, 2]]
