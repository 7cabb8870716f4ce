import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tokenspace as ts
from tokenspace.geometry import relations
from tokenspace.geometry.relations import PAIRS
from tokenspace.table import Table
from tokenspace.vocab import Vocab

NAMES = ["synonyms", "related", "unrelated", "antonyms"]
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_relations.py"


@pytest.fixture(scope="module")
def builtin():
    return ts.load("wordnet")


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, str]]:
    lines = PAIRS.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("name", ["builtin", "minilm"])
def test_synonyms_lie_nearer_than_related_than_unrelated_words(request, name):
    score = relations(request.getfixturevalue(name))
    assert [relation.name for relation in score.relations] == NAMES
    assert all(relation.n >= 250 and relation.skipped == 0 for relation in score.relations)
    assert score["synonyms"].interval.low > score["related"].interval.high
    assert score["related"].interval.low > score["unrelated"].interval.high
    assert score["antonyms"].interval.low > score["unrelated"].interval.high


def test_a_mean_is_that_of_its_pairs_cosines(builtin, rows):
    score = relations(builtin)
    cosines = [ts.geometry.similarity(builtin, a, b).cosine for name, a, b in rows if name == "antonyms"]
    assert score["antonyms"].mean == pytest.approx(np.mean(cosines))
    assert score["antonyms"].n == len(cosines)
    wanted = stats.norm.interval(0.95, np.mean(cosines), stats.sem(cosines))
    assert score["antonyms"].interval == pytest.approx(wanted)


def test_the_vocabulary_limit_skips_pairs(builtin):
    whole, part = relations(builtin), relations(builtin, limit=2000)
    for name in NAMES:
        assert part[name].n + part[name].skipped == whole[name].n
        assert 0 < part[name].n < whole[name].n
    assert part.record["settings"] == {"case": "lower", "limit": 2000, "compose": False}
    assert part.record["file"]["name"] == "relations.tsv"


def test_a_table_without_the_words_has_no_means():
    score = relations(Table(np.ones((1, 2), np.float32), Vocab(["nothing"])))
    assert {(relation.mean, relation.interval, relation.n) for relation in score.relations} == {
        (None, None, 0)
    }


def test_the_pairs_are_independent_and_not_alike_in_spelling(rows):
    for name in NAMES:
        pairs = [(a, b) for relation, a, b in rows if relation == name]
        assert 250 <= len(pairs) <= 300
        assert max(Counter(word for pair in pairs for word in pair).values()) == 1
        assert not [pair for pair in pairs if pair[0][:4] == pair[1][:4] or pair[0] in pair[1]]
    words = {frozenset(pair) for name, *pair in rows if name in ("synonyms", "related")}
    assert len(words) == 600
    assert not words & {frozenset(pair) for name, *pair in rows if name == "unrelated"}


def test_the_unrelated_words_are_those_of_the_other_pairs(rows):
    of = {name: {word for relation, *pair in rows if relation == name for word in pair} for name in NAMES}
    assert of["unrelated"] <= of["synonyms"] | of["related"]


def test_both_vocabularies_hold_every_word(rows, builtin, minilm):
    words = {word for _, *pair in rows for word in pair}
    assert all(word in builtin.vocab and word in minilm.vocab for word in words)


def test_the_notice_travels_with_the_pairs():
    assert "Copyright 2006 by Princeton University" in PAIRS.read_text("utf-8")
    assert "relations.tsv" in (PAIRS.parent / "LICENSES.md").read_text("utf-8")


@pytest.mark.skipif(
    not Path("/usr/share/wordnet/data.noun").exists() and os.environ.get("CI") != "true",
    reason="needs Debian's wordnet-base",
)
def test_its_script_makes_them_again(tmp_path):
    made = tmp_path / "relations.tsv"
    environment = os.environ | {"PYTHONHASHSEED": "1"}  # another order of its sets than when it was made
    subprocess.run([sys.executable, SCRIPT, made], check=True, capture_output=True, env=environment)
    assert made.read_bytes() == PAIRS.read_bytes()
