import sys
import threading

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tokenspace.errors import ShapeError
from tokenspace.geometry import analogy, neighbors, similarity
from tokenspace.geometry.transform import Transform, View, principal
from tokenspace.table import Table
from tokenspace.vocab import Vocab


def random_table(rng, rows=300, width=12, dtype=np.float32):
    scales = np.linspace(4, 0.5, width)
    weight = rng.normal(size=(rows, width)) * scales @ np.linalg.qr(rng.normal(size=(width, width)))[0] + 3
    return Table(weight.astype(dtype), Vocab([f"w{i}" for i in range(rows)]))


def switched(table, remove):
    """All-but-the-top, from scikit-learn's PCA."""
    rows = table.weight.astype(np.float64)
    pca = PCA(svd_solver="full").fit(rows)
    top = pca.components_[:remove]
    rows = rows - rows.mean(axis=0)
    return Table((rows - rows @ top.T @ top).astype(np.float32), table.vocab)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("remove", [0, 1, 3])
def test_neighbors_without_the_top_directions(rng, metric, remove):
    table = random_table(rng)
    hits = neighbors(table, "w7", 20, metric, center=True, remove=remove)
    wanted = neighbors(switched(table, remove), "w7", 20, metric)
    assert [hit.id for hit in hits] == [hit.id for hit in wanted]
    np.testing.assert_allclose([h.score for h in hits], [h.score for h in wanted], rtol=1e-3, atol=1e-4)
    assert [hit.id for hit in hits] != [
        hit.id for hit in neighbors(table, "w7", 20, metric)
    ] or metric == "l2"


def test_analogy_and_similarity_take_the_switches(rng):
    table = random_table(rng)
    other = switched(table, 2)
    for method in ("3cosadd", "3cosmul"):
        hits = analogy(table, "w1", "w2", "w3", 9, method, remove=2)
        wanted = analogy(other, "w1", "w2", "w3", 9, method)
        assert [hit.id for hit in hits] == [hit.id for hit in wanted]
        assert [hit.id for hit in hits] != [hit.id for hit in analogy(table, "w1", "w2", "w3", 9, method)]
    result, expected = similarity(table, "w1", "w2", center=True, remove=2), similarity(other, "w1", "w2")
    for name in ("cosine", "dot", "l2"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), rel=1e-3, abs=1e-5)
    assert result.cosine != pytest.approx(similarity(table, "w1", "w2").cosine, abs=0.05)
    assert similarity(table, "w1", "w2", center=True).cosine == pytest.approx(
        similarity(switched(table, 0), "w1", "w2").cosine, abs=1e-5
    )


def test_removing_centers_too(rng):
    table = random_table(rng)
    assert neighbors(table, "w7", remove=2) == neighbors(table, "w7", center=True, remove=2)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("rows", [300, 7], ids=["covariance", "products of few rows"])
def test_principal_directions_are_those_of_a_full_decomposition(rng, rows, center):
    table = random_table(rng, rows=rows)
    found = principal(View(table), 4, center)
    exact = table.weight.astype(np.float64) - (table.weight.astype(np.float64).mean(axis=0) if center else 0)
    _, singular, directions = np.linalg.svd(exact)
    signs = np.sign(directions[range(4), np.abs(directions[:4]).argmax(axis=1)])
    np.testing.assert_allclose(found.directions, directions[:4] * signs[:, None], atol=1e-7)
    np.testing.assert_allclose(found.variances, singular[:4] ** 2 / rows, rtol=1e-6)
    assert found.total == pytest.approx((singular**2).sum() / rows)


def test_blocks_give_what_one_block_gives(rng, monkeypatch):
    table = random_table(rng)
    whole = neighbors(table, "w7", k=299, remove=2)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.rows"], "BLOCK", 60)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.transform"], "ROWS_AT_ONCE", 2)
    parts = neighbors(table, "w7", k=299, remove=2)
    assert [hit.id for hit in parts] == [hit.id for hit in whole]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("switches", [{}, {"center": True}, {"remove": 2}], ids=["raw", "center", "remove"])
def test_a_view_answers_the_same_to_the_bit(rng, metric, switches, dtype):
    table = random_table(rng, dtype=dtype)
    view = View(table, **switches)
    for _ in range(2):
        assert neighbors(view, "w7", 30, metric) == neighbors(table, "w7", 30, metric, **switches)
        assert analogy(view, "w1", "w2", "w3") == analogy(table, "w1", "w2", "w3", **switches)
        assert similarity(view, "w1", "w2") == similarity(table, "w1", "w2", **switches)


def test_a_view_checks_and_measures_the_rows_once(rng, monkeypatch):
    table = random_table(rng)
    view = View(table, remove=2)
    first = neighbors(view, "w7"), neighbors(view, "w7", metric="l2")
    monkeypatch.setattr(sys.modules["tokenspace.geometry.transform"], "check_comparable", None)
    assert (neighbors(view, "w7"), neighbors(view, "w7", metric="l2")) == first


def test_equal_rows_score_equal_without_the_top_directions(rng):
    table = random_table(rng, rows=1003, width=37)
    same = [5, 6, 331, 500, 777, 1001, 1002]
    table.weight[same] = table.weight[9]
    found = [hit for hit in neighbors(table, "w8", k=1003, remove=3) if hit.id in same]
    assert [hit.id for hit in found] == same
    assert len({hit.score for hit in found}) == 1


def test_many_threads_share_a_view(rng):
    table = random_table(rng, rows=3_000)
    view = View(table, remove=1)
    answers = {}
    threads = [
        threading.Thread(target=lambda i=i: answers.update({i: neighbors(view, i)})) for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers[i] == neighbors(table, i, remove=1) for i in range(12))


def test_a_transform_leaves_what_it_is_given(rng):
    table = random_table(rng)
    rows = table.weight[:5].copy()
    result = Transform.of(table, remove=2)(rows)
    np.testing.assert_array_equal(rows, table.weight[:5])
    assert np.abs(result @ Transform.of(table, remove=2).directions.T).max() < 1e-4


@pytest.mark.parametrize("switches", [{"center": True}, {"remove": 2}], ids=["center", "remove"])
def test_a_row_is_switched_the_same_alone_and_among_many(rng, switches):
    rows = random_table(rng, rows=2_100).weight
    transform = Transform.of(Table(rows, Vocab([f"w{i}" for i in range(len(rows))])), **switches)
    whole = transform(rows)
    for i in (0, 1_023, 1_024, 2_099):
        np.testing.assert_array_equal(whole[i], transform(rows[i]))
    assert np.abs(whole.mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("remove", [-1, 12, True])
def test_so_many_directions_can_not_be_removed(rng, remove):
    with pytest.raises(ShapeError, match="directions"):
        neighbors(random_table(rng), "w7", remove=remove)


def test_a_view_has_its_own_switches(rng):
    view = View(random_table(rng))
    with pytest.raises(ShapeError, match="a view has its own switches"):
        neighbors(view, "w7", center=True)
    with pytest.raises(ShapeError, match="a view has its own switches"):
        neighbors(view, "w7", remove=1)
