import sys
from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry import clusters
from tokenspace.geometry.cosine import unit_rows
from tokenspace.table import Table
from tokenspace.vocab import Vocab, placeholder

DATA = Path(__file__).parent.parent / "data"


LISTS = ("royalty", "common_animals", "number_words", "punctuation")


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


def test_each_list_falls_in_a_cluster_of_its_own(wordnet, found):
    for groups in (found, clusters(wordnet, seed=1)):
        homes = set()
        for name in LISTS:
            words = (DATA / f"{name}.txt").read_text().split()
            ids = [wordnet.vocab.id(word) for word in words if word in wordnet.vocab]
            counts = np.bincount(groups.labels[ids])
            assert len(ids) >= 14
            assert counts.max() / len(ids) >= 0.7, name
            assert groups.sizes[counts.argmax()] < 0.07 * len(wordnet)  # not by swallowing much of the table
            homes.add(int(counts.argmax()))
        assert len(homes) == len(LISTS)


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


def test_rows_further_on_go_to_the_nearest_center(rng, monkeypatch):
    table, group = three_groups(rng, 400)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.clusters"], "FITTED", 100)
    found = clusters(table, k=3, center=False)
    assert found.settings["rows"] == 100
    assert found.sizes.tolist() == [200, 100, 100]
    for label in range(3):
        assert len(set(group[found.labels == label])) == 1
        units = table.weight[:100] / np.linalg.norm(table.weight[:100], axis=1, keepdims=True)
        mean = units[found.labels[:100] == label].mean(axis=0)
        np.testing.assert_allclose(found.centers[label], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_few_and_many_rows_are_linked_alike(rng, monkeypatch):
    """Whether all eigenvectors are computed or the top ones only, and in one batch or in several."""
    table, _ = three_groups(rng, 240)
    module = sys.modules["tokenspace.geometry.clusters"]
    monkeypatch.setattr(module, "LINKS", 12)
    whole = clusters(table, k=3, center=False)
    monkeypatch.setattr(module, "DENSE", 10)
    monkeypatch.setattr(module, "BATCH", 70)
    parts = clusters(table, k=3, center=False)
    np.testing.assert_array_equal(whole.labels, parts.labels)


def test_links_are_the_cosines_of_the_nearest(rng, monkeypatch):
    module = sys.modules["tokenspace.geometry.clusters"]
    monkeypatch.setattr(module, "LINKS", 3)
    monkeypatch.setattr(module, "BATCH", 7)
    units = unit_rows(rng.normal(size=(20, 4)).astype(np.float32))
    links = module._links(units, lambda done, total: None).toarray()
    cosines = units.astype(np.float64) @ units.T
    np.fill_diagonal(cosines, -2)
    near = cosines >= np.sort(cosines, axis=1)[:, -3:-2]
    near |= near.T
    np.testing.assert_allclose(links, np.where(near, np.maximum(cosines, 1e-3), 0), atol=1e-6)


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


@pytest.mark.parametrize(
    ("rows", "used"), [(70, 16), (64, 16), (63, 15), (12, 3), (7, 2), (3, 2), (2, 2), (1, 1)]
)
def test_the_usual_number_of_clusters_shrinks_with_the_table(rng, rows, used):
    table = Table(rng.normal(size=(rows, 12)).astype(np.float32), Vocab([f"w{i}" for i in range(rows)]))
    found = clusters(table, center=False)
    assert found.settings["k"] == len(found.names) == used


def test_what_is_refused(rng, monkeypatch):
    table, _ = three_groups(rng, 40)
    for k in (0, -1, True):
        with pytest.raises(ShapeError, match="whole number of clusters"):
            clusters(table, k=k)
    with pytest.raises(
        ShapeError, match="41 clusters of 40 rows that have a direction about the mean row; ask"
    ):
        clusters(table, k=41)
    with pytest.raises(ShapeError, match="41 clusters of 40 rows that have a direction; ask for fewer"):
        clusters(table, k=41, center=False)
    equal = Table(np.ones((5, 2), np.float32), Vocab(list("abcde")))
    for k in (None, 4):
        with pytest.raises(ShapeError, match=r"no row .* has a direction about the mean row"):
            clusters(equal, k=k)
    assert clusters(equal, center=False).sizes.tolist() == [5]
    with pytest.raises(ShapeError, match="seed"):
        clusters(table, seed=-1)
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtra, match="scikit-learn"):
        clusters(table, k=3)
