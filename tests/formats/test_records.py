"""word2vec's binary rows, through a buffer of any size, plain and packed."""

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from tokenspace.errors import TableFormatError
from tokenspace.formats import records, word2vec

VECTORS = np.array([[0.5, 1e30], [-0.0, 7], [2.0**-120, 10]], "<f4")  # 10 has the byte of a space


def file_of(newline: bytes, before: bytes = b"", tokens=("a", "é" * 20, "c")) -> bytes:
    rows = [token.encode() + b" " + vector.tobytes() for token, vector in zip(tokens, VECTORS, strict=True)]
    return b"3 2\n" + before + newline.join(rows) + newline


@pytest.mark.parametrize("size", [1, 9, 50, 1 << 20])
@pytest.mark.parametrize("before", [b"", b"\n"])
@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_records_of_any_length_pass_through_a_buffer_of_any_size(
    size, before, newline, packed, write, monkeypatch
):
    monkeypatch.setattr(records, "_BUFFER", size)
    content = file_of(newline, before)
    path = write("t", gzip.compress(content) if packed else content)
    table = word2vec.load(path)
    assert list(table.vocab) == ["a", "é" * 20, "c"]
    assert table.weight.tobytes() == VECTORS.tobytes()
    assert table.weight.dtype == np.float32
    first = word2vec.load(path, limit=2)
    assert list(first.vocab) == ["a", "é" * 20]
    assert first.weight.tobytes() == VECTORS[:2].tobytes()


@pytest.mark.parametrize("size", [1, 9, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (file_of(b"\n")[:-2], r"row 3 \(byte 65\): no token, space and 2 float32 in the 9 bytes left"),
        (file_of(b"\n")[:-9], r"row 3 \(byte 65\): no token, space and 2 float32 in the 2 bytes left"),
        (file_of(b"\n").replace(b"\nc ", b"c "), r"row 3 \(byte 64\): no newline after the vector before it"),
        (file_of(b"\n") + b"more", r"\(byte 75\): 5 bytes after the last of 3 rows"),
        (file_of(b"") + b"\n\n", r"\(byte 73\): 2 bytes after the last of 3 rows"),
        (file_of(b"").replace(b"3 2\n", b"4 2\n"), r"row 4 \(byte 73\): no token, space and 2 float32 in"),
        (
            file_of(b"\n").replace(VECTORS[1].tobytes(), np.array([1, np.nan], "<f4").tobytes()),
            r"row 2 \(byte 15\): the vector of b'\\xc3.*' holds NaN or infinity",
        ),
        (file_of(b"\n", tokens=("a", "b", "x" * 70_000)), r"row 3 \(byte 26\): no space in 65,537 bytes"),
        (
            file_of(b"\n").replace("é".encode() * 20, b"\xc3\xa9" * 19 + b"\xc3"),
            r"row 2 \(byte 15\): the token b'\\xc3.*' is not UTF-8",
        ),
    ],
)  # fmt: skip
def test_damage_is_named_by_row_and_byte(content, message, packed, size, write, monkeypatch):
    monkeypatch.setattr(records, "_BUFFER", size)
    path = write("t", gzip.compress(content) if packed else content)
    with pytest.raises(TableFormatError, match=message):
        word2vec.load(path)


def test_the_first_thing_wrong_is_the_one_that_is_named(write):
    content = file_of(b"\n", tokens=("a", "b", "x" * 70_000)).replace(b"b ", b"\xff ")
    with pytest.raises(TableFormatError, match=r"row 2 .*is not UTF-8"):
        word2vec.load(write("t", content))
    with pytest.raises(TableFormatError, match=r"row 3 .*no space"):
        word2vec.load(write("t", content), errors="replace")


GARBAGE = [b"", b"\n", b"x", b"\xff" * 99, b"\nno newline then", file_of(b"")]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_a_limit_looks_at_no_row_past_it(newline, garbage, write):
    content = file_of(newline).replace(b"3 2\n", b"3000000 2\n")[: -10 - len(newline)] + garbage
    table = word2vec.load(write("t", content), limit=2)
    assert list(table.vocab) == ["a", "é" * 20]
    assert table.weight.tobytes() == VECTORS[:2].tobytes()


def test_two_halves_of_a_character_are_two_tokens_that_are_no_text(write):
    content = b"2 1\n\xc3 \0\0\0\0\n\xa9 \0\0\0\0\n"
    with pytest.raises(TableFormatError, match=r"row 1 \(byte 4\): the token b'\\xc3' is not UTF-8"):
        word2vec.load(write("t", content))
    table = word2vec.load(write("t", content), errors="replace")
    assert list(table.vocab) == ["\ufffd", "\ufffd"]
    assert table.provenance["read_from"] == {
        "file": "t",
        "format": "word2vec-binary",
        "replaced_tokens": 2,
        "repeated_tokens": 1,
    }


@pytest.mark.parametrize("packed", [False, True])
def test_the_matrix_and_one_buffer_are_all_the_memory(packed, rng, write):
    weight = rng.random((4000, 1000), np.float32)
    buffer = io.BytesIO()
    buffer.write(b"4000 1000\n")
    for i, row in enumerate(weight):
        buffer.write(b"t%d " % i + row.tobytes() + b"\n")
    path = write("t", gzip.compress(buffer.getvalue(), 1) if packed else buffer.getvalue())
    tracemalloc.start()
    table = word2vec.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(table.weight, weight)
    assert peak < (1.125 if packed else 1) * weight.nbytes + (5 << 20)


def test_an_archives_directory_is_not_believed(tmp_path):
    """It says that the member has 2 GB; there are some 70 bytes."""
    content = file_of(b"\n").replace(b"3 2\n", b"200000000 2\n")
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.bin", content)
    packed = (tmp_path / "t.zip").read_bytes()
    size = len(content).to_bytes(4, "little")
    directory = packed.rindex(b"PK\1\2")
    lying = packed[:directory] + packed[directory:].replace(size, (2_000_000_000).to_bytes(4, "little"))
    (tmp_path / "t.zip").write_bytes(lying)
    tracemalloc.start()
    with pytest.raises(TableFormatError):
        word2vec.load(tmp_path / "t.zip" / "t.bin")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
