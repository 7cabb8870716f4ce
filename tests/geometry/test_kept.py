import sys

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry import Projection, kept, nearest, pca
from tokenspace.table import Table
from tokenspace.vocab import Vocab, placeholder


def random_table(rng, rows=200, width=6):
    tokens = [f"w{i}" for i in range(rows)]
    tokens[9] = placeholder(9)
    return Table(rng.normal(size=(rows, width)).astype(np.float32), Vocab(tokens))


def shares(table, coordinates, k, metric):
    """What scikit-learn says, point by point."""
    named = np.array([i for i in range(len(table)) if i != 9])
    distance = {"cosine": "cosine", "l2": "euclidean"}[metric]
    high = NearestNeighbors(n_neighbors=k, metric=distance).fit(table.weight[named]).kneighbors()[1]
    low = NearestNeighbors(n_neighbors=k).fit(coordinates[named]).kneighbors()[1]
    result = np.full(len(table), np.nan)
    result[named] = [len(set(a) & set(b)) / k for a, b in zip(high, low, strict=True)]
    return result


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("k", [1, 10])
def test_shares_match_scikit_learn(rng, metric, dims, k):
    table = random_table(rng)
    projection = pca(table, dims)
    result = kept(table, projection, k, metric)
    np.testing.assert_allclose(result.share, shares(table, projection.coordinates, k, metric), rtol=1e-6)
    assert result.measured == 199
    assert result.mean == pytest.approx(np.nanmean(result.share))
    assert 0 < result.mean < 1


def test_known_neighbors_give_the_same_and_are_not_sought_again(rng, monkeypatch):
    table = random_table(rng)
    projection, known = pca(table), nearest(table, k=12)
    wanted = kept(table, projection, k=7)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.kept"], "nearest", None)
    np.testing.assert_array_equal(kept(table, projection, k=7, known=known).share, wanted.share)
    for other in (nearest(table, k=6), nearest(table, [1, 2], k=12)):
        with pytest.raises(ShapeError, match="known must hold 7 or more neighbors of each of the 200 rows"):
            kept(table, projection, k=7, known=other)


def test_a_map_that_is_the_table_keeps_all(rng):
    table = random_table(rng, width=2)
    projection = pca(table)
    assert kept(table, projection, metric="l2").mean == 1


def test_a_large_table_is_measured_on_a_sample(rng, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace.geometry.kept"], "SAMPLE", 50)
    table = random_table(rng)
    projection = pca(table)
    whole = kept(table, projection)
    part, again = kept(table, projection, limit=100), kept(table, projection, limit=100)
    other = kept(table, projection, limit=100, seed=1)
    known = np.isfinite(part.share)
    assert part.measured == known.sum() == 50
    np.testing.assert_array_equal(part.share[known], whole.share[known])
    np.testing.assert_array_equal(part.share, again.share)
    assert (known != np.isfinite(other.share)).any()


def test_points_on_one_place_are_not_their_own_neighbors(rng):
    table = random_table(rng, rows=30)
    same = Projection(np.zeros((30, 2), np.float32), "pca", 0, {}, ("x", "y"), {})
    result = kept(table, same, k=5)
    assert np.nanmax(result.share) < 1
    assert kept(table, same, k=28).mean == 1  # all others are neighbors on either side


def test_what_is_refused(rng, monkeypatch):
    table = random_table(rng)
    projection = pca(table)
    with pytest.raises(ShapeError, match="200 points is not one of this table of 30 rows"):
        kept(random_table(rng, rows=30), projection)
    with pytest.raises(ShapeError, match="k must be"):
        kept(table, projection, k=0)
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    with pytest.raises(MissingExtra, match="scikit-learn"):
        kept(table, projection)


def test_progress_rises_to_the_end(rng):
    told = []
    table = random_table(rng)
    kept(table, pca(table), progress=lambda done, total: told.append(done / total))
    assert told == sorted(told)
    assert told[-1] == 1
