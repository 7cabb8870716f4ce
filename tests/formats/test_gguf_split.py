"""GGUF models in several files, written by the gguf package itself."""

import gzip
import shutil

import gguf as library
import numpy as np
import pytest

from tokenspace import formats
from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats import gguf

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)
HEAD = WEIGHT[::-1] + 10


def written(folder, tensors=None, name="m", tokens=("a", "b", "c")):
    """A model of one tensor a file; the paths of its files."""
    tensors = tensors or {"token_embd.weight": WEIGHT, "output.weight": HEAD, "blk.0.x.weight": WEIGHT}
    writer = library.GGUFWriter(folder / f"{name}.gguf", "llama", split_max_tensors=1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(tokens))
    for each, matrix in tensors.items():
        writer.add_tensor(each, np.ascontiguousarray(matrix))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{name}-*.gguf"))


@pytest.mark.parametrize("named", [0, 1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)], ids=str)
def test_any_part_gives_the_table_and_the_head(tmp_path, named, order):
    held = [("token_embd.weight", WEIGHT), ("output.weight", HEAD), ("blk.0.x.weight", WEIGHT)]
    files = written(tmp_path, dict(held[i] for i in order))
    assert len(files) == 3
    table = formats.load(files[named])
    np.testing.assert_array_equal(table.weight, WEIGHT)
    np.testing.assert_array_equal(table.output, HEAD)
    assert list(table.vocab) == ["a", "b", "c"]
    assert len(formats.load(files[named], limit=2)) == 2


@pytest.mark.parametrize("packed", [(0, 1, 2), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("named", [0, 1, 2])
def test_parts_may_be_packed(tmp_path, named, packed):
    files = written(tmp_path)
    for i in packed:
        files[i].with_name(f"{files[i].name}.gz").write_bytes(gzip.compress(files[i].read_bytes()))
        files[i].unlink()
        files[i] = files[i].with_name(f"{files[i].name}.gz")
    table = formats.load(files[named])
    np.testing.assert_array_equal(table.weight, WEIGHT)
    np.testing.assert_array_equal(table.output, HEAD)
    for file in files:
        if file.suffix == ".gguf":
            with pytest.raises(OutputError, match="is read from it"):
                formats.convert(files[named], file)
    files[2].unlink()
    with pytest.raises(TableFormatError, match=r"m-00003-of-00003\.gguf.* is missing beside it"):
        formats.load(files[0])


def test_a_head_that_repeats_the_table_in_another_part_is_tied(tmp_path):
    files = written(tmp_path, {"token_embd.weight": WEIGHT, "output.weight": WEIGHT})
    assert gguf.load(files[0]).output is None


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(tmp_path, missing):
    files = written(tmp_path)
    files[missing].unlink()
    for file in files:
        if file.exists():
            with pytest.raises(TableFormatError, match=rf"{files[missing].name} is missing beside it"):
                formats.load(file)
    if missing:  # the first has the tokens
        table = formats.load(files[0], tensor="token_embd.weight")
        np.testing.assert_array_equal(table.weight, WEIGHT)
        assert table.output is None


def test_several_missing_parts_are_counted(tmp_path):
    files = written(tmp_path)
    files[1].unlink()
    files[2].unlink()
    with pytest.raises(TableFormatError, match=rf"{files[1].name} and 1 more is missing"):
        formats.load(files[0])


def test_a_part_under_another_name_says_what_it_must_be_called(tmp_path):
    files = written(tmp_path)
    files[1].rename(tmp_path / "x.gguf")
    with pytest.raises(TableFormatError, match=r"part 2 of a model of 3 files; .* name-00002-of-00003\.gguf"):
        formats.load(tmp_path / "x.gguf")


def test_a_part_of_another_model_is_refused(tmp_path):
    files = written(tmp_path)
    (tmp_path / "o").mkdir()
    other = written(tmp_path / "o", {f"blk.{i}.x": WEIGHT for i in range(2)})
    shutil.copy(other[1], files[1])
    with pytest.raises(TableFormatError, match=rf"{files[1].name} is no part of the same model"):
        formats.load(files[0])
    shutil.copy(files[2], files[1])
    with pytest.raises(TableFormatError, match=r"it says split\.no 2, .* not split\.no 1"):
        formats.load(files[0])


def test_tensors_that_the_files_lack_are_counted(tmp_path):
    files = written(tmp_path)
    for file in files:
        content = file.read_bytes()
        old = b"split.tensors.count\x05\0\0\0\x03\0\0\0"
        assert content.count(old) == 1
        file.write_bytes(content.replace(old, old[:-4] + b"\x05\0\0\0"))
    with pytest.raises(TableFormatError, match=r"5 tensors by split\.tensors\.count, its files hold 3"):
        formats.load(files[0])


def test_a_conversion_reads_all_parts_and_overwrites_none(tmp_path):
    files = written(tmp_path)
    done = formats.convert(files[1], tmp_path / "x.safetensors")
    assert (done.lossless, done.lost) == (True, [])
    np.testing.assert_array_equal(formats.load(tmp_path / "x.safetensors").output, HEAD)
    before = files[2].read_bytes()
    with pytest.raises(OutputError, match="is read from it"):
        formats.convert(files[0], files[2])
    assert files[2].read_bytes() == before
