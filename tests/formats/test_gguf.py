import struct
import sys
import time

import gguf as library
import ml_dtypes
import numpy as np
import pytest

from tokenspace.errors import MissingExtra, TableFormatError
from tokenspace.formats import gguf, load
from tokenspace.source import Source
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab, placeholder

from .gguf_files import (
    EMBEDDING,
    NUMBERS,
    SMALL,
    TOKENS,
    entry,
    file_of,
    integers,
    string,
    strings,
    tensor,
)

KINDS = library.GGMLQuantizationType


def written(path, weight, tokens, kind=None, output=None, model="llama", types=None):
    """A file as llama.cpp's own Python package writes it."""
    writer = library.GGUFWriter(path, "test")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if types:
        writer.add_token_types(types)
    for name, matrix in (("token_embd.weight", weight), ("output.weight", output)):
        if matrix is not None:
            writer.add_tensor(name, matrix, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_minilm_written_by_the_gguf_package_reads_back_bit_by_bit(minilm, tmp_path):
    types = [3 if i in minilm.vocab.special else 1 for i in range(len(minilm))]
    path = written(
        tmp_path / "minilm.gguf", np.asarray(minilm.weight), list(minilm.vocab), model="bert", types=types
    )
    table = gguf.load(path)
    assert isinstance(table.weight, np.memmap)
    np.testing.assert_array_equal(table.weight.view(np.uint32), minilm.weight.view(np.uint32))
    assert table.vocab == minilm.vocab
    assert table.provenance["read_from"] == {
        "file": "minilm.gguf",
        "format": "gguf",
        "dtype": "F32",
        "architecture": "test",
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_what_is_written_here_the_gguf_package_reads(rng, tmp_path, dtype):
    tokens = ["<s>", "▁king", "\n", "", "a b", "▁king"]
    weight, output = (rng.normal(size=(6, 5)).astype(dtype) for _ in range(2))
    tokenizer = Tokenizer.train_from_iterator(["the cat sat"])
    table = Table(
        weight, Vocab(tokens, [0, 3], "sentencepiece"), tokenizer, output, {"made_by": "a test", "n": [1]}
    )
    path = tmp_path / "x.gguf"
    gguf.save(table, path)

    reader = library.GGUFReader(path)
    assert [each.name for each in reader.tensors] == ["token_embd.weight", "output.weight"]
    for found, matrix in zip(reader.tensors, (weight, output), strict=True):
        assert (
            found.tensor_type.name == {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype.__name__]
        )
        assert found.data.tobytes() == matrix.tobytes()
        assert found.shape.tolist() == [5, 6]
        assert found.data_offset % 32 == 0
    assert reader.fields["tokenizer.ggml.tokens"].contents() == tokens
    assert reader.fields["tokenizer.ggml.token_type"].contents() == [3, 1, 1, 3, 1, 1]
    assert reader.fields["tokenizer.ggml.model"].contents() == "llama"
    assert reader.fields["tokenizer.huggingface.json"].contents() == tokenizer.to_json()

    again = gguf.load(path)
    assert again.vocab == table.vocab
    assert again.provenance == table.provenance
    assert again.tokenizer.to_json() == tokenizer.to_json()
    assert again.weight.tobytes() + again.output.tobytes() == weight.tobytes() + output.tobytes()
    assert again.weight.dtype == dtype


@pytest.mark.parametrize("encoding", ["word", "wordpiece", "byte-level", "sentencepiece"])
def test_every_encoding_is_kept(tmp_path, encoding):
    table = Table(np.ones((1, 1), np.float32), Vocab(["a"], encoding=encoding))
    gguf.save(table, tmp_path / "x.gguf")
    assert gguf.load(tmp_path / "x.gguf").vocab.encoding == encoding


def test_an_encoding_that_is_not_known_here_is_told_by_the_model(write):
    entries = [
        entry("tokenspace.encoding", 8, string("new")),
        entry("tokenizer.ggml.model", 8, string("gpt2")),
    ]
    path = write("x.gguf", file_of([*entries, TOKENS], [EMBEDDING], NUMBERS.tobytes()))
    assert gguf.load(path).vocab.encoding == "byte-level"


def test_one_row_is_these_bytes(tmp_path):
    gguf.save(Table(np.array([[1.0, -2.0]], np.float32), Vocab(["a"], [0])), tmp_path / "x.gguf")
    entries = [
        entry("general.architecture", 8, string("tokenspace")),
        entry("tokenizer.ggml.model", 8, string("none")),
        entry("tokenspace.encoding", 8, string("word")),
        entry("tokenspace.provenance", 8, string("{}")),
        strings("tokenizer.ggml.tokens", ["a"]),
        integers("tokenizer.ggml.token_type", [3]),
    ]
    expected = file_of(
        entries, [tensor("token_embd.weight", [2, 1], 0, 0)], b"\0\0\x80?\0\0\0\xc0" + bytes(24)
    )
    assert (tmp_path / "x.gguf").read_bytes() == expected


@pytest.mark.parametrize(
    ("model", "tokens", "encoding"),
    [
        ("llama", ["a", "b", "c"], "sentencepiece"),
        ("t5", ["a", "b", "c"], "sentencepiece"),
        ("gpt2", ["a", "b", "c"], "byte-level"),
        ("bert", ["▁the", "▁cat", "s"], "sentencepiece"),  # llama.cpp's spelling
        ("bert", ["the", "cat", "##s"], "wordpiece"),
        (None, ["a", "b", "c"], "word"),
    ],
)
def test_the_model_tells_the_encoding_or_the_tokens_do(write, model, tokens, encoding):
    entries = [entry("tokenizer.ggml.model", 8, string(model))] if model else []
    entries.append(strings("tokenizer.ggml.tokens", tokens))
    table = gguf.load(write("x.gguf", file_of(entries, [EMBEDDING], NUMBERS.tobytes())))
    assert (table.vocab.encoding, list(table.vocab)) == (encoding, tokens)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_made_by_hand(write, version):
    model = entry("tokenizer.ggml.model", 8, string("gpt2"))
    types = integers("tokenizer.ggml.token_type", [2, 1, 6])
    nested = entry("x.nested", 9, struct.pack("<IQIQ", 9, 1, 4, 1) + b"\1\0\0\0")
    flag, number = entry("x.flag", 7, b"\1"), entry("x.float", 12, bytes(8))
    content = file_of(
        [nested, flag, model, TOKENS, types, number], [EMBEDDING], NUMBERS.tobytes(), version=version
    )
    table = gguf.load(write("x.gguf", content))
    np.testing.assert_array_equal(table.weight, NUMBERS)
    assert (list(table.vocab), table.vocab.special) == (["<s>", "a", "b"], (0,))
    assert table.vocab.encoding == "byte-level"
    assert table.output is None


def test_another_alignment(write):
    content = file_of(
        [entry("general.alignment", 4, struct.pack("<I", 256)), TOKENS],
        [tensor("x", [1], 0, 0), tensor("token_embd.weight", [2, 3], 0, 256)],
        bytes(256) + NUMBERS.tobytes(),
        alignment=256,
    )
    np.testing.assert_array_equal(gguf.load(write("x.gguf", content)).weight, NUMBERS)


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (NUMBERS, False),
        (NUMBERS + np.float32(1), True),
        (NUMBERS * np.array([[1], [1], [-1]], np.float32), True),
    ],
    ids=["the same", "another", "another last row"],
)
def test_the_head_is_the_output_where_it_is_another(write, head, kept):
    tensors = [EMBEDDING, tensor("output.weight", [2, 3], 0, 32)]
    content = file_of([TOKENS], tensors, NUMBERS.tobytes().ljust(32, b"\0") + head.tobytes())
    table = gguf.load(write("x.gguf", content))
    assert (table.output is not None) is kept
    if kept:
        np.testing.assert_array_equal(table.output, head)
    assert gguf.load(write("x.gguf", content), limit=2).output is None or head[0, 0] == 2


@pytest.mark.parametrize("other", [np.float32, np.float64])
def test_a_head_of_another_float_type_is_tied_where_its_values_are_the_tables(tmp_path, other):
    half = NUMBERS.astype(np.float16)
    writer = library.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("token_embd.weight", half)
    writer.add_tensor("output.weight", half.astype(other) + np.arange(6).reshape(3, 2) // 5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert gguf.load(tmp_path / "x.gguf", limit=2).output is None
    np.testing.assert_array_equal(gguf.load(tmp_path / "x.gguf").output[2], half[2] + [0, 1])


def test_the_bias_of_a_head_is_named_as_left_out(tmp_path):
    writer = library.GGUFWriter(tmp_path / "x.gguf", "phi2")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b", "c"])
    for name, tensor_ in (("token_embd.weight", NUMBERS), ("output.bias", np.ones(3, np.float32))):
        writer.add_tensor(name, tensor_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert gguf.load(tmp_path / "x.gguf").provenance["read_from"]["left_out"] == ["output.bias of shape [3]"]


@pytest.mark.parametrize("shape", [[2, 4], [2, 2], [4, 3]], ids=["longer", "shorter", "wider"])
def test_a_head_of_another_shape_is_refused_unless_the_table_is_named(write, shape):
    tensors = [EMBEDDING, tensor("output.weight", shape, 0, 32)]
    path = write("x.gguf", file_of([TOKENS], tensors, NUMBERS.tobytes().ljust(96, b"\0")))
    with pytest.raises(
        TableFormatError,
        match=r"'output.weight' is \[., .\], the table 'token_embd.weight' \[3, 2\]; .* convert --tensor",
    ):
        gguf.load(path)
    table = load(path, tensor="token_embd.weight")
    np.testing.assert_array_equal(table.weight, NUMBERS)
    assert table.output is None
    assert table.provenance["read_from"]["left_out"] == [f"output.weight of shape {shape[::-1]}"]


def test_float64_is_rounded(write):
    numbers = np.array([[0.1, 2.0], [1 / 3, 4.0], [5.0, 6.0]])
    content = file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 28, 0)], numbers.tobytes())
    table = gguf.load(write("x.gguf", content))
    assert table.weight.dtype == np.float32
    np.testing.assert_array_equal(table.weight, numbers.astype(np.float32))
    about = table.provenance["read_from"]
    assert (about["dtype"], about["rounded_from"], about["rounded_rows"]) == ("F64", "float64", 2)
    assert (
        "rounded_from"
        not in gguf.load(write("y.gguf", file_of([TOKENS], [EMBEDDING], NUMBERS.tobytes()))).provenance[
            "read_from"
        ]
    )
    numbers[1, 1] = 1e300
    content = file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 28, 0)], numbers.tobytes())
    with pytest.raises(
        TableFormatError, match=r"x\.gguf, tensor 'token_embd.weight': row 1 holds 1e\+300, too"
    ):
        gguf.load(write("x.gguf", content))
    numbers[1, 1] = np.nan
    content = file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 28, 0)], numbers.tobytes())
    with pytest.raises(TableFormatError, match=r"x\.gguf: row 1 of the table, token 'a', holds NaN or inf"):
        gguf.load(write("x.gguf", content))


def test_a_head_of_float64_counts_among_the_rounded_rows(write):
    tensors = [tensor("token_embd.weight", [2, 3], 28, 0), tensor("output.weight", [2, 3], 28, 64)]
    numbers = np.array([[0.1, 2.0], [3.0, 4.0], [5.0, 6.0]])
    content = numbers.tobytes().ljust(64, b"\0") + (numbers[::-1] * 1.0).tobytes()
    table = gguf.load(write("x.gguf", file_of([TOKENS], tensors, content)))
    assert table.provenance["read_from"]["rounded_rows"] == 2
    np.testing.assert_array_equal(table.output, numbers[::-1].astype(np.float32))


def test_an_output_that_equals_the_table_is_written_and_read(tmp_path):
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    gguf.save(Table(weight, Vocab(["a", "b", "c"]), output=weight.copy()), tmp_path / "x.gguf")
    np.testing.assert_array_equal(gguf.load(tmp_path / "x.gguf").output, weight)
    gguf.save(Table(weight, Vocab(["a", "b", "c"])), tmp_path / "x.gguf")
    assert gguf.load(tmp_path / "x.gguf").output is None


@pytest.mark.parametrize(
    "kind", [KINDS.Q8_0, KINDS.Q4_0, KINDS.Q5_1, KINDS.MXFP4], ids=lambda kind: kind.name
)
def test_quantized_rows_are_what_the_package_makes_of_them(rng, tmp_path, monkeypatch, kind):
    weight, output = (rng.normal(size=(9, 64)).astype(np.float32) for _ in range(2))
    packed, head = (library.quants.quantize(matrix, kind) for matrix in (weight, output))
    path = written(tmp_path / "x.gguf", packed, list("abcdefghi"), kind, head)
    monkeypatch.setattr(gguf, "_ROWS_AT_ONCE", 4)
    table = gguf.load(path)
    np.testing.assert_array_equal(table.weight, library.quants.dequantize(packed, kind))
    np.testing.assert_array_equal(table.output, library.quants.dequantize(head, kind))
    assert table.weight.dtype == np.float32
    assert table.provenance["read_from"]["dtype"] == kind.name
    np.testing.assert_array_equal(gguf.load(path, limit=5).weight, table.weight[:5])


def test_quantized_rows_are_refused_by_name_without_the_package(tmp_path, monkeypatch):
    blocks = np.zeros((2, 144), np.uint8)  # the package quantizes no Q4_K, and reads it
    path = written(tmp_path / "x.gguf", blocks, ["a", "b"], KINDS.Q4_K)
    assert gguf.load(path).weight.shape == (2, 256)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        MissingExtra, match=r"x\.gguf: 'token_embd.weight' is quantized as Q4_K.*pip install 'gguf>="
    ):
        gguf.load(path)
    float_table = write_small(tmp_path)
    assert len(gguf.load(float_table)) == 3  # float types need no package


def write_small(folder):
    (folder / "small.gguf").write_bytes(SMALL)
    return folder / "small.gguf"


def test_a_type_that_the_package_does_not_read(write):
    tokens = strings("tokenizer.ggml.tokens", ["a"])
    content = file_of([tokens], [tensor("token_embd.weight", [256, 1], 15, 0)], bytes(292))
    with pytest.raises(
        TableFormatError, match=r"is quantized as Q8_K, which this version of the gguf package"
    ):
        gguf.load(write("x.gguf", content))


def test_quantized_scales_that_are_not_finite(write):
    tokens = strings("tokenizer.ggml.tokens", ["a"])
    content = file_of([tokens], [tensor("token_embd.weight", [32, 1], 8, 0)], b"\0\x7e" + bytes([1] * 32))
    with pytest.raises(TableFormatError, match=r"row 0 of the table, token 'a', holds NaN or infinity"):
        gguf.load(write("x.gguf", content))


def test_the_sizes_of_quantized_types_are_the_packages():
    ours = {number: (kind.name, kind.numbers, kind.size) for number, kind in gguf.layout.TYPES.items()}
    theirs = {kind.value: (kind.name, *size) for kind, size in library.GGML_QUANT_SIZES.items()}
    del theirs[KINDS.Q8_1]  # for sums within llama.cpp, in no file; the package has its old size
    assert {number: ours.get(number) for number in theirs} == theirs


def test_tokens_are_any_bytes(write):
    odd = ["\n", "", "a b", "\0", "\x85", "<s>", "<s>", "\u2028", "🐈"]
    content = file_of(
        [strings("tokenizer.ggml.tokens", odd)], [tensor("token_embd.weight", [1, 9], 1, 0)], bytes(18)
    )
    assert list(gguf.load(write("x.gguf", content)).vocab) == odd


@pytest.mark.parametrize(
    "tokens", [[b"a\xff", b"b", b"a\xfe"], [b"\xc3", b"\xa9", b"b"]], ids=["bytes", "cut"]
)
def test_tokens_that_are_no_utf8(write, tokens):
    content = file_of([strings("tokenizer.ggml.tokens", tokens)], [EMBEDDING], NUMBERS.tobytes())
    path = write("x.gguf", content)
    at = content.index(tokens[0])
    with pytest.raises(TableFormatError, match=rf"x\.gguf, token 0 \(byte {at}\): the token .* is not UTF-8"):
        gguf.load(path)
    kept = gguf.load(path, errors="surrogateescape").vocab
    assert [token.encode("utf-8", "surrogateescape") for token in kept] == tokens
    replaced = gguf.load(path, errors="replace")
    assert list(replaced.vocab) == [token.decode("utf-8", "replace") for token in tokens]
    assert replaced.provenance["read_from"]["replaced_tokens"] == 2
    assert replaced.provenance["read_from"]["repeated_tokens"] == 1
    assert list(gguf.load(path, errors="replace", limit=1).vocab) == [tokens[0].decode("utf-8", "replace")]


def test_limit_reads_a_prefix_and_checks_no_more(write):
    content = file_of([strings("tokenizer.ggml.tokens", ["a", "b", b"\xff"])], [EMBEDDING], NUMBERS.tobytes())
    table = gguf.load(write("x.gguf", content), limit=2)
    assert list(table.vocab) == ["a", "b"]
    np.testing.assert_array_equal(table.weight, NUMBERS[:2])
    assert isinstance(table.weight, np.memmap)
    types = integers("tokenizer.ggml.token_type", [1, 1, 3])
    table = gguf.load(write("x.gguf", file_of([TOKENS, types], [EMBEDDING], NUMBERS.tobytes())), limit=9)
    assert (len(table), table.vocab.special) == (3, (2,))


def test_a_limited_table_has_no_tokenizer(tmp_path):
    tokenizer = Tokenizer.train_from_iterator(["the cat sat"])
    table = Table(np.ones((len(tokenizer.vocab), 2), np.float32), tokenizer.vocab, tokenizer)
    gguf.save(table, tmp_path / "x.gguf")
    part = gguf.load(tmp_path / "x.gguf", limit=2)
    assert (len(part), part.tokenizer, part.provenance) == (2, None, {"rows_taken": 2})
    assert gguf.load(tmp_path / "x.gguf", limit=len(table)).tokenizer is not None


def test_rows_past_the_tokens_are_named_unused(write):
    tokens = strings("tokenizer.ggml.tokens", ["a", "b"])
    path = write("x.gguf", file_of([tokens], [EMBEDDING], NUMBERS.tobytes()))
    assert list(gguf.load(path).vocab) == ["a", "b", placeholder(2)]
    assert list(gguf.load(path, limit=2).vocab) == ["a", "b"]


def test_gzip_is_unpacked(tmp_path):
    import gzip

    (tmp_path / "x.gguf.gz").write_bytes(gzip.compress(SMALL))
    np.testing.assert_array_equal(gguf.load(Source(tmp_path / "x.gguf.gz")).weight, NUMBERS)


def test_256_000_tokens_open_fast(write):
    tokens = [f"▁token{i}" for i in range(256_000)]
    content = file_of(
        [strings("tokenizer.ggml.tokens", tokens)],
        [tensor("token_embd.weight", [1, len(tokens)], 1, 0)],
        bytes(2 * len(tokens)),
    )
    path = write("x.gguf", content)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        opened = gguf.load(path)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.3
    assert opened.vocab[255_999] == "▁token255999"


def test_columns_apart_in_memory_are_written_in_order(tmp_path):
    weight = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    gguf.save(Table(weight, Vocab(["a", "b"])), tmp_path / "x.gguf")
    np.testing.assert_array_equal(gguf.load(tmp_path / "x.gguf").weight, weight)
