"""Headers of ``.npy`` arrays that NumPy reads are read, others refused; alone, in ``.npz`` and in gzip."""

import gzip
import io
import time
import zipfile

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import archive
from tokenspace.errors import TableFormatError

WEIGHT = np.arange(12, dtype="<f4").reshape(3, 4)
PLACES = ["npy", "gzip", "npz", "npz deflated"]


def array(header: str, version: int = 1, data: bytes = WEIGHT.tobytes()) -> bytes:
    text = header.encode("latin-1").ljust(117) + b"\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def described(descr="<f4", shape="(3, 4)", order=False) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}"


def put(
    folder, where: str, content: bytes, member: str = "weight.npy", others: dict[str, bytes] | None = None
):
    """The array as a file of its own or as a member, with its tokens."""
    if where.startswith("npz"):
        method = zipfile.ZIP_DEFLATED if where.endswith("deflated") else zipfile.ZIP_STORED
        with zipfile.ZipFile(folder / "t.npz", "w", method) as made:
            for name, data in {member: content, **(others or {})}.items():
                made.writestr(name, data)
    (folder / "t.vocab.txt").write_text("a\nb\nc\n")
    name = {"npy": "t.npy", "gzip": "t.npy.gz"}.get(where, "t.npz")
    if where in ("npy", "gzip"):
        (folder / name).write_bytes(content if where == "npy" else gzip.compress(content))
    return folder / name


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("header", "version"),
    [
        (described(shape="(3L, 4L)"), 1),
        (described(shape="(3L, 4L)"), 2),
        (described(shape="(3L,4)"), 1),
        (described(), 2),
        (described(), 3),
        (described("float32"), 1),
        (described("f"), 1),
        (described("=f4"), 1),
        (described(shape="(4L, 3L)", order=True), 1),
        (described(">f4"), 1),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
def test_what_numpy_reads_is_read(header, version, where, tmp_path):
    content = array(header, version)
    if "4L, 3L" in header:
        (tmp_path / "t.vocab.txt").write_text("a\nb\nc\nd\n")
    expected = np.load(io.BytesIO(content))
    path = put(tmp_path, where, content)
    (tmp_path / "t.vocab.txt").write_text("".join(f"t{i}\n" for i in range(len(expected))))
    np.testing.assert_array_equal(ts.load(path).weight, expected)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("header", "version", "says"),
    [
        (described(shape="(3L, 4L)"), 3, "damaged"),  # Python 2 wrote no such version
        (described(shape="(-1, 4)"), 1, "damaged"),
        (described(shape="[3, 4]"), 1, "damaged"),
        (described(shape="(3, True)"), 1, "damaged"),
        (described(shape="(" + "1," * 65 + ")"), 1, "damaged"),
        (described(order=1), 1, "damaged"),
        (described(shape="()"), 1, "(V, D)"),
        (described(shape="(0, 4)"), 1, "(V, D)"),
        (described(shape="(999999999999, 999999999999)"), 1, "too large to index"),
        (described(shape="(3, 4, " + "9" * 4000 + ")"), 1, "too large to index"),
        (described("zzz"), 1, "none that NumPy can hold"),
        (described("<U600000000"), 1, "none that NumPy can hold"),
        (described("|O"), 1, "'|O'"),
        (described("<M8[ns]"), 1, "'<M8[ns]'"),
        (described("|V4"), 1, "'|V4'"),
        (described("<U0"), 1, "'<U0'"),
        (described("<f16"), 1, "'<f16'"),
        (described([("a", "<f4")] * 900), 1, "[('a', '<f4')"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(header, version, says, where, tmp_path):
    path = put(tmp_path, where, array(header, version))
    with pytest.raises(TableFormatError) as caught:
        ts.load(path)
    if where.startswith("npz") and "no table (V, D)" in str(caught.value):
        return
    assert says in str(caught.value) or "damaged" in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("data", "says"), [(WEIGHT.tobytes() + b"x", "appended"), (WEIGHT.tobytes()[:-1], "cut off")]
)
def test_bytes_too_many_and_too_few_are_each_named(data, says, where, tmp_path):
    with pytest.raises(TableFormatError, match=says):
        ts.load(put(tmp_path, where, array(described(), data=data)))


@pytest.mark.parametrize("descr", ["<U600000000", "|S99999999999", "<U0", "|O", "<M8[ns]", "|V4", ">f4", "?"])
@pytest.mark.parametrize("name", ["tokens.npy", "vocab.npy", "tokens.bytes.npy", "tokens.offsets.npy"])
def test_tokens_of_any_other_dtype_are_refused_in_one_sentence(name, descr, tmp_path):
    others = {"weight.npy": array(described())}
    if name.count(".") == 2:
        others |= {"tokens.bytes.npy": array(described("|u1", "(0,)"), data=b"")}
        others |= {"tokens.offsets.npy": array(described("<i8", "(4,)"), data=bytes(32))}
    others.pop(name, None)
    path = put(tmp_path, "npz", array(described(descr, "(3,)"), data=b""), name, others)
    with pytest.raises(TableFormatError, match=r"\(byte 8\)|as Python objects.*dtype='U'"):
        ts.load(path)


@pytest.mark.parametrize("kind", ["npz", "npz without weight", "zip of texts", "torch"])
def test_an_archive_of_many_members_is_read_quickly_or_refused_by_their_number(kind, tmp_path):
    path = tmp_path / "t.npz"
    small = array(described("<i8", "(1,)"), data=bytes(8))

    def made(count):
        with zipfile.ZipFile(path, "w") as archive:
            if kind == "torch":
                archive.writestr("t/data.pkl", b"\x80\x02}.")
            elif kind != "zip of texts":
                archive.writestr("weight.npy" if kind == "npz" else "w.npy", array(described()))
                tokens = io.BytesIO()
                np.save(tokens, np.array(["a", "b", "c"]))
                archive.writestr("tokens.npy", tokens.getvalue())
            for i in range(count):
                archive.writestr(f"a{i}.npy" if kind.startswith("npz") else f"a{i}.txt", small)

    made(1000)
    start = time.perf_counter()
    if kind.startswith("npz"):
        assert list(ts.load(path).vocab) == ["a", "b", "c"]
    else:
        with pytest.raises(TableFormatError, match=r"holds|can't open"):
            ts.load(path)
    assert time.perf_counter() - start < 5
    made(archive.MOST_MEMBERS + 1)
    start = time.perf_counter()
    with pytest.raises(TableFormatError, match=r"has 20,00\d members; 20,000 are the most"):
        ts.load(path)
    assert time.perf_counter() - start < 5


def test_a_zip64_directory_is_counted(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as made:
        for i in range(70_000):
            made.writestr(f"{i}", b"")
    with pytest.raises(TableFormatError, match="has 70,000 members"):
        ts.load(tmp_path / "t.zip")
