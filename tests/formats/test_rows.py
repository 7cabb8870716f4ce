"""Rows of text: read a block at a time, they are what they are line by line, from wherever they come."""

import gzip
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.errors import TableFormatError
from tokenspace.formats import glove, lines, word2vec
from tokenspace.formats.tokens import LONGEST_TOKEN

NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: str(np.float32(x)).encode()),
    st.floats(-9, 9).map(lambda x: f"{x:.6f}".encode()),
    st.sampled_from([b"1e-5", b"+1.5", b"-.5", b"7.", b"0.1234567890123456789", b"1E+3", b"-0", b"9" * 20]),
)
TOKENS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9).map(str.encode)
ENDS = st.sampled_from([b"\n", b" \n", b"\r\n", b" \r\n", b"  \n", b"\r \n", b" \r\r\n"])
ROWS = st.tuples(TOKENS, st.tuples(NUMBERS, NUMBERS, NUMBERS), ENDS)


def line_by_line(content: bytes, dim: int, first_line: int, offset: int):
    """The rows, and the first line that is none: its number, its byte, and why it is none."""
    rows = []
    while content[offset:].strip():
        text = content[offset:].split(b"\n", 1)[0] + b"\n"
        try:
            token, numbers = lines.split(text, dim)
        except ValueError as error:
            return rows, (first_line + len(rows), offset, str(error))
        rows.append((token, numbers.tolist()))
        offset += len(text)
    return rows, None


def check(path, content: bytes, load, first_line: int, offset: int) -> None:
    """``load`` gives the rows of ``content``, three numbers each, or names the first line that is none."""
    rows, fault = line_by_line(content, 3, first_line, offset)
    if fault is None:
        table = load(path, errors="surrogateescape")
        assert [token.encode("utf-8", "surrogateescape") for token in table.vocab] == [t for t, _ in rows]
        assert table.weight.tolist() == [numbers for _, numbers in rows]
    else:
        with pytest.raises(TableFormatError) as error:
            load(path, errors="surrogateescape")
        line, offset, why = fault
        assert str(error.value) == f"{path}, line {line} (byte {offset:,}): {why}"


@pytest.mark.parametrize("block", [1, 20, 1 << 18])
@settings(max_examples=40, deadline=None)  # three files are read each time
@given(rows=st.lists(ROWS, min_size=1, max_size=12), data=st.data())
def test_any_rows_are_what_they_are_line_by_line(block, rows, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t"
    head = b"%d 3\nthe 1 2 3\n" % (len(rows) + 1)  # so that nothing takes it for binary
    content = bytearray(head + b"".join(b" ".join([t, *n]) + end for t, n, end in rows))
    for _ in range(data.draw(st.integers(0, 2), "bytes changed")):
        content[data.draw(st.integers(len(head), len(content) - 1))] = data.draw(
            st.sampled_from(b" .-x5e\r\n\0")
        )
    content = bytes(content)
    path.write_bytes(content)
    read, fault = line_by_line(content, 3, 3, len(head))
    full = content.count(b"\n") == len(rows) + 2 and (fault or len(read) == len(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", block)
        if full:
            check(path, content, word2vec.load, 2, content.index(b"the"))
        path.write_bytes(b"the 1 2 3\n" * 15 + content[len(head) :])
        check(path, path.read_bytes(), glove.load, 1, 0)


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
@pytest.mark.parametrize("end", [b"\n", b" \n", b"\r\n", b" \r\n"])
def test_lines_that_cross_blocks(block, end, write, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", block)
    content = b"".join(b"token%d %d.5 -%d.25" % (i, i, i) + end for i in range(60)).removesuffix(b"\n")
    for load, head in ((glove.load, b""), (word2vec.load, b"60 2\n")):
        table = load(write("t", head + content))
        assert list(table.vocab) == [f"token{i}" for i in range(60)]
        assert table.weight.tolist() == [[i + 0.5, -i - 0.25] for i in range(60)]


@pytest.mark.parametrize("block", [1, 50, 1 << 18])
@pytest.mark.parametrize(
    ("bad", "why"), [(b"b 1\n", "a token and 1 number"), (b"\xff 1 2\n", "the token b'.xff' is")]
)
def test_places_are_counted_through_all_blocks(block, bad, why, write, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", block)
    content = b"a 1 2\n" * 200 + bad + b"c 1 2\n"
    with pytest.raises(TableFormatError, match=rf"line 201 \(byte 1,200\): {why}"):
        glove.load(write("t", content))


@pytest.mark.parametrize("load", [word2vec.load, glove.load])
def test_only_plain_lines_are_read_at_once_and_all_of_them(load, write, monkeypatch):
    """The quick way is taken: no plain line goes through ``split``."""
    seen = []
    whole = lines.split
    monkeypatch.setattr(lines, "split", lambda text, dim: seen.append(text) or whole(text, dim))
    content = b"a 1 2\nb -0.5 3e-5 \nc d 1 2\n \xc2\xa0 1 2\ne 1 2\r\n"
    head = b"5 2\n" if load is word2vec.load else b""
    assert len(load(write("t", head + content))) == 5
    assert seen == [b"c d 1 2\n", b" \xc2\xa0 1 2\n"]


PREFIX = b"a 1 2\nb 3 4\n"
GARBAGE = [b"", b"c", b"c 1\n", b"\xff 1 2\n", b"c 1 nan\n", b"\0" * 9_000_000, b"\n\nx y z\n" * 9]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("head", [b"", b"9 2\n", b"2 2\n"])
def test_a_limit_looks_at_no_row_past_it(head, garbage, write):
    load = word2vec.load if head else glove.load
    table = load(write("t", head + PREFIX + garbage), limit=2)
    assert list(table.vocab) == ["a", "b"]
    assert table.weight.tolist() == [[1, 2], [3, 4]]


def test_a_limit_past_the_end_is_all_there_is(write):
    assert list(glove.load(write("t", PREFIX), limit=9).vocab) == ["a", "b"]
    assert list(word2vec.load(write("t", b"2 2\n" + PREFIX), limit=9).vocab) == ["a", "b"]
    with pytest.raises(TableFormatError, match="the file ends after 2 rows; 9 are needed"):
        word2vec.load(
            write("t", b"9 2\n" + PREFIX.replace(b"1 2", b"1.00000000 2.000000000000000000")), limit=9
        )


def test_a_limit_reads_no_more_of_a_packed_file_than_it_needs(write):
    """What is damaged after the first rows is not unpacked."""
    row = b"token 0.25 -0.5\n"
    packed = bytearray(gzip.compress(row * 400_000, 0))
    packed[len(packed) // 2 :] = b"damage"
    path = write("t.gz", bytes(packed))
    assert len(glove.load(path, limit=1000)) == 1000
    with pytest.raises(TableFormatError, match=r"t\.gz is damaged"):
        glove.load(path)


@pytest.mark.parametrize("packed", [False, True])
def test_gzip_and_zip_are_unpacked_on_the_way(packed, write, tmp_path):
    content = b"2 2\n" + PREFIX
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/t.vec", gzip.compress(content) if packed else content)
    for path in (write("t.vec.gz", gzip.compress(content)), tmp_path / "all.zip" / "in" / "t.vec"):
        table = word2vec.load(path)
        assert list(table.vocab) == ["a", "b"]
        assert table.provenance["read_from"] == {"file": path.name, "format": "word2vec-text"}


def test_what_is_wrong_in_a_packed_file_is_named_as_in_a_plain_one(write):
    path = write("t.gz", gzip.compress(b"999999999 2\na 1 2\nb 1\n"))
    with pytest.raises(TableFormatError, match=r"t\.gz, line 3 \(byte 18\): a token and 1 number, where 2"):
        word2vec.load(path)
    path = write("t.gz", gzip.compress(b"999999999 2\na 1 2\n"))
    with pytest.raises(
        TableFormatError, match=r"line 3 \(byte 18\): the file ends after 1 row; 999,999,999 are"
    ):
        word2vec.load(path)
    path = write("t.gz", gzip.compress(b"1 999999999\na 1 2\n"))
    with pytest.raises(TableFormatError, match=r"rows of 999,999,999 numbers; 65,536 in a row are the most"):
        word2vec.load(path)


@pytest.mark.parametrize("load", [word2vec.load, glove.load])
def test_a_line_without_end_is_cut_and_refused(load, write):
    head = b"3 2\n" if load is word2vec.load else b"a 1 2\n" * 5
    with pytest.raises(TableFormatError, match=r"line [26] \(byte \d+\): a token and 0 numbers, where 2"):
        load(write("t", head + b"x" * 10_000_000))


@pytest.mark.parametrize("load", [word2vec.load, glove.load])
def test_a_token_too_long_to_be_written_is_not_read(load, write):
    head = b"3 2\n" if load is word2vec.load else b""
    content = head + b"a 1 2\n%b 1 2\nb 1 2\n"
    table = load(write("t", content % (b"x" * LONGEST_TOKEN)))
    assert list(map(len, table.vocab)) == [1, LONGEST_TOKEN, 1]
    with pytest.raises(TableFormatError, match=r"line [23] .*the token has 65,537 bytes, and 65,536 are the"):
        load(write("t", content % (b"x" * (LONGEST_TOKEN + 1))))


def test_the_first_thing_wrong_is_the_one_that_is_named(write):
    content = b"4 1\na 1\n\xff 1\nb\nc 1\n"
    with pytest.raises(TableFormatError, match=r"line 3 \(byte 8\): the token b'\\xff' is not UTF-8"):
        word2vec.load(write("t", content))
    with pytest.raises(TableFormatError, match=r"line 4 \(byte 12\): a token and 0 numbers"):
        word2vec.load(write("t", content), errors="replace")


def test_numbers_are_the_nearest_float64_and_then_float32(write):
    """1 + 2^-24 + 2^-60 rounds up to a float32 directly, and down by way of float64, as elsewhere."""
    middle = "1.00000005960464477625"
    fields = [
        middle,
        "0.1",
        "16777217",
        "1e-46",
        "3.4028235677973366e+38"[:10] + "e38",
        "1e-5",
        "123456789.125",
    ]
    table = word2vec.load(write("t", f"1 {len(fields)}\na {' '.join(fields)}\n"))
    assert table.weight[0].tolist() == [float(np.float32(float(field))) for field in fields]
