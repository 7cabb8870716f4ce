"""TransformerInput: every part, its values and gradients, dropout, compiled and not."""

import numpy as np
import pytest
import torch

from tokenspace import reference
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)

V, D, H = 40, 8, 12
RECIPES = ("bare", "paper", "bert", "roberta", "xlm", "albert")


def pair(name, device, dtype=torch.float64):
    """The parts of a recipe on the device, and the NumPy truth with the same numbers."""

    def numbers(*shape):
        return torch.randn(shape, dtype=torch.float64).to(dtype)

    def held(kind, truth, weight, more=None, **settings):
        given = {**settings, **(more or {})}
        theirs = {key.replace("_idx", "_id"): value for key, value in given.items()}
        module = kind.from_pretrained(weight.to(device), freeze=False, **given)
        return module, truth.from_weight(weight.double().numpy(), **theirs)

    padding = {"padding_idx": 0} if name in ("bert", "roberta") else {}
    scale = {"scale": "sqrt"} if name == "paper" else {}
    parts = {"token": held(TokenEmbedding, reference.Embedding, numbers(V, D), scale, **padding)}
    if name == "paper":
        parts["position"] = (
            SinusoidalPositionalEncoding(D, device=device, dtype=dtype),
            reference.SinusoidalPositionalEncoding(D, dtype=np.float64),
        )
    elif name != "bare":
        skips = {"offset": 2, "padding_idx": 1} if name == "roberta" else {}
        parts["position"] = held(
            LearnedPositionalEmbedding, reference.LearnedPositionalEmbedding, numbers(9, D), **skips
        )
    if name in ("bert", "roberta", "albert"):
        parts["segment"] = held(SegmentEmbedding, reference.SegmentEmbedding, numbers(2, D))
    if name == "xlm":
        table = held(SegmentEmbedding, reference.SegmentEmbedding, numbers(3, D), name="language")
        parts["extras"] = tuple({"language": one} for one in table)
    if name in ("bert", "roberta", "xlm", "albert"):
        norm = torch.nn.LayerNorm(D, eps=1e-12, device=device, dtype=dtype)
        torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
        arrays = [p.detach().double().cpu().numpy() for p in (norm.weight, norm.bias)]
        parts["layer_norm"] = norm, reference.LayerNorm.from_weight(*arrays, eps=1e-12)
    if name == "albert":
        projection = Projection(D, H, device=device, dtype=dtype)
        arrays = [p.detach().double().cpu().numpy() for p in (projection.weight, projection.bias)]
        parts["projection"] = projection, reference.Projection.from_weight(*arrays)
    ours, truth = ({key: both[side] for key, both in parts.items()} for side in (0, 1))
    return TransformerInput(**ours), reference.TransformerInput(**truth)


def arguments(layer):
    ids = np.array([[5, 5, 7, 39], [9, 5, 0, 0]])
    given = {}
    if layer.segment is not None:
        given["segment_ids"] = np.array([[0, 0, 1, 1], [0, 1, 1, 1]])
    if layer.extras:
        given["extra_ids"] = {"language": np.array([[2, 2, 2, 2], [0, 0, 0, 0]])}
    return ids, given


def on(device, given):
    if isinstance(given, dict):
        return {name: on(device, value) for name, value in given.items()}
    return torch.tensor(given, device=device)


@pytest.mark.parametrize(
    ("dtype", "way"),
    [(torch.float64, "eager"), (torch.float32, "eager"), (torch.float32, "compiled")],
    ids=["float64", "float32", "float32-compiled"],
)
@pytest.mark.parametrize("name", RECIPES)
def test_values_and_every_gradient_are_the_references(name, dtype, way, device, compiled):
    layer, truth = pair(name, device, dtype)
    ids, given = arguments(truth)
    called = compiled(layer) if way == "compiled" else layer
    out = called(torch.tensor(ids, device=device), **on(device, given))
    expected = truth.forward(ids, **given)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(out.detach().cpu().numpy(), expected, **tolerance)
    upstream = torch.randn(out.shape, dtype=torch.float64).to(dtype)
    out.backward(upstream.to(device))
    truth.backward(upstream.double().numpy())
    gradients = truth.gradients()
    parameters = {name.removeprefix("extras."): p for name, p in layer.named_parameters()}
    assert parameters.keys() == gradients.keys()
    for part, parameter in parameters.items():
        found = parameter.grad.cpu().numpy()
        np.testing.assert_allclose(found, gradients[part], **tolerance, err_msg=part)


def test_a_mask_and_starts_on_the_device(device):
    layer, truth = pair("roberta", device)
    ids, given = arguments(truth)
    mask, start = np.array([[1, 1, 1, 1], [0, 1, 1, 0]]), np.array([0, 3])
    for more in ({"attention_mask": mask}, {"start": start}, {"attention_mask": mask, "start": start}):
        out = layer(torch.tensor(ids, device=device), **on(device, given), **on(device, more))
        np.testing.assert_allclose(out.detach().cpu().numpy(), truth.forward(ids, **given, **more), atol=1e-9)


def test_a_forward_and_backward_wait_for_nothing(device, no_waiting):
    layer = TransformerInput.from_recipe("bert", vocab_size=V, d_model=D, max_positions=8, device=device)
    ids = torch.zeros(2, 4, dtype=torch.int64, device=device)
    layer(ids).sum().backward()
    with no_waiting():
        layer(ids).sum().backward()


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_dropout_and_its_gradient_have_one_mask(way, device, compiled):
    token = TokenEmbedding(2_000, D, device=device)
    layer = TransformerInput(token, dropout=torch.nn.Dropout(0.25))
    ids = torch.arange(2_000, device=device)[None]
    called = compiled(layer) if way == "compiled" else layer
    out = called(ids)
    kept = out[0] != 0
    assert 0.7 < kept.float().mean() < 0.8
    torch.testing.assert_close(out[0][kept], token.weight.detach()[kept] / 0.75)
    out.backward(torch.ones_like(out))
    torch.testing.assert_close(token.weight.grad, kept / 0.75)
    assert not torch.equal(called(ids), out)  # other masks each time
    layer.eval()
    assert torch.equal(layer(ids)[0], token.weight)


def test_out_is_written_and_returned(device):
    layer, _ = pair("bert", device, torch.float32)
    ids, given = arguments(layer)
    ids, given = torch.tensor(ids, device=device), on(device, given)
    with torch.no_grad():
        expected, out = layer(ids, **given), torch.empty(*ids.shape, D, device=device)
        assert layer(ids, **given, out=out) is out
    assert torch.equal(out, expected)


def test_a_seed_repeats_the_mask(device):
    layer = TransformerInput(TokenEmbedding(V, D, device=device), dropout=torch.nn.Dropout(0.5))
    ids = torch.arange(V, device=device)[None]
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(layer(ids))
    assert torch.equal(*drawn)


def test_bfloat16_is_near_float64(device):
    layer, truth = pair("bert", device, torch.bfloat16)
    ids, given = arguments(truth)
    out = layer(torch.tensor(ids, device=device), **on(device, given))
    assert out.dtype == torch.bfloat16
    np.testing.assert_allclose(
        out.detach().double().cpu().numpy(), truth.forward(ids, **given), rtol=0.03, atol=0.03
    )
    out.backward(torch.ones_like(out))
    truth.backward(np.ones(out.shape))
    found = layer.segment.weight.grad.double().cpu().numpy()
    np.testing.assert_allclose(found, truth.gradients()["segment.weight"], rtol=0.05, atol=0.5)


@pytest.mark.parametrize("inner", ["float32", "bfloat16"])
def test_sinusoidal_rows_are_rounded_once(inner, device):
    dtype = getattr(torch, inner)
    on_device = SinusoidalPositionalEncoding(D, device=device, dtype=dtype)
    on_cpu = SinusoidalPositionalEncoding(D, dtype=dtype)
    positions = torch.tensor([[0, 1, 257, 4095]])
    torch.testing.assert_close(on_device(positions.to(device)).cpu(), on_cpu(positions), rtol=1e-6, atol=1e-6)
