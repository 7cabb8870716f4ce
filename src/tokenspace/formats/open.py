"""Opening and writing tables: what a file holds is told by its first bytes, never by its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats import glove, native, numpy, word2vec
from tokenspace.formats import rows as text_rows
from tokenspace.formats.tokens import Refusal, Verify
from tokenspace.models.open import load_table
from tokenspace.table import DTYPES, Table

_DATA = Path(__file__).parent.parent / "data"
BUILT_IN = {"wordnet": _DATA / "wordnet.safetensors"}
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x80": "a pickle"}


class Format(NamedTuple):
    """One way to keep a table in a file.

    ``refusal`` says why a token (bytes) can't be written, or None; ``dtypes`` are kept, others become
    float32; ``whole`` is whether all else is kept: tokenizer, output, special ids, provenance.
    """

    load: Callable[[Path], Table]
    save: Callable[[Table, Path, Verify | None], None]
    refusal: Refusal
    dtypes: tuple[np.dtype, ...]
    whole: bool = False


_float32 = (np.dtype(np.float32),)
FORMATS = {
    "native": Format(native.load, native.save, lambda token: None, DTYPES, whole=True),
    "word2vec-text": Format(word2vec.load, word2vec.save_text, word2vec.refusal, _float32),
    "word2vec-binary": Format(word2vec.load, word2vec.save_binary, word2vec.refusal, _float32),
    "glove": Format(glove.load, glove.save, glove.refusal, _float32),
    "numpy": Format(numpy.load, numpy.save, numpy.refusal, (*_float32, np.dtype(np.float16))),
}
SUFFIXES = {".vec": "word2vec-text", ".bin": "word2vec-binary", ".txt": "glove", ".npy": "numpy"}


def load(source: str | os.PathLike[str] = "wordnet") -> Table:
    """Open a table: a built-in name, a file of any format in ``FORMATS``, or a checkpoint's folder.

    A file's first bytes say what it is; its name does not matter. A file in the working directory that has a
    built-in table's name is reached as ``./wordnet``. ``TableFormatError`` or ``CheckpointError`` say what is
    wrong with anything else.

    >>> load("wordnet").dim
    100
    """
    if source in BUILT_IN:
        return native.load(BUILT_IN[str(source)])
    if not os.fspath(source):
        raise TableFormatError(f"no table was named; name a file, a folder, or one of {', '.join(BUILT_IN)}")
    path = Path(source)
    if os.path.isdir(path):
        return load_table(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TableFormatError(
            f"there is no table {str(source)!r}: neither a file or folder nor a built-in one "
            f"({', '.join(BUILT_IN)})"
        ) from None
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror}") from None
    except ValueError:
        raise TableFormatError(f"there can be no file {str(source)!r}: no file has such a name") from None
    return FORMATS[sniff(path)].load(path)


def save(table: Table, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write ``table`` in ``format``, a name in ``FORMATS``; with none, the suffix decides: ``.vec``
    word2vec-text, ``.bin`` word2vec-binary, ``.txt`` glove, ``.npy`` numpy, any other name native.

    Only native holds all of a table; ``formats.convert`` names what another leaves out. ``TableFormatError``
    if the table holds NaN or infinity, ``VocabError`` if the format can't hold a token, ``OutputError`` if
    ``path`` can't be written: then what was there before is untouched.
    """
    FORMATS[format_for(path, format)].save(table, output_path(path), None)


def output_path(path: str | os.PathLike[str]) -> Path:
    """``path``; ``OutputError`` if it names nothing, or what no file can be named."""
    if not os.fspath(path):
        raise OutputError("no file to write was named; name one")
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise OutputError(f"can't write {str(path)!r}: no file has such a name")
    return Path(path)


def files_of(path: Path, format: str) -> list[Path]:
    """The files that a table of ``format`` at ``path`` is."""
    return [path, numpy.vocabulary_path(path)] if format == numpy.NAME else [path]


def format_for(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format that ``save`` writes: the one named, else the suffix's."""
    if format is None:
        return SUFFIXES.get(Path(path).suffix.lower(), "native")
    if not isinstance(format, str) or format not in FORMATS:
        raise TableFormatError(f"there is no table format {format!r}; there are {', '.join(FORMATS)}")
    return format


def sniff(path: str | os.PathLike[str]) -> str:
    r"""The format that a file's first bytes show, a name in ``FORMATS``; ``TableFormatError`` if none.

    ======================================================  ======================================
    begins with                                             format
    ======================================================  ======================================
    8 bytes of length, then ``{``                           native, or another safetensors file
    ``\x93NUMPY``                                           numpy
    a line of two integers, then text or binary rows        word2vec-text, word2vec-binary
    a line that ends in a space and a number                glove
    ======================================================  ======================================
    """
    path = Path(path)
    if not os.path.isfile(path):
        raise TableFormatError(f"{path} is not a regular file; a table's file is needed")
    try:
        with path.open("rb") as file:
            head = file.read(text_rows.longest_line(1 << 16))
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None
    if head.startswith(numpy.MAGIC):
        return "numpy"
    if head[4:9] == b"\0\0\0\0{":
        return "native"
    word2vec.check_unmarked(path, head)
    if found := word2vec.header(head):
        return "word2vec-binary" if word2vec.is_binary(head[found.end :], found.dim) else "word2vec-text"
    if text_rows.width(head.split(b"\n", 1)[0]):
        return "glove"
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    hint = f": it looks like {packed}; unpack or convert it first" if packed else ""
    raise TableFormatError(
        f"{path} is no table in a format known here ({', '.join(FORMATS)}); its start is {head[:16]!r}{hint}"
    )
