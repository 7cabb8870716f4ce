import gzip
import json
import zipfile

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import OutputError, ShapeError, TableFormatError, TokenIdError
from tokenspace.formats import glove, word2vec

FILES = [name for name in formats.WRITABLE if name != "static-embedding"]  # which is a folder
TABLE = ts.Table(np.array([[1, 0.5], [3, 4]], np.float32), ts.Vocab(["king", "queen"]))


@pytest.mark.parametrize("name", formats.WRITABLE)
def test_content_tells_the_format_and_the_name_does_not(name, tmp_path):
    for file in ("x.npy", "x.txt", "x.bin", "x.vec", "x.safetensors", "x"):
        path = tmp_path / f"as {file}" / file
        path.parent.mkdir()
        ts.save(TABLE, path, name)
        assert formats.sniff(path) == name
        assert np.array_equal(ts.load(path).weight, TABLE.weight)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("x.vec", "word2vec-text"),
        ("x.bin", "word2vec-binary"),
        ("x.txt", "glove"),
        ("x.NPY", "numpy"),
        ("x.npz", "npz"),
        ("x.gguf", "gguf"),
        ("x/", "static-embedding"),
        ("x.safetensors", "native"),
        ("x", "native"),
        ("x.unknown", "native"),
    ],
)
def test_the_suffix_tells_what_to_write_where_no_format_is_named(file, name, tmp_path):
    ts.save(TABLE, f"{tmp_path}/{file}")
    assert formats.sniff(tmp_path / file) == name


def test_a_format_that_does_not_exist(tmp_path):
    with pytest.raises(TableFormatError, match="no table format 'onnx'; there are native, word2vec-text"):
        ts.save(TABLE, tmp_path / "x", "onnx")
    with pytest.raises(TableFormatError, match="fasttext is read here, not written; formats to write"):
        ts.save(TABLE, tmp_path / "x", "fasttext")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.bin: the file is empty"),
        (b"words and words\n", "no table in a format known here"),
        (b"\x1f\x8b\x08\x00", r"x\.bin is damaged: Compressed file ended"),
        (b"PK\x03\x04....", r"x\.bin is damaged: File is not a zip file"),
        (b"BZh91AY", "is bzip2: unpack it first"),
        (json.dumps({"a": [1]}).encode(), "is JSON: write it as text"),
    ],
)
def test_what_is_no_table_is_named(content, message, write):
    path = write("x.bin", content)
    with pytest.raises(TableFormatError, match=message) as error:
        ts.load(path)
    assert str(path) in str(error.value)


def test_nothing_is_written_to_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("hf:org/name", "hf:name"):
        with pytest.raises(OutputError, match="the hub is read, not written"):
            ts.save(TABLE, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_what_no_file_is_named(name, tmp_path):
    with pytest.raises(OutputError, match=r"no file (to write was named|has such a name)"):
        ts.save(TABLE, name)
    with pytest.raises(OutputError, match=r"no file (to write was named|has such a name)"):
        formats.convert("wordnet", name)
    with pytest.raises(TableFormatError, match=r"(no table was named|there is no table)"):
        ts.load(name)


def test_a_byte_order_mark_is_named(write):
    path = write("x.vec", b"\xef\xbb\xbf1 2\na 1 2\n")
    for load in (ts.load, word2vec.load, glove.load):
        with pytest.raises(TableFormatError, match=r"x\.vec, line 1 \(byte 0\): a UTF-8 byte order mark"):
            load(path)
    with pytest.raises(TableFormatError, match=r"y\.txt, line 1 \(byte 0\): a UTF-8 byte order mark"):
        ts.load(write("y.txt", b"\xef\xbb\xbfa 1 2\nb 1 2\n"))


@pytest.fixture
def archive(tmp_path):
    """A zip archive of tables, as they are published."""

    def make(*names: str):
        with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for name in names:
                packed.writestr(
                    name, b"king 1 0.5\nqueen 3 4\n" if name.endswith(".txt") else b"About these.\n"
                )
        return tmp_path / "all.zip"

    return make


def test_the_one_table_of_an_archive_needs_no_name(archive):
    path = archive("README", "vectors/x.txt", "__MACOSX/vectors/x.txt")
    assert formats.sniff(path) == "glove"
    assert list(ts.load(path).vocab) == ["king", "queen"]


def test_of_several_tables_in_an_archive_one_is_named(archive):
    path = archive("x.50d.txt", "x.100d.txt")
    with pytest.raises(TableFormatError, match=r"holds 2 tables; name one of them: .*all\.zip/x\.50d\.txt, "):
        ts.load(path)
    assert len(ts.load(path / "x.100d.txt")) == 2
    with pytest.raises(TableFormatError, match=r"no member 'x\.txt'; it has x\.50d\.txt, x\.100d\.txt"):
        ts.load(path / "x.txt")
    with pytest.raises(TableFormatError, match="README is no table in a format known here"):
        ts.load(archive("README"))
    with pytest.raises(
        TableFormatError, match=r"holds no table in a format known here; name one; .*README is no"
    ):
        ts.load(archive("README", "LICENSE"))
    many = archive(*(f"README.{n}" for n in range(70)), "x.txt")
    with pytest.raises(TableFormatError, match="known here in its first 64 files; name one"):
        ts.load(many)


def test_why_an_archive_s_one_table_can_not_be_read_is_said(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("x.txt", b"king 1 0.5\n")
    with pytest.raises(
        TableFormatError, match=r"x\.zip/x\.txt is compressed in a way not read here; unpack it"
    ):
        ts.load(tmp_path / "x.zip")


def test_a_zipped_folder_is_no_file_of_tensors(tmp_path):
    """Its tensors alone would get the tokenizer's spelling of the tokens."""
    ts.save(TABLE, f"{tmp_path}/se/")
    with zipfile.ZipFile(tmp_path / "se.zip", "w") as packed:
        for file in sorted((tmp_path / "se").iterdir()):
            packed.write(file, f"se/{file.name}")
    with pytest.raises(TableFormatError, match=r"se\.zip holds a model's folder; unpack it and name that"):
        ts.load(tmp_path / "se.zip")
    assert list(ts.load(tmp_path / "se/model.safetensors").vocab) == list(TABLE.vocab)


@pytest.mark.parametrize("name", [name for name in FILES if name != "npz"])  # which is packed itself
def test_a_packed_table_is_the_same_table(name, tmp_path):
    ts.save(TABLE, tmp_path / "x.bin", name)
    for path in formats.open.files_of(tmp_path / "x.bin", name)[:1]:
        packed = path.with_name("y.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
    if (tmp_path / "x.vocab.txt").exists():
        (tmp_path / "y.vocab.txt").write_bytes((tmp_path / "x.vocab.txt").read_bytes())
    assert formats.sniff(tmp_path / "y.gz") == name
    assert np.array_equal(ts.load(tmp_path / "y.gz").weight, TABLE.weight)


@pytest.mark.parametrize("name", formats.WRITABLE)
def test_some_rows_of_any_format(name, tmp_path):
    weight = np.arange(20, dtype=np.float32).reshape(10, 2)
    ts.save(ts.Table(weight, ts.Vocab(list("abcdefghij"))), tmp_path / "x", name)
    for rows, tokens in {
        "limit": ({"limit": 3}, "abc"),
        "more than there are": ({"limit": 30}, "abcdefghij"),
        "slice": ({"rows": slice(2, 5)}, "cde"),
        "step": ({"rows": slice(None, None, 4)}, "aei"),
        "from the end": ({"rows": slice(-2, None)}, "ij"),
        "ids": ({"rows": [4, 0, 4]}, "eae"),
        "range": ({"rows": range(9, 6, -1)}, "jih"),
        "array": ({"rows": np.array([1], np.uint8)}, "b"),
    }.values():
        table = ts.load(tmp_path / "x", **rows)
        assert "".join(table.vocab) == tokens
        assert table.weight.tolist() == [weight["abcdefghij".index(token)].tolist() for token in tokens]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"limit": 0}, ShapeError, "a whole number from 1 on; found 0"),
        ({"limit": 2.0}, ShapeError, "found 2.0"),
        ({"limit": True}, ShapeError, "found True"),
        ({"limit": 1, "rows": [0]}, ShapeError, "can't both be given"),
        ({"rows": [33_003]}, TokenIdError, "outside this table of 33,003 rows; the first is 33,003"),
        ({"rows": [-1]}, TokenIdError, "outside this table"),
        ({"rows": [[0, 1]]}, TokenIdError, r"found an array of shape \(1, 2\)"),
        ({"rows": []}, ShapeError, r"rows=\[\] selects no row"),
        ({"rows": slice(5, 5)}, ShapeError, r"rows=slice\(5, 5, None\) selects no row"),
        ({"rows": slice(0, 5, 0)}, ShapeError, "its step not 0"),
        ({"rows": slice("a", "b")}, ShapeError, "a slice is of whole numbers"),
        ({"rows": ["king"]}, TokenIdError, "must be integers"),
        ({"errors": "ignore"}, ShapeError, "errors 'ignore' is not known; allowed: strict"),
    ],
)
def test_rows_that_are_none(asked, error, message):
    with pytest.raises(error, match=message):
        ts.load("wordnet", **asked)


def test_rows_of_a_map_in_one_piece_stay_mapped_and_lose_the_tokenizer():
    part = ts.load("wordnet", rows=range(100, 200))
    assert isinstance(part.weight, np.memmap)
    assert part.tokenizer is None
    assert part.vocab[0] == ts.load("wordnet").vocab[100]
    assert ts.load("wordnet", rows=slice(None)).tokenizer is not None
    assert ts.load("wordnet", limit=100).tokenizer is None


def test_a_tensor_is_named_for_tensors_alone():
    with pytest.raises(ShapeError, match=r"tensor is for a model's tensors; .* is native"):
        ts.load(str(formats.BUILT_IN["wordnet"]), tensor="weight")


@pytest.mark.parametrize("name", formats.open.PACKED)
def test_tables_that_are_read_in_order_are_written_with_gzip_too(name, tmp_path):
    suffix = next(suffix for suffix, each in formats.open.SUFFIXES.items() if each == name)
    ts.save(TABLE, tmp_path / "plain", name)
    for file in ("a", "b"):
        ts.save(TABLE, tmp_path / f"{file}{suffix}.gz")
    packed = (tmp_path / f"a{suffix}.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain").read_bytes()
    assert packed == (tmp_path / f"b{suffix}.gz").read_bytes()
    done = formats.convert(tmp_path / f"a{suffix}.gz", tmp_path / f"c{suffix.upper()}.GZ")
    assert (done.read_as, done.format) == (name, name)


@pytest.mark.parametrize("file", ["x.gz", "x.npy.gz", "x.safetensors.gz", "x.zip", "x.vec.zip"])
def test_a_name_that_promises_another_archive_is_refused(file, tmp_path):
    with pytest.raises(OutputError, match=r"(leave .gz out|zip archives are read, not written)"):
        ts.save(TABLE, tmp_path / file)
    with pytest.raises(OutputError, match=r"(leave .gz out|zip archives are read, not written)"):
        formats.convert("wordnet", tmp_path / file)
    assert not list(tmp_path.iterdir())


def test_an_archive_within_an_archive_is_named(tmp_path):
    ts.save(TABLE, tmp_path / "x.npz")
    (tmp_path / "y.gz").write_bytes(gzip.compress((tmp_path / "x.npz").read_bytes()))
    with pytest.raises(TableFormatError, match=r"y\.gz is an archive within an archive; unpack"):
        ts.load(tmp_path / "y.gz")


TELLING = [name for name in formats.WRITABLE if "provenance" in formats.FORMATS[name].keeps]


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\ud800"])
def test_provenance_that_json_can_not_hold_is_refused(name, value, tmp_path):
    table = ts.Table(TABLE.weight, TABLE.vocab, provenance={"made_by": value})
    with pytest.raises(TableFormatError, match="the provenance can't be written as JSON"):
        ts.save(table, tmp_path / "x", name)
    assert not (tmp_path / "x").exists()
