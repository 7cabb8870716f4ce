import json
import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry import View, kept, pca, project, tsne, umap
from tokenspace.geometry.projection import available
from tokenspace.table import Table
from tokenspace.vocab import Vocab


def groups(rng, rows=90, width=12, dtype=np.float32):
    """Rows around three directions."""
    weight = 3 * np.eye(3, width)[np.arange(rows) % 3] + rng.normal(0, 0.3, (rows, width)) + 1
    return Table(weight.astype(dtype), Vocab([f"w{i}" for i in range(rows)]))


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("rows", [90, 8], ids=["covariance", "fewer rows than dimensions"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pca_is_scikit_learns_but_for_signs(rng, dims, rows, dtype):
    table = groups(rng, rows, dtype=dtype)
    found = pca(table, dims)
    exact = PCA(dims, svd_solver="full").fit(table.weight.astype(np.float64))
    wanted = exact.transform(table.weight.astype(np.float64))
    signs = np.sign(exact.components_[range(dims), np.abs(exact.components_).argmax(axis=1)])
    np.testing.assert_allclose(found.coordinates, wanted * signs, atol=1e-4)
    np.testing.assert_allclose(found.settings["shares"], exact.explained_variance_ratio_, rtol=1e-5)
    assert found.coordinates.dtype == np.float32
    assert found.axes[0] == f"PC 1 ({100 * exact.explained_variance_ratio_[0]:.1f} % of the variance)"


def test_pca_without_the_mean_and_without_the_top(rng):
    table = groups(rng)
    raw = pca(table, center=False)
    _, singular, directions = np.linalg.svd(table.weight.astype(np.float64))
    np.testing.assert_allclose(np.abs(raw.coordinates), np.abs(table.weight @ directions[:2].T), atol=1e-4)
    assert raw.axes[0] == f"PC 1 ({100 * singular[0] ** 2 / (singular**2).sum():.1f} % of the squared length)"
    third = pca(table, 3).coordinates[:, 2]
    without = pca(table, remove=2)
    np.testing.assert_allclose(without.coordinates[:, 0], third, atol=1e-4)
    assert without.axes[0].startswith("PC 3 (")
    np.testing.assert_array_equal(pca(View(table, remove=2)).coordinates, without.coordinates)


def test_blocks_give_what_one_block_gives(rng, monkeypatch):
    table = groups(rng)
    whole = pca(table, 3)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.rows"], "BLOCK", 12 * 7)
    np.testing.assert_allclose(pca(table, 3).coordinates, whole.coordinates, atol=1e-5)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("method", ["pca", "tsne", pytest.param("umap", marks=pytest.mark.slow)])
def test_a_seed_gives_the_same_bits_and_the_record_says_how(rng, method, dims):
    table = groups(rng)
    quick = {"tsne": {"perplexity": 5, "iterations": 50}, "umap": {"neighbors": 5}, "pca": {}}[method]
    told = []
    one = project(table, method, dims, seed=7, progress=lambda d, t: told.append(d / t), **quick)
    two = project(table, method, dims, seed=7, **quick)
    np.testing.assert_array_equal(one.coordinates, two.coordinates)
    assert one.coordinates.shape == (90, dims)
    assert np.isfinite(one.coordinates).all()
    assert told == sorted(told)
    assert told[-1] == 1
    record = one.provenance()
    assert record == json.loads(json.dumps(record))
    assert (record["method"], record["seed"], record["dims"], len(record["axes"])) == (method, 7, dims, dims)
    assert record["versions"]["tokenspace"]
    if method != "pca":
        other = project(table, method, dims, seed=8, **quick)
        assert (other.coordinates != one.coordinates).any()
        assert {"tsne": "openTSNE", "umap": "umap-learn"}[method] in record["versions"]
        assert quick.items() <= record["settings"].items()
        own = one.coordinates[::3]  # a group's points lie nearer to each other than to the others
        apart = np.linalg.norm(own.mean(axis=0) - one.coordinates[1::3].mean(axis=0))
        assert np.linalg.norm(own - own.mean(axis=0), axis=1).mean() < apart


def test_neighbors_of_a_large_table_are_found_among_components(rng, monkeypatch):
    module = sys.modules["tokenspace.geometry.projection"]
    monkeypatch.setattr(module, "LARGE", 50)
    monkeypatch.setattr(module, "COMPONENTS", 4)
    table = groups(rng)
    found = tsne(table, perplexity=5, iterations=50)
    assert found.settings["neighbors_in"] == "4 principal components"
    assert kept(table, found).mean > 0.2


@pytest.mark.parametrize(("rows", "used"), [(200, 30.0), (91, 30.0), (90, 29.0), (12, 3.0), (4, 1.0)])
def test_the_usual_perplexity_shrinks_with_the_table(rng, rows, used):
    found = tsne(groups(rng, rows), iterations=10)
    assert found.settings["perplexity"] == used
    assert np.isfinite(found.coordinates).all()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "used"), [(17, 15), (16, 15), (15, 14), (3, 2)])
def test_the_usual_number_of_neighbors_shrinks_with_the_table(rng, rows, used):
    found = umap(groups(rng, rows))
    assert found.settings["neighbors"] == used
    assert np.isfinite(found.coordinates).all()


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1], ids=["equal rows", "rows on a line"])
def test_rows_that_do_not_spread_have_a_umap(place):
    weight = np.ones((16, 2), np.float32)
    weight[:, 0] += place * np.arange(16)
    weight[:, 1] -= 1
    table = Table(weight, Vocab([f"w{i}" for i in range(16)]))
    one, two = umap(table, seed=1), umap(table, seed=1)
    assert np.isfinite(one.coordinates).all()
    np.testing.assert_array_equal(one.coordinates, two.coordinates)


def test_what_is_refused(rng, monkeypatch):
    table = groups(rng)
    for dims in (1, 4):
        with pytest.raises(ShapeError, match="2 or 3 dimensions"):
            pca(table, dims)
    for seed in (-1, 2**32):
        with pytest.raises(ShapeError, match="seed"):
            pca(table, seed=seed)
    with pytest.raises(ShapeError, match="has no 3 directions"):
        pca(Table(np.eye(2, dtype=np.float32), Vocab(["a", "b"])), 3)
    with pytest.raises(ShapeError, match="no 2 directions to show without 7 of them; ask for fewer dims or"):
        pca(Table(table.weight[:, :8], table.vocab), remove=7)
    with pytest.raises(ShapeError, match=r"perplexity must lie from 1 to 29\.67"):
        tsne(table, perplexity=30)
    with pytest.raises(ShapeError, match=r"t-SNE needs a table of 4 rows or more, found 3"):
        tsne(groups(rng, 3))
    with pytest.raises(ShapeError, match=r"UMAP needs a table of 3 rows or more, found 2"):
        umap(groups(rng, 2))
    with pytest.raises(ShapeError, match="neighbors must lie from 2 to 89"):
        umap(table, neighbors=90)
    with pytest.raises(ShapeError, match="min_dist"):
        umap(table, min_dist=2)
    assert available() == {"pca": True, "tsne": True, "umap": True}
    monkeypatch.setattr(
        sys.modules["tokenspace.geometry.projection"].importlib.util, "find_spec", lambda _: None
    )
    assert available() == {"pca": True, "tsne": False, "umap": False}
    with pytest.raises(MissingExtra, match="openTSNE"):
        tsne(table, perplexity=5)
    with pytest.raises(MissingExtra, match="umap"):
        umap(table)
