"""Words to numbers, compiled: text is split at spaces and line ends, and each distinct word gets a number.

A *word* here is what stands between two of the four characters space, tab, newline and carriage return, all
of them one byte in UTF-8, so that bytes are all that is looked at. What a tokenizer makes of a word is not
known here: it is asked once for each distinct one, and ``expand`` puts its answers where the words stood.

The table is open addressing with linear probing (Knuth, The Art of Computer Programming 3, 6.4) over a hash
of the bytes, FNV-1a (Fowler, Noll, Vo) with a last mix. It has a bound; words that no longer fit, and very
long ones, are *missed*: they are handed back one by one, in order. So nothing is lost, and memory is bounded.
"""

# mypy: check-untyped-defs=False
# (numba infers the types of the compiled functions, which carry no annotations)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.kernels.compiled import kernel

LINE_END, MISSED = -1, -2  # in place of a word's number
LONGEST = 100  # bytes of a word that has a place in the table
_SMALLEST = 1 << 12  # words in a new table
_BYTES_A_WORD = 24  # that a table has room for, with the newline
_NEWLINE, _RETURN, _SPACE, _TAB = 10, 13, 32, 9


inlined = kernel(inline="always")  # a call would count references to the arrays, word by word


class Table(NamedTuple):
    """Distinct words, in the order in which they were first seen."""

    slots: np.ndarray  # (a power of two,) int64: hash (31 bits) above number + 1 (32 bits); 0 is free
    ends: np.ndarray  # (places + 1,) int64: word w is letters[ends[w] : ends[w + 1] - 1], and a newline
    letters: np.ndarray  # uint8
    size: np.ndarray  # (1,) int64: how many words there are


class Words:
    """A table of at most ``most`` distinct words, about 64 bytes for each; it grows up to there.

    ``counts[w]`` is how often word w was numbered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._table = _empty(min(most, _SMALLEST))
        self._counts = np.zeros(len(self._table.ends), np.int64)

    def __len__(self) -> int:
        return int(self._table.size[0])

    @property
    def counts(self) -> np.ndarray:
        return self._counts[: len(self)]

    def number(self, text: bytes) -> tuple[np.ndarray, bytes]:
        r"""The words of ``text`` as numbers (int32), new ones learned; and the missed ones, each on a line.

        ``LINE_END`` stands where lines end, ``MISSED`` for a word without a number.

        >>> words = Words(most=2)
        >>> words.number(b"to be or\r\n\nnot to be")
        (array([ 0,  1, -2, -1, -2,  0,  1], dtype=int32), b'or\nnot\n')
        >>> words.counts
        array([2, 2])
        """
        data = np.frombuffer(text, np.uint8)
        numbers, missed = np.empty(len(data) + 1, np.int32), np.empty(len(data) + 1, np.uint8)
        at = written = missing = 0
        while True:
            full = len(self._table.ends) - 1 >= self._most
            at, written, missing = _number(data, at, self._table, full, numbers, written, missed, missing)
            if at >= len(data):
                break
            self._grow()
        tally(numbers[:written], self._counts)
        return numbers[:written], missed[:missing].tobytes()

    def text(self, first: int, last: int) -> bytes:
        """Words ``first … last-1``, each with a newline at its end."""
        ends = self._table.ends
        return self._table.letters[ends[first] : ends[last]].tobytes()

    def _grow(self) -> None:
        old, words = self._table, len(self)
        self._table = new = _empty(min(2 * (len(old.ends) - 1), self._most))
        used = old.ends[words]
        new.ends[: words + 1] = old.ends[: words + 1]
        new.letters[:used] = old.letters[:used]
        new.size[0] = words
        _rehash(old.slots, new.slots)
        self._counts = np.append(self._counts, np.zeros(len(new.ends) - len(old.ends), np.int64))


def _empty(places: int) -> Table:
    slots = 1 << (2 * places - 1).bit_length()  # at most half of them are taken
    return Table(
        slots=np.zeros(slots, np.int64),
        ends=np.zeros(places + 1, np.int64),
        letters=np.empty(places * _BYTES_A_WORD + LONGEST + 1, np.uint8),
        size=np.zeros(1, np.int64),
    )


@kernel
def _number(text, at, table, full, numbers, written, missed, missing):
    """Go on at ``text[at]``. Returns where it stopped, at the end or before a word for which the table has to
    grow, and how much was written. A table that is ``full`` does not grow.
    """
    length = text.shape[0]
    slots, ends, letters, size = table
    while at < length:
        byte = text[at]
        if byte in (_NEWLINE, _RETURN):
            if written == 0 or numbers[written - 1] != LINE_END:
                numbers[written] = LINE_END
                written += 1
            at += 1
        elif byte in (_SPACE, _TAB):
            at += 1
        else:
            begin, hashed = at, np.uint64(14695981039346656037)
            while not _is_space(byte):
                hashed = (hashed ^ np.uint64(byte)) * np.uint64(1099511628211)
                at += 1
                if at == length:
                    break
                byte = text[at]
            number = MISSED
            if at - begin <= LONGEST:
                key = _mixed(hashed)
                number, place = _look_up(text, begin, at, key, slots, ends, letters)
                if number == MISSED and _fits(ends, letters, size[0]):
                    number = size[0]
                    _append(text, begin, at, number, ends, letters)
                    slots[place] = (key << 32) | (number + 1)
                    size[0] = number + 1
                elif number == MISSED and not full:
                    return begin, written, missing
            if number == MISSED:
                for k in range(begin, at):
                    missed[missing + k - begin] = text[k]
                missing += at - begin + 1
                missed[missing - 1] = _NEWLINE
            numbers[written] = number
            written += 1
    return at, written, missing


@inlined
def _is_space(byte):
    return byte <= _SPACE and byte in (_SPACE, _NEWLINE, _TAB, _RETURN)


@inlined
def _mixed(hashed):
    """31 bits that all depend on all."""
    mixed = (hashed ^ (hashed >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(33))


@inlined
def _look_up(text, begin, end, key, slots, ends, letters):
    """The number of ``text[begin:end]`` or MISSED, and the slot where it is or would be."""
    mask = slots.shape[0] - 1
    place = key & mask
    number = MISSED
    while slots[place] != 0:
        slot = slots[place]
        if slot >> 32 == key:
            number = (slot & 0xFFFFFFFF) - 1
            first, k = ends[number], 0
            if ends[number + 1] - 1 - first == end - begin:
                while k < end - begin and letters[first + k] == text[begin + k]:
                    k += 1
            if k == end - begin:
                break
            number = MISSED
        place = (place + 1) & mask
    return number, place


@inlined
def _fits(ends, letters, number):
    return number < ends.shape[0] - 1 and ends[number] + LONGEST < letters.shape[0]


@inlined
def _append(text, begin, end, number, ends, letters):
    first = ends[number]
    for k in range(end - begin):
        letters[first + k] = text[begin + k]
    letters[first + end - begin] = _NEWLINE
    ends[number + 1] = first + end - begin + 1


@kernel
def _rehash(old, new):
    mask = new.shape[0] - 1
    for slot in old:
        if slot != 0:
            place = (slot >> 32) & mask
            while new[place] != 0:
                place = (place + 1) & mask
            new[place] = slot


@kernel
def tally(numbers, counts):
    """Add 1 to ``counts`` for each of ``numbers`` that is not negative."""
    for number in numbers:
        if number >= 0:
            counts[number] += 1


class Runs(NamedTuple):
    """A run of ids for each word: word w stands for ``ids[begins[w] : ends[w]]``, which may be none."""

    begins: np.ndarray  # (words,) int64
    ends: np.ndarray  # (words,) int64
    ids: np.ndarray  # int32


def expand(numbers: np.ndarray, runs: Runs, missed: Runs) -> tuple[np.ndarray, np.ndarray]:
    """The ids (int32) that stand for ``numbers``, and how many of them each line has, the last one included.

    The runs of missed words are taken in order.

    >>> runs = Runs(np.array([0, 1]), np.array([1, 3]), np.array([5, 6, 7], np.int32))
    >>> missed = Runs(np.array([0]), np.array([1]), np.array([9], np.int32))
    >>> expand(np.array([1, 0, LINE_END, MISSED, LINE_END], np.int32), runs, missed)
    (array([6, 7, 5, 9], dtype=int32), array([3, 1, 0]))
    """
    tokens, lines = _measure(numbers, runs)
    ids, lengths = np.empty(tokens + len(missed.ids), np.int32), np.empty(lines + 1, np.int64)
    _expand(numbers, runs, missed, ids, lengths)
    return ids, lengths


@kernel
def _measure(numbers, runs):
    tokens, lines = 0, 0
    for number in numbers:
        if number >= 0:
            tokens += runs.ends[number] - runs.begins[number]
        elif number == LINE_END:
            lines += 1
    return tokens, lines


@kernel
def _expand(numbers, runs, missed, ids, lengths):
    written, begin, line, missing = 0, 0, 0, 0
    for number in numbers:
        if number == LINE_END:
            lengths[line] = written - begin
            line += 1
            begin = written
        elif number == MISSED:
            for k in range(missed.begins[missing], missed.ends[missing]):
                ids[written] = missed.ids[k]
                written += 1
            missing += 1
        else:
            for k in range(runs.begins[number], runs.ends[number]):
                ids[written] = runs.ids[k]
                written += 1
    lengths[line] = written - begin
