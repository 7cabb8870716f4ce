from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry import clusters
from tokenspace.table import Table
from tokenspace.vocab import Vocab, placeholder

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def wordnet():
    return ts.load("wordnet")


@pytest.fixture(scope="module")
def found(wordnet):
    return clusters(wordnet)


def three_groups(rng, rows=300):
    """Rows around three directions; group 0 has half of them."""
    group = np.array([0, 0, 1, 2])[np.arange(rows) % 4]
    weight = np.eye(3, 8)[group] * rng.uniform(1, 5, (rows, 1)) + rng.normal(0, 0.1, (rows, 8))
    return Table(weight.astype(np.float32), Vocab([f"g{g}-{i}" for i, g in enumerate(group)])), group


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("royalty", 0.7),
        ("common_animals", 0.7),
        ("animals", 0.65),
        ("number_words", 0.7),
        ("punctuation", 0.7),
    ],
)
def test_a_list_falls_in_one_cluster(wordnet, found, name, least):
    """Royalty is the sovereign's house: in this table peers (duke, earl, baron) have their own cluster."""
    words = (DATA / f"{name}.txt").read_text().split()
    ids = [wordnet.vocab.id(word) for word in words if word in wordnet.vocab]
    counts = np.bincount(found.labels[ids])
    assert len(ids) >= 10
    assert counts.max() / len(ids) >= least
    assert found.sizes[counts.argmax()] < 0.06 * len(wordnet)  # not by swallowing a large part of the table


def test_the_lists_fall_in_different_clusters(wordnet, found):
    names = ("royalty", "common_animals", "number_words", "punctuation")
    homes = set()
    for name in names:
        ids = [wordnet.vocab.id(w) for w in (DATA / f"{name}.txt").read_text().split() if w in wordnet.vocab]
        homes.add(int(np.bincount(found.labels[ids]).argmax()))
    assert len(homes) == len(names)


def test_names_are_rows_of_their_cluster_near_its_center(wordnet, found):
    assert np.all(np.diff(found.sizes) <= 0)
    np.testing.assert_array_equal(np.bincount(found.labels[found.labels >= 0]), found.sizes)
    assert found.labels[:3].tolist() == [-1, -1, -1]  # rows of zeros
    mean = wordnet.weight.astype(np.float64).mean(axis=0)
    for label, ids in enumerate(found.nearest):
        assert (found.labels[ids] == label).all()
        rows = wordnet.lookup(ids) - mean
        cosines = rows @ found.centers[label] / np.linalg.norm(rows, axis=1)
        assert np.all(np.diff(cosines) <= 1e-6)
        assert found.names[label] == ", ".join(wordnet.vocab[i] for i in ids[:3].tolist())


def test_groups_that_are_there_are_found(rng):
    table, group = three_groups(rng)
    found = clusters(table, k=3, center=False)
    for label in range(3):
        assert len(set(group[found.labels == label])) == 1
    assert found.sizes.tolist() == [150, 75, 75]
    np.testing.assert_allclose(np.linalg.norm(found.centers, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.centers[:, :3]).max(axis=1), 1, atol=0.02)


def test_the_same_seed_gives_the_same_clusters(rng):
    table = Table(rng.normal(size=(500, 8)).astype(np.float32), Vocab([f"w{i}" for i in range(500)]))
    one, again, other = (
        clusters(table, k=9, seed=3),
        clusters(table, k=9, seed=3),
        clusters(table, k=9, seed=4),
    )
    np.testing.assert_array_equal(one.labels, again.labels)
    np.testing.assert_array_equal(one.centers, again.centers)
    assert (one.labels != other.labels).any()
    assert one.seed == 3
    assert one.settings["k"] == 9
    assert {"tokenspace", "numpy", "scikit-learn"} == set(one.versions)


def test_a_large_table_is_clustered_from_a_sample(rng, monkeypatch):
    import sys

    table, _ = three_groups(rng, 400)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.clusters"], "FITTED", 8 * 100)
    found = clusters(table, k=3, center=False)
    assert found.settings["rows"] == 100
    assert found.sizes.tolist() == [200, 100, 100]


def test_rows_without_a_token_or_a_direction_have_no_cluster(rng):
    table, _ = three_groups(rng, 40)
    tokens = list(table.vocab)
    tokens[7] = placeholder(7)
    table.weight[11] = 0
    for center in (False, True):
        labels = clusters(Table(table.weight, Vocab(tokens)), k=3, center=center).labels
        assert np.flatnonzero(labels == -1).tolist() == [7, 11]


def test_fewer_distinct_rows_than_clusters():
    table = Table(np.repeat(np.eye(2, dtype=np.float32), 5, axis=0), Vocab([f"w{i}" for i in range(10)]))
    found = clusters(table, k=4, center=False)
    assert len(found.names) == len(found.sizes) == len(found.nearest) == 2
    assert sorted(set(found.labels.tolist())) == [0, 1]


def test_what_is_refused(rng, monkeypatch):
    import sys

    table, _ = three_groups(rng, 40)
    for k in (0, -1, True):
        with pytest.raises(ShapeError, match="whole number of clusters"):
            clusters(table, k=k)
    with pytest.raises(ShapeError, match="41 clusters of 40 rows"):
        clusters(table, k=41)
    with pytest.raises(ShapeError, match="seed"):
        clusters(table, seed=-1)
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtra, match="look"):
        clusters(table, k=3)
