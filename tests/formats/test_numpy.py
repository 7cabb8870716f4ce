import contextlib
import gzip
import io
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace import atomic
from tokenspace.errors import OutputError, TableFormatError, VocabError
from tokenspace.formats import numpy as npy
from tokenspace.table import Table
from tokenspace.vocab import Vocab

TINY = Table(np.array([[1, -2], [0.1, -0.0]], np.float32), Vocab(["a b", "é"]))
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
DATA = b"\x00\x00\x80?\x00\x00\x00\xc0\xcd\xcc\xcc=\x00\x00\x00\x80"


def array(header: bytes = HEADER, data: bytes = DATA) -> bytes:
    padded = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + data


def test_these_bytes(tmp_path):
    npy.save(TINY, tmp_path / "t.npy")
    assert sorted(os.listdir(tmp_path)) == ["t.npy", "t.vocab.txt"]
    assert (tmp_path / "t.npy").read_bytes() == array()
    assert (tmp_path / "t.vocab.txt").read_bytes() == b"a b\n\xc3\xa9\n"
    again = npy.load(tmp_path / "t.npy")
    assert isinstance(again.weight, np.memmap)
    assert list(again.vocab) == ["a b", "é"]
    assert again.weight.view(np.uint32).tolist() == TINY.weight.view(np.uint32).tolist()
    assert np.array_equal(np.load(tmp_path / "t.npy"), TINY.weight)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        ("<f4", np.float32),
        (">f4", np.float32),
        ("<f2", np.float16),
        (">f2", np.float16),
        ("<f8", np.float32),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_saves_is_read(dtype, kept, order, tmp_path, write):
    weight = np.asarray(np.arange(6).reshape(3, 2) / 7, dtype, order=order)
    np.save(tmp_path / "t.npy", weight)
    write("t.vocab.txt", "a\r\n\nc")
    table = npy.load(tmp_path / "t.npy")
    assert table.weight.dtype == kept
    assert np.array_equal(table.weight, weight.astype(kept))
    assert list(table.vocab) == ["a", "", "c"]


def test_version_2_headers_are_read(tmp_path, write):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, TINY.weight, version=(2, 0))
    write("t.vocab.txt", "a\nb\n")
    assert np.array_equal(npy.load(write("t.npy", buffer.getvalue())).weight, TINY.weight)


@pytest.mark.parametrize(("dtype", "kept"), [(np.float16, np.float16), (ml_dtypes.bfloat16, np.float32)])
def test_narrow_numbers_keep_their_values(dtype, kept, tmp_path):
    weight = np.arange(6).reshape(3, 2).astype(dtype)
    npy.save(Table(weight, Vocab(["a", "b", "c"])), tmp_path / "t.npy")
    again = npy.load(tmp_path / "t.npy").weight
    assert again.dtype == kept
    assert np.array_equal(again, weight.astype(kept))


@pytest.mark.parametrize(
    ("content", "vocabulary", "message"),
    [
        (b"PK\x03\x04", "a\nb\n", r"no .npy file of version 1.0, 2.0 or 3.0"),
        (array()[:60], "a\nb\n", r"\(byte 8\): the header of this .npy file is damaged"),
        (array(HEADER[:-20]), "a\nb\n", "header of this .npy file is damaged"),
        (array(b"[" * 100), "a\nb\n", "header of this .npy file is damaged"),
        (array(HEADER.replace(b"(2, 2)", b"(-2, 2)")), "a\nb\n", "damaged"),
        (array(HEADER.replace(b"(2, 2)", b"7")), "a\nb\n", "damaged"),
        (array(HEADER.replace(b"<f4", b"<i4")), "a\nb\n", r"its numbers are '<i4'; a table's are float16"),
        (array(HEADER.replace(b"<f4", b"|O")), "a\nb\n", r"its numbers are '\|O'"),
        (
            array(HEADER.replace(b"(2, 2)", b"(4,)")),
            "a\nb\n",
            r"an array of shape \(4,\); a table is \(V, D\)",
        ),
        (array(HEADER.replace(b"(2, 2)", b"(0, 2)"), b""), "", r"shape \(0, 2\); a table is"),
        (array(HEADER.replace(b"(2, 2)", b"(2, 99999999999)")), "a\nb\n", r"bytes; 16 are there"),
        (array(data=DATA[:-1]), "a\nb\n", "16 bytes; 15 are there: is the file cut off"),
        (array(), "a\n", r"has 2 rows, .*t\.vocab\.txt 1 line; each row needs a token"),
        (array(), "a\nb\nc\n", "has 2 rows, .* 3 lines"),
        (array(), b"a\n\xff\n", r"t\.vocab\.txt, line 2 \(byte 2\): the token b'\\xff' is not UTF-8"),
        (
            array(HEADER.replace(b"<f4", b">f4"), DATA[:-4] + b"\x7f\xc0\0\0"),
            "a\nb\n",
            "row 1 of the .* holds NaN",
        ),
        (array(), b"\xef\xbb\xbfa\nb\n", r"t\.vocab\.txt, line 1 \(byte 0\): a UTF-8 byte order mark; take"),
        (
            array(HEADER.replace(b"<f4", b"<f8"), np.array([1, 2, 3, 1e300]).tobytes()),
            "a\nb\n",
            r"row 1 holds 1e\+300, too large for float32",
        ),
    ],
)
def test_damage_is_named(content, vocabulary, message, write):
    path = write("t.npy", content)
    write("t.vocab.txt", vocabulary)
    with pytest.raises(TableFormatError, match=message):
        npy.load(path)


def test_an_array_of_pickles_is_not_opened(tmp_path, write):
    np.save(tmp_path / "t.npy", np.array([[{}]]), allow_pickle=True)
    write("t.vocab.txt", "a\n")
    with pytest.raises(TableFormatError, match="its numbers are"):
        npy.load(tmp_path / "t.npy")


def test_half_a_table_names_the_missing_file(write):
    with pytest.raises(
        TableFormatError, match=r"there is no .*t\.vocab\.txt, .*; put one there, or name it: .* --vocab"
    ):
        npy.load(write("t.npy", array()))


@pytest.mark.parametrize("token", ["a\n", "a\r", "\udcff"])
def test_a_token_that_would_not_come_back_is_refused(token, tmp_path):
    with pytest.raises(VocabError, match="native can hold it"):
        npy.save(Table(np.ones((1, 1), np.float32), Vocab([token])), tmp_path / "t.npy")
    assert os.listdir(tmp_path) == []


def test_a_pair_is_replaced_by_the_same_tokens_alone(tmp_path):
    """Two files can't change at once: a crash between would leave an array beside other tokens."""
    npy.save(TINY, tmp_path / "t.npy")
    with pytest.raises(
        OutputError, match=r"t\.vocab\.txt holds other tokens, and two files can't be replaced"
    ):
        npy.save(Table(TINY.weight * 2, Vocab(["new", "names"])), tmp_path / "t.npy")
    assert np.array_equal(npy.load(tmp_path / "t.npy").weight, TINY.weight)
    npy.save(Table(TINY.weight * 2, TINY.vocab), tmp_path / "t.npy")
    assert np.array_equal(npy.load(tmp_path / "t.npy").weight, TINY.weight * 2)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_crash_leaves_the_old_pair_or_tokens_that_the_next_save_takes(calls, there, tmp_path, monkeypatch):
    """The process dies at the first or at the second of the two renames."""
    if there:
        npy.save(TINY, tmp_path / "t.npy")

    class Died(BaseException):
        pass

    renames = []

    def dying(fresh, target):
        renames.append(target)
        if len(renames) == calls:
            raise Died
        os.replace(fresh, target)

    twice = Table(TINY.weight * 2, TINY.vocab)
    with monkeypatch.context() as patched:
        patched.setattr(atomic.Path, "replace", dying)
        with pytest.raises(Died):
            npy.save(twice, tmp_path / "t.npy")
    if there:
        assert np.array_equal(npy.load(tmp_path / "t.npy").weight, TINY.weight)
    npy.save(twice, tmp_path / "t.npy")
    assert np.array_equal(npy.load(tmp_path / "t.npy").weight, twice.weight)


def test_the_old_table_stays_if_writing_fails(tmp_path):
    npy.save(TINY, tmp_path / "t.npy")
    with pytest.raises(TableFormatError, match="NaN"):
        npy.save(Table(np.full((2, 2), np.nan, np.float32), TINY.vocab), tmp_path / "t.npy")
    (tmp_path / "u.vocab.txt").mkdir()
    with pytest.raises(OutputError, match="is a directory"):
        npy.save(TINY, tmp_path / "u.npy")
    assert list(npy.load(tmp_path / "t.npy").vocab) == ["a b", "é"]
    assert sorted(os.listdir(tmp_path)) == ["t.npy", "t.vocab.txt", "u.vocab.txt"]


def test_a_vocabulary_without_its_array_is_another_s(tmp_path, write):
    mine = write("t.vocab.txt", "my words\n")
    with pytest.raises(OutputError, match=r"t\.npy: .*t\.vocab\.txt holds other tokens"):
        npy.save(TINY, tmp_path / "t.npy")
    assert mine.read_text() == "my words\n"
    assert os.listdir(tmp_path) == ["t.vocab.txt"]
    theirs = write("u.npy", "an array\n")
    with pytest.raises(OutputError, match=r"u\.npy: it is there without u\.vocab\.txt; remove what is there"):
        npy.save(TINY, tmp_path / "u.npy")
    assert theirs.read_text() == "an array\n"


@settings(deadline=None, max_examples=50)  # each is a file on a disk that may be busy
@given(data=st.data())
def test_a_mutated_file_loads_or_is_refused(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    mutated = bytearray(array())
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, 75))] = data.draw(st.integers(0, 255))
    (folder / "t.npy").write_bytes(mutated)
    (folder / "t.vocab.txt").write_bytes(b"a\nb\n")
    with contextlib.suppress(TableFormatError):
        assert npy.load(folder / "t.npy").weight.shape == (2, 2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
@pytest.mark.parametrize("limit", [None, 2, 9])
def test_packed_files_are_read_and_a_limit_takes_the_first_rows(order, dtype, limit, tmp_path, write):
    weight = np.asarray(np.arange(6).reshape(3, 2) / 7, dtype, order=order)
    np.save(tmp_path / "t.npy", weight)
    write("t.vocab.txt", "a\r\n\nc")
    content = (tmp_path / "t.npy").read_bytes()
    write("u.npy.gz", gzip.compress(content))
    write("u.vocab.txt", gzip.compress(b"a\r\n\nc"))
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.npy", content)
        archive.writestr("v.vocab.txt", "a\r\n\nc")
    for path in (tmp_path / "t.npy", tmp_path / "u.npy.gz", tmp_path / "all.zip" / "v.npy"):
        table = npy.load(path, limit=limit)
        assert list(table.vocab) == ["a", "", "c"][:limit]
        assert table.weight.tolist() == np.asarray(weight[:limit], table.weight.dtype).tolist()
        plain_and_kept = path.name == "t.npy" and dtype in ("<f4", "<f2")
        assert isinstance(table.weight, np.memmap) == plain_and_kept


def test_a_limit_looks_at_nothing_past_it(write):
    data = DATA[:8] + b"\0\0\xc0\x7f" * 2
    write("t.vocab.txt", b"a\n\xff\nmore\nlines")
    assert list(npy.load(write("t.npy", array(data=data)), limit=1).vocab) == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(array(data=DATA[:-1]), "16 bytes; 15 are there"), (array() + b"more", "16 bytes; 20 are there")],
)
def test_a_packed_file_is_held_against_its_header_when_it_has_been_read(content, message, write):
    write("t.vocab.txt", "a\nb\n")
    with pytest.raises(TableFormatError, match=message):
        npy.load(write("t.npy", gzip.compress(content)))


def test_replaced_tokens_are_counted(write):
    write("t.vocab.txt", b"\xff\n\xfe\n")
    about = npy.load(write("t.npy", array()), errors="replace").provenance["read_from"]
    assert (about["replaced_tokens"], about["repeated_tokens"]) == (2, 1)


def test_a_version_3_header_is_utf8(write):
    write("t.vocab.txt", "a\nb\n")
    content = array().replace(b"\x01\x00\x76\x00", b"\x03\x00\x76\x00\x00\x00", 1)
    assert np.array_equal(npy.load(write("t.npy", content)).weight, TINY.weight)


def test_mapped_rows_are_not_looked_at_before_they_are_used(write, tmp_path):
    write("t.vocab.txt", "a\nb\n")
    content = array(data=DATA[:-4] + b"\0\0\xc0\x7f")
    table = npy.load(write("t.npy", content))
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'b', holds NaN"):
        npy.save(table, tmp_path / "u.npy")
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'b', holds NaN"):
        npy.load(write("t.npy", gzip.compress(content)))


def test_float64_that_is_rounded_is_said(write):
    write("t.vocab.txt", "a\nb\n")
    header = HEADER.replace(b"<f4", b"<f8")
    for numbers, rows in (([1, 2, 3, 4], None), ([1, 0.1, 1, 1], 1), ([1e-300, 1, 0.1, 2], 2)):
        path = write("t.npy", array(header, np.array(numbers, "<f8").tobytes()))
        about = npy.load(path).provenance["read_from"]
        assert (about["rounded_from"], about.get("rounded_rows")) == ("float64", rows)
    assert npy.load(path, limit=1).provenance["read_from"]["rounded_rows"] == 1


def test_a_byte_order_mark_is_no_token_s_and_is_not_written_as_one(tmp_path):
    with pytest.raises(VocabError, match=r"at id 0 .* a byte order mark; npz, gguf and native can hold it"):
        npy.save(Table(TINY.weight, Vocab(["\ufeffa", "b"])), tmp_path / "t.npy")
    npy.save(Table(TINY.weight, Vocab(["b", "\ufeffa"])), tmp_path / "t.npy")
    assert list(npy.load(tmp_path / "t.npy").vocab) == ["b", "\ufeffa"]
