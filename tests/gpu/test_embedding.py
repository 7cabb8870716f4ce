"""TokenEmbedding: rows, gradients dense and row-sparse, half precision, the frozen padding row."""

import copy

import numpy as np
import pytest
import torch

from tokenspace import reference
from tokenspace.nn import TokenEmbedding
from tokenspace.optim.gradients import row_gradient

V, D = 50, 8
SETTINGS = {
    "plain": {},
    "scaled": {"scale": "sqrt"},
    "padding": {"padding_idx": 1},
    "all": {"scale": 1.7, "padding_idx": 0, "freeze_padding": True},
}
IDS = {
    "plain": [[1, 2, 3], [4, 5, 6]],
    "repeated": [[2, 2, 2], [2, 0, 1]],
    "all one": [[7] * 300],
    "empty": [[]],
}
REPEATS = 5_000
HALVES = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def pair(device, dtype=torch.float64, **settings):
    weight = torch.randn(V, D, dtype=torch.float64)
    module = TokenEmbedding.from_pretrained(weight.to(dtype).to(device), freeze=False, **settings)
    given = {name.replace("_idx", "_id"): value for name, value in settings.items() if name != "sparse"}
    return module, reference.Embedding.from_weight(weight.to(dtype).double().numpy(), **given)


def dense(gradient):
    """A gradient's rows (V, D); a row-sparse one's repeated ids summed as the optimizers sum them."""
    if gradient.is_sparse:
        rows = row_gradient(gradient)
        gradient = torch.zeros(gradient.shape, dtype=torch.float64, device=gradient.device)
        gradient[rows.ids] = rows.values.double()
    return gradient.double().cpu().numpy()


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_rows_and_gradient_are_the_references(ids, settings, sparse, dtype, device):
    module, truth = pair(device, dtype, sparse=sparse, **settings)
    ids = np.array(ids, np.int64)
    out = module(torch.tensor(ids, device=device))
    assert out.device.type == device
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(out.detach().cpu().numpy(), truth.forward(ids), rtol=tolerance)
    upstream = torch.randn(out.shape, dtype=torch.float64).to(dtype)
    out.backward(upstream.to(device))
    assert module.weight.grad.is_sparse == sparse
    expected = truth.backward(upstream.double().numpy())
    np.testing.assert_allclose(dense(module.weight.grad), expected, rtol=tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
def test_the_gradient_that_comes_in_is_left_as_it_is(sparse, device):
    module, _ = pair(device, torch.float32, scale=2.0, sparse=sparse)
    upstream = torch.randn(1, 3, D, device=device)
    before = upstream.clone()
    module(torch.tensor([[3, 3, 4]], device=device)).backward(upstream)
    assert torch.equal(upstream, before)


@pytest.mark.parametrize("name", ["uint8", "uint16", "int8", "int16", "int32", "int64"])
def test_every_integer_type_selects_its_rows(name, device):
    module, _ = pair(device)
    ids = torch.tensor([[1, 49]]).to(getattr(torch, name)).to(device)
    assert torch.equal(module(ids), module.weight[[1, 49]][None])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
def test_a_repeated_id_sums_in_float32_in_half_precision(dtype, sparse, device):
    if device == "cpu" and not sparse:
        pytest.skip("torch's own sum stalls on a CPU, which is why our kernels make it there")
    module, _ = pair(device, dtype, sparse=sparse)
    ids = torch.full((1, REPEATS), 7, device=device)
    module(ids).backward(torch.ones(1, REPEATS, D, dtype=dtype, device=device))
    assert module.weight.grad.dtype == dtype
    rounded = torch.tensor(float(REPEATS)).to(dtype)
    assert (dense(module.weight.grad)[7] == rounded.item()).all()  # 4,992 in bfloat16; the stall is at 256

    module.zero_grad()
    upstream = torch.randn(1, REPEATS, D).to(dtype)
    module(ids).backward(upstream.to(device))
    exact = upstream.double().sum((0, 1)).numpy()
    found = dense(module.weight.grad)[7]
    assert (np.abs(found - exact) <= HALVES[dtype] * np.abs(exact) + 1e-4).all()


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
def test_gemmas_scale_is_rounded_as_on_the_cpu(dtype, device):
    module = TokenEmbedding(V, 3072, scale="sqrt", scale_dtype="weight", device=device, dtype=dtype)
    on_cpu = copy.deepcopy(module).to("cpu")
    ids = torch.tensor([[1, 2, 2]])
    assert torch.equal(module(ids.to(device)).cpu(), on_cpu(ids))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
def test_compiled_code_gives_the_same(sparse, device, compiled):
    module, _ = pair(device, torch.float32, scale="sqrt", padding_idx=1, sparse=sparse)
    ids, upstream = torch.tensor([[2, 2, 1]], device=device), torch.randn(1, 3, D, device=device)
    eager = module(ids)
    eager.backward(upstream)
    expected = dense(module.weight.grad)
    module.zero_grad()
    out = torch.compile(module)(ids) if sparse else compiled(module)(ids)
    torch.testing.assert_close(out, eager)
    out.backward(upstream)
    np.testing.assert_allclose(dense(module.weight.grad), expected, rtol=1e-6)


def test_a_lookup_waits_for_nothing(device, no_waiting):
    module = TokenEmbedding(V, D, padding_idx=1, scale="sqrt", scale_dtype="weight", device=device)
    ids = torch.zeros(2, 3, dtype=torch.int64, device=device)
    module(ids).sum().backward()  # what waits the first time only: libraries that are loaded
    with no_waiting():
        module(ids).sum().backward()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
def test_a_frozen_padding_row_stays_under_any_optimizer(sparse, device):
    module = TokenEmbedding(V, D, padding_idx=3, freeze_padding=True, sparse=sparse, device=device)
    with torch.no_grad():
        module.weight[3] = 2.0
    kind = torch.optim.SparseAdam if sparse else torch.optim.AdamW
    optimizer = kind(module.parameters(), lr=0.1)
    before = module.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.tensor([[3, 4, 4]], device=device)).square().sum().backward()
        optimizer.step()
    assert (module.weight[3] == 2.0).all()
    assert not torch.equal(module.weight[4], before[4])


def test_rows_are_shortened_and_added(device):
    module = TokenEmbedding.from_pretrained(torch.tensor([[3.0, 4.0], [0.3, 0.4]], device=device))
    module.project_(1.0)
    torch.testing.assert_close(module.weight.cpu(), torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    assert module.add_rows(2, torch.ones(2, 2)) == range(2, 4)
    assert module.weight.device.type == device
    assert module(torch.tensor([3], device=device)).tolist() == [[1.0, 1.0]]
