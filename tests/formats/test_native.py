import gzip
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import tokenspace as ts
from tokenspace.errors import OutputError, TableFormatError, VocabError
from tokenspace.formats import native
from tokenspace.source import Source
from tokenspace.subwords import Subwords
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab

AWKWARD = ["\n", " ", "", "a\tb", "\x00", "é", "😀", "\udcff", "a", "a", "<script>", "\u202e", "x" * 2000]


def tiny(dtype=np.float32, **parts) -> Table:
    return Table(np.array([[1, -2], [0.5, 4]], dtype), Vocab(["a", "é"]), **parts)


def test_these_bytes(tmp_path):
    native.save(tiny(), tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {
            "tokenspace": '{"format": 1, "special": [], "encoding": "word", "provenance": {}}',
        },
        "tokens.offsets": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
        "weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [24, 40]},
        "tokens.bytes": {"dtype": "U8", "shape": [3], "data_offsets": [40, 43]},
    }
    assert data[8 + length :] == (
        b"\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
        b"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\x00\x00\x80\x40"
        b"a\xc3\xa9"
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_round_trip_keeps_every_part(tmp_path, dtype):
    tokenizer = Tokenizer.train_from_iterator(["a b c"])
    weight = np.arange(12, dtype=np.float32).reshape(6, 2).astype(dtype)
    table = Table(weight, tokenizer.vocab, tokenizer, weight[::-1] / 2, {"made_by": "a test", "seed": 1})
    ts.save(table, tmp_path / "t.safetensors")
    again = ts.load(tmp_path / "t.safetensors")
    assert again.weight.dtype == again.output.dtype == dtype
    assert isinstance(again.weight, np.memmap)
    np.testing.assert_array_equal(again.weight, table.weight)
    np.testing.assert_array_equal(again.output, table.output)
    assert again.vocab == table.vocab
    assert again.tokenizer.to_json() == tokenizer.to_json()
    assert again.provenance == {"made_by": "a test", "seed": 1}


def test_subwords_come_back_mapped(tmp_path):
    native.save(tiny(subwords=Subwords(ROWS, 2, 3)), tmp_path / "t")
    again = native.load(tmp_path / "t")
    assert isinstance(again.subwords.rows, np.memmap)
    assert (again.subwords.minn, again.subwords.maxn) == (2, 3)
    np.testing.assert_array_equal(again.subwords.rows, ROWS)
    np.testing.assert_array_equal(again["cat"], tiny(subwords=Subwords(ROWS, 2, 3))["cat"])
    with pytest.raises(VocabError):
        native.load(write_tiny(tmp_path / "u"))["cat"]


def write_tiny(path):
    native.save(tiny(), path)
    return path


def test_subwords_with_nan_are_not_saved(tmp_path):
    rows = np.ones((native.ROWS_AT_ONCE + 2, 2), np.float32)
    rows[-1, 0] = np.inf
    with pytest.raises(TableFormatError, match=r"row 16,385 of the subwords holds NaN or infinity"):
        native.save(tiny(subwords=Subwords(rows, 2, 3)), tmp_path / "t")


def test_a_limit_gives_the_first_rows_still_mapped(tmp_path):
    weight = np.arange(8, dtype=np.float32).reshape(4, 2)
    tokenizer = Tokenizer.train_from_iterator(["a"])
    vocab = Vocab(["a", "é", "", "z"], special=[1, 3])
    native.save(Table(weight, vocab, tokenizer, weight * 2, {"seed": 1}), tmp_path / "t")
    table = native.load(tmp_path / "t", limit=2)
    assert isinstance(table.weight, np.memmap)
    assert isinstance(table.output, np.memmap)
    np.testing.assert_array_equal(table.output, weight[:2] * 2)
    assert (list(table.vocab), table.vocab.special) == (["a", "é"], (1,))
    assert table.tokenizer is None  # its ids would mean rows that are not there
    assert table.provenance == {"seed": 1, "rows_taken": 2}
    whole = native.load(tmp_path / "t", limit=4)
    assert (len(whole), whole.tokenizer is None, whole.provenance) == (4, False, {"seed": 1})


@pytest.mark.parametrize("pack", ["gzip", "zip"])
def test_a_packed_file_is_the_same_table(tmp_path, pack):
    table = tiny(output=np.ones((2, 2), np.float32), subwords=Subwords(ROWS, 2, 3), provenance={"seed": 1})
    native.save(table, tmp_path / "t")
    data, path = (tmp_path / "t").read_bytes(), tmp_path / "packed"
    if pack == "gzip":
        path.write_bytes(gzip.compress(data))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t", data)
        path /= "t"
    again = native.load(path)
    for name in ("weight", "output"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    np.testing.assert_array_equal(again.subwords.rows, ROWS)
    assert (again.vocab, again.provenance) == (table.vocab, table.provenance)
    assert len(native.load(Source(path), limit=1)) == 1


def test_a_file_of_before_there_were_subwords_opens(tmp_path):
    parts, about = good_parts()
    save_file(parts, tmp_path / "t", {"tokenspace": json.dumps(about)})
    assert native.load(tmp_path / "t").subwords is None


def test_256_000_tokens_open_in_milliseconds(tmp_path):
    """The promise is 50 ms, and it takes 5: no row and no token is read."""
    tokens = [f"token {i}" for i in range(256_000)]
    native.save(Table(np.zeros((256_000, 8), np.float16), Vocab(tokens)), tmp_path / "t")

    def seconds():
        start = time.perf_counter()
        table = native.load(tmp_path / "t")
        assert "_first" not in vars(table.vocab)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.05


def test_every_awkward_token_comes_back_by_id(tmp_path):
    table = Table(np.ones((len(AWKWARD), 1), np.float32), Vocab(AWKWARD, special=[2, 4]))
    native.save(table, tmp_path / "t")
    again = native.load(tmp_path / "t")
    assert list(again.vocab) == AWKWARD
    assert again.vocab.special == (2, 4)


def test_equal_tables_are_equal_bytes_in_every_process(tmp_path):
    script = (
        "import sys, numpy as np, tokenspace as ts;"
        "table = ts.Table(np.ones((2, 3), np.float32), ts.Vocab(['x', 'y']), provenance={'a': 1, 'b': 2});"
        "ts.save(table, sys.argv[1])"
    )
    files = [tmp_path / str(n) for n in range(3)]
    for file in files:
        subprocess.run([sys.executable, "-c", script, str(file)], check=True)
    assert len({file.read_bytes() for file in files}) == 1


def test_opening_parses_no_tokens(tmp_path):
    native.save(tiny(), tmp_path / "t")
    table = native.load(tmp_path / "t")
    assert isinstance(table.vocab.data, np.memmap)
    assert "_first" not in vars(table.vocab)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_is_not_saved_and_the_old_file_stays(tmp_path, bad):
    native.save(tiny(), tmp_path / "t")
    before = (tmp_path / "t").read_bytes()
    table = Table(np.array([[1, 2], [bad, 0]], np.float32), Vocab(["a", "b"]))
    with pytest.raises(TableFormatError, match="row 1 of the table, token 'b'"):
        native.save(table, tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == before


def test_nan_is_found_in_every_block_and_in_the_output_table(tmp_path):
    weight = np.ones((native.ROWS_AT_ONCE + 2, 1), np.float32)
    bad = weight.copy()
    bad[-1] = np.nan
    vocab = Vocab([str(i) for i in range(len(weight))])
    with pytest.raises(TableFormatError, match=r"row 16,385 of the table, token '16385'"):
        native.save(Table(bad, vocab), tmp_path / "t")
    with pytest.raises(TableFormatError, match=r"row 16,385 of the output table"):
        native.save(Table(weight, vocab, output=bad), tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_places_that_can_not_be_written(tmp_path):
    with pytest.raises(OutputError, match="is a directory"):
        native.save(tiny(), tmp_path)
    with pytest.raises(OutputError, match="no directory"):
        native.save(tiny(), tmp_path / "no" / "t")


ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)
LENGTHS = {"subwords": {"minn": 2, "maxn": 3}}


def good_parts() -> tuple[dict, dict]:
    tensors = {
        "weight": np.ones((2, 2), np.float32),
        "tokens.bytes": np.frombuffer(b"ab", np.uint8),
        "tokens.offsets": np.array([0, 1, 2], np.int64),
    }
    return tensors, {"format": 1, "special": [], "encoding": "word", "provenance": {}}


@pytest.mark.parametrize(
    ("tensors", "about", "message"),
    [
        ({"weight": np.ones((3, 2), np.float32)}, {}, "weight has 3 rows for a vocabulary of 2 tokens"),
        ({"weight": np.ones((2, 2), np.float64)}, {}, "found float64"),
        ({"weight": np.ones(2, np.float32)}, {}, "must be a (V, D) array"),
        ({"output": np.ones((2, 3), np.float32)}, {}, "output has width 3, weight 2"),
        ({"tokens.offsets": np.array([0, 1, 9], np.int64)}, {}, "damaged"),
        ({"tokens.offsets": np.array([0, 1, 2], np.int32)}, {}, "must be one axis of I64, found I32"),
        ({"tokens.bytes": np.ones((1, 2), np.uint8)}, {}, "must be one axis of U8"),
        ({}, {"format": 2}, "format 2; this version reads format 1"),
        ({}, {"format": True}, "format True"),
        ({}, {"special": [5]}, "id 5 is outside this vocabulary of 2 tokens"),
        ({}, {"special": "all"}, "must be a list of ids"),
        ({}, {"encoding": "morse"}, "unknown token encoding 'morse'"),
        ({}, {"provenance": None}, "must be an object"),
        ({}, {"provenance": {"loss": math.nan}}, "NaN is no JSON number"),
        ({}, {"special": [-1]}, "id -1 is outside this vocabulary of 2 tokens"),
        ({}, {"special": [10**400]}, "is outside this vocabulary of 2 tokens"),
        ({}, {"special": [1.0]}, "must be a list of ids"),
        ({}, {"special": ["x" * 1000]}, "'special' in its metadata must be a list of ids, found ['xxx"),
        ({}, {"encoding": ["x" * 1000]}, "unknown token encoding ['xxx"),
        ({"subwords": ROWS}, {}, "needs the n-grams' lengths in the metadata"),
        ({"subwords": ROWS}, {"subwords": {"minn": 3}}, "found {'minn': 3}"),
        ({"subwords": ROWS}, {"subwords": {"minn": 3, "maxn": True}}, "needs the n-grams' lengths"),
        ({"subwords": ROWS}, {"subwords": {"minn": 3, "maxn": 2}}, "found minn 3, maxn 2"),
        ({"subwords": ROWS}, {"subwords": {"minn": -1, "maxn": 2}}, "found minn -1, maxn 2"),
        (
            {"subwords": ROWS},
            {"subwords": {"minn": 3, "maxn": 10**9}},
            "n-grams must have 1 to 100 characters",
        ),
        ({"subwords": ROWS.astype("f8")}, LENGTHS, "must be a (B, D) array of float32"),
        ({"subwords": ROWS[0]}, LENGTHS, "must be a (B, D) array of float32"),
        ({"subwords": ROWS[:0]}, LENGTHS, "at least one row"),
        ({"subwords": ROWS[:, :1].copy()}, LENGTHS, "subwords have width 1, weight 2"),
    ],
)
def test_damaged_files_are_named(tmp_path, tensors, about, message):
    parts, description = good_parts()
    save_file(parts | tensors, tmp_path / "t", {"tokenspace": json.dumps(description | about)})
    with pytest.raises(TableFormatError) as error:
        native.load(tmp_path / "t")
    assert message in str(error.value)
    assert str(tmp_path / "t") in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": np.ones((3, 2), np.float32)}, "a matrix of shape (3, 2) for a vocabulary of 2 tokens"),
        ({"weight": np.ones(2, np.float32)}, "a matrix of shape (2,) for"),
        ({"output": np.ones((1, 2), np.float32)}, "a matrix of shape (1, 2) for"),
        ({"tokens.offsets": np.array([0, 9, 2], np.int64)}, "damaged"),
        ({"tokens.offsets": np.array([0, -1, 2], np.int64)}, "damaged"),
        ({"tokens.offsets": np.array([1, 1, 2], np.int64)}, "damaged"),
        ({"special": [5]}, "id 5 is outside"),
        ({"special": [-1]}, "id -1 is outside"),
    ],
)
def test_damage_in_the_first_rows_or_in_the_whole_is_named_under_a_limit(tmp_path, tensors, message):
    parts, description = good_parts()
    about = {name: tensors.pop(name) for name in ["special"] if name in tensors}
    save_file(parts | tensors, tmp_path / "t", {"tokenspace": json.dumps(description | about)})
    with pytest.raises(TableFormatError) as error:
        native.load(tmp_path / "t", limit=1)
    assert message in str(error.value)


def test_files_that_are_no_table(tmp_path):
    parts, _ = good_parts()
    save_file(parts, tmp_path / "model.safetensors")
    with pytest.raises(TableFormatError, match="names no tokens for its 2 rows"):
        ts.load(tmp_path / "model.safetensors")
    (tmp_path / "text").write_text("king and queen\n" * 10)
    with pytest.raises(TableFormatError):
        ts.load(tmp_path / "text")
    with pytest.raises(TableFormatError, match="there is no table 'wordent'"):
        ts.load("wordent")
    save_file({"weight": parts["weight"]}, tmp_path / "t", {"tokenspace": json.dumps(good_parts()[1])})
    with pytest.raises(TableFormatError, match=r"no tensor 'tokens\.bytes'"):
        ts.load(tmp_path / "t")
    save_file(parts, tmp_path / "t", {"tokenspace": "{"})
    with pytest.raises(TableFormatError, match="is not JSON"):
        ts.load(tmp_path / "t")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_mutated_file_loads_or_is_refused_by_name(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("mutated")
    native.save(tiny(), folder / "t")
    whole = bytearray((folder / "t").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    (folder / "t").write_bytes(whole[:cut] if data.draw(st.booleans()) else whole)
    try:
        table = native.load(folder / "t")
        list(table.vocab)
    except TableFormatError:
        pass


def test_a_full_disk_is_one_error_and_the_old_file_stays(tmp_path):
    path = tmp_path / "t.safetensors"
    small = Table(np.ones((2, 4), np.float32), Vocab(["a", "b"]))
    native.save(small, path)
    before = path.read_bytes()
    large = Table(np.ones((2, 40_000), np.float32), Vocab(["a", "b"]))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(OutputError, match=r"can.t write .*t\.safetensors: "):
            native.save(large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t.safetensors"]
