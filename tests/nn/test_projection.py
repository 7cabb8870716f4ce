import pytest
import torch

from tokenspace.errors import ShapeError
from tokenspace.nn import Projection
from tokenspace.nn.initializers import normal_


def test_is_a_linear_layer_drawn_as_told_now_and_again():
    torch.manual_seed(0)
    projection = Projection(300, 400)
    for _ in range(2):
        assert 0.98 * (6 / 700) ** 0.5 < projection.weight.abs().max() <= (6 / 700) ** 0.5
        assert not projection.bias.any()
        torch.nn.init.ones_(projection.bias)
        projection.reset_parameters()
    x = torch.randn(2, 300)
    assert torch.equal(projection(x), torch.nn.functional.linear(x, projection.weight, projection.bias))
    assert Projection(300, 400, bias=False).bias is None
    drawn = Projection(300, 400, initializer=lambda weight: normal_(weight, 0.02)).weight.detach()
    assert abs(float(drawn.std()) - 0.02) < 1e-3


def test_sizes():
    with pytest.raises(ShapeError, match="in_features"):
        Projection(0, 4)
