"""NumPy's archives: which array is the table, where the tokens are, and what is damaged."""

import contextlib
import io
import itertools
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.errors import TableFormatError
from tokenspace.formats import npz
from tokenspace.table import Table
from tokenspace.vocab import Vocab

WEIGHT = np.array([[1, -2], [0.1, -0.0], [3, 4]], np.float32)
NAMES = ["a b", "é", ""]
TINY = Table(WEIGHT, Vocab(NAMES))


def archive(compressed: bool = False, **arrays) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_written_numpy_reads_and_so_do_we(dtype, tmp_path):
    path = tmp_path / "t.npz"
    table = Table(WEIGHT.astype(dtype), Vocab(NAMES), output=-WEIGHT.astype(dtype))
    npz.save(table, path)
    assert os.listdir(tmp_path) == ["t.npz"]
    with np.load(path) as theirs:
        assert sorted(theirs) == ["output", "tokens.bytes", "tokens.offsets", "weight"]
        text, ends = theirs["tokens.bytes"].tobytes(), theirs["tokens.offsets"].tolist()
        assert [text[a:b].decode() for a, b in itertools.pairwise(ends)] == NAMES
        assert theirs["weight"].tobytes() == table.weight.tobytes()
        assert theirs["output"].tobytes() == table.output.tobytes()
    again = npz.load(path)
    assert list(again.vocab) == NAMES
    for name in ("weight", "output"):
        assert isinstance(getattr(again, name), np.memmap)
        assert getattr(again, name).dtype == dtype
        assert getattr(again, name).tobytes() == getattr(table, name).tobytes()
    npz.save(table, tmp_path / "u.npz")
    assert (tmp_path / "u.npz").read_bytes() == path.read_bytes()


def test_bfloat16_becomes_float32_and_no_output_stays_none(tmp_path):
    npz.save(Table(WEIGHT.astype(ml_dtypes.bfloat16), Vocab(NAMES)), tmp_path / "t.npz")
    again = npz.load(tmp_path / "t.npz")
    assert (again.weight.dtype, again.output) == (np.float32, None)
    assert np.array_equal(again.weight, WEIGHT.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
@pytest.mark.parametrize("limit", [None, 2, 9])
def test_whatever_savez_writes_is_read(compressed, order, dtype, limit, write):
    weight = np.asarray(WEIGHT, dtype, order=order)
    arrays = {"emb": weight, "output": weight * 2, "tokens": np.array(NAMES), "step": np.array(7)}
    table = npz.load(write("t.npz", archive(compressed, **arrays)), limit=limit)
    kept = weight.astype(np.float16 if dtype == "<f2" else np.float32)
    assert list(table.vocab) == NAMES[:limit]
    assert table.weight.tolist() == kept[:limit].tolist()
    assert table.output.tolist() == (2 * kept)[:limit].tolist()
    assert table.provenance["read_from"]["array"] == "emb.npy"
    mapped = not compressed and dtype in ("<f4", "<f2")
    assert isinstance(table.weight, np.memmap) == mapped


@pytest.mark.parametrize("key", ["tokens", "vocab"])
@pytest.mark.parametrize("names", [NAMES, [b"a", b"\xc3\xa9", b"\xff"], np.array(NAMES, ">U9")], ids=str)
def test_tokens_inside_win_over_those_beside(key, names, write):
    write("t.vocab.txt", "x\ny\nz\n")
    path = write("t.npz", archive(weight=WEIGHT, **{key: np.array(names)}))
    expected = [n.decode(errors="surrogateescape") if isinstance(n, bytes) else n for n in list(names)]
    assert list(npz.load(path, errors="surrogateescape").vocab) == expected


def test_tokens_beside(write):
    write("t.vocab.txt", "x\ny\nz\n")
    assert list(npz.load(write("t.npz", archive(weight=WEIGHT))).vocab) == ["x", "y", "z"]


def test_many_tokens_are_read_in_parts(write, monkeypatch):
    monkeypatch.setattr(npz, "_BLOCK", 30)
    names = [f"t{i}" for i in range(50)]
    table = npz.load(write("t.npz", archive(True, weight=np.ones((50, 1)), tokens=np.array(names))))
    assert list(table.vocab) == names


INFINITE = np.full((3, 2), np.inf, np.float32)
LONE = np.array([0xD800, 65, 65], "<u4").view("<U1")
NO_CHARACTER = np.array([65, 0x110000, 65], "<u4").view("<U1")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": WEIGHT, "b": WEIGHT}, r"several tables: a\.npy \(<f4 \(3, 2\)\), b\.npy .* meant as 'weight'"),
        ({"a": np.arange(3)}, r"no table \(V, D\) of floats: a\.npy \(<i8 \(3,\)\)"),
        ({f"a{i}": WEIGHT for i in range(9)}, r"several tables: .* and 3 more"),
        ({"output": WEIGHT}, "no table"),
        ({"weight": WEIGHT[0]}, r"weight\.npy is an array of shape \(2,\); a table is \(V, D\)"),
        ({"weight": WEIGHT.astype(int)}, r"weight\.npy \(byte 8\): its numbers are '<i8'"),
        ({"weight": WEIGHT, "output": WEIGHT[:2]}, r"output\.npy is \(2, 2\), weight\.npy \(3, 2\)"),
        ({"weight": WEIGHT, "tokens": np.array(["a"])}, r"tokens\.npy has 1 token for 3 rows"),
        ({"weight": WEIGHT, "tokens": np.array(["a"] * 4)}, r"tokens\.npy has 4 tokens for 3 rows"),
        ({"weight": WEIGHT, "tokens": np.array([["a"] * 3])}, r"shape \(1, 3\); tokens are one axis of text"),
        ({"weight": WEIGHT, "tokens": np.arange(3)}, "an array of '<i8', shape"),
        ({"weight": WEIGHT, "tokens": np.array([{}, 1, 2], object)}, r"as Python objects.*dtype='U'"),
        ({"weight": np.array([[{}]], object)}, r"its numbers are '\|O'"),
        ({"weight": WEIGHT, "tokens": LONE}, "rows 1 to 3: .*surrogates not allowed"),
        ({"weight": WEIGHT, "tokens": NO_CHARACTER}, "rows 1 to 3: a number that is no character's"),
        ({"weight": WEIGHT, "tokens": np.array([b"a", b"\xff", b""])}, r"npy, row 2: the token b'\\xff' is"),
        (
            {"weight": WEIGHT, "words": np.array(NAMES)},
            r"has no tokens: its arrays are weight\.npy \(<f4 \(3, 2\)\), words\.npy .*; tokens are looked "
            r"for in 'tokens' .* and in .*t\.vocab\.txt",
        ),
        ({"weight": INFINITE, "tokens": np.array(NAMES)}, r"t\.npz: row 0 of the table, .* NaN"),
        (
            {"weight": WEIGHT, "output": INFINITE, "tokens": np.array(NAMES)},
            r"t\.npz: row 0 of the output table",
        ),
    ],
)  # fmt: skip
def test_what_is_no_table_is_said(arrays, message, write):
    with pytest.raises(TableFormatError, match=message):
        npz.load(write("t.npz", archive(True, **arrays)))


def test_mapped_rows_are_not_looked_at_before_they_are_used(write, tmp_path):
    path = write("t.npz", archive(weight=INFINITE, output=INFINITE, tokens=np.array(NAMES)))
    table = npz.load(path)
    assert isinstance(table.weight, np.memmap)
    assert isinstance(table.output, np.memmap)
    with pytest.raises(TableFormatError, match=r"row 0 of the table, .* NaN"):
        npz.save(table, tmp_path / "u.npz")


def test_float64_that_is_rounded_is_said(write):
    exact = {"weight": WEIGHT.astype("<f8"), "tokens": np.array(NAMES)}
    about = npz.load(write("t.npz", archive(**exact))).provenance["read_from"]
    assert (about["rounded_from"], about.get("rounded_rows", 0)) == ("float64", 0)
    lossy = exact | {"output": np.array([[0, 1], [0.1, 2], [1e-300, 3]])}
    table = npz.load(write("t.npz", archive(**lossy)))
    assert table.provenance["read_from"]["rounded_rows"] == 2
    assert npz.load(write("t.npz", archive(**lossy)), limit=2).provenance["read_from"]["rounded_rows"] == 1


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_bytes_are_tokens_and_are_replaced_on_request(errors, tmp_path):
    npz.save(Table(WEIGHT, Vocab(["a\udcff", "b", "c"])), tmp_path / "t.npz")
    assert list(npz.load(tmp_path / "t.npz", errors=errors).vocab) == ["a\udcff", "b", "c"]
    table = npz.load(tmp_path / "t.npz", errors="replace")
    assert list(table.vocab) == ["a\ufffd", "b", "c"]
    assert table.provenance["read_from"]["replaced_tokens"] == 1


def test_tokens_past_a_limit_are_not_looked_at(write):
    names = np.array([b"a", b"b", b"\xff", b"more"])
    assert list(npz.load(write("t.npz", archive(weight=WEIGHT, tokens=names)), limit=2).vocab) == ["a", "b"]


def test_a_member_with_an_absolute_name_leads_nowhere(tmp_path):
    np.save(tmp_path / "outside.npy", WEIGHT)
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as made:
        made.writestr(str(tmp_path / "outside.npy"), (tmp_path / "outside.npy").read_bytes())
    with pytest.raises(TableFormatError, match="is named as if it lay elsewhere"):
        npz.load(tmp_path / "t.npz")


def test_every_token_comes_back(tmp_path):
    tokens = ["a\n", "a\r", "\udcff", "", "\0", "a", "a", "x" * 70_000]
    npz.save(Table(np.ones((8, 1), np.float32), Vocab(tokens)), tmp_path / "t.npz")
    assert list(npz.load(tmp_path / "t.npz").vocab) == tokens
    assert list(npz.load(tmp_path / "t.npz", limit=3).vocab) == tokens[:3]


@pytest.mark.parametrize(
    ("data", "offsets", "message"),
    [
        (b"abc", [0, 1, 2, 4], "must rise from 0 to the 3 bytes"),
        (b"abc", [0, 2, 1, 3], "must rise"),
        (b"abc", [1, 2, 3, 3], "must rise"),
        (b"abc", [0, 2**63 - 1, -2, 3], "must rise"),
        (b"abc", [], "must rise"),
        (b"abc", [0, 1, 3], "has 2 tokens for 3 rows"),
        (b"abc", [0, 1, 2, 2, 3], "has 4 tokens for 3 rows"),
        (b"abc", [0.0, 1.0, 2.0, 3.0], "one axis of 'i8' is needed"),
        (b"abc", [[0, 1, 2, 3]], r"shape \(1, 4\); one axis of 'i8' is needed"),
    ],
)
def test_tokens_end_to_end_that_are_none(data, offsets, message, write):
    arrays = {
        "tokens.bytes": np.frombuffer(data, np.uint8),
        "tokens.offsets": np.array(offsets or np.zeros(0, int)),
    }
    with pytest.raises(TableFormatError, match=message):
        npz.load(write("t.npz", archive(weight=WEIGHT, **arrays)))


def test_nan_in_either_matrix_is_not_written_and_the_old_table_stays(tmp_path):
    npz.save(TINY, tmp_path / "t.npz")
    bad = np.full((3, 2), np.nan, np.float32)
    for table, name in (
        (Table(bad, Vocab(list("abc"))), "table"),
        (Table(WEIGHT, Vocab(list("abc")), output=bad), "output"),
    ):
        with pytest.raises(TableFormatError, match=f"of the {name}.*NaN"):
            npz.save(table, tmp_path / "t.npz")
    assert list(npz.load(tmp_path / "t.npz").vocab) == NAMES
    assert os.listdir(tmp_path) == ["t.npz"]


@settings(deadline=None, max_examples=50)  # each is a file on a disk that may be busy
@given(data=st.data())
@pytest.mark.parametrize("compressed", [False, True])
def test_a_mutated_archive_loads_or_is_refused(compressed, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t.npz"
    mutated = bytearray(archive(compressed, weight=WEIGHT, tokens=np.array(NAMES)))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(mutated[: data.draw(st.integers(len(mutated) // 2, len(mutated)))])
    with contextlib.suppress(TableFormatError):
        assert npz.load(path, errors="surrogateescape").weight.shape == (3, 2)
