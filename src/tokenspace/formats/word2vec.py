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
import io
import os
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.atomic import replacing
from tokenspace.errors import TableFormatError
from tokenspace.formats import rows as text_rows
from tokenspace.formats.lines import ends_as_numbers_begin, seems_no_text
from tokenspace.formats.packing import writing
from tokenspace.formats.records import read_records
from tokenspace.formats.tokens import (
    Errors,
    Verify,
    check_writable,
    counted,
    encoded,
    is_utf8,
    table_read,
    too_long,
)
from tokenspace.source import Source
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


def load(path: str | os.PathLike[str] | Source, errors: Errors = "strict", limit: int | None = None) -> Table:
    """Read a table of either format into memory, as float32; ``limit`` is the most rows to read.

    ``errors`` says what becomes of a token that is no UTF-8: "strict" refuses the file, "replace" puts
    U+FFFD, "surrogateescape" keeps the bytes. ``TableFormatError`` names line or row, and byte, of what is
    wrong.
    """
    source = path if isinstance(path, Source) else Source(path)
    path = source.path
    with source.open() as file:
        found, head = _opened(file, path)
        if is_binary(head, found.dim):
            try:
                _check_size(source, found, limit, 4 * found.dim + 1)
                rows = _wanted(found, limit)
                weight, tokens = read_records(
                    file,
                    head,
                    path,
                    rows,
                    found.dim,
                    found.end,
                    errors,
                    believed=not source.packed,  # an archive's directory may say anything
                    whole=rows != limit,
                )
                return table_read(path, BINARY, weight, tokens)
            except TableFormatError:
                if not _looks_like_text(head, found.dim):
                    raise  # else it is a damaged text: say where
    _check_size(source, found, limit, text_rows.smallest_row(found.dim) - 1)  # a last "\n" may lack
    if found.dim > text_rows.WIDEST:
        raise TableFormatError(
            f"{path}, line 1 (byte 0): a header of rows of {found.dim:,} numbers; "
            f"{text_rows.WIDEST:,} in a row are the most"
        )
    with source.open() as file:
        _, head = _opened(file, path)
        weight, tokens = text_rows.read_rows(
            file, head, path, found.rows, found.dim, line=2, offset=found.end, errors=errors, limit=limit
        )
    return table_read(path, TEXT, weight, tokens)


def _opened(file: io.BufferedReader, path: Path) -> tuple[Header, bytes]:
    """The header, and some of what follows it: the first row, if that is text."""
    head = file.read(128)
    check_unmarked(path, head)
    found = header(head)
    if found is None:
        raise TableFormatError(
            f"{path}, line 1 (byte 0): no word2vec header, which is two integers: rows and width"
        )
    longest = text_rows.longest_line(min(found.dim, text_rows.WIDEST))
    return found, head[found.end :] + file.readline(longest)


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


def _wanted(found: Header, limit: int | None) -> int:
    return found.rows if limit is None else min(found.rows, limit)


def _check_size(source: Source, found: Header, limit: int | None, smallest_row: int) -> None:
    rows = _wanted(found, limit)
    too_many = source.size is not None and rows * smallest_row > source.size - found.end
    if rows == 0 or found.dim == 0 or too_many:
        size = "this file" if source.size is None else f"the {source.size:,} bytes of this file"
        raise TableFormatError(
            f"{source.path}, line 1 (byte 0): a header of {counted(found.rows, 'row')} of "
            f"{counted(found.dim, 'number')}, which {size} can't hold; "
            "is it cut off, or is this a row, not a header?"
        )


def refusal(token: bytes) -> str | None:
    """Why a token can't be written, and which formats can; None if it can."""
    if not token:
        return "it is empty; numpy and native can hold it"
    if b"\n" in token:
        return "it holds a newline; native can hold it"
    if b" " in token:
        others = "numpy" if seems_no_text(token) or ends_as_numbers_begin(token) else "glove, numpy"
        return f"it holds a space, which ends a token; {others} and native can hold it"
    return too_long(token) if is_utf8(token) else "it is not UTF-8; native can hold it"


def save_text(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the text format; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, TEXT, path)
    with replacing(path) as fresh:
        with writing(fresh) as file:
            file.write(f"{len(table)} {table.dim}\n".encode())
            text_rows.write_rows(file, table)
        if verify:
            verify(partial(load, fresh))


def save_binary(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the binary format; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, BINARY, path)
    with replacing(path) as fresh:
        with writing(fresh) as file:
            file.write(f"{len(table)} {table.dim}\n".encode())
            for start in range(0, len(table), _ROWS_AT_ONCE):
                tokens = encoded(table.vocab, start, start + _ROWS_AT_ONCE)
                block = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], "<f4")
                check_finite(table, np.asarray(block, np.float32), start)
                for token, row in zip(tokens, block, strict=True):
                    file.write(token + b" " + row.tobytes() + b"\n")
        if verify:
            verify(partial(load, fresh))
