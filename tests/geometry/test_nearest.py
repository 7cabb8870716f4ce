import sys

import numpy as np
import pytest

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.geometry import nearest, neighbors
from tokenspace.geometry.transform import View
from tokenspace.table import Table
from tokenspace.vocab import Vocab, placeholder

METRICS = pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])


def random_table(rng, rows=400, width=16):
    tokens = [f"w{i}" for i in range(rows)]
    tokens[5] = placeholder(5)
    return Table(rng.normal(size=(rows, width)).astype(np.float32) + 1, Vocab(tokens))


@METRICS
@pytest.mark.parametrize("switches", [{}, {"center": True}, {"remove": 2}], ids=["raw", "center", "remove"])
def test_each_row_gets_what_neighbors_answers(rng, metric, switches, monkeypatch):
    table = random_table(rng)
    module = sys.modules["tokenspace.geometry.nearest"]
    monkeypatch.setattr(module, "QUERIES", 90)  # several batches, several blocks
    monkeypatch.setattr(sys.modules["tokenspace.geometry.rows"], "BLOCK", 16 * 128)
    found = nearest(table, k=12, metric=metric, **switches)
    assert found.ids.shape == found.scores.shape == (400, 12)
    view = View(table, **switches)
    for i in range(0, 400, 7):
        hits = neighbors(view, i, 12, metric)
        assert found.ids[i].tolist() == [hit.id for hit in hits]
        assert found.scores[i].tolist() == [hit.score for hit in hits]


@pytest.mark.parametrize(("mean", "spread"), [(300, 0.1), (3_000, 1), (-1_000, 0.5)])
def test_distances_far_from_zero_lose_no_digits(rng, mean, spread):
    rows = (rng.normal(size=(400, 16)) * spread + mean).astype(np.float32)
    table = Table(rows, Vocab([f"w{i}" for i in range(400)]))
    found = nearest(table, k=5, metric="l2")
    for i in range(0, 400, 9):
        hits = neighbors(table, i, 5, "l2")
        assert found.ids[i].tolist() == [hit.id for hit in hits]
        assert found.scores[i].tolist() == [hit.score for hit in hits]


def test_some_rows_in_any_order(rng):
    table = random_table(rng)
    every = nearest(table)
    some = nearest(table, [17, 3, 17, 399])
    np.testing.assert_array_equal(some.ids, every.ids[[17, 3, 17, 399]])
    np.testing.assert_array_equal(some.scores, every.scores[[17, 3, 17, 399]])
    assert nearest(table, []).ids.shape == (0, 10)


@METRICS
def test_ties_go_to_the_lower_id(metric):
    table = Table(np.ones((50, 3), np.float32), Vocab([f"w{i}" for i in range(50)]))
    assert nearest(table, [3], k=5, metric=metric).ids.tolist() == [[0, 1, 2, 4, 5]]


def test_where_there_are_no_more_rows(rng):
    table = random_table(rng, rows=7)  # one of them has no token
    found = nearest(table, [0, 5], k=9)
    assert (found.ids[:, 6:] == -1).all()
    assert np.isnan(found.scores[:, 6:]).all()
    assert sorted(found.ids[0, :5].tolist()) == [1, 2, 3, 4, 6]
    assert found.ids[0, 5] == -1
    assert sorted(found.ids[1, :6].tolist()) == [0, 1, 2, 3, 4, 6]


def test_a_real_table(minilm):
    ids = np.arange(0, len(minilm), 500)
    view = View(minilm)
    found = nearest(view, ids)
    for i, row, scores in zip(ids.tolist(), found.ids, found.scores, strict=True):
        hits = neighbors(view, i)
        assert [hit.id for hit in hits] == row.tolist()
        assert [hit.score for hit in hits] == scores.tolist()


def test_progress_is_told(rng, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace.geometry.nearest"], "QUERIES", 150)
    told = []
    nearest(random_table(rng), progress=lambda done, total: told.append((done, total)))
    assert told == [(150, 400), (300, 400), (400, 400)]


def test_what_is_refused(rng):
    table = random_table(rng)
    with pytest.raises(ShapeError, match="k must be"):
        nearest(table, k=0)
    with pytest.raises(TokenIdError):
        nearest(table, [400])
