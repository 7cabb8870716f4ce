"""Texts that no one would write end in a table, or in one clear error; and memory has a bound."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import CorpusError
from tokenspace.train.corpus import prepare

MEGABYTE = 1 << 20
QUICK = {"dim": 8, "epochs": 1, "threads": 2, "min_count": 1}


def trained(path, **settings) -> ts.Table:
    table = ts.train.skipgram(path, **QUICK | settings)
    assert np.isfinite(table.weight).all()
    return table


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def prepared(path, folder, **settings):
    return prepare(
        path, folder, **{"tokenizer": None, "min_count": 1, "lowercase": True, "threads": 2} | settings
    )


@pytest.mark.parametrize("line", [10, 300_000], ids=["lines of ten", "one line"])
def test_one_word_repeated_is_a_table_of_one_word(write, line):
    path = write("one.txt", ("the " * line + "\n") * (300_000 // line))
    table = trained(path, sample=0)
    assert list(table.vocab) == ["[PAD]", "[UNK]", "[SEP]", "the"]
    assert table.provenance["tokens"] == 300_000


def test_one_word_repeated_and_thinned_away_is_an_error_that_says_so(write):
    with pytest.raises(CorpusError, match="subsampling thinned all 10 tokens away"):
        trained(write("one.txt", "the the\n" * 5), sample=1e-9)


@pytest.mark.parametrize("kind", ["word", "whitespace"])
def test_all_words_unique_are_all_in_the_table(write, kind):
    words = [f"{'' if kind == 'word' else '#'}{a}{b}{c}" for a in LETTERS for b in LETTERS for c in LETTERS]
    path = write("unique.txt", "\n".join(" ".join(words[k : k + 10]) for k in range(0, len(words), 10)))
    table = trained(path, words=kind)
    assert set(table.vocab) == {*words, "[PAD]", "[UNK]", "[SEP]"}
    with pytest.raises(
        CorpusError, match=rf"none of the {len(words):,} distinct tokens occurs 2 times or more"
    ):
        trained(path, words=kind, min_count=2)


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_ten_megabytes_without_a_newline_are_cut_into_sentences_and_lose_nothing(write, folder, rng):
    words = np.array(["one", "two", "three", "four"])
    drawn = rng.integers(0, 4, 2_400_000)
    content = " ".join(words[drawn])
    assert len(content) > 10 * MEGABYTE
    corpus = prepared(write("line.txt", content), folder)
    assert corpus.tokens == len(drawn)
    assert corpus.sentences == -(-len(drawn) // 1024)
    _, lengths = corpus.cuts(1)
    assert set(np.diff(lengths)) == {1023, 1024}
    order = [corpus.tokenizer.vocab.id(word) for word in words]
    np.testing.assert_array_equal(corpus.ids(0, corpus.tokens), np.array(order)[drawn])
    assert prepared(write("line.txt", content), folder, longest=None).sentences == 1


def test_megabytes_without_a_space_are_words_of_a_megabyte(write, folder):
    content = "é" * (3 * MEGABYTE // 2)
    corpus = prepared(write("letters.txt", content), folder)
    tokens = [corpus.tokenizer.vocab[i] for i in corpus.ids(0, corpus.tokens)]
    assert "".join(tokens) == content
    assert max(map(len, tokens)) <= MEGABYTE
    with pytest.raises(CorpusError, match=r"most frequent, 'é{40}…', occurs \d+ times") as caught:
        prepared(write("letters.txt", content), folder, min_count=100)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("place", [0, 5, 3 * MEGABYTE])
def test_a_nul_byte_is_one_error_with_its_place(write, folder, place):
    path = write("zero.txt", b"ab \n" * (place // 4) + b"a" * (place % 4) + b"\0 more")
    with pytest.raises(CorpusError, match=rf"zero.txt is not text: byte {place:,} is zero"):
        prepared(path, folder)
    assert not list(folder.iterdir())


def test_zipfs_words_are_counted_as_they_were_drawn(write, folder, rng):
    drawn = rng.zipf(1.2, 400_000)
    words = [f"w{n}" if n % 3 else f"(w{n})" for n in drawn.tolist()]
    path = write("zipf.txt", "\n".join(" ".join(words[k : k + 20]) for k in range(0, len(words), 20)))
    corpus = prepared(path, folder, words="whitespace", min_count=5)
    found, counts = np.unique(words, return_counts=True)
    wanted = dict(zip(found[counts >= 5].tolist(), counts[counts >= 5].tolist(), strict=True))
    vocab = corpus.tokenizer.vocab
    assert {vocab[i]: int(corpus.counts[i]) for i in range(3, len(vocab))} == wanted
    assert corpus.counts[3:].tolist() == sorted(wanted.values(), reverse=True)


STREAMED = """
import json, re, sys, tempfile
from pathlib import Path
from tokenspace.train.corpus import prepare
with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
    corpus = prepare("-", Path(folder), tokenizer=None, min_count=1, lowercase=True, threads=2)
    about = {"tokens": corpus.tokens, "sentences": corpus.sentences, "bytes": corpus.sources[0].bytes}
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps(about | {"megabytes": int(peak[1]) >> 10}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell its peak memory")
def test_half_a_gigabyte_of_one_line_is_streamed_in_bounded_memory(tmp_path):
    part = (b"wonderful adventures everywhere " * MEGABYTE)[: 32 * (MEGABYTE // 32)]
    with subprocess.Popen(
        [sys.executable, "-c", STREAMED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for _ in range(512):
            process.stdin.write(part)
        output, _ = process.communicate()
    about = json.loads(output)
    assert about["bytes"] == 1 << 29
    assert about["tokens"] == 3 << 24
    assert about["sentences"] == 3 << 14
    assert about["megabytes"] < 600
