r"""Lines of text, a block at a time, as rows: a token, a space, D decimal numbers with a space between.

A tab separates as a space does: ``the\t0.1 0.2`` and ``the\t0.1\t0.2`` are rows of two numbers.
A line of a token without spaces, D spaces and D numbers (``\r``, or one space, before the ``\n`` or not) is
read together with the other such lines of its block (``decimals.py``). Any other line goes through ``split``,
which reads it or says what is wrong with it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tokenspace.formats import decimals
from tokenspace.formats.tokens import counted
from tokenspace.shapes import Array, Float, Int
from tokenspace.source import ZIP

WIDEST = 1 << 16  # numbers in a row of text; what claims more is damage
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BLOCK = 1 << 18  # bytes parsed at once: what is made of them stays in the processor's cache
_NEWLINE, _RETURN, _SPACE = b"\n\r "
_OTHERS = {b",": "commas", b";": "semicolons", b"|": "bars"}  # that other programs put between fields


class Rows(NamedTuple):
    """A block's rows: K lines that begin at bytes ``starts[i]`` of its text (what was not read, at
    ``starts[K]``), tokens of ``lengths[i]`` bytes, and their numbers. ``fault`` is what is wrong with line K.
    """

    starts: Int[Array, " K_plus_1"]
    lengths: Int[Array, " K"]
    numbers: Float[Array, "K D"]
    fault: str | None


def whole_lines(file: io.BufferedReader, head: bytes, longest: int) -> Iterator[bytes]:
    r"""``head`` and what follows in ``file``, in pieces that end in ``\n`` (the last is given one), read no
    sooner than asked for. What has no newline in ``longest`` bytes is cut there.
    """
    held: list[bytes] = []
    size, block = 0, head
    while True:
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*held, block[:cut]])
            held, size = [], 0
        held.append(block[cut:])
        size += len(block) - cut
        if size > longest:
            text = b"".join(held)
            start = 0
            while size > longest:
                yield text[start : start + longest] + b"\n"
                start, size = start + longest, size - longest
            held = [text[start:]]
        block = file.read1(_BLOCK)
        if not block:
            break
    if size:
        yield b"".join(held) + b"\n"


def rows_of(text: bytes, dim: int, most: int) -> Rows:
    """The rows of ``dim`` numbers that ``text``, whole lines, begins with: ``most``, or to a fault."""
    text = spaced(text)
    padded = np.frombuffer(bytes(decimals.WINDOW) + text, np.uint8)
    separators = np.flatnonzero((padded == _SPACE) | (padded == _NEWLINE))
    last = np.flatnonzero(padded[separators] == _NEWLINE)[:most]  # of each line, in separators
    ends = separators[last]
    starts = np.concatenate([[decimals.WINDOW], ends + 1])
    spaces = np.diff(last, prepend=-1) - 1
    stops = ends - (padded[ends - 1] == _RETURN)
    trailing = padded[stops - 1] == _SPACE
    plain = spaces - trailing == dim
    bounds = separators[(last - trailing)[plain, np.newaxis] + np.arange(-dim, 1)]
    bounds[:, -1] = (stops - trailing)[plain]
    read, good = _numbers(padded, bounds)
    numbers = read if plain.all() else np.empty((len(last), dim), np.float32)
    lengths = np.empty(len(last), np.int64)
    numbers[plain], lengths[plain] = read, bounds[:, 0] - starts[:-1][plain]
    others = ~plain
    others[plain] = ~good
    starts -= decimals.WINDOW
    for i in np.flatnonzero(others).tolist():
        try:
            token, found = split(text[starts[i] : starts[i + 1]], dim)
        except ValueError as error:
            return Rows(starts[: i + 1], lengths[:i], numbers[:i], str(error))
        numbers[i], lengths[i] = found, len(token)
    return Rows(starts, lengths, numbers, None)


def _numbers(
    text: Int[Array, " bytes"], bounds: Int[Array, "K D_plus_1"]
) -> tuple[Float[Array, "K D"], Array]:
    """The numbers between the spaces at ``bounds``, and which rows hold nothing but finite ones."""
    starts, ends = (bounds[:, :-1] + 1).ravel(), bounds[:, 1:].ravel()
    values, plain = decimals.parse(text, starts, ends)
    odd = np.flatnonzero(~plain)
    if odd.size:
        held = text.tobytes()
        bounds_of = zip(starts[odd].tolist(), ends[odd].tolist(), strict=True)
        values[odd] = _floats([held[start:end] for start, end in bounds_of])
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32).reshape(len(bounds), bounds.shape[1] - 1)
    return numbers, np.asarray(np.isfinite(numbers).all(axis=1))


def _floats(fields: list[bytes]) -> list[float]:
    """What ``float`` makes of each; NaN of what is no number."""
    try:
        if b"_" not in b"".join(fields):  # Python reads 1_000 as a number
            return list(map(float, fields))
    except ValueError:
        pass
    return [float(field) if NUMBER.fullmatch(field) else math.nan for field in fields]


def split(text: bytes, dim: int) -> tuple[bytes, Float[Array, " D"]]:
    """A line's token and its numbers; ``ValueError`` says why it is no such row.

    >>> split(b". . 1 2\\n", 2)
    (b'. .', array([1., 2.], dtype=float32))
    """
    token, *fields = spaced(text).rstrip(b" \r\n").rsplit(b" ", dim)
    if len(fields) < dim:
        mark = next((name for byte, name in _OTHERS.items() if text.count(byte) >= dim), None)
        other = f"; {mark} stand where a space or tab must" if mark else ""
        raise ValueError(f"a token and {counted(len(fields), 'number')}, where {dim:,} are needed{other}")
    if b"" in fields or token.endswith(b" "):
        raise ValueError("an empty field, between two spaces or tabs: put one before each number")
    if ends_as_numbers_begin(token):
        raise ValueError(f"a token and more than the {counted(dim, 'number')} that are needed")
    found = np.array(_floats(fields))
    if np.isnan(found).any():
        bad = next(field for field in fields if not NUMBER.fullmatch(field))
        if not bad.strip().lower().lstrip(b"+-").startswith(b"nan"):
            raise ValueError(f"{bad[:40]!r} is not a number")
    with np.errstate(over="ignore"):
        numbers = found.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ValueError("a number is NaN, infinite, or too large for float32")
    return text[: len(token)], numbers


def ends_as_numbers_begin(token: bytes) -> bool:
    """Return whether a row's numbers would seem to begin in its token: it ends in a blank, a space or tab,
    or in a blank and a number.

    >>> ends_as_numbers_begin(b"at 5"), ends_as_numbers_begin(b"New York"), ends_as_numbers_begin(b"at\\t")
    (True, False, True)
    """
    _, blank, last = spaced(token).rpartition(b" ")
    return bool(blank) and (not last or NUMBER.fullmatch(last) is not None)


def spaced(text: bytes) -> bytes:
    """``text`` with a space for each tab: what stands where stays."""
    return text.replace(b"\t", b" ")


def seems_no_text(token: bytes) -> bool:
    """Whether a file that begins with this token could be taken for one of another kind."""
    return b"\0" in token or token.startswith(ZIP)


def width(text: bytes) -> int:
    """How many numbers end a row, of ``WIDEST`` + 1 at most; 0 if the line is no row."""
    fields = spaced(text).rstrip(b" \r\n").rsplit(b" ", WIDEST + 1)
    count = 0
    while count < len(fields) - 1 and NUMBER.fullmatch(fields[-1 - count]):
        count += 1
    return count
