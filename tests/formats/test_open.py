import json

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats import glove, word2vec

TABLE = ts.Table(np.array([[1, 0.5], [3, 4]], np.float32), ts.Vocab(["king", "queen"]))


@pytest.mark.parametrize("name", formats.FORMATS)
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
        ("x.safetensors", "native"),
        ("x", "native"),
        ("x.unknown", "native"),
    ],
)
def test_the_suffix_tells_what_to_write_where_no_format_is_named(file, name, tmp_path):
    ts.save(TABLE, tmp_path / file)
    assert formats.sniff(tmp_path / file) == name


def test_a_format_that_does_not_exist(tmp_path):
    with pytest.raises(TableFormatError, match="no table format 'gguf'; there are native, word2vec-text"):
        ts.save(TABLE, tmp_path / "x", "gguf")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"its start is b''"),
        (b"words and words\n", "no table in a format known here"),
        (b"\x1f\x8b\x08\x00", "it looks like gzip; unpack"),
        (b"PK\x03\x04....", "it looks like zip"),
        (b"\x80\x04\x95", "it looks like a pickle"),
        (json.dumps({"a": [1]}).encode(), "no table in a format known here"),
    ],
)
def test_what_is_no_table_is_named(content, message, write):
    path = write("x.bin", content)
    with pytest.raises(TableFormatError, match=message) as error:
        ts.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_what_no_file_is_named(name, tmp_path):
    with pytest.raises(OutputError, match=r"no file (to write was named|has such a name)"):
        ts.save(TABLE, name)
    with pytest.raises(OutputError, match=r"no file (to write was named|has such a name)"):
        formats.convert("wordnet", name)
    with pytest.raises(TableFormatError, match=r"no (table was named|file has such a name)"):
        ts.load(name)


def test_a_byte_order_mark_before_a_header_is_named(write):
    path = write("x.vec", b"\xef\xbb\xbf1 2\na 1 2\n")
    for load in (ts.load, word2vec.load, glove.load):
        with pytest.raises(TableFormatError, match=r"x\.vec, line 1 \(byte 0\): a UTF-8 byte order mark"):
            load(path)
    assert len(ts.load(write("y.txt", b"\xef\xbb\xbfa 1 2\nb 1 2\n"))) == 2
