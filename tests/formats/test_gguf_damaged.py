"""GGUF files that are damaged or hostile, and what is not written."""

import struct

import numpy as np
import pytest

from tokenspace.errors import OutputError, TableFormatError, VocabError
from tokenspace.formats import gguf
from tokenspace.table import Table
from tokenspace.vocab import Vocab

from .gguf_files import (
    EMBEDDING,
    NUMBERS,
    SMALL,
    TOKENS,
    entry,
    file_of,
    integers,
    replaced,
    string,
    strings,
    tensor,
)


def u64(number):
    return struct.pack("<Q", number)


HOSTILE = {
    "empty": (b"", r"byte 0\): no GGUF file: it begins with b''"),
    "cut in the start": (SMALL[:20], r"byte 20\): the file ends within its header"),
    "version 1": (
        file_of([TOKENS], [EMBEDDING], version=1),
        r"byte 4\): version 1 of GGUF; versions 2 and 3",
    ),
    "big-endian": (
        file_of([], [], version=3 << 24),
        r"byte 4\): a big-endian GGUF file; .*gguf-convert-endian",
    ),
    "tensors": (
        file_of([TOKENS], [EMBEDDING], counts=(2**60, 1)),
        r"byte 8\): a count of 1,152,921,504,606,846,976 tensors, for which the \d+ bytes",
    ),
    "entries": (
        file_of([TOKENS], [EMBEDDING], counts=(1, 2**63)),
        r"byte 16\): a count of .* metadata entries",
    ),
    "strings": (replaced(struct.pack("<IQ", 8, 3), struct.pack("<IQ", 8, 2**61)), r"a count of .* strings"),
    "a string": (replaced(string("<s>"), u64(2**63 + 5) + b"<s>"), r"byte 69\): a string that goes on past"),
    "array kind": (replaced(struct.pack("<IQ", 8, 3), struct.pack("<IQ", 13, 3)), r"an array of kind 13"),
    "kind": (file_of([entry("x", 13, b"")], []), r"a value of kind 13; the format has 0 to 12"),
    "numbers": (file_of([entry("x", 9, struct.pack("<IQ", 12, 2**40))], []), r"a count of .* numbers"),
    "deep": (
        file_of([entry("x", 9, struct.pack("<IQ", 9, 1) * 9 + struct.pack("<IQ", 4, 0))], []),
        r"arrays within arrays, more than 8 deep",
    ),
    "a long value": (file_of([entry("x", 8, u64(2**40))], []), r"a value that goes on past the file's end"),
    "a long key": (file_of([u64(2**40) + bytes(9)], []), r"byte 24\): a key of 1,099,511,627,776 bytes"),
    "a key twice": (file_of([TOKENS, TOKENS], []), r"the key 'tokenizer.ggml.tokens' is there twice"),
    "a tensor twice": (
        file_of([TOKENS], [EMBEDDING, EMBEDDING], NUMBERS.tobytes()),
        r"the tensor 'token_embd.weight' is there twice",
    ),
    "axes": (
        file_of([TOKENS], [string("x") + struct.pack("<I", 2**31) + bytes(16)]),
        r"tensor 'x' has 2,147,483,648 axes",
    ),
    "offset": (
        replaced(EMBEDDING, tensor("token_embd.weight", [2, 3], 0, 64)),
        r"would end at byte .* of a file",
    ),
    "unaligned": (
        replaced(EMBEDDING, tensor("token_embd.weight", [2, 3], 0, 4)),
        r"offset 4, no multiple of",
    ),
    "cut data": (SMALL[:-1], r"'token_embd.weight', F32 \[3, 2\], would end at byte 184 of a file of 183"),
    "huge": (
        file_of([TOKENS], [tensor("token_embd.weight", [2**62, 2**62], 0, 0)], bytes(64)),
        r"would end at byte",
    ),
    "packed": (
        file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 8, 0)], bytes(64)),
        r"rows of 2 numbers, where Q8_0 packs 32",
    ),
    "no rows": (
        file_of([TOKENS], [tensor("token_embd.weight", [2, 0], 0, 0)]),
        r"has shape \[0, 2\]; a table is \(V, D\)",
    ),
    "one axis": (file_of([TOKENS], [tensor("token_embd.weight", [6], 0, 0)], bytes(24)), r"has shape \[6\]"),
    "type": (
        file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 77, 0)], bytes(24)),
        r"is of type 77; known here are F32, F16, ",
    ),
    "integers": (
        file_of([TOKENS], [tensor("token_embd.weight", [2, 3], 26, 0)], bytes(24)),
        r"is I32: whole numbers are no table",
    ),
    "no table": (
        file_of([TOKENS], [tensor("x", [1], 0, 0)], bytes(4)),
        r"has no tensor 'token_embd.weight'.* x",
    ),
    "no tokens": (file_of([], [EMBEDDING], NUMBERS.tobytes()), r"has no 'tokenizer.ggml.tokens' to name"),
    "tokens are numbers": (
        file_of([integers("tokenizer.ggml.tokens", [1, 2, 3])], [EMBEDDING], NUMBERS.tobytes()),
        r"'tokenizer.ggml.tokens' is no array of strings",
    ),
    "more tokens": (
        file_of([strings("tokenizer.ggml.tokens", "abcd")], [EMBEDDING], NUMBERS.tobytes()),
        r"4 tokens for a table of 3 rows",
    ),
    "hardly a token": (
        file_of(
            [strings("tokenizer.ggml.tokens", "ab")],
            [tensor("token_embd.weight", [1, 10**5 + 5], 24, 0)],
            bytes(10**5 + 5),
        ),
        r"2 tokens for a table of 100,005 rows; nearly all have no name",
    ),
    "keys": (
        file_of([entry("x", 7, b"\1")] * 10**5, [], counts=(0, 10**5 + 1)),
        r"100,000 are the most that are",
    ),
    "arrays": (
        file_of(
            [entry("x", 9, struct.pack("<IQ", 9, 10**5 + 1) + struct.pack("<IQ", 4, 0) * (10**5 + 1))], []
        ),
        r"a count of 100,001 arrays; 100,000 are the most",
    ),
    "types": (
        file_of([TOKENS, integers("tokenizer.ggml.token_type", [1])], [EMBEDDING], NUMBERS.tobytes()),
        r"1 token type for 3 tokens",
    ),
    "types are floats": (
        file_of(
            [TOKENS, entry("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 6, 3) + bytes(12))],
            [EMBEDDING],
            NUMBERS.tobytes(),
        ),
        r"'tokenizer.ggml.token_type' holds no whole numbers",
    ),
    "types are strings": (
        file_of([TOKENS, strings("tokenizer.ggml.token_type", "abc")], [EMBEDDING], NUMBERS.tobytes()),
        r"'tokenizer.ggml.token_type' holds no whole numbers",
    ),
    "model": (
        file_of([TOKENS, entry("tokenizer.ggml.model", 7, b"\1")], [EMBEDDING], NUMBERS.tobytes()),
        r"'tokenizer.ggml.model' is of kind 7, not a string",
    ),
    "alignment": (
        file_of(
            [TOKENS, entry("general.alignment", 4, struct.pack("<I", 24))], [EMBEDDING], NUMBERS.tobytes()
        ),
        r"general.alignment is \[24\], no power of two",
    ),
    "provenance": (
        file_of([TOKENS, entry("tokenspace.provenance", 8, string("{"))], [EMBEDDING], NUMBERS.tobytes()),
        r"'tokenspace.provenance' is no JSON",
    ),
    "provenance list": (
        file_of([TOKENS, entry("tokenspace.provenance", 8, string("[]"))], [EMBEDDING], NUMBERS.tobytes()),
        r"'tokenspace.provenance' must be a JSON object",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_said_with_its_byte(write, name):
    content, says = HOSTILE[name]
    with pytest.raises(TableFormatError, match=says) as caught:
        gguf.load(write("x.gguf", content))
    assert "\n" not in str(caught.value)
    assert "x.gguf" in str(caught.value)


def test_mutated_files_are_read_or_refused(write, rng):
    types = integers("tokenizer.ggml.token_type", [3, 1, 1])
    description = entry("tokenizer.huggingface.json", 8, string("{}"))
    nested = entry("x.nested", 9, struct.pack("<IQIQ", 9, 1, 4, 1) + b"\1\0\0\0")
    tensors = [tensor("token_embd.weight", [32, 3], 8, 0), tensor("output.weight", [32, 3], 0, 128)]
    whole = file_of([nested, TOKENS, types, description], tensors, bytes(range(128)) + bytes(384))
    gguf.load(write("x.gguf", whole))
    read = 0
    for _ in range(150):
        content = bytearray(whole)
        for at in rng.integers(0, len(whole) - 384, rng.integers(1, 4)):
            content[at] = rng.choice((0, 1, 8, 9, 255, rng.integers(256)))
        try:
            gguf.load(write("x.gguf", bytes(content[: rng.choice((len(whole), rng.integers(len(whole))))])))
            read += 1
        except TableFormatError:
            pass
    assert 15 < read < 135


def test_saving_refuses_what_would_not_be_read_back(tmp_path, write):
    path = tmp_path / "x.gguf"
    with pytest.raises(
        VocabError, match=r"as gguf: token '\\udcff' at id 0 .* not UTF-8; native can hold it"
    ):
        gguf.save(Table(np.ones((1, 1), np.float32), Vocab(["\udcff"])), path)
    infinite = np.array([[1], [np.inf]], np.float32)
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'b', holds NaN or infinity"):
        gguf.save(Table(infinite, Vocab(["a", "b"])), path)
    with pytest.raises(TableFormatError, match=r"row 1 of the output table"):
        gguf.save(Table(np.ones((2, 1), np.float32), Vocab(["a", "b"]), output=infinite), path)
    with pytest.raises(TableFormatError, match=r"provenance can't be written as JSON"):
        gguf.save(Table(np.ones((1, 1), np.float32), Vocab(["a"]), provenance={"x": {1}}), path)
    with pytest.raises(OutputError, match=r"is a directory"):
        gguf.save(Table(np.ones((1, 1), np.float32), Vocab(["a"])), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_is_verified_before_it_has_its_name(tmp_path):
    table = Table(np.ones((1, 2), np.float32), Vocab(["a"]))
    seen = []

    def verify(load):
        seen.append(load())
        raise TableFormatError("no")

    with pytest.raises(TableFormatError, match="no"):
        gguf.save(table, tmp_path / "x.gguf", verify)
    assert seen[0].vocab == table.vocab
    assert list(tmp_path.iterdir()) == []
