"""A head's logits and loss, in one piece or in chunks, under every setting."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tokenspace import reference
from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import LMHead, TokenEmbedding
from tokenspace.nn import loss as loss_module

V, D = 30, 8

SETTINGS = {
    "plain": {},
    "T5": {"hidden_scale": "rsqrt"},
    "Cohere": {"logit_scale": 0.0625},
    "Gemma 2": {"soft_cap": 3.0},
    "all": {"hidden_scale": 0.7, "logit_scale": 1.5, "soft_cap": 2.0},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", 4 * V)


@pytest.fixture
def ids():
    return torch.randint(1, V, (3, 6))


def layers(settings, *, tied=True, bias=True, freeze=False):
    """The same head in torch (float64) and in the reference, with equal numbers."""
    if tied:
        embedding = TokenEmbedding(V, D, padding_idx=2, freeze_padding=freeze, dtype=torch.float64)
        head = LMHead(embedding, bias=bias, **settings)
    else:
        head = LMHead.untied(V, D, bias=bias, dtype=torch.float64, **settings)
    if bias:
        nn.init.normal_(head.bias)
    weight = head.weight.detach().numpy()
    numbers = {"bias": head.bias.detach().numpy() if bias else None, **settings}
    theirs = reference.Embedding.from_weight(weight, padding_id=2, freeze_padding=freeze)
    twin = reference.LMHead(theirs, **numbers) if tied else reference.LMHead.untied(weight, **numbers)
    return head, twin


@every_setting
@pytest.mark.parametrize("kind", ["tied", "untied", "no bias", "frozen padding"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_loss_and_gradients_are_the_references(settings, kind, chunked, smoothing, ids):
    head, twin = layers(
        settings, tied=kind != "untied", bias=kind != "no bias", freeze=kind == "frozen padding"
    )
    hidden = torch.randn(3, 6, D, dtype=torch.float64, requires_grad=True)
    labels = torch.where(ids == 2, 4, ids)
    labels[0, :3] = -100
    logits = head(hidden)
    np.testing.assert_allclose(logits.detach().numpy(), twin.forward(hidden.detach().numpy()), atol=1e-12)

    loss = head.loss(hidden, labels, label_smoothing=smoothing, chunked=chunked)
    loss.backward()
    expected = twin.loss(hidden.detach().numpy(), labels.numpy(), label_smoothing=smoothing)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(hidden.grad.numpy(), twin.backward(), atol=1e-12)
    for name, gradient in twin.gradients().items():
        np.testing.assert_allclose(getattr(head, name).grad.numpy(), gradient, atol=1e-12, err_msg=name)


@every_setting
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_in_float32_it_equals_the_naive_loss(settings, chunked, ids):
    head = LMHead.untied(V, D, bias=True, **settings)
    hidden = torch.randn(3, 6, D, requires_grad=True)
    labels = torch.where(ids < 5, -100, ids)
    given = (hidden, head.weight, head.bias)
    naive = F.cross_entropy(head(hidden).flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    loss = head.loss(hidden, labels, label_smoothing=0.1, chunked=chunked)
    torch.testing.assert_close(loss, naive, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(loss, given), torch.autograd.grad(naive, given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("settings", [{}, {"soft_cap": 3.0}], ids=["plain", "cap"])
def test_under_autocast_the_loss_is_float32_and_the_gradients_the_tables_own_type(chunked, settings, ids):
    head = LMHead.untied(V, D, bias=True, **settings)
    hidden = torch.randn(3, 6, D, requires_grad=True)
    exact = head.loss(hidden, ids)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(hidden).dtype == torch.bfloat16
        loss = head.loss(hidden, ids, chunked=chunked)
        loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() != exact.item()  # it did round
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=0.0)
    for given, gradient in zip(
        (hidden, head.weight, head.bias),
        torch.autograd.grad(exact, (hidden, head.weight, head.bias)),
        strict=True,
    ):
        assert given.grad.dtype == torch.float32
        torch.testing.assert_close(given.grad, gradient, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_bad_labels_and_shapes(chunked, ids):
    head, hidden = LMHead(TokenEmbedding(V, D)), torch.randn(3, 6, D)
    ids[1, 2] = V
    with pytest.raises(
        TokenIdError,
        match=r"1 of 18 labels is outside this table of 30 rows; the first is 30 at batch 1, position 2",
    ):
        head.loss(hidden, ids, chunked=chunked)
    with pytest.raises(ShapeError, match=r"one label per position: \(3, 6\) expected, found \(3, 5\)"):
        head.loss(hidden, ids[:, :5].clamp(max=3), chunked=chunked)
    with pytest.raises(ShapeError, match="hidden states of width 8"):
        head.loss(hidden[..., :7], ids)
    with pytest.raises(ShapeError, match="hidden states of width 8"):
        head(hidden[..., :1])
    with pytest.raises(ShapeError, match="label_smoothing must be at least 0 and under 1"):
        head.loss(hidden, ids, label_smoothing=1.0)


@pytest.mark.parametrize("soft_cap", [None, 5.0])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_loss_runs_on_meta(soft_cap, chunked):
    head = LMHead.untied(V, D, bias=True, soft_cap=soft_cap, device="meta")
    hidden, labels = torch.empty(2, 3, D, device="meta"), torch.empty(2, 3, dtype=torch.long, device="meta")
    loss = head.loss(hidden, labels, chunked=chunked)
    loss.backward()
    assert loss.is_meta
    assert loss.shape == ()
    assert head.weight.grad.shape == (V, D)
