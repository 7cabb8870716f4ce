"""Scores along the way: which kind a file is, what is asked, where the answers go."""

import numpy as np
import pytest

from tokenspace import geometry
from tokenspace.errors import CorpusError, TableFormatError
from tokenspace.table import Table
from tokenspace.train import skipgram
from tokenspace.train.scores import Evaluation, said
from tokenspace.vocab import Vocab

PAIRS = (
    "word 1\tword 2\tscore\ncat\tdog\t9\ncat\tland\t1\nking\tland\t5\n",
    "cat,dog,9\ncat,land,1\n",
    "cat dog 9\n# x\n",
)
QUESTIONS = (": animals\ncat dog king land\n", "# x\ncat dog king land\n", "cat\tdog\tking\tland\n")


@pytest.fixture
def table(rng):
    words = ["cat", "dog", "king", "land", "mouse"]
    return Table(rng.normal(size=(5, 4)).astype(np.float32), Vocab(words))


@pytest.mark.parametrize("content", PAIRS)
def test_three_columns_are_pairs(write, table, content):
    path = write("file", content)
    (score,) = Evaluation([path]).scores(table)
    expected = geometry.word_pairs(table, path)
    assert score["used"] == expected.used
    assert score["spearman"] == (None if expected.spearman is None else round(expected.spearman, 6))


@pytest.mark.parametrize("content", QUESTIONS)
def test_a_colon_or_four_columns_are_analogies(write, table, content):
    path = write("file", content)
    (score,) = Evaluation(path).scores(table)
    expected = geometry.analogy_questions(table, path).overall
    assert (score["accuracy"], score["correct"], score["total"]) == (expected.accuracy, expected.correct, 1)


@pytest.mark.parametrize(
    "content", ["", "cat dog\n", ": section\n", "cat dog x\nking land y\n", ": s\na b c\n"]
)
def test_a_file_that_is_neither_is_refused_before_training(write, content):
    path = write("file", content)
    with pytest.raises(TableFormatError, match="file"):
        skipgram("there is no such text", evaluate=[path])
    with pytest.raises(CorpusError, match="there is no file"):
        skipgram("there is no such text", evaluate=[path.with_name("missing")])


def test_scores_are_said_in_one_line():
    scores = [
        {"file": "a", "spearman": None, "used": 0, "skipped": 3},
        {"file": "b", "accuracy": 0.25, "correct": 1, "total": 4, "skipped": 1000},
    ]
    assert said(scores) == "a: ρ – (0 pairs, 3 skipped); b: 25.00 % (4 questions, 1,000 skipped)"


def test_scores_rise_as_a_table_learns_and_the_last_are_its_own(write):
    rng = np.random.default_rng(0)
    topics = (["cat", "dog", "cow"], ["pan", "pot", "fork"])
    text = write("text.txt", "\n".join(" ".join(rng.choice(topics[n % 2], 6)) for n in range(2000)))
    pairs = write("pairs.tsv", "cat dog 9\ncat pan 1\ndog cow 8\nfork cow 2\npot pan 9\npot dog 1\n")
    heard = []
    settings = {"dim": 16, "threads": 1, "epochs": 8, "negative": 3}
    table = skipgram(text, evaluate=pairs, on_note=heard.append, **settings)
    said_scores = [note for note in heard if note.startswith("epoch")]
    assert [note.split(":")[0] for note in said_scores] == [f"epoch {n}/8" for n in range(1, 9)]
    (score,) = table.provenance["scores"]
    assert score["spearman"] == round(geometry.word_pairs(table, pairs).spearman, 6)
    assert score["spearman"] > 0.7
    assert said([score]) in said_scores[-1]
    np.testing.assert_array_equal(table.weight, skipgram(text, **settings).weight)  # asking changes nothing
