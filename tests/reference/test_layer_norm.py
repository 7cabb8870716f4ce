import ml_dtypes
import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError
from tokenspace.reference import LayerNorm

SHAPES = {"batch": (2, 3, 5), "one": (5,), "empty": (2, 0, 5)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.5])
def test_forward_and_gradients_match_torch(shape, eps, rng):
    weight, bias, x, upstream = (rng.normal(size=s) for s in (5, 5, shape, shape))
    ours = LayerNorm.from_weight(weight, bias, eps)
    theirs = torch.nn.LayerNorm(5, eps, dtype=torch.float64)
    theirs.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
    their_x = torch.tensor(x, requires_grad=True)
    output = theirs(their_x)
    output.backward(torch.tensor(upstream))
    assert ours.forward(x) == pytest.approx(output.detach().numpy())
    assert ours.backward(upstream) == pytest.approx(their_x.grad.numpy())
    assert ours.gradients()["weight"] == pytest.approx(theirs.weight.grad.numpy())
    assert ours.gradients()["bias"] == pytest.approx(theirs.bias.grad.numpy())


def test_gradients_match_finite_differences(rng, numeric_gradient):
    weight, bias, x, upstream = (rng.normal(size=s) for s in (4, 4, (3, 4), (3, 4)))
    layer = LayerNorm.from_weight(weight, bias)

    def f() -> float:
        return float((layer.forward(x) * upstream).sum())

    expected = {name: numeric_gradient(f, array) for name, array in layer.parameters().items()}
    expected_x = numeric_gradient(f, x)
    layer.forward(x)
    assert layer.backward(upstream) == pytest.approx(expected_x, abs=1e-7)
    for name, gradient in layer.gradients().items():
        assert gradient == pytest.approx(expected[name], abs=1e-7)


def test_without_a_bias_it_is_torchs(rng):
    weight, x, upstream = (rng.normal(size=s) for s in (5, (2, 5), (2, 5)))
    ours = LayerNorm.from_weight(weight, eps=1e-5)
    theirs = torch.nn.LayerNorm(5, 1e-5, bias=False, dtype=torch.float64)
    theirs.load_state_dict({"weight": torch.tensor(weight)})
    output = theirs(torch.tensor(x))
    output.backward(torch.tensor(upstream))
    assert ours.forward(x) == pytest.approx(output.detach().numpy())
    ours.backward(upstream)
    assert list(ours.parameters()) == ["weight"]
    assert list(ours.gradients()) == ["weight"]
    assert ours.gradients()["weight"] == pytest.approx(theirs.weight.grad.numpy())


def test_each_vector_has_mean_zero_and_variance_one(rng):
    y = LayerNorm(64).forward(rng.normal(5.0, 3.0, (7, 64)).astype(ml_dtypes.bfloat16))
    assert y.dtype == np.float32
    assert abs(y.mean(axis=1)).max() < 1e-6
    assert y.std(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_gradients_add_up_and_are_forgotten(rng):
    layer, upstream = LayerNorm(3), np.ones((2, 3))
    kept = upstream.copy()
    for _ in range(2):
        layer.forward(rng.normal(size=(2, 3)))
        layer.backward(upstream)
    assert layer.gradients()["bias"].tolist() == [4, 4, 4]
    assert np.array_equal(upstream, kept)
    layer.zero_gradient()
    assert not layer.gradients()["bias"].any()


def test_nan_spoils_its_own_vector_only():
    y = LayerNorm(2).forward([[np.nan, 1.0], [1.0, 2.0]])
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


def test_shapes_that_do_not_fit():
    with pytest.raises(ShapeError, match="width 3"):
        LayerNorm(3).forward(np.ones((2, 4)))
    with pytest.raises(ShapeError, match=r"\(D,\) each"):
        LayerNorm.from_weight(np.ones(3), np.ones(4))


@pytest.mark.parametrize("width", [0, -1, 2.5, True, "3"])
def test_a_width_is_a_positive_integer(width):
    with pytest.raises(ShapeError, match="embedding_dimension must be an integer, 1 or more"):
        LayerNorm(width)


@pytest.mark.parametrize("eps", [np.nan, np.inf, 0.0, -1e-5, "small", True, 1e-60])
def test_eps_is_positive_and_finite(eps):
    for make in (lambda: LayerNorm(3, eps), lambda: LayerNorm.from_weight(np.ones(3), np.ones(3), eps)):
        with pytest.raises(ShapeError, match="eps must be a positive, finite number"):
            make()


@pytest.mark.parametrize("array", [np.ones(0), np.ones(3, int), np.ones((3, 1)), ["a"]])
def test_weight_and_bias_are_floats(array):
    for weight, bias in ((array, np.ones(3)), (np.ones(3), array)):
        with pytest.raises(ShapeError, match=r"is a \(D\) array of floats"):
            LayerNorm.from_weight(weight, bias)
