r"""word2vec's two formats, as its own program and gensim write them.

Both begin with one line of text, ``V D\n``: rows and width. Then, for each of V rows:

======  ==========================================================================================
text    token, and D times a space and a decimal number, ``\n`` (some programs write a space before it)
binary  token, space, D little-endian float32, ``\n`` (some programs leave it out: read both ways)
======  ==========================================================================================

Tokens are UTF-8. A token with a space can be told apart by some readers and not by others: it is read in
text, refused in binary where it shows (``spaced_tokens.py``), and not written.
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
from tokenspace.formats.lines import ends_as_numbers_begin, seems_no_text, spaced
from tokenspace.formats.packing import writing
from tokenspace.formats.records import read_records
from tokenspace.formats.spaced_tokens import holds_control, unusual
from tokenspace.formats.tokens import (
    EMPTY,
    LONGEST_TOKEN,
    NEWLINE,
    NOT_UTF8,
    UNMARK,
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
_AS_NUMBERS_BEGIN = re.compile(rb"[+-]?(\d|[.,]\d|nan|inf)", re.IGNORECASE)
_PROBED = 1 << 16  # bytes that tell text from binary
_LINES = 100
_ROWS_AT_ONCE = 4096


class Header(NamedTuple):
    """What the first line says; the rows begin at byte ``end``."""

    rows: int
    dim: int
    end: int


def header(head: bytes) -> Header | None:
    """The header in a file's first bytes: two integers alone on the first line; None if there is none, or if
    the lines after it are a token and one number each, as it is: those are rows of width 1.

    >>> header(b"1 2\\na 0.5 1\\n"), header(b"1 2\\n3 4\\n5 6\\n")
    (Header(rows=1, dim=2, end=4), None)
    """
    found = _first_line(head)
    if found is None or found.dim == 1:
        return found
    lines = head[found.end : found.end + _PROBED].rstrip(b" \r\n").split(b"\n")
    alike = all(len(line.split()) == 2 and text_rows.width(line) == 1 for line in lines[:_LINES])
    return None if alike and len(lines) not in (1, found.rows) else found


def _first_line(head: bytes) -> Header | None:
    found = _HEADER.match(head)
    return Header(int(found[1]), int(found[2]), found.end()) if found else None


def check_unmarked(path: Path, head: bytes) -> None:
    """``TableFormatError`` if a byte order mark hides the header."""
    if head.startswith(codecs.BOM_UTF8) and _first_line(head.removeprefix(codecs.BOM_UTF8)):
        raise TableFormatError(
            f"{path}, line 1 (byte 0): a UTF-8 byte order mark before word2vec's header; {UNMARK}"
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
    """The header, and what follows it as far as it tells text from binary: the first row, if that is text."""
    head = file.read(128)
    check_unmarked(path, head)
    found = _first_line(head)
    if found is None:
        raise TableFormatError(
            f"{path}, line 1 (byte 0): no word2vec header, which is two integers: rows and width"
        )
    longest = text_rows.longest_line(min(found.dim, text_rows.WIDEST))
    head = head[found.end :]
    head += file.read(max(_PROBED - len(head), 0))
    return found, head if b"\n" in head.lstrip(b"\r\n") else head + file.readline(longest)


def is_binary(head: bytes, dim: int) -> bool:
    """Whether the bytes after a header are binary rows. They are text if the first line is a row, or most of
    the next lines are; if most of its fields begin as numbers do; or if all that is looked at reads as text,
    as one float32 may by chance, and rows of two or more hardly do.
    """
    start = len(head) - len(head.lstrip(b"\r\n"))
    first, _, rest = head[start:].partition(b"\n")
    if text_rows.width(first) >= dim:
        return False
    beginning = spaced(first[: LONGEST_TOKEN + 32 * dim])  # a number of text takes fewer bytes
    numbers = sum(_AS_NUMBERS_BEGIN.match(field) is not None for field in beginning.split(b" ")[1:])
    if 2 * numbers > dim and _reads_as_text(first):
        return False
    others = [line for line in rest[:_PROBED].split(b"\n")[:_LINES] if line.strip()]
    if dim > 1 and 2 * sum(text_rows.width(line) >= dim for line in others) > len(others):
        return False
    vector = head.find(b" ") + 1  # after a token that may be long
    return dim == 1 or not _reads_as_text(head[: max(_PROBED, vector + 4 * dim)])


def _looks_like_text(head: bytes, dim: int) -> bool:
    """Whether the first vector's bytes, were they text, would be UTF-8 without control characters."""
    return _reads_as_text(head.lstrip(b"\n").partition(b" ")[2][: 4 * dim])


def _reads_as_text(content: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)  # its end may cut a character
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(content)


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
        return EMPTY
    if b"\n" in token:
        return NEWLINE
    if b" " in token:
        others = "" if ends_as_numbers_begin(token) or seems_no_text(token) else "glove, "
        return f"it holds a space, which ends a token; {others}numpy, npz, gguf and native can hold it"
    return too_long(token) if is_utf8(token) else NOT_UTF8


def refusal_of_text(token: bytes) -> str | None:
    """Why a token can't be written in text, where a tab ends one too; None if it can."""
    if b"\t" in token and b" " not in token and ends_as_numbers_begin(token):
        return "it ends in a tab, or a tab and a number; word2vec-binary, npz, gguf and native can hold it"
    return refusal(token)


def save_text(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the text format; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal_of_text, TEXT, path)
    with replacing(path) as fresh:
        with writing(fresh) as file:
            file.write(f"{len(table)} {table.dim}\n".encode())
            text_rows.write_rows(file, table)
        if verify:
            verify(partial(load, fresh))


def save_binary(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the binary format; ``VocabError`` names a token that would not be read back,
    ``TableFormatError`` says so of numbers.
    """
    check_writable(table.vocab, refusal, BINARY, path)
    with replacing(path) as fresh:
        odd = False
        with writing(fresh) as file:
            file.write(f"{len(table)} {table.dim}\n".encode())
            for start in range(0, len(table), _ROWS_AT_ONCE):
                tokens = encoded(table.vocab, start, start + _ROWS_AT_ONCE)
                block = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], "<f4")
                check_finite(table, np.asarray(block, np.float32), start)
                odd = (
                    odd
                    or holds_control(b"".join(tokens))
                    or bool(unusual(np.asarray(block, np.float32)).any())
                )
                for token, row in zip(tokens, block, strict=True):
                    file.write(token + b" " + row.tobytes() + b"\n")
        _check_told(fresh, path, odd)
        if verify:
            verify(partial(load, fresh))


def _check_told(fresh: Path, path: str | os.PathLike[str], odd: bool) -> None:
    """``TableFormatError`` if what was written would be taken for text, or for damage."""
    source = Source(fresh)
    with source.open() as file:
        found, head = _opened(file, fresh)
    why = None
    if not is_binary(head, found.dim):
        why = "the bytes of its first numbers read as text, as what the file would be taken for"
    elif odd:
        try:
            load(source)
        except TableFormatError as error:
            why = str(error).removeprefix(f"{fresh}, ")
    if why:
        raise TableFormatError(
            f"can't write {path} as {BINARY}: it would not be read back: {why}; npz and native can hold it"
        )
