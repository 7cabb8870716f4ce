"""LMHead: logits, the loss whole and chunked, tied and not, in half precision, compiled."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tokenspace import reference
from tokenspace.nn import LMHead, TokenEmbedding
from tokenspace.nn import loss as loss_module

V, D = 30, 8
SETTINGS = {
    "plain": {},
    "T5": {"hidden_scale": "rsqrt"},
    "Cohere": {"logit_scale": 0.0625},
    "Gemma 2": {"soft_cap": 3.0},
}


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", 4 * V)


def layers(device, settings, kind, dtype=torch.float64):
    if kind == "untied":
        head = LMHead.untied(V, D, bias=True, device=device, dtype=dtype, **settings)
    else:
        embedding = TokenEmbedding(
            V, D, padding_idx=2, freeze_padding=kind == "frozen padding", device=device, dtype=dtype
        )
        head = LMHead(embedding, bias=True, **settings)
    torch.nn.init.normal_(head.bias)
    weight, bias = (p.detach().double().cpu().numpy() for p in (head.weight, head.bias))
    if kind == "untied":
        return head, reference.LMHead.untied(weight, bias=bias, **settings)
    theirs = reference.Embedding.from_weight(weight, padding_id=2, freeze_padding=kind == "frozen padding")
    return head, reference.LMHead(theirs, bias=bias, **settings)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", ["tied", "untied", "frozen padding"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_loss_and_gradients_are_the_references(settings, kind, chunked, smoothing, device):
    head, twin = layers(device, settings, kind)
    hidden = torch.randn(3, 6, D, dtype=torch.float64, device=device, requires_grad=True)
    labels = torch.randint(3, V, (3, 6))
    labels[0, :3] = -100
    states = hidden.detach().cpu().numpy()
    np.testing.assert_allclose(head(hidden).detach().cpu().numpy(), twin.forward(states), atol=1e-10)

    loss = head.loss(hidden, labels.to(device), label_smoothing=smoothing, chunked=chunked)
    loss.backward()
    expected = twin.loss(states, labels.numpy(), label_smoothing=smoothing)
    rounded = 1e-5  # the chunked sum may be float32 on a device
    assert loss.item() == pytest.approx(expected, rel=rounded)
    np.testing.assert_allclose(hidden.grad.cpu().numpy(), twin.backward(), atol=rounded)
    for name, gradient in twin.gradients().items():
        found = getattr(head, name).grad.cpu().numpy()
        np.testing.assert_allclose(found, gradient, atol=rounded, err_msg=name)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_the_one_table_of_a_tied_model_gets_both_gradients(chunked, device):
    embedding = TokenEmbedding(V, D, device=device)
    head = LMHead(embedding)
    ids = torch.randint(0, V, (3, 6), device=device)
    head.loss(embedding(ids[:, :-1]), ids[:, 1:], chunked=chunked).backward()
    weight = embedding.weight.detach().clone().requires_grad_()
    logits = F.linear(F.embedding(ids[:, :-1], weight), weight)
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    torch.testing.assert_close(embedding.weight.grad, weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"soft_cap": 3.0}], ids=["plain", "cap"])
def test_bfloat16_is_near_float64(settings, device):
    head, twin = layers(device, settings, "untied", torch.bfloat16)
    hidden = torch.randn(2, 40, D).to(torch.bfloat16)
    labels = torch.randint(0, V, (2, 40))
    loss = head.loss(hidden.to(device), labels.to(device))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(twin.loss(hidden.double().numpy(), labels.numpy()), rel=0.02)
    loss.backward()
    twin.backward()
    found = head.weight.grad.double().cpu().numpy()
    np.testing.assert_allclose(found, twin.gradients()["weight"], atol=0.01)


def test_autocast(device):
    head = LMHead.untied(V, D, device=device)
    hidden = torch.randn(3, 6, D, device=device, requires_grad=True)
    labels = torch.randint(0, V, (3, 6), device=device)
    exact = head.loss(hidden, labels)
    with torch.autocast(device, torch.bfloat16):
        assert head(hidden).dtype == torch.bfloat16
        loss = head.loss(hidden, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0.0)
    loss.backward()
    assert hidden.grad.dtype == head.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("settings", [{}, {"soft_cap": 3.0}], ids=["plain", "cap"])
def test_compiled_whole_it_gives_the_same(settings, device, compiled):
    head, _ = layers(device, settings, "untied", torch.float32)
    hidden = torch.randn(3, 6, D, device=device)
    labels = torch.randint(0, V, (3, 6), device=device)

    def loss(hidden):
        return head.loss(hidden, labels, chunked=False)

    torch.testing.assert_close(compiled(loss)(hidden), loss(hidden), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(compiled(head)(hidden), head(hidden), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"soft_cap": 3.0}], ids=["plain", "cap"])
def test_the_scores_of_a_batch_never_exist_at_once(settings, device):
    if device != "cuda":
        pytest.skip("a GPU's memory is counted; tests/nn counts the CPU's")
    rows, positions = 60_000, 4_096
    head = LMHead.untied(rows, 64, device=device, **settings)
    hidden = torch.randn(positions, 64, device=device, requires_grad=True)
    labels = torch.randint(0, rows, (positions,), device=device)
    head.loss(hidden[:8], labels[:8]).backward()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    head.loss(hidden, labels).backward()
    assert torch.cuda.max_memory_allocated() - held < rows * positions * 4 / 2
