"""What goes wrong with table files elsewhere, each in every format that could have the fault.

A test names where the fault was seen (a public tracker, or gensim 4.4.0 run here). What is written reads back
equal, or is refused with nothing changed on disk; what is read is right, or refused with its place.
"""

import gzip
import io
import json
import os
import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import TableFormatError, TokenspaceError, VocabError
from tokenspace.formats import glove, word2vec
from tokenspace.formats import numpy as npy

from .memory_limit import taking_at_most

WRITABLE = [name for name, one in formats.FORMATS.items() if one.save is not None]
EXCHANGE = ["word2vec-text", "word2vec-binary", "glove", "numpy"]
ROW = np.array([0.5, -2], "<f4").tobytes()


def table(*tokens: str, weight=None) -> ts.Table:
    if weight is None:
        weight = np.arange(2 * len(tokens), dtype=np.float32).reshape(-1, 2) / 3 - 1
    return ts.Table(weight, ts.Vocab(tokens))


def on_disk(folder) -> dict:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def bits(weight) -> list:
    return np.asarray(weight, np.float32).view(np.uint32).tolist()


def written_and_read(made: ts.Table, name: str, folder) -> ts.Table | None:
    """The table as the format gives it back, equal to ``made``; None if it is refused. Nothing is lost."""
    path = Path(tempfile.mkdtemp(dir=folder), "t")
    ts.save(table("old"), path, name)
    if len(on_disk(path.parent)) > 1:  # several files are not replaced: they can't be at once
        path = path.with_name("new")
    before = on_disk(path.parent)
    try:
        ts.save(made, path, name)
    except TokenspaceError:
        assert on_disk(path.parent) == before
        return None
    again = ts.load(path)
    assert list(again.vocab) == list(made.vocab)
    assert bits(again.weight) == bits(made.weight)
    return again


# ── gensim#388, gensim#2795: a token with a space is saved, and will not load ─────────────────────────────

SPACED = ["New York", " ", " a", "a ", "a  b", "at 5", "1 2", ". . .", "\t", "a\tb"]


@pytest.mark.parametrize("token", SPACED)
@pytest.mark.parametrize("name", WRITABLE)
def test_a_token_with_a_space_comes_back_or_is_refused(name, token, tmp_path):
    written_and_read(table("cat", token), name, tmp_path)
    written_and_read(table(token), name, tmp_path)


@pytest.mark.parametrize("name", EXCHANGE)
def test_a_refusal_names_a_format_that_can_hold_the_token(name, tmp_path):
    for token in (*SPACED, "", "\n", "\udcff"):
        if formats.FORMATS[name].refusal(token.encode("utf-8", "surrogateescape")):
            with pytest.raises(VocabError) as error:
                ts.save(table("cat", token), tmp_path / "t", name)
            able = [other for other in formats.FORMATS if other in str(error.value).partition("; ")[2]]
            assert able
            for other in able:
                assert written_and_read(table("cat", token), other, tmp_path), other


# ── GloVe#150: ". . ." in glove.840B is read as numbers that are none ─────────────────────────────────────


@pytest.mark.parametrize(
    ("head", "load"), [(b"", glove.load), (b"3 2\n", word2vec.load)], ids=["glove", "word2vec-text"]
)
def test_the_last_fields_are_the_vector_and_all_before_them_is_the_token(head, load, write):
    path = write("t", head + b". . . 1 2\nat name@domain.com 3 4\ncat 5 6\n")
    for read in (load, ts.load):
        assert list(read(path).vocab) == [". . .", "at name@domain.com", "cat"]
        assert read(path).weight.tolist() == [[1, 2], [3, 4], [5, 6]]


# ── word2vec-api#6, sentence-transformers#1875: a missing header, or a header that is read as a word ──────


def test_a_header_is_told_by_its_two_integers_and_is_no_word(write):
    for content, tokens in {
        b"2 2\na 1 2\nb 3 4\n": ["a", "b"],
        b"a 1 2\nb 3 4\n": ["a", "b"],
        b"2 2.0\nb 3\n": ["2", "b"],
        b"2 1 2\nb 3 4\n": ["2", "b"],
        b"2 2\n" + b"a " + ROW + b"b " + ROW: ["a", "b"],
    }.items():
        assert list(ts.load(write("t", content)).vocab) == tokens


@pytest.mark.parametrize(
    "content",
    [
        b"3 2\na 1 2\nb 3 4\n",
        b"1 2\na 1 2\nb 3 4\n",
        b"2 3\na 1 2\nb 3 4\n",
        b"2 1\na 1 2\nb 3 4\n",
        b"3 2\na " + ROW + b"\nb " + ROW + b"\n",
        b"1 2\na " + ROW + b"\nb " + ROW + b"\n",
    ],
)
def test_a_header_is_held_against_the_rows(content, write):
    with pytest.raises(TableFormatError, match=r"\(byte \d+\)"):
        ts.load(write("t", content))


@pytest.mark.parametrize(
    "first",
    ["2", "10", "GGUF", "PK\x03\x04", "BZh", "#version", "abcd\0\0\0\0{", "{", "\ufeff", "\x1f", "\x93NUMPY"],
)
@pytest.mark.parametrize("name", WRITABLE)
def test_no_first_token_makes_a_file_look_like_another_kind(name, first, tmp_path):
    written_and_read(table(first, "b"), name, tmp_path)
    written_and_read(table(first, weight=np.array([[3]], np.float32)), name, tmp_path)


# ── gensim#567: a token that is no UTF-8, somewhere ───────────────────────────────────────────────────────

RECORDS = [token + b" " + ROW + b"\n" for token in (b"cat", b"a\xff", b"a\xfe")]
NO_UTF8 = {
    "word2vec-text": (b"3 2\ncat 1 2\na\xff 1 2\na\xfe 1 2\n", "line 3 (byte 12)"),
    "word2vec-binary": (b"3 2\n" + b"".join(RECORDS), "row 2 (byte 17)"),
    "glove": (b"cat 1 2\na\xff 1 2\na\xfe 1 2\n", "line 2 (byte 8)"),
    "numpy": (b"cat\na\xff\na\xfe\n", "line 2 (byte 4)"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_UTF8)
def test_a_token_that_is_no_utf8_is_named_with_its_place_or_read_on_request(name, write, tmp_path):
    content, place = NO_UTF8[name]
    load = {"glove": glove, "numpy": npy}.get(name, word2vec).load
    path = write("t.vocab.txt" if name == "numpy" else "t", content)
    if name == "numpy":
        path = tmp_path / "t.npy"
        np.save(path, np.ones((3, 2), np.float32))
    with pytest.raises(TableFormatError) as error:
        load(path)
    assert place in str(error.value)
    assert r"b'a\xff'" in str(error.value)
    replaced = load(path, errors="replace")
    assert list(replaced.vocab) == ["cat", "a\ufffd", "a\ufffd"]
    assert replaced.provenance["read_from"]["replaced_tokens"] == 2
    assert replaced.provenance["read_from"]["repeated_tokens"] == 1
    kept = load(path, errors="surrogateescape")
    assert list(kept.vocab) == ["cat", "a\udcff", "a\udcfe"]
    assert "repeated_tokens" not in kept.provenance["read_from"]


@pytest.mark.parametrize("name", WRITABLE)
def test_bytes_that_are_no_text_come_back_or_are_refused(name, tmp_path):
    took = written_and_read(table("cat", "\udcff", "\udce9t\udce9"), name, tmp_path)
    assert took is not None or name != "native"


# ── gensim#394: a bad record in the middle of a binary file ───────────────────────────────────────────────


@pytest.mark.parametrize("newline", [b"\n", b""])
def test_a_damaged_record_is_named_by_row_and_byte(newline, write):
    records = [b"tok%d " % i + ROW + newline for i in range(9)]
    records[4] = records[4][:-7]  # too short: the next one is not where it should be
    with pytest.raises(TableFormatError, match=r"row [5-9] \(byte \d+\)"):
        ts.load(write("t", b"9 2\n" + b"".join(records)))


@pytest.mark.parametrize("name", WRITABLE)
def test_a_file_that_is_cut_off_is_refused_wherever_it_is_cut(name, tmp_path):
    made = table("cat", "dog", "cow")
    ts.save(made, tmp_path / "t", name)
    for path, content in on_disk(tmp_path).items():
        text = name in ("word2vec-text", "glove") or path.name.endswith(".vocab.txt")
        whole = content[:-1].rindex(b"\n") if text else len(content) - 1  # who can tell a number cut short?
        first = content.index(b"\n") + 1 if name == "glove" else 0  # ... or that others were to follow
        for end in range(first, whole, max(1, len(content) // 15)):
            path.write_bytes(content[:end])
            try:
                read = ts.load(tmp_path / "t")
            except (TableFormatError, ts.CheckpointError):
                continue
            rows = len(read)  # glove has no count of its rows; of other files only padding may be missing
            assert name == "glove" or (rows == 3 and path.suffix != ".safetensors"), (path, end)
            assert list(read.vocab) == list(made.vocab)[:rows]
            assert bits(read.weight) == bits(made.weight[:rows])
        path.write_bytes(content)


# ── gensim#149: a newline after each binary vector, or none ───────────────────────────────────────────────


def test_binary_rows_are_read_with_newlines_and_without_and_written_with_them(write, tmp_path):
    made = table("cat", "\u00e9", weight=np.array([[0.5, -2]] * 2, np.float32))
    with_newlines = b"2 2\ncat " + ROW + b"\n\xc3\xa9 " + ROW + b"\n"
    for content in (with_newlines, b"2 2\ncat " + ROW + b"\xc3\xa9 " + ROW):
        again = ts.load(write("t", content))
        assert list(again.vocab) == list(made.vocab)
        assert bits(again.weight) == bits(made.weight)
    ts.save(made, tmp_path / "t", "word2vec-binary")
    assert (tmp_path / "t").read_bytes() == with_newlines


def test_a_vector_that_begins_with_the_byte_of_a_newline_or_a_space(tmp_path):
    weight = np.frombuffer(b"\n \n\x3f \n \xbf" * 3, "<f4").reshape(3, 2)
    assert written_and_read(table("a", "b", "c", weight=weight), "word2vec-binary", tmp_path)


# ── spaCy#737, spaCy#834: U+00A0 is a token, not a separator ──────────────────────────────────────────────

BLANKS = [
    "\u00a0",
    "\u0085",
    "\u2028",
    "\u2003",
    "\u3000",
    "\x0b",
    "\x0c",
    "\x1c",
    "a\u00a0b",
    "\u00a0a",
    "a\u2029",
]


@pytest.mark.parametrize("name", WRITABLE)
def test_only_the_ascii_space_separates(name, tmp_path):
    for token in BLANKS:
        took = written_and_read(table("cat", token, "dog"), name, tmp_path)
        assert took is not None or name not in (*EXCHANGE, "native"), repr(token)


# ── spaCy#3412, model2vec#368: zero rows, and norms in float16, make scores that are NaN ──────────────────


@pytest.mark.parametrize("name", [None, *EXCHANGE])
def test_a_zero_row_scores_zero(name, tmp_path):
    made = table("a", "zero", "b", weight=np.array([[1, 0], [0, -0.0], [-1, 0]], np.float32))
    ts.save(made, tmp_path / "t", name)
    opened = ts.load(tmp_path / "t")
    hits = ts.geometry.neighbors(opened, "a")
    assert [(hit.token, hit.score) for hit in hits] == [("zero", 0), ("b", -1)]
    assert [hit.score for hit in ts.geometry.neighbors(opened, "zero")] == [0, 0]


@pytest.mark.parametrize("size", [6e4, 6e-8])
@pytest.mark.parametrize("name", ["native", "numpy"])
def test_norms_of_float16_rows_neither_overflow_nor_vanish(name, size, tmp_path):
    weight = np.array([[size, size], [size, 0], [0, size]], np.float16)
    ts.save(table("a", "b", "c", weight=weight), tmp_path / "t", name)
    opened = ts.load(tmp_path / "t")
    assert opened.weight.dtype == np.float16
    scores = [hit.score for hit in ts.geometry.neighbors(opened, "a")]
    assert scores == pytest.approx([0.5**0.5] * 2, rel=1e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_no_number_is_refused_and_never_written(name, number, tmp_path):
    weight = np.array([[1, 2], [3, number]], np.float32)
    assert not written_and_read(table("a", "b", weight=weight), name, tmp_path)


# ── gensim#2447, gensim#2187: a load takes a multiple of the table in memory ──────────────────────────────


@pytest.mark.parametrize("name", EXCHANGE)
def test_a_load_takes_little_more_than_the_table(name, tmp_path, rng):
    weight = rng.random((20_000, 100), np.float32)
    ts.save(table(*(f"t{i}" for i in range(20_000)), weight=weight), tmp_path / "t", name)
    with taking_at_most(1.6 * weight.nbytes / 1e6 + 4):
        read = ts.load(tmp_path / "t")
    assert bits(read.weight[-1:]) == bits(weight[-1:])


# ── gensim: a row with one number is spread over the whole vector ─────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"3 3\na 1 2 3\nb 1\nc 1 2 3\n", r"line 3 \(byte 12\): a token and 1 number, where 3"),
        (b"a 1 2 3\nb 1\nc 1 2 3\n", r"line 2 \(byte 8\): a token and 1 number, where 3"),
        (b"3 3\na 1 2 3\nb\nc 1 2 3\n", r"line 3 \(byte 12\): a token and 0 numbers, where 3"),
        (b"3 3\na 1 2 3\nb 1 2 3 4\nc 1 2 3\n", r"line 3 \(byte 12\): a token and more than the 3"),
        (b"3 3\na 1 2 3\nb 1  3\nc 1 2 3\n", r"line 3 \(byte 12\)"),
    ],
)
def test_a_row_of_too_few_or_too_many_numbers_is_named_with_its_counts(content, says, write):
    for packed in (content, gzip.compress(content)):
        with pytest.raises(TableFormatError, match=says):
            ts.load(write("t", packed))


# ── gensim: duplicate tokens leave holes and a zero row ───────────────────────────────────────────────────


@pytest.mark.parametrize("name", WRITABLE)
def test_a_repeated_token_keeps_its_row_at_its_own_id_or_is_refused(name, tmp_path):
    again = written_and_read(table("a", "b", "a", "a"), name, tmp_path)
    if again is None:
        assert name not in ("native", *EXCHANGE)
    else:
        assert again.vocab.ids("a") == [0, 2, 3]
        assert again.vocab.id("a") == 0
        told = again.provenance.get("read_from", {})
        assert told.get("repeated_tokens", None if name in EXCHANGE else 2) == 2


# ── gensim: a binary round trip turns the token "\n" into "" ──────────────────────────────────────────────


@pytest.mark.parametrize("token", ["\n", "", "\r", "\r\n", "a\n", "\na", "a\nb", "a\r", "\0", "a\0"])
@pytest.mark.parametrize("name", WRITABLE)
def test_a_line_s_end_or_nothing_at_all_as_a_token(name, token, tmp_path):
    took = written_and_read(table("cat", token, "dog"), name, tmp_path)
    assert took is not None or name != "native"


# ── language models' vocabularies: newline, space, control, byte and repeated tokens, by id ───────────────

EVERY = [
    "[PAD]",
    *SPACED,
    *BLANKS,
    "\n",
    "",
    "\0",
    "\udcff",
    "a",
    "a",
    "<0x0A>",
    "\u0120king",
    "\u2581king",
    "\U0001f600",
]


def test_native_keeps_every_token_and_convert_verifies_it(tmp_path):
    ts.save(table(*EVERY), tmp_path / "t")
    assert list(ts.load(tmp_path / "t").vocab) == EVERY
    done = formats.convert(tmp_path / "t", tmp_path / "out")
    assert done.lossless
    assert not done.left_out
    assert list(ts.load(tmp_path / "out").vocab) == EVERY


@pytest.mark.parametrize("name", EXCHANGE)
def test_convert_names_each_token_that_a_format_can_not_hold(name, tmp_path):
    ts.save(table(*EVERY), tmp_path / "in")
    done = formats.convert(tmp_path / "in", tmp_path / "out", name, allow_loss=True)
    assert done.left_out
    assert not done.lossless
    kept = [token for token in EVERY if token not in done.left_out]
    assert list(ts.load(tmp_path / "out").vocab) == kept


# ── hostile files ─────────────────────────────────────────────────────────────────────────────────────────

HUGE = {
    "word2vec-text": b"99999999999 300\na" + b" 0.5" * 300 + b"\n",
    "word2vec-binary": b"99999999999 300\na " + bytes(1200),
    "word2vec, width": b"1 999999999999999999\na 0.5\n",
    "safetensors": (2**40).to_bytes(8, "little") + b"{" + b" " * 99,
    "numpy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{'descr'",
    "gguf": b"GGUF\x03\0\0\0" + (2**40).to_bytes(8, "little") * 2,
    "fasttext": (793712314).to_bytes(4, "little") + bytes([12, 0, 0, 0]) + b"\xff\xff\xff\x7f" * 20,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", HUGE)
def test_nothing_is_allocated_because_a_header_says_so(kind, packed, write):
    path = write("t.npy" if kind == "numpy" else "t", gzip.compress(HUGE[kind]) if packed else HUGE[kind])
    with taking_at_most(16), pytest.raises(TableFormatError):
        ts.load(path)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def evil_zip(content: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/byteorder", b"little")
    return held.getvalue()


@pytest.mark.parametrize("file", ["t.pt", "zipped.pt", "t.npy", "t.npz", "model/pytorch_model.bin", "plain"])
def test_no_pickle_runs_code(file, tmp_path):
    mark = tmp_path / "was here"
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    content = pickle.dumps(Evil(mark), protocol=2)
    if file == "zipped.pt":
        content = evil_zip(content)
    elif file.startswith("t.np"):
        held = io.BytesIO()
        (np.save if file == "t.npy" else np.savez)(held, np.array([[Evil(mark)]], object))
        content = held.getvalue()
        (tmp_path / "t.vocab.txt").write_text("a\n")
    path.write_bytes(content)
    (path.parent / "config.json").write_text('{"vocab_size": 1}')
    (path.parent / "vocab.txt").write_text("a")
    with pytest.raises((TableFormatError, ts.CheckpointError)):
        ts.load(path.parent if "/" in file else path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_no_name_in_an_archive_or_an_index_leads_out_of_its_folder(name, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    ts.save(table("a"), tmp_path / "outside")
    with zipfile.ZipFile(room / "t.zip", "w") as archive:
        archive.writestr(name, b"cat 1 2\n")
    before = on_disk(tmp_path)
    for path in (room / "t.zip", room / "t.zip" / name):
        try:
            read = ts.load(path)
        except TableFormatError:
            continue
        assert list(read.vocab) == ["cat"]  # the member, not the file outside
    assert on_disk(tmp_path) == before
    (room / "config.json").write_text("{}")
    index = json.dumps({"weight_map": {"weight": name}})
    (room / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ts.CheckpointError, match="a shard is a plain file in the same folder"):
        ts.load(room)
