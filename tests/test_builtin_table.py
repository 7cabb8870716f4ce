"""The built-in table: what it must know, what it says about itself, and that its script makes it again."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from tokenspace import formats, geometry

HERE = Path(__file__).parent
FILE = formats.BUILT_IN["wordnet"]
SCRIPT = HERE.parent / "scripts" / "make_wordnet_table.py"
PUNCTUATION = frozenset(",.:;!?()[]{}\"'`-–—/&…")


@pytest.fixture(scope="module")
def table():
    return formats.load("wordnet")


def words(name: str) -> set[str]:
    return set((HERE / "data" / name).read_text("utf-8").split())


def nearest(table, token: str, k: int = 10) -> list[str]:
    return [hit.token for hit in geometry.neighbors(table, token, k=k)]


def test_it_is_small_float16_and_has_no_context_matrix(table):
    assert FILE.stat().st_size <= 8_000_000
    assert table.weight.dtype == np.float16
    assert table.output is None
    assert len(table) <= 35_000
    assert table.tokenizer.pieces("The cat") == [table.vocab.id("the"), table.vocab.id("cat")]


def test_only_the_special_tokens_rows_are_zero(table):
    zero = np.flatnonzero(~np.asarray(table.weight).any(axis=1))
    assert [table.vocab[i] for i in zero.tolist()] == ["[PAD]", "[UNK]", "[SEP]"]


def judged_pairs(file: str) -> list[tuple[str, str, float]]:
    gensim = importlib.util.find_spec("gensim").origin
    lines = (Path(gensim).parent / "test" / "test_data" / file).read_text("utf-8").splitlines()
    rows = [line.lower().split("\t") for line in lines if not line.startswith("#")]
    return [(a, b, float(score)) for a, b, score in rows if score.replace(".", "").isdigit()]


@pytest.mark.parametrize(
    ("name", "file", "least", "most_skipped"),
    [("WordSim-353", "wordsim353.tsv", 0.62, 20), ("SimLex-999", "simlex999.txt", 0.41, 20)],
)
def test_its_cosines_rank_word_pairs_as_people_do(table, name, file, least, most_skipped):
    pairs = judged_pairs(file)
    known = [pair for pair in pairs if table.vocab.ids(pair[0]) and table.vocab.ids(pair[1])]
    assert len(pairs) in (353, 999)
    assert len(pairs) - len(known) <= most_skipped
    cosines = [geometry.cosine(table[a], table[b]) for a, b, _ in known]
    rho = spearmanr(cosines, [score for _, _, score in known]).statistic
    assert rho >= least
    claimed = {"spearman": round(float(rho), 3), "pairs": len(known), "skipped": len(pairs) - len(known)}
    assert table.provenance["scores"][name] == claimed


def test_man_is_to_king_as_woman_is_to_queen(table):
    assert geometry.analogy(table, "man", "king", "woman", k=1)[0].token == "queen"


def test_threes_neighbors_are_number_words(table):
    assert len(set(nearest(table, "three")) & words("number_words.txt")) >= 8


def test_cats_neighbors_are_animals(table):
    assert len(set(nearest(table, "cat")) & words("animals.txt")) >= 7


def test_the_commas_neighbors_are_punctuation(table):
    assert len(set(nearest(table, ",", k=5)) & PUNCTUATION) >= 3


@pytest.mark.parametrize(
    ("word", "related", "unrelated"),
    [
        ("cat", "dog", "car"),
        ("king", "queen", "carrot"),
        ("bread", "butter", "planet"),
        ("doctor", "nurse", "river"),
        ("river", "lake", "violin"),
        ("violin", "piano", "sheep"),
        ("red", "green", "slowly"),
        ("monday", "tuesday", "iron"),
    ],
)
def test_related_words_lie_nearer_than_unrelated_ones(table, word, related, unrelated):
    assert geometry.cosine(table[word], table[related]) > geometry.cosine(table[word], table[unrelated]) + 0.1


def test_it_says_what_it_is_made_of(table):
    about = table.provenance
    assert {file["name"] for file in about["corpus"]} == {"corpus.txt"}
    assert set(about["debian_packages"]) == {"wordnet-base", "bible-kjv", "bible-kjv-text"}
    assert "random walks over WordNet" in about["not_purely_distributional"]
    assert "same word pairs" in about["recipe_choice"]
    assert about["settings"]["threads"] == 1
    notices = (FILE.parent / "LICENSES.md").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in notices
    assert "King James" in notices


def sources_are_installed() -> bool:
    return Path("/usr/share/wordnet/data.noun").exists() and shutil.which("bible") is not None


@pytest.mark.slow
@pytest.mark.skipif(
    not sources_are_installed() and os.environ.get("CI") != "true",
    reason="needs Debian's wordnet-base, bible-kjv and bible-kjv-text",
)
def test_its_script_makes_it_again(table, tmp_path):
    made = tmp_path / "wordnet.safetensors"
    subprocess.run([sys.executable, SCRIPT, made], check=True, capture_output=True)
    again = formats.load(made)
    np.testing.assert_array_equal(again.weight, table.weight)
    assert list(again.vocab) == list(table.vocab)
    varying = ("made_by", "versions")  # of the packages that are installed
    assert {k: v for k, v in again.provenance.items() if k not in varying} == {
        k: v for k, v in table.provenance.items() if k not in varying
    }
    if all(again.provenance[key] == table.provenance[key] for key in varying):
        assert made.read_bytes() == FILE.read_bytes()
