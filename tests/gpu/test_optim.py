"""Row-sparse optimizers and clipping on a device, against the same steps on the CPU and torch's own."""

import contextlib
import copy

import pytest
import torch

from tokenspace.errors import TokenspaceError
from tokenspace.nn import LMHead, TokenEmbedding
from tokenspace.optim import (
    DenseGradientWarning,
    SparseAdagrad,
    SparseAdamW,
    SparseRowWiseAdagrad,
    SparseSGD,
    clip_grad_norm_,
)
from tokenspace.optim.gradients import row_gradient
from tokenspace.optim.touched import Touched

V, D = 40, 8
OURS = {
    "SGD": lambda parameters: SparseSGD(parameters, lr=0.1, weight_decay=0.01),
    "Adagrad": lambda parameters: SparseAdagrad(parameters, lr=0.1),
    "row-wise Adagrad": lambda parameters: SparseRowWiseAdagrad(parameters, lr=0.1),
    "AdamW": lambda parameters: SparseAdamW(parameters, lr=0.1),
}
TORCHS = {
    "SGD": (lambda p: SparseSGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "Adagrad": (lambda p: SparseAdagrad(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    "Adam": (
        lambda p: SparseAdamW(p, lr=0.1, weight_decay=0.0),
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
    ),
}


def batches(steps=4):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, V, (2, 30), generator=generator).clamp(max=20) for _ in range(steps)]


def trained(module, optimizer, given, clip=None):
    """Gradients that depend on the weights, each id several times; the rows at the end, on the CPU."""
    for ids in given:
        optimizer.zero_grad()
        out = module(ids.to(module.weight.device))
        (out.float() ** 2 + out.float()).sum().backward()
        if clip is not None:
            clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return module.weight.detach().cpu()


@pytest.fixture
def on_device(device, monkeypatch):
    """`trained` as it goes on the device; on a CPU that is without kernels, which the other side has."""

    def run(*given):
        with monkeypatch.context() as patch:
            if device == "cpu":
                patch.setattr(Touched, "fits_kernels", lambda touched: False)
            return trained(*given)

    return run


def twins(device, **settings):
    on_cpu = TokenEmbedding(V, D, sparse=True, **settings)
    return copy.deepcopy(on_cpu).to(device), on_cpu


@pytest.mark.parametrize("clip", [None, 1.0], ids=["", "clipped"])
@pytest.mark.parametrize("name", OURS)
def test_steps_are_those_of_the_cpu(name, clip, device, on_device):
    module, on_cpu = twins(device)
    start = on_cpu.weight.detach().clone()
    found = on_device(module, OURS[name](module.parameters()), batches(), clip)
    expected = trained(on_cpu, OURS[name](on_cpu.parameters()), batches(), clip)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[:21], start[:21])
    assert torch.equal(found[21:], start[21:])  # rows that no batch had


@pytest.mark.parametrize("name", TORCHS)
def test_steps_are_torchs(name, device, on_device):
    ours, torchs = TORCHS[name]
    module, twin = TokenEmbedding(V, D, sparse=True, device=device), torch.nn.Embedding(V, D, sparse=True)
    twin.weight = torch.nn.Parameter(module.weight.detach().clone())
    found = on_device(module, ours(module.parameters()), batches())
    torch.testing.assert_close(
        found, trained(twin, torchs(twin.parameters()), batches()), rtol=1e-4, atol=1e-5
    )


def test_an_all_dense_step_is_dense_adamw(device, on_device):
    module, _ = twins(device)
    module.sparse = False
    twin = copy.deepcopy(module)
    with pytest.warns(DenseGradientWarning, match="the gradient of the 40 × 8 table is dense"):
        found = on_device(module, SparseAdamW(module.parameters(), lr=0.1), batches())
    expected = trained(twin, torch.optim.AdamW(twin.parameters(), lr=0.1), batches())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_exact_steps_are_the_cpus_alone(device):
    if device == "cpu":
        pytest.skip("exact=True works on a CPU")
    module, _ = twins(device)
    with pytest.raises(TokenspaceError, match=r"on the CPU; found torch\.float32 on cuda"):
        trained(module, SparseAdamW(module.parameters(), exact=True), batches())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OURS)
def test_half_precision_steps_are_near_the_cpus(name, dtype, device, on_device):
    module, on_cpu = twins(device, dtype=dtype)
    found = on_device(module, OURS[name](module.parameters()), batches())
    expected = trained(on_cpu, OURS[name](on_cpu.parameters()), batches())
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", OURS)
def test_a_state_goes_on_elsewhere(name, device, on_device):
    module, _ = twins(device)
    optimizer = OURS[name](module.parameters())
    on_device(module, optimizer, batches())
    other = copy.deepcopy(module).to("cpu")
    resumed = OURS[name](other.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    found, expected = on_device(module, optimizer, batches(2)), trained(other, resumed, batches(2))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OURS)
def test_a_frozen_padding_row_stays(name, device, on_device):
    module, _ = twins(device, padding_idx=3, freeze_padding=True)
    with torch.no_grad():
        module.weight[3] = 2.0
    found = on_device(module, OURS[name](module.parameters()), batches())
    assert (found[3] == 2.0).all()


def test_a_tied_head_trains_its_table(device):
    token = TokenEmbedding(V, D, sparse=True, device=device)
    head = LMHead(token)
    optimizer = SparseAdamW(token.parameters(), lr=0.05)
    ids, losses = batches(1)[0].to(device), []
    for step in range(20):
        optimizer.zero_grad()
        losses.append(head.loss(token(ids[:, :-1]), ids[:, 1:]))
        losses[-1].backward()
        with pytest.warns(DenseGradientWarning) if step == 0 else contextlib.nullcontext():
            optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_gradients_are_clipped_together(device):
    token, linear = TokenEmbedding(V, D, sparse=True, device=device), torch.nn.Linear(D, 3, device=device)
    owners = [*token.parameters(), *linear.parameters()]
    linear(token(torch.tensor([[1, 1, 2]], device=device))).square().sum().backward()
    sums = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in owners]
    norm = torch.cat([values.flatten() for values in sums]).norm()
    torch.testing.assert_close(clip_grad_norm_(owners, 0.01), norm)
    torch.testing.assert_close(clip_grad_norm_(owners, 1.0), torch.tensor(0.01, device=device))


def test_repeated_ids_are_summed_in_float32(device):
    ids, values = torch.full((1, 5_000), 7), torch.ones(5_000, D, dtype=torch.bfloat16)
    gradient = torch.sparse_coo_tensor(ids, values, (V, D), check_invariants=True).to(device)
    rows = row_gradient(gradient)
    assert rows.ids.tolist() == [7]
    assert (rows.values == 4_992).all()  # the bfloat16 nearest to 5,000; torch's sum stalls at 256 on a CPU
