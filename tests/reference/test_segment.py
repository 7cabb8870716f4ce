import numpy as np
import pytest

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.reference import SegmentEmbedding


def test_two_segments_share_two_rows(rng, numeric_gradient):
    segment = SegmentEmbedding.from_weight(rng.normal(size=(2, 3)))
    ids = [[0, 0, 1], [0, 1, 1]]
    assert np.array_equal(segment.forward(ids), segment.weight[np.array(ids)])
    upstream = rng.normal(size=(2, 3, 3))
    expected = numeric_gradient(lambda: float((segment.forward(ids) * upstream).sum()), segment.weight)
    assert segment.backward(upstream) == pytest.approx(expected, abs=1e-7)
    assert segment.weight.size == 2 * 3


@pytest.mark.parametrize("name", ["segment", "language", "role", "modality"])
def test_an_error_says_which_ids_are_wrong(name, rng):
    for table in (
        SegmentEmbedding(2, 3, rng, name=name),
        SegmentEmbedding.from_weight(np.zeros((2, 3)), name=name),
    ):
        with pytest.raises(TokenIdError, match=f"1 of 1 {name} ids is outside this table of 2 rows"):
            table.forward([[2]])


@pytest.mark.parametrize("rows", [0, 2.0, True])
def test_rows_are_a_positive_integer(rows, rng):
    with pytest.raises(ShapeError, match="two positive integers"):
        SegmentEmbedding(rows, 3, rng)
