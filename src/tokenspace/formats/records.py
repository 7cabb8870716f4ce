r"""word2vec's binary rows, read in order through one buffer: token, space, D little-endian float32, ``\n``.

Nothing but the matrix, the tokens and the buffer is in memory, however large the file. The ``\n`` is there
after every vector or after none. A token may begin with one of its own, so that only all rows together tell
(``_without_newlines``).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.formats.growing import GrowingRows
from tokenspace.formats.spaced_tokens import first_spaced
from tokenspace.formats.tokens import LONGEST_TOKEN, Errors, TokensRead, counted
from tokenspace.shapes import Array, Float

_BUFFER = 1 << 20  # bytes; more only for a record that is longer
_COUNTED = 1 << 20  # bytes after the last row: gzip packs gigabytes into little
_NEWLINE = ord("\n")
_KEEP = "keep the newlines: load(path, errors='surrogateescape') or convert --errors surrogateescape"


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
    filled, bare = len(head), None  # the first row with nothing between it and the vector before it
    while True:
        done = len(tokens)
        found = _scanned(buffer, filled, dim, rows - done)
        if bare is None:
            bare = next(
                (
                    (done + i, offset + at)
                    for i, at in enumerate(found.begins)
                    if done + i and buffer[at] != _NEWLINE
                ),
                None,
            )
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
            skipped = int(filled > 0 and buffer[0] == _NEWLINE)
            left = f"{dim:,} float32 in the {filled - skipped:,} bytes left"
            raise _damaged(path, len(tokens), offset + skipped, f"no token, space and {left}")
        filled += read
    rest = bytes(buffer[:filled]) + file.read(2)
    if whole:
        _check_end(rest, file, path, rows, offset)
    _without_newlines(tokens, path, bare, rest.startswith(b"\n"))
    return weight.matrix().view("<f4").astype(np.float32, copy=False), tokens


def _scanned(buffer: bytearray, filled: int, dim: int, most: int) -> _Found:
    """The whole records at the beginning of ``buffer``, ``most`` at most."""
    begins: list[int] = []
    spaces: list[int] = []
    size, start, fault = 4 * dim, 0, None
    while len(begins) < most and start < filled:
        space = buffer.find(b" ", start, min(filled, start + LONGEST_TOKEN + 2))
        if space < 0 and filled - start > LONGEST_TOKEN + 1:
            start += buffer[start] == _NEWLINE
            fault = f"no space in {LONGEST_TOKEN + 1:,} bytes, where a token ends"
            break
        end = space + 1 + size
        if space < 0 or end > filled:
            break
        begins.append(start)
        spaces.append(space)
        start = end
    return _Found(begins, spaces, start, fault)


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
    numbers = rows.view("<f4")
    finite = np.isfinite(numbers).all(axis=1)
    sound = len(rows) if finite.all() else int(np.argmin(finite))
    odd = None
    if tokens.errors != "surrogateescape":
        odd = first_spaced(buffer, found.stop, found.begins[:sound], found.spaces[:sound], numbers)
    sound = odd.row if odd else sound
    lengths = np.array(found.spaces[:sound], np.int64) - begins[:sound]
    tokens.add_parts(
        np.frombuffer(buffer, np.uint8),
        begins[:sound],
        lengths,
        lambda i: (f"row {done + i + 1:,}", offset + _text_begin(buffer, found.begins[i])),
    )
    if odd:
        begin = offset + _text_begin(buffer, found.begins[odd.row])
        raise TableFormatError(f"{path}, row {done + odd.row + 1:,} (byte {begin:,}): {odd.why}")
    if sound < len(rows):
        begin = _text_begin(buffer, found.begins[sound])
        what = f"the vector of {bytes(buffer[begin : found.spaces[sound]])!r} holds NaN or infinity"
        raise _damaged(path, done + sound, offset + begin, what)


def _text_begin(buffer: bytearray, begin: int) -> int:
    """Where a record's token begins, as a person would say."""
    return begin + (buffer[begin] == _NEWLINE)


def _without_newlines(tokens: TokensRead, path: Path, bare: tuple[int, int] | None, after: bool) -> None:
    """Take the newlines between rows from the tokens that they begin. ``bare`` is the first row, but the very
    first, and its byte, that has none; ``after`` says whether one follows the last row.

    ``TableFormatError`` where rows have one and others don't, and where it can't be told whose it is: before
    the first row (a blank line, or the token's own), and before all rows but the first, with none after the
    last. Read with ``errors`` "surrogateescape", tokens keep such newlines.
    """
    led = tokens.beginning_with(_NEWLINE)
    rows, between = len(led), int(led[1:].sum())
    if not led.any() or (rows > 1 and between == 0):
        return  # gensim's layout: what begins with a newline is a token that does
    if between < rows - 1 and bare is not None:
        if not after and 2 * between <= rows:
            return
        raise _damaged(path, *bare, "no newline after the vector before it, as there is after others")
    kept = tokens.errors == "surrogateescape"
    if not kept and led[0]:
        raise TableFormatError(
            f"{path}, row 1: is the newline before the token its own, or a blank line after the header? "
            f"Take the blank line away, or {_KEEP}"
        )
    if not after:
        if kept:
            return
        raise TableFormatError(
            f"{path}, row 2: is the newline before the token its own, or does it end the row before? A "
            f"newline at the file's end tells that each row has one: add it there, or {_KEEP}"
        )
    led[0] = False
    tokens.drop_first_byte(led)


def _check_end(rest: bytes, file: io.BufferedReader, path: Path, rows: int, offset: int) -> None:
    """``TableFormatError`` if more than a newline follows the last row."""
    if rest not in (b"", b"\n"):
        left = len(rest) + len(file.read(_COUNTED))
        more = f"{left:,} bytes or more" if left > _COUNTED else counted(left, "byte")
        raise TableFormatError(
            f"{path} (byte {offset:,}): {more} after the last of {counted(rows, 'row')}; "
            "is the count in its header wrong, or does a token hold a space?"
        )


def _damaged(path: Path, row: int, offset: int, what: str) -> TableFormatError:
    return TableFormatError(
        f"{path}, row {row + 1:,} (byte {offset:,}): {what}; is the file cut off, "
        "or a record before this one damaged?"
    )
