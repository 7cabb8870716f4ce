r"""word2vec's two formats, as its own program and gensim write them.

Both begin with one line of text, ``V D\n``: rows and width. Then, for each of V rows:

======  ==========================================================================================
text    token, and D times a space and a decimal number, ``\n`` (some programs write a space before it)
binary  token, space, D little-endian float32, ``\n`` (some programs leave it out: read both ways)
======  ==========================================================================================

Tokens are UTF-8. A token with a space can be told apart by some readers and not by others: it is read, and
not written.
"""

from __future__ import annotations

import codecs
import mmap
import os
import re
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from tokenspace.atomic import replacing
from tokenspace.errors import TableFormatError
from tokenspace.formats import rows as text_rows
from tokenspace.formats.tokens import (
    LONGEST_TOKEN,
    Errors,
    Verify,
    check_writable,
    counted,
    decoded,
    encoded,
    is_utf8,
    table_read,
    too_long,
)
from tokenspace.shapes import Array, Float
from tokenspace.table import Table, check_finite

TEXT, BINARY = "word2vec-text", "word2vec-binary"
_HEADER = re.compile(rb"(\d{1,40})[ \t]+(\d{1,40})[ \t\r]*(\n|\Z)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ROWS_AT_ONCE = 4096


class Header(NamedTuple):
    """What the first line says; the rows begin at byte ``end``."""

    rows: int
    dim: int
    end: int


def header(head: bytes) -> Header | None:
    """The header in a file's first bytes: two integers alone on the first line; None if there is none."""
    found = _HEADER.match(head)
    return Header(int(found[1]), int(found[2]), found.end()) if found else None


def check_unmarked(path: Path, head: bytes) -> None:
    """``TableFormatError`` if a byte order mark hides the header."""
    if head.startswith(codecs.BOM_UTF8) and header(head.removeprefix(codecs.BOM_UTF8)):
        raise TableFormatError(
            f"{path}, line 1 (byte 0): a UTF-8 byte order mark before word2vec's header; "
            "take these 3 bytes away, e.g. tail -c +4"
        )


def load(path: str | os.PathLike[str], errors: Errors = "strict") -> Table:
    """Read a table of either format into memory, as float32.

    ``errors`` says what becomes of a token that is no UTF-8: "strict" refuses the file, "replace" puts
    U+FFFD, "surrogateescape" keeps the bytes. ``TableFormatError`` names line or row, and byte, of what is
    wrong.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(128)
            check_unmarked(path, head)
            found = header(head)
            if found is None:
                raise TableFormatError(
                    f"{path}, line 1 (byte 0): no word2vec header, which is two integers: rows and width"
                )
            file.seek(found.end)
            head = file.read(text_rows.longest_line(min(found.dim, 1 << 16)))
            if is_binary(head, found.dim):
                try:
                    _check_size(path, found, size, 4 * found.dim + 1)
                    weight, tokens = _read_binary(file, path, found, errors)
                    return table_read(path, BINARY, weight, tokens)
                except TableFormatError:
                    if not _looks_like_text(head, found.dim):
                        raise  # else it is a damaged text: say where
            _check_size(path, found, size, text_rows.smallest_row(found.dim) - 1)  # a last "\n" may lack
            file.seek(found.end)
            weight, tokens = text_rows.read_rows(
                file, path, found.rows, found.dim, line=2, offset=found.end, errors=errors
            )
            return table_read(path, TEXT, weight, tokens)
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None


def is_binary(head: bytes, dim: int) -> bool:
    """Whether the bytes after a header are binary rows: the first line is no row of text."""
    return text_rows.width(head.split(b"\n", 1)[0]) < dim


def _looks_like_text(head: bytes, dim: int) -> bool:
    """Whether the first vector's bytes, were they text, would be UTF-8 without control characters."""
    vector = head.removeprefix(b"\n").partition(b" ")[2][: 4 * dim]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(vector)  # its end may cut a character
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(vector)


def _check_size(path: Path, found: Header, size: int, smallest_row: int) -> None:
    if found.rows == 0 or found.dim == 0 or found.rows * smallest_row > size - found.end:
        raise TableFormatError(
            f"{path}, line 1 (byte 0): a header of {counted(found.rows, 'row')} of "
            f"{counted(found.dim, 'number')}, which the {size:,} bytes of this file can't hold; "
            "is it cut off, or is this a row, not a header?"
        )


def _read_binary(
    file: BinaryIO, path: Path, found: Header, errors: Errors
) -> tuple[Float[Array, "V D"], list[str]]:
    weight = np.empty((found.rows, found.dim), np.float32)
    tokens = []
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size, start, newline = len(data), found.end, True
        for i in range(found.rows):
            if newline and data[start : start + 1] == b"\n":  # before the first row, too, in old files
                start += 1
            elif newline and i:
                raise _damaged(
                    path, i, start, "no newline after the vector before it, as there is after the first"
                )
            space = data.find(b" ", start, start + LONGEST_TOKEN + 1)
            end = space + 1 + 4 * found.dim
            if space < 0 or end > size:
                raise _damaged(
                    path,
                    i,
                    start,
                    f"no token, space and {found.dim:,} float32 in the {size - start:,} bytes left",
                )
            weight[i] = np.frombuffer(data[space + 1 : end], "<f4")
            if not np.isfinite(weight[i]).all():
                raise _damaged(path, i, start, f"the vector of {data[start:space]!r} holds NaN or infinity")
            tokens.append(decoded(data[start:space], errors, path, f"row {i + 1:,}", start))
            start = end
            if i == 0:
                newline = data[start : start + 1] == b"\n"
        if size - start > 1 or data[start:] not in (b"", b"\n"):
            raise TableFormatError(
                f"{path} (byte {start:,}): {counted(size - start, 'byte')} after the last of "
                f"{counted(found.rows, 'row')}"
            )
    return weight, tokens


def _damaged(path: Path, row: int, offset: int, what: str) -> TableFormatError:
    return TableFormatError(
        f"{path}, row {row + 1:,} (byte {offset:,}): {what}; is the file cut off, "
        "or a record before this one damaged?"
    )


def refusal(token: bytes) -> str | None:
    """Why a token can't be written, and which formats can; None if it can."""
    if not token:
        return "it is empty; numpy and native can hold it"
    if b"\n" in token:
        return "it holds a newline; native can hold it"
    if b" " in token:
        return "it holds a space, which ends a token; glove, numpy and native can hold it"
    return too_long(token) if is_utf8(token) else "it is not UTF-8; native can hold it"


def save_text(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the text format; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, TEXT, path)
    with replacing(path) as fresh, fresh.open("wb") as file:
        file.write(f"{len(table)} {table.dim}\n".encode())
        text_rows.write_rows(file, table)
        file.flush()
        if verify:
            verify(partial(load, fresh))


def save_binary(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the binary format; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, BINARY, path)
    tokens = encoded(table.vocab)
    with replacing(path) as fresh, fresh.open("wb") as file:
        file.write(f"{len(table)} {table.dim}\n".encode())
        for start in range(0, len(table), _ROWS_AT_ONCE):
            block = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], "<f4")
            check_finite(table, np.asarray(block, np.float32), start)
            for token, row in zip(tokens[start:], block, strict=False):
                file.write(token + b" " + row.tobytes() + b"\n")
        file.flush()
        if verify:
            verify(partial(load, fresh))
