"""JSON from files, parsed only if what it becomes stays within a multiple of its bytes.

``[[],[],…`` takes 24 times its bytes in memory, and a number of a million digits takes minutes. So the values
of a large text are counted first, a block at a time, and a text that would take more than ``times`` its bytes
and ``FREE`` is refused.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

import numpy as np

FREE = 56 << 20  # bytes that any text may take
TIMES = 4  # its bytes
SMALL = 1 << 20  # bytes; what a shorter text becomes is within FREE, whatever it holds
_PER_VALUE = 80  # bytes of a small object, and of its place in the list or dict that holds it
_BLOCK = 1 << 20
_QUOTE = ord('"')
_SEPARATORS = np.zeros(256, np.uint8)
_SEPARATORS[list(b"[{,:")] = 1


class TooLargeError(ValueError):
    """The text is well-formed as far as it was read, and would take too much memory."""


def parse(content: bytes, times: int = TIMES, free: int = FREE, **hooks: Any) -> Any:
    """The value of a JSON text in UTF-8, in at most ``times`` its bytes and ``free``; ``hooks`` are
    ``json.loads``'s.

    ``ValueError`` says in one line why there is none: damage, with its byte; nesting past Python's limit; a
    number of thousands of digits; more values than ``times`` its bytes of memory can hold.

    >>> parse(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse(b"[1,")
    Traceback (most recent call last):
    ...
    ValueError: at byte 3: Expecting value
    """
    if len(content) > SMALL:
        _check_values(content, times, free)
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise ValueError("it is empty; get or make it again")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start:,}") from None
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError as error:
        byte = len(text[: error.pos].encode())
        raise ValueError(f"at byte {byte:,}: {error.msg}") from None
    except RecursionError:
        raise TooLargeError("nested deeper than Python's limit") from None
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise ValueError("a number of thousands of digits") from None


def _check_values(content: bytes, times: int, free: int) -> None:
    """``ValueError`` if the text, its strings and its values would take too much memory."""
    widest = 1 if content.isascii() else _widest(content)
    room = times * len(content) + free - (1 + 2 * widest) * len(content)
    most = max(room, 0) // _PER_VALUE
    count, inside, held = 0, 0, b""
    for start in range(0, len(content), _BLOCK):
        block = held + content[start : start + _BLOCK]
        escapes = len(block) - len(block.rstrip(b"\\"))
        held = b"\\" if escapes % 2 else b""
        block = block[: len(block) - len(held)].replace(b"\\\\", b"__").replace(b'\\"', b"__")
        read = np.frombuffer(block, np.uint8)
        in_string = np.bitwise_xor.accumulate((read == _QUOTE).astype(np.uint8)) ^ np.uint8(inside)
        count += int(np.count_nonzero(_SEPARATORS[read] > in_string))
        inside = int(in_string[-1]) if in_string.size else inside
        if count > most:
            what = f"more than {most:,} values" if most else f"characters that take {widest} bytes each"
            raise TooLargeError(
                f"its {len(content):,} bytes hold {what}, which would take more than {times} times its size "
                "in memory"
            )


def _widest(content: bytes) -> int:
    """The bytes that Python takes for each character of the text."""
    largest = max(
        int(np.frombuffer(content, np.uint8, min(_BLOCK, len(content) - start), start).max())
        for start in range(0, len(content), _BLOCK)
    )
    return 4 if largest >= 0xF0 else 2 if largest >= 0xC4 else 1
