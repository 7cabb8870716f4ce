"""Rows of text: a token, a space, D decimal numbers with a space between; what word2vec text and GloVe share.

Only the ASCII space and the tab separate, and the last D fields are the vector, so that a token may hold
spaces (GloVe's 840B file has ``. . .``) and any other blank (U+00A0). Numbers are
read as the nearest float64, then rounded to float32, as other readers do.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.formats.growing import GrowingRows
from tokenspace.formats.lines import NUMBER, WIDEST, Rows, rows_of, whole_lines, width
from tokenspace.formats.tokens import LONGEST_TOKEN, Errors, TokensRead, counted, encoded
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table, check_finite

_LONGEST_NUMBER = 64
_ROWS_AT_ONCE = 1024
_MOST_BLANKS = 1 << 24  # bytes after the last row
_SHORTEST = "S16"  # the shortest decimals that read back as the same float32: at most 15 characters

__all__ = ["NUMBER", "WIDEST", "longest_line", "read_rows", "smallest_row", "width", "write_rows"]


def longest_line(dim: int) -> int:
    """A line of more bytes than this is no row of ``dim`` numbers."""
    return LONGEST_TOKEN + _LONGEST_NUMBER * (dim + 1)


def smallest_row(dim: int) -> int:
    """The fewest bytes that a row takes: for each number a space and a digit, then the newline."""
    return 2 * dim + 1


def read_rows(
    file: io.BufferedReader,
    head: bytes,
    path: Path,
    rows: int | None,
    dim: int,
    line: int,
    offset: int,
    errors: Errors,
    limit: int | None,
) -> tuple[Float[Array, "V D"], TokensRead]:
    """Read ``rows`` rows, or (None) as many as there are: from ``head``, which has been read, then from
    ``file``. They begin at line ``line`` (from 1) and byte ``offset``. ``limit`` is the most to read: what
    comes after is not looked at.

    ``TableFormatError`` names line and byte of the first row that is none.
    """
    weight, tokens = GrowingRows(), TokensRead(path, errors)
    most = min(sys.maxsize if n is None else n for n in (rows, limit))
    texts = whole_lines(file, head, longest_line(dim))
    rest, fault = b"", None
    for text in texts:
        read = _with_short_tokens(rows_of(text, dim, most - len(tokens)))
        where = partial(_place, line + len(tokens), offset, read.starts)
        tokens.add_parts(np.frombuffer(text, np.uint8), read.starts[:-1], read.lengths, where)
        weight.add(read.numbers)
        offset += int(read.starts[-1])
        rest, fault = text[int(read.starts[-1]) :], read.fault
        if fault or len(tokens) == most:
            break
    place = f"{path}, line {line + len(tokens):,} (byte {offset:,})"
    if fault and not _is_blank(rest, texts):
        raise TableFormatError(f"{place}: {fault}")
    if len(tokens) < (0 if rows is None else most):
        raise TableFormatError(
            f"{place}: the file ends after {counted(len(tokens), 'row')}; {rows:,} are needed"
        )
    if len(tokens) == rows and rows != limit and not _is_blank(rest, texts):
        raise TableFormatError(
            f"{place}: the file goes on after {counted(rows, 'row')}; is the count in its header wrong?"
        )
    return weight.matrix(), tokens


def _with_short_tokens(read: Rows) -> Rows:
    """The rows before the first whose token is too long."""
    long = np.flatnonzero(read.lengths > LONGEST_TOKEN)
    if not long.size:
        return read
    i = int(long[0])
    most = f"{LONGEST_TOKEN:,} are the most"
    fault = f"the token has {read.lengths[i]:,} bytes, and {most}; is a newline missing?"
    return Rows(read.starts[: i + 1], read.lengths[:i], read.numbers[:i], fault)


def _place(line: int, offset: int, starts: Int[Array, " K_plus_1"], i: int) -> tuple[str, int]:
    return f"line {line + i:,}", offset + int(starts[i])


def _is_blank(rest: bytes, texts: Iterator[bytes]) -> bool:
    """Whether nothing but blanks is left, and not too many of them: gzip packs gigabytes into little."""
    size = len(rest)
    while not rest.strip() and size <= _MOST_BLANKS:
        rest = next(texts, b"")
        size += len(rest)
        if not rest:
            return True
    return False


def write_rows(file: io.BufferedIOBase, table: Table) -> None:
    """Write every row, its numbers as the shortest decimals that read back as the same float32."""
    for start in range(0, len(table), _ROWS_AT_ONCE):
        tokens = encoded(table.vocab, start, start + _ROWS_AT_ONCE)
        rows = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], np.float32)
        check_finite(table, rows, start)
        for token, numbers in zip(tokens, rows.astype(_SHORTEST).tolist(), strict=True):
            file.write(token + b" " + b" ".join(numbers) + b"\n")
