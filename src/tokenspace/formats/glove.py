r"""GloVe's text format: a row a line and no header.

Each line: token, and D times a space and a decimal number, ``\n``. Tokens are UTF-8 and may hold spaces (the
published 840B file has some), so the width is what most of the first lines end in, and the token is what
stands before the last D numbers.
"""

from __future__ import annotations

import codecs
import io
import os
from collections import Counter
from functools import partial

from tokenspace.atomic import replacing
from tokenspace.errors import TableFormatError
from tokenspace.formats import foreign
from tokenspace.formats import rows as text_rows
from tokenspace.formats.lines import ends_as_numbers_begin, seems_no_text
from tokenspace.formats.packing import writing
from tokenspace.formats.tokens import (
    EMPTY,
    NEWLINE,
    NOT_UTF8,
    UNMARK,
    Errors,
    Verify,
    check_first,
    check_writable,
    is_utf8,
    refused_marked,
    table_read,
    too_long,
)
from tokenspace.formats.word2vec import check_unmarked, header
from tokenspace.source import Source
from tokenspace.table import Table

NAME = "glove"
_LINES_TO_TELL_THE_WIDTH = 100


def load(path: str | os.PathLike[str] | Source, errors: Errors = "strict", limit: int | None = None) -> Table:
    """Read a table into memory, as float32; ``errors`` and ``limit`` are ``word2vec.load``'s.

    ``TableFormatError`` names line and byte of the first row that is none.
    """
    source = path if isinstance(path, Source) else Source(path)
    path = source.path
    with source.open() as file:
        first = _first_lines(file)
        head = first[0] if first else b""
        check_unmarked(path, head)
        if head.startswith(codecs.BOM_UTF8):
            raise TableFormatError(f"{path}, line 1 (byte 0): a UTF-8 byte order mark; {UNMARK}")
        if fault := foreign.text(b"".join(first)):
            raise TableFormatError(f"{path} {fault}")
        dim = _width(first, limit)
        if dim == 0:
            raise TableFormatError(
                f"{path}, line 1 (byte 0): no row, which is a token and numbers, with a space before each"
            )
        if dim > 1 and header(head):
            raise TableFormatError(
                f"{path}, line 1 (byte 0): a header, which GloVe files lack: this is word2vec's text"
            )
        weight, tokens = text_rows.read_rows(
            file, b"".join(first), path, None, dim, line=1, offset=0, errors=errors, limit=limit
        )
    return table_read(path, NAME, weight, tokens)


def _first_lines(file: io.BufferedReader) -> list[bytes]:
    longest = text_rows.longest_line(text_rows.WIDEST)
    lines: list[bytes] = []
    while len(lines) < _LINES_TO_TELL_THE_WIDTH and (line := file.readline(longest)):
        lines.append(line)
        if not line.endswith(b"\n"):
            break  # the last, or no row
    return lines


def _width(lines: list[bytes], limit: int | None) -> int:
    """The numbers that most of the lines end in, blank ones aside; of equally many, the first line's. Of
    lines past ``limit``, which may be anything, those with numbers count.
    """
    widths = [text_rows.width(line) for line in lines if line.strip()]
    counts = Counter(width for i, width in enumerate(widths) if width or limit is None or i < limit)
    return counts.most_common(1)[0][0] if counts else 0


def refusal(token: bytes) -> str | None:
    """Why a token can't be written, and which formats can; None if it can."""
    if not token:
        return EMPTY
    if b"\n" in token:
        return NEWLINE
    if ends_as_numbers_begin(token):
        return (
            "it ends in a space or tab, with a number after it or not, as a vector begins; numpy, npz, gguf "
            "and native can hold it"
        )
    return too_long(token) if is_utf8(token) else NOT_UTF8


def refusal_of_first(token: bytes) -> str | None:
    """Why a file can't begin with a token that it can hold elsewhere; None if it can."""
    if not seems_no_text(token):
        return refused_marked(token)
    return "a file that begins with it looks like no text; numpy, npz, gguf and native can hold it"


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the table; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, NAME, path)
    check_first(table.vocab, refusal_of_first, NAME, path)
    with replacing(path) as fresh:
        with writing(fresh) as file:
            text_rows.write_rows(file, table)
        if verify:
            verify(partial(load, fresh))
