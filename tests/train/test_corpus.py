"""Text files as ids: what is refused and with which words, and that nothing is lost on the way."""

import hashlib
import os

import numpy as np
import pytest

from tokenspace.errors import CorpusError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import corpus

MEBIBYTE = 1 << 20


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: bytes | str):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_a_file_is_described_by_name_size_and_hash_without_its_folder(write):
    (file,) = corpus.check(write("notes.txt", "grüß dich\n"))
    assert file.description() == {
        "name": "notes.txt",
        "bytes": 12,
        "sha256": hashlib.sha256("grüß dich\n".encode()).hexdigest(),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\n\xe9t\xe9\n", r"junk.txt is not UTF-8 text: byte 5 \(0xe9\)"),
        (b"a" * (MEBIBYTE - 1) + "é".encode() + b"\xff", rf"byte {MEBIBYTE + 1:,} \(0xff\)"),
        (b"a" * (MEBIBYTE - 1) + b"\xc3(", rf"byte {MEBIBYTE - 1:,} \(0xc3\)"),
        (b"cut \xe2\x82", r"byte 4 \(0xe2\)"),
        (b"PK\x03\x04\x00\x00", r"junk.txt is not text: byte 4 is zero"),
        (b"a" * MEBIBYTE + b"\x00", rf"byte {MEBIBYTE:,} is zero"),
    ],
    ids=["latin-1", "second block", "cut by a block", "cut by the end", "zip", "zero in the second block"],
)
def test_bytes_that_are_no_text_are_named_with_their_offset(write, content, message):
    with pytest.raises(CorpusError, match=message):
        corpus.check([write("junk.txt", content)])


def test_a_character_cut_by_a_block_is_text(write):
    content = "a" * (MEBIBYTE - 1) + "é"
    (file,) = corpus.check([write("long.txt", content)])
    assert file.bytes == MEBIBYTE + 1
    assert "".join(corpus.lines([file])) == content


def test_a_directory_a_missing_file_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="is a directory; name the text files inside"):
        corpus.check([tmp_path])
    with pytest.raises(CorpusError, match=r"there is no file .*nowhere\.txt"):
        corpus.check([tmp_path / "nowhere.txt"])
    with pytest.raises(CorpusError, match="no text file was named"):
        corpus.check([])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="not a regular file"):
        corpus.check([tmp_path / "pipe"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_refused(write):
    path = write("secret.txt", "words")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"can't read .*secret.txt: Permission denied"):
        corpus.check([path])


def test_a_read_error_is_one_clear_line(write, monkeypatch):
    path = write("disk.txt", "words")

    def fail(self, *arguments, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(path), "open", fail)
    with pytest.raises(CorpusError, match=r"can't read .*disk.txt: Input/output error"):
        corpus.check([path])


def test_lines_of_several_files_follow_each_other_without_a_byte_order_mark(write):
    files = corpus.check([write("a.txt", b"\xef\xbb\xbfone\r\ntwo\n"), write("b.txt", "three")])
    assert list(corpus.lines(files)) == ["one\n", "two\n", "three"]


@pytest.mark.parametrize("word", ["word ", "w" * 3_000_000], ids=["words", "one word of 3 million letters"])
def test_a_line_of_megabytes_comes_in_parts_cut_at_spaces(write, word):
    content = (word * (3_000_000 // len(word))) + "end\nnext\n"
    parts = list(corpus.lines(corpus.check([write("text8.txt", content)])))
    assert len(parts) >= 4
    assert "".join(parts) == content
    assert max(map(len, parts)) <= 2 * MEBIBYTE
    if word == "word ":
        assert all(part.endswith(("word ", "end\n", "next\n")) for part in parts)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_from_iterator(["a b c d e f g"])


def sentences(encoded: corpus.Corpus) -> list[list[int]]:
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
    monkeypatch.setattr(corpus, "_LINES_TOGETHER", 7)
    blocks = corpus.encode(iter(texts), tokenizer, longest=6)
    np.testing.assert_array_equal(blocks.ids, whole.ids)
    np.testing.assert_array_equal(blocks.offsets, whole.offsets)


def test_counts_have_a_place_for_every_row(tokenizer):
    counts = corpus.encode(["a a b"], tokenizer, longest=10).counts(len(tokenizer.vocab))
    assert counts.sum() == 3
    assert counts[tokenizer.vocab.id("a")] == 2
    assert len(counts) == len(tokenizer.vocab)


def test_a_minimum_count_above_every_count_is_said_with_the_highest(write):
    files = corpus.check([write("small.txt", "the cat and the dog\n")])
    with pytest.raises(
        CorpusError, match=r"none of the 4 distinct tokens occurs 5 times.*'the', occurs 2 times"
    ):
        corpus.word_tokenizer(files, min_count=5, lowercase=True)


@pytest.mark.parametrize("content", ["", " \n\t\n"], ids=["no bytes", "white space"])
def test_an_empty_corpus_is_refused(write, content):
    files = corpus.check([write("empty.txt", content)])
    with pytest.raises(
        CorpusError, match=r"no token that the vocabulary knows \(1 files, .* bytes: .*empty.txt\)"
    ):
        corpus.word_tokenizer(files, min_count=1, lowercase=True)


def test_lines_of_one_word_each_have_no_pairs(tokenizer, write):
    files = corpus.check([write("list.txt", "a\nb\n")])
    with pytest.raises(CorpusError, match=r"no line of the corpus has two known tokens \(2, each alone"):
        corpus.check_trainable(corpus.encode(corpus.lines(files), tokenizer, 10), files)
