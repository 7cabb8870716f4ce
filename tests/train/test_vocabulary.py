"""Counting words: exact, and the same whether memory holds them or not."""

from collections import Counter

import numpy as np
import pytest

from tokenspace.train import vocabulary
from tokenspace.train.vocabulary import Splitter, WordCounts


@pytest.mark.parametrize("most", [1, 7, 50, 1 << 20])
@pytest.mark.parametrize("min_count", [1, 3])
def test_counts_are_exact_whatever_fits_in_memory(tmp_path, monkeypatch, rng, most, min_count):
    monkeypatch.setattr(vocabulary, "MOST_IN_MEMORY", most)
    monkeypatch.setattr(vocabulary, "_RUNS_AT_ONCE", 3)
    counts, wanted = WordCounts(tmp_path), Counter()
    words = ["the", "é", "中文", "\x0b", "a b", *map(str, range(200))]
    for _ in range(40):
        some = [words[k] for k in rng.zipf(1.3, 50) % len(words)]
        times = rng.integers(1, 5, len(some))
        counts.add(some, times)
        for word, n in zip(some, times.tolist(), strict=True):
            wanted[word] += n
    assert (counts.numbers is None) == (most < len(wanted))
    frequent = counts.frequent(min_count)
    ordered = sorted(wanted.items(), key=lambda item: (-item[1], item[0]))
    assert frequent.words == [word for word, count in ordered if count >= min_count]
    assert frequent.distinct == len(wanted)
    assert frequent.top == ordered[0]
    assert len(list(tmp_path.iterdir())) <= 3  # no more files than may be open together


def test_few_long_words_do_not_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "MOST_LETTERS_IN_MEMORY", 1000)
    counts = WordCounts(tmp_path)
    counts.add(["a" * 600, "b"], np.array([1, 1]))
    counts.add(["a" * 600, "b"], np.array([1, 1]))  # the same ones: nothing new
    assert counts.numbers is not None
    counts.add(["c" * 600], np.array([1]))
    assert counts.numbers is None
    assert counts.frequent(2).words == ["a" * 600, "b"]


def test_numbers_are_those_of_first_sight(tmp_path):
    counts = WordCounts(tmp_path)
    assert counts.add(["b", "a", "b"], np.array([1, 1, 1])).tolist() == [0, 1, 0]
    assert counts.add(["c", "a"], np.array([1, 1])).tolist() == [2, 1]
    assert counts.numbers == {"b": 0, "a": 1, "c": 2}


@pytest.mark.parametrize("kind", ["word", "whitespace"])
def test_no_chunks_have_no_words(kind, tmp_path):
    words, chunks = Splitter(kind, lowercase=True).split([])
    assert words == []
    assert len(chunks) == 0
    frequent = WordCounts(tmp_path).frequent(1)
    assert (frequent.words, frequent.distinct, frequent.top) == ([], 0, None)
