import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError
from tokenspace.reference import Projection

SHAPES = {"batch": (2, 3), "one": (), "empty": (2, 0)}


@pytest.mark.parametrize("axes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_forward_and_gradients_match_torch_and_finite_differences(axes, has_bias, rng, numeric_gradient):
    weight, bias = rng.normal(size=(5, 4)), rng.normal(size=5) if has_bias else None
    x, upstream = rng.normal(size=(*axes, 4)), rng.normal(size=(*axes, 5))
    ours = Projection.from_weight(weight, bias)
    theirs = torch.nn.Linear(4, 5, bias=has_bias, dtype=torch.float64)
    theirs.load_state_dict({name: torch.tensor(array) for name, array in ours.parameters().items()})
    their_x = torch.tensor(x, requires_grad=True)
    output = theirs(their_x)
    output.backward(torch.tensor(upstream))

    def f() -> float:
        return float((ours.forward(x) * upstream).sum())

    expected = {name: numeric_gradient(f, array) for name, array in ours.parameters().items()}
    assert ours.forward(x) == pytest.approx(output.detach().numpy())
    assert ours.backward(upstream) == pytest.approx(their_x.grad.numpy())
    assert set(ours.gradients()) == set(expected)
    for name, gradient in ours.gradients().items():
        assert gradient == pytest.approx(theirs.get_parameter(name).grad.numpy())
        assert gradient == pytest.approx(expected[name], abs=1e-7)


def test_a_new_one_has_xaviers_bound_and_a_zero_bias(rng):
    layer = Projection(128, 768, rng)
    assert layer.weight.shape == (768, 128)
    assert abs(layer.weight).max() == pytest.approx((6 / (128 + 768)) ** 0.5, rel=1e-3)
    assert not layer.bias.any()
    assert Projection(3, 2, rng, bias=False).bias is None


def test_gradients_add_up_until_they_are_forgotten(rng):
    layer = Projection(3, 2, rng)
    for _ in range(2):
        layer.forward(np.ones((5, 3)))
        layer.backward(np.ones((5, 2)))
    assert layer.gradients()["weight"].tolist() == [[10] * 3] * 2
    assert layer.gradients()["bias"].tolist() == [10] * 2
    layer.zero_gradient()
    assert not any(gradient.any() for gradient in layer.gradients().values())


def test_shapes_that_do_not_fit(rng):
    with pytest.raises(ShapeError, match="takes width 3"):
        Projection(3, 5, rng).forward(np.ones((2, 4)))
    with pytest.raises(ShapeError, match="takes a bias"):
        Projection.from_weight(np.ones((3, 2)), np.ones(2))
    with pytest.raises(ShapeError, match=r"a bias is a \(H\) array of floats"):
        Projection.from_weight(np.ones((3, 2)), ["a", "b", "c"])
    for widths in ((0, 5), (3, 2.5), (True, 5)):
        with pytest.raises(ShapeError, match="two positive integers"):
            Projection(*widths, rng)
