"""Small files that promise, or unpack to, far more than they hold: what ``benchmarks/file_bounds.py`` reads.

Each function writes one into a folder and returns the path to load.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ZEROS = bytes(1 << 20)
WEIGHT = np.arange(12, dtype="<f4").reshape(3, 4)


def packed(path: Path, head: bytes, megabytes: int, block: bytes = ZEROS) -> Path:
    """``head`` and so many blocks after it, in gzip."""
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(megabytes):
            file.write(block)
    return path


def npz_of_many_arrays(folder: Path, count: int = 1000) -> Path:
    arrays = {f"a{i}": np.zeros(1, np.int8) for i in range(count)}
    np.savez(folder / "many.npz", weight=WEIGHT, tokens=np.array(["a", "b", "c"]), **arrays)
    return folder / "many.npz"


def npz_of_too_many_arrays(folder: Path) -> Path:
    return npz_of_many_arrays(folder, 30_000)


def npz_of_wide_tokens(folder: Path) -> Path:
    text = b"{'descr': '<U600000000', 'fortran_order': False, 'shape': (3,), }".ljust(117) + b"\n"
    held = io.BytesIO()
    np.save(held, WEIGHT)
    with zipfile.ZipFile(folder / "wide.npz", "w") as archive:
        archive.writestr("weight.npy", held.getvalue())
        archive.writestr("tokens.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    return folder / "wide.npz"


def gguf_and_zeros(folder: Path, megabytes: int = 3000) -> Path:
    return packed(folder / "zeros.gguf.gz", b"GGUF\x03\0\0\0", megabytes)


def _native() -> bytes:
    import tempfile

    import tokenspace as ts

    with tempfile.TemporaryDirectory() as name:
        ts.save(ts.Table(WEIGHT, ts.Vocab(["a", "b", "c"])), Path(name, "t"))
        return Path(name, "t").read_bytes()


def safetensors_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    return packed(folder / "zeros.safetensors.gz", _native(), megabytes)


def fasttext_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    args = np.array([793_712_314, 12, 4, 5, 1, 1, 1, 1, 2, 2, 0, 0, 0, 1], "<i4").tobytes()
    counts = np.zeros(1, "<f8").tobytes() + np.array([2**31 - 1, 2**31 - 1, 0], "<i4").tobytes()
    return packed(folder / "zeros.bin.gz", args + counts + np.array([9, -1], "<i8").tobytes(), megabytes)


def torch_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    import torch

    held = io.BytesIO()
    torch.save({"weight": torch.from_numpy(WEIGHT)}, held, _use_new_zipfile_serialization=False)
    (folder / "zeros.vocab.txt").write_text("a\nb\nc\n")
    return packed(folder / "zeros.pt.gz", held.getvalue(), megabytes)


def npy_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    held = io.BytesIO()
    np.save(held, WEIGHT)
    (folder / "zeros.vocab.txt").write_text("a\nb\nc\n")
    return packed(folder / "zeros.npy.gz", held.getvalue(), megabytes)


def vocabulary_of_zeros(folder: Path, megabytes: int = 1000) -> Path:
    np.save(folder / "v.npy", WEIGHT)
    packed(folder / "v.vocab.txt", b"a\nb\n", megabytes)
    return folder / "v.npy"


def vocabulary_of_lines(folder: Path, megabytes: int = 1000) -> Path:
    np.save(folder / "v.npy", WEIGHT)
    packed(folder / "v.vocab.txt", b"a\nb\nc\n", megabytes, b"\n" * (1 << 20))
    return folder / "v.npy"


def word2vec_and_blanks(folder: Path, megabytes: int = 1000) -> Path:
    return packed(folder / "t.vec.gz", b"1 2\na 1 2\n", megabytes, b"\n" * (1 << 20))


def word2vec_binary_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    return packed(folder / "t.bin.gz", b"1 4\na " + WEIGHT[:1].tobytes() + b"\n", megabytes)


def glove_and_zeros(folder: Path, megabytes: int = 1000) -> Path:
    return packed(folder / "t.txt.gz", b"a 1 2\n", megabytes)


def header_of_lists(folder: Path) -> Path:
    header = b'{"a":[' + b"[]," * 20_000_000 + b"1]}"
    (folder / "lists").write_bytes(len(header).to_bytes(8, "little") + header)
    return folder / "lists"


def _folder(folder: Path, name: str, content: str) -> Path:
    model = folder / f"model of {name}"
    model.mkdir()
    files = {"config.json": '{"model_type": "bert", "vocab_size": 3}', "tokenizer.json": "{}", name: content}
    for each, text in files.items():
        (model / each).write_text(text)
    header = b'{"embeddings.word_embeddings.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}'
    if name != "model.safetensors.index.json":
        content_of_weights = len(header).to_bytes(8, "little") + header + WEIGHT.tobytes()
        (model / "model.safetensors").write_bytes(content_of_weights)
    return model


def _lists(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return _folder(folder, name, '{"a": [' + "[]," * 20_000_000 + "1]}")

    make.__name__ = "lists_in_" + name.replace(".", "_")
    return make


def growing_tokenizer(folder: Path) -> Path:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    described = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 1, "content": "a", "normalized": True} | flags],
        "normalizer": {"type": "Sequence", "normalizers": [step] * 40},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
    }
    return _folder(folder, "tokenizer.json", json.dumps(described))


def _gzipped(folder: Path, content: bytes) -> Path:
    with gzip.open(folder / "file.gz", "wb", 1) as file:
        file.write(content)
    return folder / "file.gz"


def _torch_zip(folder: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(folder / "file.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", b"3\n")
    return folder / "file.pt"


def torch_of_lists(folder: Path, count: int = 395_000) -> Path:
    return _torch_zip(folder, b"\x80\x02" + b"]" * count + b".")


def torch_of_many_lists(folder: Path) -> Path:
    return torch_of_lists(folder, 3_000_000)


def torch_of_many_lists_in_gzip(folder: Path) -> Path:
    import pickle

    first = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {}))
    path = _gzipped(folder, first + b"\x80\x02" + b"]" * 20_000_000 + b"." + pickle.dumps([], 2))
    return path.rename(folder / "file.pt.gz")


def _gguf(key: bytes, value: bytes) -> bytes:
    counts = np.array([0, 1, len(key)], "<u8").tobytes()
    return b"GGUF\x03\0\0\0" + counts + key + value


def _gguf_array(kind: int, count: int, items: bytes) -> bytes:
    return kind.to_bytes(4, "little") + count.to_bytes(8, "little") + items


def gguf_of_strings(folder: Path, count: int = 3_900_000) -> Path:
    array = b"\x09\0\0\0" + _gguf_array(8, count, bytes(8 * count))
    return _gzipped(folder, _gguf(b"tokenizer.ggml.tokens", array))


def gguf_of_many_strings(folder: Path) -> Path:
    return gguf_of_strings(folder, 15_000_000)


def gguf_of_arrays(folder: Path) -> Path:
    inner = _gguf_array(9, 90_000, _gguf_array(0, 0, b"") * 90_000)
    return _gzipped(folder, _gguf(b"k", b"\x09\0\0\0" + _gguf_array(9, 50, inner * 50)))


def _header(of: bytes) -> bytes:
    return len(of).to_bytes(8, "little") + of


def _tensors(count: int, sizes: int = 1) -> bytes:
    entry = b'"t%d":{"dtype":"F32","shape":[' + b",".join([b"0"] * sizes) + b'],"data_offsets":[0,0]}'
    return _header(b"{" + b",".join(entry % i for i in range(count)) + b"}")


def _written(folder: Path, content: bytes) -> Path:
    (folder / "file").write_bytes(content)
    return folder / "file"


def header_of_tensors(folder: Path) -> Path:
    return _written(folder, _tensors(159_000))


def header_of_tensors_in_gzip(folder: Path) -> Path:
    return _gzipped(folder, _tensors(159_000))


def header_of_axes(folder: Path) -> Path:
    return _written(folder, _tensors(150_000, 64))


def header_of_axes_in_gzip(folder: Path) -> Path:
    return _gzipped(folder, _tensors(150_000, 64))


def _metadata(entries: bytes) -> bytes:
    return _header(b'{"__metadata__":{' + entries + b"}}")


def metadata_of_escapes(folder: Path) -> Path:
    return _written(folder, _metadata(b",".join(b'"\\t%d":"\\n"' % i for i in range(490_000))))


def metadata_of_wide_characters(folder: Path) -> Path:
    return _written(folder, _metadata(b'"a":"' + b"\\ud83d\\ude00" * 5_000_000 + b'"'))


def zip_of_headers(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "file.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        content = _tensors(50_000)
        for i in range(64):
            archive.writestr(f"a{i}", content)
    return folder / "file.zip"


def gzip_and_padding(folder: Path) -> Path:
    path = _gzipped(folder, b"a 1 2\nb 3 4\n")
    with path.open("ab") as file:
        file.write(bytes(20_000_000))
    return path


def _npz_without_weight(folder: Path, count: int) -> Path:
    text = b"{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }".ljust(9900) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(folder / "file.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for i in range(count):
            archive.writestr(f"a{i}.npy", content)
    return folder / "file.npz"


def npz_of_long_headers(folder: Path) -> Path:
    return _npz_without_weight(folder, 5000)


def npz_of_too_many_long_headers(folder: Path) -> Path:
    return _npz_without_weight(folder, 10_000)


UNPACKED = {  # bytes that a packed one holds; the packed size of the others is bound enough
    "header_of_tensors_in_gzip": 9_200_000,
    "header_of_axes_in_gzip": 27_500_000,
    "gguf_of_strings": 31_200_000,
}


def fasttext_of_short_words(folder: Path, count: int = 1_000_000) -> Path:
    args = np.array([793_712_314, 12, 1, 5, 1, 1, 1, 1, 2, 2, 0, 0, 0, 1], "<i4").tobytes()
    counts = np.zeros(1, "<f8").tobytes() + np.array([count, count, 0], "<i4").tobytes()
    words = (b"a\0" + (1 << 40).to_bytes(8, "little") + b"\0") * count
    matrix = b"\0" + np.array([count, 1], "<i8").tobytes() + bytes(4 * count)
    head = args + counts + np.array([9, -1], "<i8").tobytes()
    (folder / "short.bin").write_bytes(head + words + matrix * 2)
    return folder / "short.bin"


def _old_tokenizer(folder: Path, **files: str) -> Path:
    """A model whose tokenizer is kept in other files than ``tokenizer.json``."""
    model = _folder(folder, "old tokenizer", "")
    (model / "tokenizer.json").unlink()
    for name, text in files.items():
        (model / name.replace("__", ".")).write_text(text)
    return model


def _keys(count: int) -> str:
    return "{" + ",".join(f'"{i}":1' for i in range(count)) + "}"


def vocabulary_of_equal_lines(folder: Path) -> Path:
    return _old_tokenizer(folder, vocab__txt="[UNK]\n" + "a\n" * 20_000_000)


def vocabulary_of_one_line(folder: Path) -> Path:
    return _old_tokenizer(folder, vocab__txt="[UNK]\n" + "a" * 60_000_000)


def merges_that_repeat(folder: Path) -> Path:
    vocab = '{"a": 0, "b": 1, "ab": 2}'
    kind = '{"model_type": "bert", "tokenizer_class": "GPT2Tokenizer", "vocab_size": 3}'
    return _old_tokenizer(folder, config__json=kind, vocab__json=vocab, merges__txt="a b\n" * 10_000_000)


def vocabulary_of_one_id(folder: Path) -> Path:
    return _old_tokenizer(folder, vocab__json=_keys(2_500_000), merges__txt="")


def keys_in_settings(folder: Path) -> Path:
    text = "[PAD]\n[UNK]\na\n"
    return _old_tokenizer(folder, vocab__txt=text, tokenizer_config__json=_keys(2_500_000))


def many_added_tokens(folder: Path) -> Path:
    text = "[PAD]\n[UNK]\na\n"
    return _old_tokenizer(folder, vocab__txt=text, added_tokens__json=_keys(190_000))


BOMBS: tuple[Callable[[Path], Path], ...] = (
    npz_of_many_arrays,
    npz_of_too_many_arrays,
    npz_of_wide_tokens,
    gguf_and_zeros,
    safetensors_and_zeros,
    fasttext_and_zeros,
    torch_and_zeros,
    npy_and_zeros,
    vocabulary_of_zeros,
    vocabulary_of_lines,
    word2vec_and_blanks,
    word2vec_binary_and_zeros,
    glove_and_zeros,
    header_of_lists,
    *map(
        _lists,
        ("config.json", "tokenizer.json", "model.safetensors.index.json", "modules.json"),
    ),
    growing_tokenizer,
    torch_of_lists,
    torch_of_many_lists,
    torch_of_many_lists_in_gzip,
    gguf_of_strings,
    gguf_of_many_strings,
    gguf_of_arrays,
    header_of_tensors,
    header_of_tensors_in_gzip,
    header_of_axes,
    header_of_axes_in_gzip,
    metadata_of_escapes,
    metadata_of_wide_characters,
    zip_of_headers,
    gzip_and_padding,
    npz_of_long_headers,
    npz_of_too_many_long_headers,
    fasttext_of_short_words,
    vocabulary_of_equal_lines,
    vocabulary_of_one_line,
    merges_that_repeat,
    vocabulary_of_one_id,
    keys_in_settings,
    many_added_tokens,
)


def made(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every bomb by name, and where it lies."""
    for make in BOMBS:
        name = make.__name__.replace("_", " ")
        own = folder / name
        own.mkdir()
        yield name, make(own)
