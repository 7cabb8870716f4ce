"""Text files as ids: nothing is lost on the way but unknown tokens."""

import numpy as np
import pytest

from tokenspace import text
from tokenspace.errors import CorpusError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import corpus, corpus_encoding


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_from_iterator(["a b c d e f g"])


def sentences(encoded: corpus.Encoded) -> list[list[int]]:
    return [part.tolist() for part in np.split(encoded.ids, encoded.offsets[1:-1])]


def test_encoding_drops_unknown_tokens_and_empty_sentences(tokenizer):
    a, b = tokenizer.vocab.id("a"), tokenizer.vocab.id("b")
    encoded = corpus.encode(["a x b", "", "x y", "b"], tokenizer, longest=10)
    assert sentences(encoded) == [[a, b], [b]]
    assert encoded.ids.dtype == np.int32
    assert encoded.offsets.dtype == np.int64


@pytest.mark.parametrize("length", [9, 10, 11, 20, 21, 95])
def test_a_long_sentence_is_cut_into_equal_parts_and_keeps_every_token(tokenizer, length):
    line = " ".join("abcdefg"[n % 7] for n in range(length))
    encoded = corpus.encode(["a b", line, "c"], tokenizer, longest=10)
    parts = sentences(encoded)
    assert max(map(len, parts)) <= 10
    assert [i for part in parts[1:-1] for i in part] == tokenizer.pieces(line)
    assert max(map(len, parts[1:-1])) - min(map(len, parts[1:-1])) <= 1


def test_encoding_in_blocks_changes_nothing(tokenizer, monkeypatch):
    texts = [f"a b {'c d ' * (n % 5)}x" if n % 3 else "" for n in range(100)]
    whole = corpus.encode(texts, tokenizer, longest=6)
    monkeypatch.setattr(corpus_encoding, "_LINES_TOGETHER", 7)
    blocks = corpus.encode(iter(texts), tokenizer, longest=6)
    np.testing.assert_array_equal(blocks.ids, whole.ids)
    np.testing.assert_array_equal(blocks.offsets, whole.offsets)


def test_counts_have_a_place_for_every_row(tokenizer):
    counts = corpus.encode(["a a b"], tokenizer, longest=10).counts(len(tokenizer.vocab))
    assert counts.sum() == 3
    assert counts[tokenizer.vocab.id("a")] == 2
    assert len(counts) == len(tokenizer.vocab)


def test_a_minimum_count_above_every_count_is_said_with_the_highest(write):
    files = text.check([write("small.txt", "the cat and the dog\n")])
    with pytest.raises(
        CorpusError, match=r"none of the 4 distinct tokens occurs 5 times.*'the', occurs 2 times"
    ):
        corpus.word_tokenizer(files, min_count=5, lowercase=True)


@pytest.mark.parametrize("content", ["", " \n\t\n"], ids=["no bytes", "white space"])
def test_an_empty_corpus_is_refused(write, content):
    files = text.check([write("empty.txt", content)])
    with pytest.raises(
        CorpusError, match=r"no token that the vocabulary knows \(.*empty.txt: \d bytes in all\)"
    ):
        corpus.word_tokenizer(files, min_count=1, lowercase=True)


def test_lines_of_one_word_each_have_no_pairs(tokenizer, write):
    files = text.check([write("list.txt", "a\nb\n")])
    with pytest.raises(CorpusError, match=r"no line of the corpus has two known tokens \(2, each alone"):
        corpus.check_trainable(corpus.encode(text.lines(files), tokenizer, 10), files)
