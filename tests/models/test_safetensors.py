import gc
import gzip
import json
import os
import struct
import time
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from tokenspace.errors import TableFormatError
from tokenspace.models import safetensors_header
from tokenspace.models.safetensors import open_file
from tokenspace.source import Source

F32_PAIR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def written(tmp_path, header, data=b"\0" * 8, length=None):
    """A file with this header (a dict, or the bytes themselves) and this data."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def test_these_bytes_are_one_row(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        b'\x40\x00\x00\x00\x00\x00\x00\x00{"weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   '
        b"\x00\x00\x80?\x00\x00\x00\xc0"
    )
    file = open_file(path)
    assert file.tensors["weight"][:6] == ("weight", "F32", (1, 2), path, 72, 80)
    assert file.metadata == {}
    np.testing.assert_array_equal(file.read("weight"), np.array([[1.0, -2.0]], np.float32))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"],
)
def test_each_numpy_dtype_reads_back(tmp_path, dtype, rng):
    values = rng.integers(0, 2, (3, 5)).astype(dtype)
    save_file({"x": values}, tmp_path / "x.safetensors", metadata={"made": "here"})
    file = open_file(tmp_path / "x.safetensors")
    assert file.metadata == {"made": "here"}
    assert file.read("x").dtype == values.dtype
    np.testing.assert_array_equal(file.read("x"), values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_narrow_floats_read_what_torch_wrote(tmp_path, dtype):
    values = torch.tensor([[0.5, -3.0], [1.75, 0.015625]]).to(dtype)
    save_torch({"x": values}, tmp_path / "x.safetensors")
    read = open_file(tmp_path / "x.safetensors").read("x")
    np.testing.assert_array_equal(read.astype(np.float32), values.float().numpy())


def test_bfloat16_stays_bfloat16(tmp_path):
    save_torch({"x": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    assert open_file(tmp_path / "x.safetensors").read("x").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), ()], ids=str)
def test_empty_and_scalar_tensors(tmp_path, shape):
    save_file({"x": np.ones(shape, np.float32), "y": np.ones(3)}, tmp_path / "x.safetensors")
    file = open_file(tmp_path / "x.safetensors")
    assert file.read("x").shape == shape
    assert not file.read("x").flags.writeable
    assert isinstance(file.read("x"), np.memmap) == (0 not in shape)
    assert file.read("y").tolist() == [1, 1, 1]


def test_a_tensor_at_an_odd_byte_reads_right(tmp_path):
    header = {
        "flag": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    path = written(tmp_path, header, b"\x07" + np.array([1.5, -2.0], np.float32).tobytes())
    assert open_file(path).read("x").tolist() == [1.5, -2.0]


def test_reading_maps_the_file_and_can_not_write_it(tmp_path):
    save_file({"x": np.ones((4, 4), np.float32)}, tmp_path / "x.safetensors")
    x = open_file(tmp_path / "x.safetensors").read("x")
    assert isinstance(x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 2


@pytest.mark.alone
def test_opening_a_large_file_reads_no_tensor(tmp_path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**28], "data_offsets": [0, 2**30]}}).encode()
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**30)  # a hole: takes no disk
    start = time.perf_counter()
    file = open_file(path)
    assert file.read("x")[-1] == 0
    assert time.perf_counter() - start < 0.05


def test_nothing_stays_open_once_the_array_is_gone(tmp_path):
    save_file({"x": np.ones((4, 4), np.float32)}, tmp_path / "x.safetensors")
    gc.collect()  # what other tests left
    before = len(os.listdir("/proc/self/fd"))
    file = open_file(tmp_path / "x.safetensors")
    arrays = [file.read("x") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) - before <= 20
    del file, arrays
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def tensors(**changes):
    return {"x": F32_PAIR | changes}


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "not JSON at byte 8"),
        (b"{", "not JSON at byte 9"),
        (b'{"\xff":1}', "not UTF-8 at byte 10"),
        (b'{"\xc3\xa9":}', "not JSON at byte 14"),
        (b"[]", "JSON list, not an object"),
        (b"[" * 100_000, "JSON list, not an object"),
        (b'{"x":' + b"9" * 5000 + b"}", "exactly dtype, shape"),
        (b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":1}', "gives 'x' twice"),
        (b'{"__metadata__":{"a":"1","a":"2"}}', "gives 'a' twice"),
        (b'{"__metadata__":{},"__metadata__":{}}', "gives '__metadata__' twice"),
        (b'{"x":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}', "one of its keys twice"),
        (
            b'{"x":{"dtype":"F32","shape":[' + b" " * 5000 + b'2],"data_offsets":[0,8]}}',
            "exactly dtype, shape",
        ),
        (b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x', "Extra data"),
        ({"__metadata__": {"a": 1}} | tensors(), "must map names to strings"),
        ({"__metadata__": []} | tensors(), "must map names to strings"),
        ({"x": 1}, "tensor 'x' .* exactly dtype, shape and data_offsets"),
        (tensors(more=1), "exactly dtype, shape and data_offsets"),
        (tensors(dtype="F31"), "dtype 'F31'; known are BOOL"),
        (tensors(dtype=["F32"]), r"dtype \['F32'\]"),
        (tensors(shape=2), "shape that is no list"),
        (tensors(shape=[-2]), r"shape that is no list .* \[-2\]"),
        (tensors(shape=[2.0]), "shape that is no list"),
        (tensors(shape=[True, 2]), "shape that is no list"),
        (tensors(shape=[1] * 65), "at most 64 sizes"),
        (tensors(shape=[2**64]), "shape that is no list"),
        (tensors(shape=[2**62, 4]), "too large to index"),
        (tensors(shape=[0, 2**62, 4], data_offsets=[0, 0]), "too large to index"),
        (tensors(shape=[3]), r"takes 8 bytes from byte \d+, but F32 \[3\] needs 12"),
        (tensors(shape=[]), r"F32 \[\] needs 4"),
        (tensors(data_offsets=[8, 0]), r"no \[begin, end\]"),
        (tensors(data_offsets=[0]), r"no \[begin, end\]"),
        (tensors(data_offsets=[0, 2**64]), r"no \[begin, end\]"),
        (tensors(shape=[2**60], data_offsets=[0, 2**62]), "the download complete"),
        (tensors() | {"y": F32_PAIR}, "'y' at byte .* overlaps"),
        (tensors() | {"y": F32_PAIR | {"shape": [1], "data_offsets": [4, 8]}}, "overlaps"),
        (tensors(shape=[1], data_offsets=[4, 8]), "'x' at byte .* leaves a hole"),
        (tensors(shape=[1], data_offsets=[0, 4]), "4 belong to no tensor"),
        ({}, "8 belong to no tensor"),
    ],
)
def test_a_hostile_header_is_named_with_its_byte(tmp_path, header, says):
    path = written(tmp_path, header)
    with pytest.raises(TableFormatError, match=says) as caught:
        open_file(path)
    assert str(path) in str(caught.value)
    assert "byte" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("length", [17, 2**31, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_allocates_nothing(tmp_path, length):
    path = written(tmp_path, b"{}", length=length)
    with pytest.raises(TableFormatError, match=f"byte 0 says {length:,} bytes of header, but 10 follow"):
        open_file(path)


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    path = written(tmp_path, tensors())
    whole = path.read_bytes()
    for kept in range(len(whole)):
        path.write_bytes(whole[:kept])
        with pytest.raises(TableFormatError, match=r"byte|is empty"):
            open_file(path)


@given(st.binary(max_size=200))
def test_junk_is_a_table_format_error(tmp_path_factory, junk):
    path = tmp_path_factory.getbasetemp() / "junk.safetensors"
    path.write_bytes(struct.pack("<Q", len(junk)) + junk)
    with pytest.raises(TableFormatError):
        open_file(path)


@pytest.mark.parametrize(
    ("name", "says"), [("absent", "No such file"), (".", "is a directory"), ("/dev/zero", "no regular file")]
)
def test_what_is_no_file(tmp_path, name, says):
    with pytest.raises(TableFormatError, match=says):
        open_file(tmp_path / name)


def test_a_file_replaced_by_a_shorter_one_is_noticed(tmp_path):
    path = written(tmp_path, tensors())
    file = open_file(path)
    path.write_bytes(b"")
    with pytest.raises(TableFormatError, match="changed since its header was read"):
        file.read("x")


def test_a_name_that_is_not_there(tmp_path):
    with pytest.raises(TableFormatError, match="no tensor 'y'; it has 'x'"):
        open_file(written(tmp_path, tensors())).read("y")


def test_packed_numbers_are_listed_and_not_read(tmp_path):
    file = open_file(written(tmp_path, tensors(dtype="F4", shape=[16])))
    assert file.tensors["x"].shape == (16,)
    with pytest.raises(TableFormatError, match="packed several to a byte"):
        file.read("x")


@pytest.mark.parametrize("pack", ["gzip", "zip", "none"])
def test_a_packed_file_is_held_in_memory_and_a_plain_one_mapped(tmp_path, pack, rng):
    values = rng.normal(size=(3, 5)).astype(ml_dtypes.bfloat16)
    save_file({"a": np.arange(3, dtype=np.uint8), "x": values, "empty": np.empty((0, 2))}, tmp_path / "x")
    path = tmp_path / "x"
    if pack == "gzip":
        path.write_bytes(gzip.compress(path.read_bytes()))
    elif pack == "zip":
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            archive.write(path, "x")
        path = tmp_path / "all.zip" / "x"
    file = open_file(Source(path))
    assert isinstance(file.read("x"), np.memmap) == (pack == "none")
    assert not file.read("x").flags.writeable
    np.testing.assert_array_equal(file.read("x"), values)
    assert file.read("empty").shape == (0, 2)


def test_a_packed_file_that_is_cut_off_is_named(tmp_path):
    whole = written(tmp_path, {"x": F32_PAIR}).read_bytes()
    path = tmp_path / "cut.gz"
    for cut, message in [
        (5, "has 5 bytes, too few"),
        (20, "says 61 bytes of header"),
        (-3, "is the download"),
    ]:
        path.write_bytes(gzip.compress(whole[:cut]))
        with pytest.raises(TableFormatError, match=message):
            open_file(Source(path))


ENTRY = b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'


def many(count):
    return b"{" + b"".join(b'"%d' % i + ENTRY for i in range(count))[:-1] + b"}"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("metadata", None),
        ("tensors", None),
        ("emoji", "with other characters"),
        ("list", "JSON list"),
        ("lists", "exactly dtype"),
        ("lists in metadata", "must map names to strings"),
        ("deep", "exactly dtype"),
        ("digits", "exactly dtype"),
        ("spaces", "Expecting value"),
    ],
)
def test_a_large_header_takes_what_the_docs_allow(name, says, tmp_path):
    header = {
        "metadata": lambda: json.dumps({"__metadata__": {str(i): "" for i in range(5_000)}}).encode(),
        "tensors": lambda: many(2_000),
        "emoji": lambda: ('{"__metadata__":{"a":"\U0001f600' + "a" * 30_000_000 + '"}}').encode(),
        "list": lambda: b"[" + b"[]," * 20_000_000 + b"1]",
        "lists": lambda: b'{"a":[' + b"[]," * 20_000_000 + b"1]}",
        "lists in metadata": lambda: b'{"__metadata__":{"a":[' + b"[]," * 9_000_000 + b"1]}}",
        "deep": lambda: b'{"a":' * 5_000_000,
        "digits": lambda: b'{"a":' + b"9" * 20_000_000,
        "spaces": lambda: b" " * 20_000_000,
    }[name]()
    path = tmp_path / "names"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    size = path.stat().st_size
    tracemalloc.start()
    try:
        if says is None:
            opened = open_file(path)
            assert len(opened.metadata) + len(opened.tensors) in (2_000, 5_000)
        else:
            with pytest.raises(TableFormatError, match=says):
                open_file(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * size + 16e6


def test_names_past_the_limits_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_header, "MOST_TENSORS", 9)
    monkeypatch.setattr(safetensors_header, "MOST_METADATA", 9)
    metadata = json.dumps({"__metadata__": {str(i): "" for i in range(9)}}).encode()
    assert len(open_file(written(tmp_path, many(9), b"")).tensors) == 9
    assert len(open_file(written(tmp_path, metadata, b"")).metadata) == 9
    for header in (many(11), metadata[:-2] + b',"9":""}}'):
        with pytest.raises(TableFormatError, match="more than 9"):
            open_file(written(tmp_path, header, b""))


def test_names_in_any_script_are_read(tmp_path):
    names = ["é", "naïve\u2028", "\U0001f600", 'a"b\\c', "x" * 5000]
    save_file({name: np.ones(1) for name in names}, tmp_path / "x", metadata={name: name for name in names})
    file = open_file(tmp_path / "x")
    assert sorted(file.tensors) == sorted(names)
    assert file.metadata == {name: name for name in names}
    escaped = {name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for name in names}
    header = json.dumps(escaped).encode()  # with \\u escapes
    (tmp_path / "y").write_bytes(len(header).to_bytes(8, "little") + header)
    assert list(open_file(tmp_path / "y").tensors) == names
