import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import ShapeError, VocabError
from tokenspace.geometry import View, analogy
from tokenspace.plots import Arrows, arrows
from tokenspace.table import Table
from tokenspace.vocab import Vocab


def random_table(rng, width=10):
    return Table(rng.normal(size=(40, width)).astype(np.float32), Vocab([f"w{i}" for i in range(40)]))


def test_the_plane_is_that_of_the_largest_spread(rng):
    table = random_table(rng)
    drawn = Arrows.of(table, "w1", "w2", "w3")
    best = analogy(table, "w1", "w2", "w3", k=5)
    assert drawn.hits == tuple(best)
    assert drawn.words == ("w1", "w2", "w3", best[0].token)
    assert drawn.ids == (1, 2, 3, best[0].id)
    rows = table.weight[list(drawn.ids)].astype(np.float64)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centered = units - units.mean(axis=0)
    _, spread, directions = np.linalg.svd(centered)
    np.testing.assert_allclose(np.abs(drawn.points[:4]), np.abs(centered @ directions[:2].T), atol=1e-6)
    np.testing.assert_allclose(
        drawn.points[4], drawn.points[1] - drawn.points[0] + drawn.points[2], atol=1e-6
    )
    shares = spread**2 / (spread**2).sum()
    assert drawn.axes[0] == f"axis 1 of the plane ({100 * shares[0]:.1f} % of the four's spread)"
    true = np.stack([units[1] - units[0], units[3] - units[2]])
    seen = np.stack([drawn.points[1] - drawn.points[0], drawn.points[3] - drawn.points[2]])
    assert drawn.plane_share == pytest.approx((seen**2).sum() / (true**2).sum(), rel=1e-5)
    assert 0 < drawn.plane_share < 1
    cosine = true[0] @ true[1] / np.linalg.norm(true[0]) / np.linalg.norm(true[1])
    assert drawn.cosine == pytest.approx(cosine)


def test_a_parallelogram_lies_in_its_plane():
    rows = np.array([[1, 0, 0.2], [1, 0.3, 0.2], [0, 0, 1], [0, 0.3, 1], [-1, -1, -1]], np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[3] = rows[1] - rows[0] + rows[2]
    rows[3] /= np.linalg.norm(rows[3])
    drawn = Arrows.of(Table(rows, Vocab(["a", "b", "c", "d", "far"])), "a", "b", "c")
    assert drawn.words[3] == "d"
    assert drawn.plane_share > 0.95
    assert drawn.cosine > 0.9


def test_the_arrows_point_right_and_up(rng):
    for seed in range(5):
        drawn = Arrows.of(random_table(np.random.default_rng(seed)), 1, 2, 3)
        first, second = drawn.points[1] - drawn.points[0], drawn.points[3] - drawn.points[2]
        assert ((first + second) >= -1e-6).all()


def test_switches_and_views(rng):
    table = random_table(rng)
    switched = Arrows.of(table, "w1", "w2", "w3", "3cosmul", remove=2)
    of_view = Arrows.of(View(table, remove=2), "w1", "w2", "w3", "3cosmul")
    np.testing.assert_array_equal(switched.points, of_view.points)
    assert switched.hits == of_view.hits == tuple(analogy(table, "w1", "w2", "w3", 5, "3cosmul", remove=2))
    assert len(Arrows.of(table, "w1", "w2", "w3", k=2).hits) == 2


def test_the_figure_draws_both_and_obeys_no_token(rng):
    tokens = ["<b>a</b>", "b", "c", "<script>alert(1)</script>", "e"]
    table = Table(
        np.eye(5, dtype=np.float32) + 0.1 * rng.normal(size=(5, 5)).astype(np.float32), Vocab(tokens)
    )
    figure = arrows(table, "<b>a</b>", "b", "c")
    first, second, target = figure.data
    assert list(first.text) == ["&lt;b&gt;a&lt;/b&gt;", "b"]
    drawn = Arrows.of(table, "<b>a</b>", "b", "c")
    np.testing.assert_allclose([first.x, first.y], drawn.points[:2].T)
    np.testing.assert_allclose([second.x, second.y], drawn.points[2:4].T)
    np.testing.assert_allclose([target.x[0], target.y[0]], drawn.points[4])
    assert "<b>" not in figure.to_json().replace("\\u003c", "<")
    assert "<script>" not in figure.layout.title.text
    assert f"{drawn.plane_share:.0%} of the arrows' squared lengths" in figure.layout.title.text
    assert figure.layout.yaxis.scaleanchor == "x"


def test_king_and_queen():
    drawn = Arrows.of(ts.load("wordnet"), "man", "king", "woman")
    assert drawn.words == ("man", "king", "woman", "queen")
    assert 0.5 < drawn.cosine < drawn.plane_share < 1


def test_what_is_refused(rng):
    table = random_table(rng)
    with pytest.raises(VocabError):
        Arrows.of(table, "w1", "w2", "nowhere")
    with pytest.raises(ShapeError, match="no fourth row"):
        Arrows.of(Table(table.weight[:3], Vocab(["a", "b", "c"])), "a", "b", "c")
