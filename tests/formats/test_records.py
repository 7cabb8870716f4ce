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
    rows = [
        token.encode() + b" " + vector.tobytes()
        for token, vector in zip(tokens, VECTORS[: len(tokens)], strict=True)
    ]
    return b"3 2\n" + before + newline.join(rows) + newline


@pytest.mark.parametrize("size", [1, 9, 50, 1 << 20])
@pytest.mark.parametrize(("before", "newline"), [(b"", b""), (b"\n", b""), (b"", b"\n")])
@pytest.mark.parametrize("packed", [False, True])
def test_records_of_any_length_pass_through_a_buffer_of_any_size(
    size, before, newline, packed, write, monkeypatch
):
    monkeypatch.setattr(records, "_BUFFER", size)
    monkeypatch.setattr(word2vec, "_PROBED", max(size, 24))
    content = file_of(newline, before)
    path = write("t", gzip.compress(content) if packed else content)
    table = word2vec.load(path)
    first = f"{before.decode()}a"  # where no row has a newline, it is the token's
    assert list(table.vocab) == [first, "é" * 20, "c"]
    assert table.weight.tobytes() == VECTORS.tobytes()
    assert table.weight.dtype == np.float32
    part = word2vec.load(path, limit=2)
    assert list(part.vocab) == [first, "é" * 20]
    assert part.weight.tobytes() == VECTORS[:2].tobytes()


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
    monkeypatch.setattr(word2vec, "_PROBED", max(size, 24))
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


def without_newlines(*tokens: bytes, weight=None) -> bytes:
    """As gensim writes it."""
    weight = VECTORS[: len(tokens)] if weight is None else weight
    rows = [token + b" " + row.tobytes() for token, row in zip(tokens, weight, strict=True)]
    return b"%d %d\n" % np.shape(weight) + b"".join(rows)


@pytest.mark.parametrize(
    "tokens",
    [(b"\n", b"b"), (b"\nb", b"c"), (b"a", b"\n", b"c"), (b"a", b"b", b"\n"), (b"a", b"\n\nb", b"c")],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_token_s_own_newline_stays(tokens, size, write, monkeypatch):
    monkeypatch.setattr(records, "_BUFFER", size)
    monkeypatch.setattr(word2vec, "_PROBED", max(size, 24))
    table = word2vec.load(write("t", without_newlines(*tokens)))
    assert [token.encode() for token in table.vocab] == list(tokens)
    assert table.weight.tobytes() == VECTORS[: len(tokens)].tobytes()


@pytest.mark.parametrize(
    "tokens",
    [
        *((b"a", b"\n"), (b"a", b"\nb"), (b"\n",), (b"\nb",), (b"a", b"\n", b"\nb")),
        *((b"a", b"\nb", b"\nc"), (b"\na", b"\nb", b"\nc")),
    ],
)
def test_a_newline_that_may_be_the_token_s_or_the_row_s_is_not_guessed(tokens, write):
    row = next(i for i, token in enumerate(tokens) if token.startswith(b"\n")) + 1
    with pytest.raises(TableFormatError, match=rf"row {row}: is the newline before the token its own"):
        word2vec.load(write("t", without_newlines(*tokens)))
    kept = word2vec.load(write("t", without_newlines(*tokens)), errors="surrogateescape")
    assert [token.encode() for token in kept.vocab] == list(tokens)  # as the error says
    if row > 1:  # a newline at the end tells
        table = word2vec.load(write("t", without_newlines(*tokens) + b"\n"))
        assert [token.encode() for token in table.vocab] == [token.removeprefix(b"\n") for token in tokens]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("tokens", [(b"\na", b"a"), (b"\na",), (b"\n", b"b", b"c"), (b"\na", b"b", b"\nc")])
@pytest.mark.parametrize("errors", ["strict", "replace", "surrogateescape"])
def test_a_newline_before_the_first_token_is_never_lost(tokens, end, errors, write):
    _, _, rows = file_of(b"\n", tokens=[token.decode() for token in tokens]).partition(b"\n")
    content = b"%d 2\n" % len(tokens) + rows.removesuffix(b"\n") + end
    if errors == "surrogateescape" and end:
        assert [t.encode() for t in word2vec.load(write("t", content), errors=errors).vocab] == list(tokens)
        return
    with pytest.raises(TableFormatError, match="is the newline before the token its own"):
        word2vec.load(write("t", content), errors=errors if errors != "surrogateescape" else "strict")


def test_where_most_rows_have_a_newline_all_must(write):
    vector = np.float32(0.5).tobytes()
    content = b"5 1\n" + b"".join(token + b" " + vector for token in (b"a", b"\nb", b"\nc", b"d", b"\ne"))
    for end in (b"", b"\n"):
        with pytest.raises(
            TableFormatError, match=r"row 4 \(byte 24\): no newline after the vector before it"
        ):
            word2vec.load(write("t", content + end))


USUAL = np.array([[0.5, -0.25, 0.031], [0.9, 0.3, 0.7], [0.1, -0.2, 0.3]], "<f4")


@pytest.mark.parametrize("token", [b"New York", b"a ", b" ", b"1 2 3"])
def test_a_token_with_a_space_is_named(token, write):
    content = without_newlines(token, b"b", b"c", weight=USUAL)
    first = token.split(b" ")[0]
    for errors in ("strict", "replace"):
        with pytest.raises(TableFormatError, match=rf"row 1 \(byte 4\): the token may be {first!r} with"):
            word2vec.load(write("t", content), errors=errors)
    assert len(word2vec.load(write("t", content), errors="surrogateescape")) == 3
    with pytest.raises(TableFormatError, match=r"after the last of 3 rows; .* does a token hold a space"):
        word2vec.load(write("t", without_newlines(b"b", b"c", token, weight=USUAL)))


@pytest.mark.parametrize("number", [b"\0\x3f\x01\x3f", b"\0\x3f\x01\xbf"])
def test_the_token_after_one_with_a_space_tells_where_its_numbers_do_not(number, write):
    """What is read of the first row is an ordinary number, too: 0.5005."""
    content = b"3 1\na 8 " + number + b"b " + number + b"c " + number
    for errors in ("strict", "replace"):
        with pytest.raises(TableFormatError, match=r"row 1 \(byte 4\): the token may be b'a' .* or b'a 8'"):
            word2vec.load(write("t", content), errors=errors)


def test_random_tokens_with_spaces_are_hardly_ever_read_as_others(rng, write):
    silent = 0
    for _ in range(300):
        content = without_newlines(b"a ", b"b", b"c", weight=rng.normal(size=(3, 10)).astype("<f4"))
        try:
            word2vec.load(write("t", content))
            silent += 1
        except TableFormatError:
            pass
    assert silent == 0
