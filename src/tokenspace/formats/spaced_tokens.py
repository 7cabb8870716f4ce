"""Tokens with a space in word2vec's binary rows, where a space ends a token: told by what they leave behind.

After ``New York `` the reader takes ``York `` for the vector's first five bytes, and the vector's last five
for the next token's first. From there on all is right again, and the file is used up exactly. What shows is:

- in the vector, a space with text before it, and an ordinary vector after it;
- enormous or tiny numbers in the vector as it was read, or a next token that is no UTF-8 or has control
  characters, as most bytes of floats are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from tokenspace.formats.tokens import is_utf8
from tokenspace.shapes import Array, Float

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SMALLEST, _LARGEST = 1e-9, 1e6  # the size of ordinary numbers
_ADVICE = "a space ends a token here; errors='surrogateescape' takes the file as it is"


class Odd(NamedTuple):
    """A row that is not what it seems, and why."""

    row: int
    why: str


def unusual(numbers: Float[Array, "K D"]) -> Array:
    """Which rows hold numbers that vectors don't: a size over 1e6, or under 1e-9 and not 0.

    >>> unusual(np.array([[0, 1], [1e-20, 1], [1e20, 1]], np.float32))
    array([False,  True,  True])
    """
    sizes = np.abs(numbers)
    return np.asarray(((sizes > _LARGEST) | ((sizes < _SMALLEST) & (sizes > 0))).any(axis=1))


def first_spaced(
    buffer: bytearray, stop: int, begins: list[int], spaces: list[int], numbers: Float[Array, "V D"]
) -> Odd | None:
    """The first of K records that a token with a space damaged. They lie in ``buffer`` before ``stop``, their
    tokens at ``begins[i]:spaces[i]``; ``numbers`` are their vectors, and others after them.
    """
    size = 4 * numbers.shape[1]
    tokens = [bytes(buffer[begin:space]) for begin, space in zip(begins, spaces, strict=True)]
    suspects = unusual(numbers[: len(tokens)])
    if holds_control(b"".join(tokens)) or not is_utf8(b" ".join(tokens)):
        suspects[:-1] |= np.array([holds_control(token) or not is_utf8(token) for token in tokens[1:]], bool)
    for i in np.flatnonzero(suspects).tolist():
        held = bytes(buffer[begins[i] : min(spaces[i] + 1 + 2 * size, stop)])
        if spaced := _spaced(held, spaces[i] - begins[i], size):
            token = tokens[i].removeprefix(b"\n")
            return Odd(i, f"the token may be {token!r} with a damaged vector, or {spaced!r}: {_ADVICE}")
    return None


def holds_control(token: bytes) -> bool:
    """Whether control characters are in it, tab, newline and carriage return aside."""
    return _CONTROL.search(token) is not None


def _spaced(held: bytes, space: int, size: int) -> bytes | None:
    """The token that ends at a later space than ``space``, if an ordinary vector comes after that."""
    end = held.find(b" ", space + 1, space + 1 + size)
    while end >= 0 and is_utf8(token := held[:end]) and not holds_control(token):
        vector = held[end + 1 : end + 1 + size]
        if len(vector) == size:
            numbers = np.frombuffer(vector, "<f4").astype(np.float32)[np.newaxis]
            if np.isfinite(numbers).all() and not unusual(numbers)[0]:
                return token.removeprefix(b"\n")
        end = held.find(b" ", end + 1, space + 1 + size)
    return None
