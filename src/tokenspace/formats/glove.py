r"""GloVe's text format: a row a line and no header.

Each line: token, and D times a space and a decimal number, ``\n``. Tokens are UTF-8 and may hold spaces (the
published 840B file has some), so the width is what most of the first lines end in, and the token is what
stands before the last D numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tokenspace.atomic import replacing
from tokenspace.errors import TableFormatError
from tokenspace.formats import rows as text_rows
from tokenspace.formats.tokens import Errors, Verify, check_writable, is_utf8, table_read, too_long
from tokenspace.formats.word2vec import check_unmarked, header
from tokenspace.table import Table

NAME = "glove"
_LINES_TO_TELL_THE_WIDTH = 100
_WIDEST = 1 << 16  # numbers


def load(path: str | os.PathLike[str], errors: Errors = "strict") -> Table:
    """Read a table into memory, as float32; ``errors`` is ``word2vec.load``'s.

    ``TableFormatError`` names line and byte of the first row that is none.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            check_unmarked(path, file.read(128))
            file.seek(0)
            dim = _width(file)
            if dim == 0:
                raise TableFormatError(
                    f"{path}, line 1 (byte 0): no row, which is a token and numbers, with a space before each"
                )
            file.seek(0)
            if dim > 1 and header(file.read(128)):
                raise TableFormatError(
                    f"{path}, line 1 (byte 0): a header, which GloVe files lack: this is word2vec's text"
                )
            file.seek(0)
            rows, size = _count_rows(file), file.tell()
            if rows * text_rows.smallest_row(dim) > size + 1:
                raise TableFormatError(
                    f"{path}: its {size:,} bytes can't hold {rows:,} lines of {dim:,} numbers, the width of "
                    "its first lines; is it a table?"
                )
            file.seek(0)
            weight, tokens = text_rows.read_rows(file, path, rows, dim, line=1, offset=0, errors=errors)
            return table_read(path, NAME, weight, tokens)
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None


def _width(file: BinaryIO) -> int:
    """The numbers that most of the first lines end in; of equally many, the first line's."""
    longest = text_rows.longest_line(_WIDEST)
    lines = islice(iter(lambda: file.readline(longest), b""), _LINES_TO_TELL_THE_WIDTH)
    counts = Counter(map(text_rows.width, lines))
    return counts.most_common(1)[0][0] if counts else 0


def _count_rows(file: BinaryIO) -> int:
    """The lines up to the last that is not blank."""
    rows, blank = 1, 0
    while block := file.read(1 << 20):
        text = block.rstrip(b" \r\n")
        if text:
            rows += blank + text.count(b"\n")
            blank = 0
        blank += block.count(b"\n", len(text))
    return rows


def refusal(token: bytes) -> str | None:
    """Why a token can't be written, and which formats can; None if it can."""
    if not token:
        return "it is empty; numpy and native can hold it"
    if b"\n" in token:
        return "it holds a newline; native can hold it"
    if b" " in token and text_rows.NUMBER.fullmatch(token[token.rindex(b" ") + 1 :]):
        return "it ends in a space and a number, as a vector begins; numpy and native can hold it"
    return too_long(token) if is_utf8(token) else "it is not UTF-8; native can hold it"


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the table; ``VocabError`` names a token that would not be read back."""
    check_writable(table.vocab, refusal, NAME, path)
    with replacing(path) as fresh, fresh.open("wb") as file:
        text_rows.write_rows(file, table)
        file.flush()
        if verify:
            verify(partial(load, fresh))
