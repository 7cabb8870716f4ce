r"""Decimal numbers in a block of text, all at once: ``b"-0.25 17 .5"`` to float64, as ``float`` reads them.

A number of up to 16 characters after its minus sign lies in two 8-byte words that end where it ends. In a
word, the first character is the lowest byte, and a character c becomes c XOR "0":

==========  ==========  ================================================================================
``0``-``9``  0x00-0x09  digits
``.``        0x1E       bit 0x10 is set in no digit, so that one AND finds the dot of a number
any other    any other  the number is not plain, and another reader's
==========  ==========  ================================================================================

Taking the dot out moves what stands before it up by one byte: the bytes L below the dot become 256·L, so
255·L is added. Eight digits in a word become their value in three multiplications, each of which joins
neighbors (1 and 1 digits, 2 and 2, 4 and 4).

A whole number m ≤ 2^53 is a float64, as is 10^k for k ≤ 22; so m / 10^k, rounded once, is the float64 nearest
to the decimal number (W. Clinger, How to read floating point numbers accurately, 1990, section 3).
"""

from __future__ import annotations

import numpy as np

from tokenspace.shapes import Array, Float, Int

WINDOW = 16  # bytes; what must stand before the first number's end, in whatever text
_WORD = np.uint64
_MINUS = ord("-")
_EXACT = _WORD(1 << 53)
_POWERS = np.array([10.0**k for k in range(WINDOW + 1)])


def _each_byte(byte: int) -> np.uint64:
    return _WORD(int.from_bytes(bytes([byte]) * 8, "little"))


def _last(characters: int) -> int:
    """A word's mask that keeps its last so many characters."""
    kept = min(max(characters, 0), 8)
    return (1 << 64) - (1 << 64 - 8 * kept)


_ZEROS, _DOT_BIT = _each_byte(ord("0")), _each_byte(0x10)
_DOT = _WORD(ord(".") ^ ord("0"))
_ABOVE_9, _HIGH = _each_byte(0x80 - 10), _each_byte(0x80)
_KEEP_LATE = np.array([_last(n) for n in range(WINDOW + 1)], _WORD)
_KEEP_EARLY = np.array([_last(n - 8) for n in range(WINDOW + 1)], _WORD)
_AFTER = _WORD(0x0706050403020100)  # times 1 << 8·p, its top byte is 7 - p: the characters after character p


def parse(
    text: Int[Array, " bytes"], starts: Int[Array, " N"], ends: Int[Array, " N"]
) -> tuple[Float[Array, " N"], Array]:
    """The float64 nearest to each number ``text[starts[i]:ends[i]]``, and which of them are plain.

    Plain are digits with at most one dot and a minus sign before them, 16 characters without the sign, 2^53
    at most without the dot. What is not plain has no value here: ``float`` reads it, or it is no number.
    Every end must be ``WINDOW`` at least.

    >>> text = np.frombuffer(b" " * WINDOW + b"-0.25 17 .5 1e5", np.uint8)
    >>> starts, ends = np.array([16, 22, 25, 28]), np.array([21, 24, 27, 31])
    >>> values, plain = parse(text, starts, ends)
    >>> values[plain].tolist(), plain.tolist()
    ([-0.25, 17.0, 0.5], [True, True, True, False])
    """
    negative = text[starts] == _MINUS
    length = ends - starts - negative
    plain = length <= WINDOW
    length[~plain] = 0
    windows = np.ndarray((text.size - WINDOW + 1,), f"V{WINDOW}", text, strides=(1,))
    words = windows[ends - WINDOW].view("<u8").reshape(-1, 2)
    early = (words[:, 0] ^ _ZEROS) & _KEEP_EARLY.take(length)
    late = (words[:, 1] ^ _ZEROS) & _KEEP_LATE.take(length)
    dots, faults, places = _take_out_dot(early, late)
    for word in (early, late):
        faults |= ((word + _ABOVE_9) | word) & _HIGH
    number = _value(early) * _WORD(10**8) + _value(late)
    plain &= (faults == 0) & (number <= _EXACT) & (length > dots)
    values = number / _POWERS.take(places)
    return np.negative(values, out=values, where=negative), plain


def _take_out_dot(
    early: Int[Array, " N"], late: Int[Array, " N"]
) -> tuple[Array, Int[Array, " N"], Int[Array, " N"]]:
    """Change the words of each number to those without its dot. Whether there was one; not 0 where what was
    found is no lone dot; how many characters stood after it.
    """
    dot_early, dot_late = (early & _DOT_BIT) >> _WORD(4), (late & _DOT_BIT) >> _WORD(4)  # 1 << 8·p, or 0
    in_early, in_late = dot_early != 0, dot_late != 0
    faults = (dot_early & (dot_early - in_early)) | (dot_late & (dot_late - in_late))  # a second bit
    faults |= in_early & in_late
    for word, dot in ((early, dot_early), (late, dot_late)):
        word ^= dot * _DOT
        faults |= word & (dot * _WORD(0xFF))
    below = early & (dot_early - in_early)
    early += below * _WORD(0xFF)
    below = late & (dot_late - in_late)
    late += below * _WORD(0xFF)
    late |= (early >> _WORD(56)) * in_late
    early <<= in_late * _WORD(8)
    places = ((dot_early * _AFTER) >> _WORD(56)) + in_early * _WORD(8) + ((dot_late * _AFTER) >> _WORD(56))
    return in_early | in_late, faults, np.minimum(places, WINDOW).astype(np.intp)


def _value(digits: Int[Array, " N"]) -> Int[Array, " N"]:
    """What 8 digits a word, the first the lowest byte, come to."""
    pairs = ((digits * _WORD(1 + (10 << 8))) >> _WORD(8)) & _WORD(0x00FF00FF00FF00FF)
    fours = ((pairs * _WORD(1 + (100 << 16))) >> _WORD(16)) & _WORD(0x0000FFFF0000FFFF)
    return (fours * _WORD(1 + (10_000 << 32))) >> _WORD(32)
