"""Tokens that lie elsewhere, named by ``vocab``: for tensors, ``.npy`` and ``.npz`` alike."""

import gzip

import numpy as np
import pytest
from safetensors.numpy import save_file

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import OutputError, ShapeError, TableFormatError
from tokenspace.tokenizer import Tokenizer

WEIGHT = np.arange(10, dtype=np.float32).reshape(5, 2)
WORDS = ["[UNK]", "##s", "the", "cat", "dog"]
KINDS = ["t.safetensors", "t.npy", "t.npz"]


@pytest.fixture(params=KINDS)
def bare(request, tmp_path):
    """Numbers without tokens, in each format that takes them from elsewhere."""
    path = tmp_path / request.param
    if path.suffix == ".npy":
        np.save(path, WEIGHT)
    elif path.suffix == ".npz":
        np.savez(path, vectors=WEIGHT)
    else:
        save_file({"weight": WEIGHT}, path)
    return path


@pytest.fixture
def other(tmp_path):
    """A folder elsewhere: a list of words, and a tokenizer's files."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "words").write_text("\n".join(WORDS))
    (folder / "vocab.txt").write_text("\n".join(WORDS[:3]) + "\n")
    return folder


def test_a_token_a_line(bare, other):
    table = ts.load(bare, vocab=other / "words")
    assert (list(table.vocab), table.vocab.special, table.tokenizer) == (WORDS, (0,), None)
    assert np.array_equal(table.weight, WEIGHT)
    assert list(ts.load(bare, vocab=str(other / "words"), limit=2).vocab) == WORDS[:2]
    assert list(ts.load(bare, vocab=other / "words", rows=[4, 1]).vocab) == ["dog", "##s"]


def test_a_tokenizer_s_file_or_folder(bare, other):
    for named in (other / "vocab.txt", other):
        table = ts.load(bare, vocab=named)
        assert list(table.vocab) == [*WORDS[:3], "[SEP]", "[PAD]"]  # which BERT's tokenizer adds
        assert isinstance(table.tokenizer, Tokenizer)
        assert ts.load(bare, vocab=named, limit=4).tokenizer is None


def test_what_is_named_wins_over_what_is_beside(bare, other, write):
    write("t.vocab.txt", "a\nb\nc\nd\ne\n")
    assert list(ts.load(bare).vocab) == list("abcde")
    assert list(ts.load(bare, vocab=other / "words").vocab) == WORDS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", r"words has 2 lines for a table of 5 rows; each row needs a token"),
        (b"a\n\xff\nc\nd\ne\n", r"words, line 2 \(byte 2\): its token is not UTF-8; .*--errors replace"),
        (b"\xef\xbb\xbfa\nb\nc\nd\ne\n", r"words, line 1 \(byte 0\): a UTF-8 byte order mark; take these"),
    ],
)
def test_lines_that_do_not_fit(content, message, bare, other):
    (other / "words").write_bytes(content)
    with pytest.raises(TableFormatError, match=message):
        ts.load(bare, vocab=other / "words")


def test_a_vocabulary_that_does_not_fit(bare, other):
    with pytest.raises(TableFormatError, match=r"gone does not exist"):
        ts.load(bare, vocab=other / "gone")
    (other / "vocab.txt").write_text("\n".join([*WORDS, "more"]) + "\n")
    with pytest.raises(TableFormatError, match=r"1 of the tokenizer's ids have no row in the table of 5"):
        ts.load(bare, vocab=other)


def test_without_any_the_message_says_how_to_name_one(bare):
    with pytest.raises(TableFormatError, match=r"load\(path, vocab=\.\.\.\) or convert --vocab FILE"):
        ts.load(bare)


def test_replaced_bytes_are_counted(bare, other, tmp_path):
    (other / "words").write_bytes(b"a\n\xff\nb\xef\xbf\xbd\n\xfe\xff\nc")
    done = formats.convert(bare, tmp_path / "out", vocab=other / "words", errors="replace")
    assert (done.replaced, done.lossless) == (2, False)
    kept = ts.load(bare, vocab=other / "words", errors="surrogateescape")
    assert kept.vocab[3] == "\udcfe\udcff"


def test_conversion_names_a_tokenizer_that_some_rows_can_not_have(bare, other, tmp_path):
    assert "tokenizer" not in formats.convert(bare, tmp_path / "whole", vocab=other).lost
    assert "tokenizer" in formats.convert(bare, tmp_path / "part", vocab=other, limit=4).lost


def test_the_vocabulary_is_not_written_over(bare, other):
    before = (other / "words").read_bytes()
    with pytest.raises(OutputError, match=r"words: .* is read from it; name another file"):
        formats.convert(bare, other / "words", "glove", vocab=other / "words")
    assert (other / "words").read_bytes() == before


def test_an_archive_with_tokens_takes_no_others(other, tmp_path):
    np.savez(tmp_path / "theirs.npz", weight=WEIGHT, vocab=np.array(WORDS))
    ts.save(ts.Table(WEIGHT, ts.Vocab(WORDS)), tmp_path / "ours.npz")
    for name, own in (("theirs", "vocab"), ("ours", r"tokens\.bytes")):
        with pytest.raises(ShapeError, match=rf"has tokens of its own, in '{own}'; leave vocab out"):
            ts.load(tmp_path / f"{name}.npz", vocab=other / "words")


def test_packed_arrays_and_lists_are_read(other, tmp_path):
    np.save(tmp_path / "t.npy", WEIGHT)
    (tmp_path / "t.npy.gz").write_bytes(gzip.compress((tmp_path / "t.npy").read_bytes()))
    (other / "words.gz").write_bytes(gzip.compress((other / "words").read_bytes()))
    assert list(ts.load(tmp_path / "t.npy.gz", vocab=other / "words.gz", limit=3).vocab) == WORDS[:3]


@pytest.mark.parametrize("path", ["t", "t.vec", "t.gguf"])
def test_formats_with_tokens_take_no_others(path, other, tmp_path):
    ts.save(ts.Table(WEIGHT, ts.Vocab(WORDS)), tmp_path / path)
    with pytest.raises(ShapeError, match=r"vocab is for a file of tensors, a \.npy or \.npz; .* is "):
        ts.load(tmp_path / path, vocab=other / "words")
