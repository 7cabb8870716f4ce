r"""NumPy's ``.npy`` for the numbers, and a text file beside it for the tokens: ``x.npy``, ``x.vocab.txt``.

The array file (NEP 1, https://numpy.org/neps/nep-0001-npy-format.html)::

    6 bytes    \x93NUMPY
    2 bytes    version: 1.0 or 2.0
    2 bytes    length of the header, little-endian (4 bytes in version 2.0)
    header     {'descr': '<f4', 'fortran_order': False, 'shape': (V, D), }   padded with spaces
    data       V · D numbers; mapped, not read

The vocabulary: V lines of UTF-8, a token and ``\n``. Token i is line i + 1, whatever its spaces; a ``\r`` at
a line's end is not part of it. No pickle is ever opened.
"""

from __future__ import annotations

import ast
import math
import os
import re
from functools import partial
from pathlib import Path

import numpy as np

from tokenspace import atomic
from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats.tokens import (
    Errors,
    Verify,
    check_writable,
    counted,
    decoded,
    encoded,
    is_utf8,
    table_read,
)
from tokenspace.shapes import Array
from tokenspace.table import Table, check_finite

NAME = "numpy"
MAGIC = b"\x93NUMPY"
_SIZE_OF_LENGTH = {b"\x01\x00": 2, b"\x02\x00": 4}
_FLOAT = re.compile("[<>=|]?f[248]")
_LONGEST_HEADER = 10_000  # bytes; NumPy's own limit
_ROWS_AT_ONCE = 16_384


def vocabulary_path(path: str | os.PathLike[str]) -> Path:
    """Where the tokens of the array at ``path`` are: ``x.npy`` has ``x.vocab.txt``."""
    return Path(path).with_suffix(".vocab.txt")


def load(path: str | os.PathLike[str], errors: Errors = "strict") -> Table:
    """Map the array and read the tokens beside it; ``errors`` is ``word2vec.load``'s.

    float32 and float16 stay what they are, in the machine's byte order; float64 is rounded to float32.
    ``TableFormatError`` if either file is not what it should be, or they are of different lengths.
    """
    return _load(Path(path), vocabulary_path(path), errors)


def _load(path: Path, names: Path, errors: Errors = "strict") -> Table:
    try:
        weight = _array(path)
        lines = names.read_bytes().split(b"\n")
    except FileNotFoundError as error:
        raise TableFormatError(
            f"there is no {error.filename}; a table of this format is two files, {path.name} and {names.name}"
        ) from None
    except OSError as error:
        raise TableFormatError(f"can't read {error.filename or path}: {error.strerror or error}") from None
    if not lines[-1]:
        lines.pop()
    if len(lines) != len(weight):
        raise TableFormatError(
            f"{path} has {counted(len(weight), 'row')}, {names} {counted(len(lines), 'line')}; "
            "each row needs a token"
        )
    tokens, offset = [], 0
    for i, line in enumerate(lines):
        tokens.append(decoded(line.removesuffix(b"\r"), errors, names, f"line {i + 1:,}", offset))
        offset += len(line) + 1
    table = table_read(path, NAME, _as_table(weight), tokens, dtype=weight.dtype.name)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        try:
            check_finite(table, np.asarray(table.weight[start : start + _ROWS_AT_ONCE], np.float32), start)
        except TableFormatError as error:
            raise TableFormatError(f"{path}: {error}") from None
    return table


def _array(path: Path) -> Array:
    with path.open("rb") as file:
        start = file.read(8)
        length_bytes = _SIZE_OF_LENGTH.get(start[6:])
        if start[:6] != MAGIC or length_bytes is None:
            raise TableFormatError(f"{path} (byte 0): no .npy file of version 1.0 or 2.0: {start!r}")
        length = int.from_bytes(file.read(length_bytes), "little")
        description = file.read(min(length, _LONGEST_HEADER)).decode("latin-1")
        data_start = file.tell()
        size = os.fstat(file.fileno()).st_size
    try:
        header = ast.literal_eval(description.strip())
        kind, order, shape = header["descr"], header["fortran_order"], header["shape"]
        whole = len(description) == length and all(type(n) is int and n >= 0 for n in shape)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        whole = False
    if not whole:
        raise TableFormatError(f"{path} (byte 8): the header of this .npy file is damaged")
    if not isinstance(kind, str) or not _FLOAT.fullmatch(kind):
        raise TableFormatError(
            f"{path} (byte 8): its numbers are {kind!r}; a table's are float16, float32 or float64"
        )
    dtype, count = np.dtype(kind), math.prod(shape)
    if len(shape) != 2 or count == 0:
        raise TableFormatError(f"{path} is an array of shape {shape}; a table is (V, D), neither of them 0")
    if count * dtype.itemsize != size - data_start:
        raise TableFormatError(
            f"{path} (byte 8): the header says shape {shape} of {dtype}, {count * dtype.itemsize:,} bytes; "
            f"{size - data_start:,} are there: is the file cut off?"
        )
    return np.memmap(path, dtype, "r", data_start, shape, "F" if order else "C")


def _as_table(weight: Array) -> Array:
    if weight.dtype.itemsize == 8:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            return weight.astype(np.float32)
    return weight if weight.dtype.isnative else weight.astype(weight.dtype.newbyteorder("="))


def refusal(token: bytes) -> str | None:
    """Why a token can't be written; None if it can."""
    if b"\n" in token:
        return "it holds a newline; native can hold it"
    if token.endswith(b"\r"):
        return "it ends in a carriage return; native can hold it"
    return None if is_utf8(token) else "it is not UTF-8; native can hold it"


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write both files; ``VocabError`` names a token that would not be read back.

    Both are written whole beside the old ones before either takes its name. The old array goes first, then
    the vocabulary comes, then the array: a crash between may leave no array, never one beside other tokens.
    ``OutputError`` if a vocabulary without its array is there: it may be another's file.
    """
    check_writable(table.vocab, refusal, NAME, path)
    kept = table.weight.dtype if table.weight.dtype == np.float16 else np.dtype(np.float32)
    tokens = b"".join(token + b"\n" for token in encoded(table.vocab))
    names = vocabulary_path(path)
    atomic.check_writable(path)
    atomic.check_writable(names)
    if names.exists() and not Path(path).exists():
        raise OutputError(
            f"can't write {path}: its tokens would replace {names}, which is there without an array; "
            "move that file away or name another"
        )
    with atomic.replacing(path) as array, array.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file,
            {"descr": kept.newbyteorder("<").str, "fortran_order": False, "shape": table.weight.shape},
        )
        for start in range(0, len(table), _ROWS_AT_ONCE):
            rows = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], kept)
            check_finite(table, np.asarray(rows, np.float32), start)
            file.write(rows.astype(kept.newbyteorder("<"), copy=False).tobytes())
        file.flush()
        os.fsync(file.fileno())
        with atomic.replacing(names) as vocabulary:
            vocabulary.write_bytes(tokens)
            if verify:
                verify(partial(_load, array, vocabulary))
            if not names.exists() or names.read_bytes() != tokens:
                Path(path).resolve().unlink(missing_ok=True)
