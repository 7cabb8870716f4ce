"""Rows of text: a token, a space, D decimal numbers with a space between; what word2vec text and GloVe share.

Only the ASCII space separates, and the last D fields are the vector, so that a token may hold spaces (GloVe's
840B file has ``. . .``) and any other blank (U+00A0). Numbers are read as the nearest float64, then rounded
to float32, as other readers do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.formats.tokens import LONGEST_TOKEN, Errors, counted, decoded, encoded
from tokenspace.shapes import Array, Float
from tokenspace.table import Table, check_finite

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LONGEST_NUMBER = 64
_ROWS_AT_ONCE = 1024
_SHORTEST = "S16"  # the shortest decimals that read back as the same float32: at most 15 characters


def longest_line(dim: int) -> int:
    """A line of more bytes than this is no row of ``dim`` numbers."""
    return LONGEST_TOKEN + _LONGEST_NUMBER * (dim + 1)


def smallest_row(dim: int) -> int:
    """The fewest bytes that a row takes: for each number a space and a digit, then the newline."""
    return 2 * dim + 1


def read_rows(
    file: BinaryIO, path: Path, rows: int, dim: int, line: int, offset: int, errors: Errors
) -> tuple[Float[Array, "V D"], list[str]]:
    """Read ``rows`` rows from where ``file`` stands: line ``line`` (from 1), byte ``offset``.

    ``TableFormatError`` names line and byte of the first row that is none. The caller has held rows and dim
    against the file's size.
    """
    weight = np.empty((rows, dim), np.float32)
    tokens = []
    for i in range(rows):
        text = file.readline(longest_line(dim))
        try:
            if not text:
                raise ValueError(f"the file ends after {counted(i, 'row')}; {rows:,} are needed")
            token, numbers = _split(text, dim)
            with np.errstate(over="ignore"):
                weight[i] = numbers
            if not np.isfinite(weight[i]).all():
                raise ValueError("a number is NaN, infinite, or too large for float32")
        except ValueError as error:
            raise TableFormatError(f"{path}, line {line + i:,} (byte {offset:,}): {error}") from None
        tokens.append(decoded(token, errors, path, f"line {line + i:,}", offset))
        offset += len(text)
    while rest := file.read(1 << 16):
        if rest.strip():
            raise TableFormatError(
                f"{path}, line {line + rows:,} (byte {offset:,}): the file goes on after "
                f"{counted(rows, 'row')}; is the count in its header wrong?"
            )
    return weight, tokens


def _split(text: bytes, dim: int) -> tuple[bytes, list[float]]:
    token, *fields = text.rstrip(b" \r\n").rsplit(b" ", dim)
    if len(fields) < dim:
        raise ValueError(f"a token and {counted(len(fields), 'number')}, where {dim:,} are needed")
    if b" " in token and NUMBER.fullmatch(token[token.rindex(b" ") + 1 :]):
        raise ValueError(f"a token and more than the {counted(dim, 'number')} that are needed")
    try:
        numbers = list(map(float, fields))
    except ValueError:
        numbers = []
    if not numbers or b"_" in text[len(token) :]:  # Python reads 1_000 as a number
        bad = next(field for field in fields if not NUMBER.fullmatch(field))
        raise ValueError(f"{bad[:40]!r} is not a number")
    return token, numbers


def width(text: bytes) -> int:
    """How many numbers end a row; 0 if the line is no row."""
    fields = text.rstrip(b" \r\n").split(b" ")
    count = 0
    while count < len(fields) - 1 and NUMBER.fullmatch(fields[-1 - count]):
        count += 1
    return count


def write_rows(file: BinaryIO, table: Table) -> None:
    """Write every row, its numbers as the shortest decimals that read back as the same float32."""
    tokens = encoded(table.vocab)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        rows = np.asarray(table.weight[start : start + _ROWS_AT_ONCE], np.float32)
        check_finite(table, rows, start)
        for token, numbers in zip(tokens[start:], rows.astype(_SHORTEST).tolist(), strict=False):
            file.write(token + b" " + b" ".join(numbers) + b"\n")
