r"""NumPy's ``.npy`` for the numbers, and a text file beside it for the tokens: ``x.npy``, ``x.vocab.txt``.

``npy.py`` has the array's layout. The vocabulary: V lines of UTF-8, a token and ``\n``. Token i is line
i + 1, whatever its spaces; a ``\r`` at a line's end is not part of it.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import numpy as np

from tokenspace import atomic, rounding
from tokenspace.errors import CheckpointError, OutputError, TableFormatError
from tokenspace.formats.npy import MAGIC, check_rows, read_header, read_matrix, write_matrix
from tokenspace.formats.tokens import (
    NEWLINE,
    NOT_UTF8,
    UNMARK,
    Errors,
    TokensRead,
    Verify,
    check_first,
    check_writable,
    counted,
    encoded,
    is_utf8,
    refused_marked,
    table_read,
)
from tokenspace.models.vocabulary import NAMED, Names, named_by
from tokenspace.source import Source, exists, lines_of
from tokenspace.table import Table

NAME = "numpy"

__all__ = ["MAGIC", "NAME", "load", "read_named", "read_vocabulary", "refusal", "save", "vocabulary_path"]


def vocabulary_path(path: str | os.PathLike[str]) -> Path:
    """Where the tokens of the array at ``path`` are.

    >>> vocabulary_path("x.npy").name, vocabulary_path("x.npy.gz").name
    ('x.vocab.txt', 'x.vocab.txt')
    """
    path = Path(path)
    return (path.with_suffix("") if path.suffix == ".gz" else path).with_suffix(".vocab.txt")


def load(
    path: str | os.PathLike[str] | Source,
    errors: Errors = "strict",
    limit: int | None = None,
    vocab: str | os.PathLike[str] | None = None,
) -> Table:
    """Map the array and read the tokens beside it, or in ``vocab``: a folder of tokenizer files, one such
    file, or a file of one token a line. ``errors`` and ``limit`` are ``word2vec.load``'s.

    float32 and float16 stay what they are, in the machine's byte order; float64 is rounded to float32.
    ``TableFormatError`` if either file is not what it should be, or they are of different lengths.
    """
    source = path if isinstance(path, Source) else Source(path)
    return _load(source, vocabulary_path(source.path), errors, limit, vocab)


def _load(
    source: Source,
    names: Path,
    errors: Errors = "strict",
    limit: int | None = None,
    named: str | os.PathLike[str] | None = None,
) -> Table:
    weight, changed = read_matrix(source, limit)
    tokens: TokensRead | Names
    if named is None:
        tokens = read_vocabulary(names, source.path, len(weight), errors, limit)
    else:
        tokens = read_named(named, source, errors, limit)
    about = {} if changed is None else rounding.read_from(changed)
    table = table_read(source.path, NAME, weight, tokens, dtype=weight.dtype.name, **about)
    check_rows(table, source.path)
    return table


def read_named(named: str | os.PathLike[str], source: Source, errors: Errors, limit: int | None) -> Names:
    """The tokens that ``named`` gives the array at ``source``: to all its rows, or the first ``limit``."""
    with source.open() as file:
        rows = read_header(file, source.path).shape[0]
    try:
        names = named_by(named, rows, errors, limit)
    except CheckpointError as error:
        raise TableFormatError(str(error)) from None
    return names if limit is None or limit >= rows else names._replace(tokenizer=None)


def read_vocabulary(names: Path, path: Path, rows: int, errors: Errors, limit: int | None) -> TokensRead:
    """The tokens of the ``rows`` rows read of the array at ``path``: as many lines, or, if that is ``limit``,
    the first of them.
    """
    if not exists(names):
        raise TableFormatError(
            f"there is no {names}, a token a line, which names the rows of {path.name}; put one there, or "
            f"{NAMED}"
        )
    held = lines_of(Source(names), rows, cut=rows == limit)
    if held.startswith(codecs.BOM_UTF8):
        raise TableFormatError(f"{names}, line 1 (byte 0): a UTF-8 byte order mark; {UNMARK}")
    unended = bool(held) and not held.endswith(b"\n")
    lines = held.count(b"\n") + unended  # counted first: their places take eight bytes each
    if lines < rows or (lines > rows and rows != limit):
        raise TableFormatError(
            f"{path} has {counted(rows, 'row')}, {names} {counted(lines, 'line')}; each row needs a token"
        )
    text = np.frombuffer(held, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if unended:
        ends = np.append(ends, len(held))
    ends = ends[:rows]
    starts = np.concatenate([[0], ends[:-1] + 1])
    returned = (ends > starts) & (text[ends - 1] == ord("\r"))
    kept = np.ones(ends[-1], bool)
    kept[ends[:-1]] = kept[ends[returned] - 1] = False
    tokens = TokensRead(names, errors)
    tokens.add(
        text[: ends[-1]][kept], ends - starts - returned, lambda i: (f"line {i + 1:,}", int(starts[i]))
    )
    return tokens


def refusal(token: bytes) -> str | None:
    """Why a token can't be written; None if it can."""
    if b"\n" in token:
        return NEWLINE
    if token.endswith(b"\r"):
        return "it ends in a carriage return; npz, gguf and native can hold it"
    return None if is_utf8(token) else NOT_UTF8


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write both files; ``VocabError`` names a token that would not be read back.

    Both are written whole before either takes its name: the vocabulary, then the array. A pair that is there
    is replaced only by one of the same tokens, whose vocabulary stays: two files can't change at once, and a
    crash between would leave an array beside other tokens. ``OutputError`` for other tokens, and for a file
    that is there without the other: it may be somebody's.
    """
    check_writable(table.vocab, refusal, NAME, path)
    check_first(table.vocab, refused_marked, NAME, path)
    tokens = b"".join(token + b"\n" for token in encoded(table.vocab))
    names = vocabulary_path(path)
    atomic.check_writable(path)
    atomic.check_writable(names)
    _check_free(Path(path), names, tokens)
    with atomic.replacing(path) as array:
        with array.open("wb") as file:
            write_matrix(file, table, table.weight)
            file.flush()
            os.fsync(file.fileno())
        with atomic.replacing(names) as vocabulary:
            vocabulary.write_bytes(tokens)
            if verify:
                verify(lambda: _load(Source(array), vocabulary))


def _check_free(path: Path, names: Path, tokens: bytes) -> None:
    if names.exists():
        if names.stat().st_size == len(tokens) and names.read_bytes() == tokens:
            return
        fault = f"{names} holds other tokens, and two files can't be replaced at once"
    elif path.exists():
        fault = f"it is there without {names.name}"
    else:
        return
    raise OutputError(
        f"can't write {path}: {fault}; remove what is there, name another, or write one file: .npz"
    )
