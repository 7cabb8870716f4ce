r"""word2vec's binary rows, read in order through one buffer: token, space, D little-endian float32, ``\n``.

Nothing but the matrix, the tokens and the buffer is in memory, however large the file. The ``\n`` is there
after every vector or after none: the first tells. Before the first row, too, old files have one.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.formats.growing import GrowingRows
from tokenspace.formats.tokens import LONGEST_TOKEN, Errors, TokensRead, counted
from tokenspace.shapes import Array, Float

_BUFFER = 1 << 20  # bytes; more only for a record that is longer
_NEWLINE = ord("\n")


class _Found(NamedTuple):
    """Whole records in a buffer: where their tokens begin, and the spaces after them; where what follows the
    last of them begins, and what is wrong there.
    """

    begins: list[int]
    spaces: list[int]
    stop: int
    fault: str | None


def read_records(
    file: io.BufferedReader,
    head: bytes,
    path: Path,
    rows: int,
    dim: int,
    offset: int,
    errors: Errors,
    believed: bool,
    whole: bool,
) -> tuple[Float[Array, "V D"], TokensRead]:
    """Read ``rows`` rows: from ``head``, which begins at byte ``offset`` and has been read, then ``file``.
    ``believed`` says that the file is large enough for them; ``whole``, that nothing may follow them.

    ``TableFormatError`` names row and byte of the first record that is none.
    """
    weight, tokens = GrowingRows(rows if believed else 0), TokensRead(path, errors)
    buffer = bytearray(head).ljust(_BUFFER)
    filled, newlines = len(head), True
    while True:
        done = len(tokens)
        found, newlines = _scanned(buffer, filled, dim, rows - done, done, newlines)
        _take(buffer, found, dim, weight, tokens, path, offset)
        if found.fault:
            raise _damaged(path, len(tokens), offset + found.stop, found.fault)
        offset += found.stop
        filled -= found.stop
        buffer[:filled] = buffer[found.stop : found.stop + filled]
        if len(tokens) == rows:
            break
        if filled == len(buffer):
            buffer.extend(bytes(filled))  # doubled: a record longer than the buffer costs no more than itself
        read = file.readinto1(memoryview(buffer)[filled:])
        if not read:
            skipped = int(newlines and filled > 0 and buffer[0] == _NEWLINE)
            left = f"{dim:,} float32 in the {filled - skipped:,} bytes left"
            raise _damaged(path, len(tokens), offset + skipped, f"no token, space and {left}")
        filled += read
    if whole:
        _check_end(bytes(buffer[:filled]), file, path, rows, offset)
    return weight.matrix().view("<f4").astype(np.float32, copy=False), tokens


def _scanned(
    buffer: bytearray, filled: int, dim: int, most: int, done: int, newlines: bool
) -> tuple[_Found, bool]:
    """The whole records at the beginning of ``buffer``, ``most`` at most, where ``done`` came before; and
    whether a newline follows each vector.
    """
    begins: list[int] = []
    spaces: list[int] = []
    size, start, fault = 4 * dim, 0, None
    while len(begins) < most and start < filled:
        begin = start
        at_newline = buffer[start] == _NEWLINE
        if done + len(begins) == 1:
            newlines = at_newline
        if newlines and at_newline:
            begin += 1
        elif newlines and done + len(begins):
            fault = "no newline after the vector before it, as there is after the first"
            break
        space = buffer.find(b" ", begin, min(filled, begin + LONGEST_TOKEN + 1))
        if space < 0 and filled - begin > LONGEST_TOKEN:
            fault, start = f"no space in {LONGEST_TOKEN + 1:,} bytes, where a token ends", begin
            break
        end = space + 1 + size
        if space < 0 or end > filled:
            break
        begins.append(begin)
        spaces.append(space)
        start = end
    return _Found(begins, spaces, start, fault), newlines


def _take(
    buffer: bytearray,
    found: _Found,
    dim: int,
    weight: GrowingRows,
    tokens: TokensRead,
    path: Path,
    offset: int,
) -> None:
    """Copy the records that were found to where they stay."""
    if not found.begins:
        return
    done, size = len(tokens), 4 * dim
    rows = weight.room(len(found.begins), dim)
    with memoryview(buffer) as source:
        target = rows.data.cast("B")
        for i, space in enumerate(found.spaces):
            target[i * size : (i + 1) * size] = source[space + 1 : space + 1 + size]
    begins = np.array(found.begins)
    finite = np.isfinite(rows.view("<f4")).all(axis=1)
    sound = len(rows) if finite.all() else int(np.argmin(finite))
    lengths = np.array(found.spaces[:sound], np.int64) - begins[:sound]
    tokens.add_parts(
        np.frombuffer(buffer, np.uint8),
        begins[:sound],
        lengths,
        lambda i: (f"row {done + i + 1:,}", offset + found.begins[i]),
    )
    if sound < len(rows):
        token = bytes(buffer[found.begins[sound] : found.spaces[sound]])
        what = f"the vector of {token!r} holds NaN or infinity"
        raise _damaged(path, done + sound, offset + found.begins[sound], what)


def _check_end(rest: bytes, file: io.BufferedReader, path: Path, rows: int, offset: int) -> None:
    """``TableFormatError`` if more than a newline follows the last row."""
    rest += file.read(2)
    if rest not in (b"", b"\n"):
        left = len(rest)
        while more := file.read(_BUFFER):
            left += len(more)
        raise TableFormatError(
            f"{path} (byte {offset:,}): {counted(left, 'byte')} after the last of {counted(rows, 'row')}"
        )


def _damaged(path: Path, row: int, offset: int, what: str) -> TableFormatError:
    return TableFormatError(
        f"{path}, row {row + 1:,} (byte {offset:,}): {what}; is the file cut off, "
        "or a record before this one damaged?"
    )
