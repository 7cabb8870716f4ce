r"""Vectors of words from their characters: fastText's subwords (Bojanowski et al. 2017, section 3.2).

A word is written ``<word>``, and each run of minn to maxn characters in it is an n-gram. An n-gram has no
row of its own: the hash of its bytes, modulo B, chooses one of B rows that all n-grams share. ``<`` and
``>`` alone are no n-grams. The hash is FNV-1a of 32 bits (http://www.isthe.com/chongo/tech/comp/fnv), with
one difference that every fastText model has: a byte is widened as a signed number, so that one of 0x80 or
more flips the hash's upper 24 bits too. A character begins at each byte that is no continuation of UTF-8
(``10xxxxxx``), whatever the bytes.

A word's vector is the mean of its n-grams' rows, and of its own row if it has one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.mapped import release
from tokenspace.shapes import Array, ArrayLike, Float, Int

END_OF_LINE = "</s>"
LONGEST_NGRAM = 100  # characters; none that help are longer, and a word of n has n²/2 of them without a limit
MOST_NGRAMS = 1 << 20  # of one word
FNV_START, FNV_PRIME = 2_166_136_261, 16_777_619
_NGRAMS_AT_ONCE = 1 << 18  # at most, but for one long word: what hashing them takes stays in the CPU's cache
_NUMBERS_AT_ONCE = 1 << 16  # of the means, for the same reason
_TOGETHER = 256  # n-grams of a word that are added while other words' are


class Subwords:
    """The rows (B, D) that character n-grams share, and how long n-grams are: ``minn`` to ``maxn``
    characters.

    ``rows`` are kept as they are: a memory map stays one. ``ShapeError`` if they are no table, or if there
    can be no n-grams of such lengths.

    >>> subwords = Subwords(np.ones((100, 2), np.float32), minn=3, maxn=4)
    >>> subwords.ngrams("cat")
    ['<ca', '<cat', 'cat', 'cat>', 'at>']
    >>> subwords.vector("cat")
    array([1., 1.], dtype=float32)
    """

    def __init__(self, rows: ArrayLike, minn: int, maxn: int) -> None:
        self.rows = np.asanyarray(rows)
        if self.rows.dtype != np.float32 or self.rows.ndim != 2 or 0 in self.rows.shape:
            raise ShapeError(
                "the rows of subwords must be a (B, D) array of float32 with at least one row and column, "
                f"found {self.rows.dtype} {self.rows.shape}"
            )
        if len(self.rows) >= 1 << 31:
            raise ShapeError(f"there can be at most 2^31 - 1 rows of subwords, found {len(self.rows):,}")
        if not 0 <= minn <= maxn <= LONGEST_NGRAM or maxn == 0:
            raise ShapeError(
                f"n-grams must have 1 to {LONGEST_NGRAM} characters, minn no more than maxn; "
                f"found minn {minn}, maxn {maxn}"
            )
        self.minn = minn
        self.maxn = maxn

    def __repr__(self) -> str:
        return f"Subwords({len(self.rows):,} × {self.rows.shape[1]:,}, {self.minn} to {self.maxn} characters)"

    def ngrams(self, word: str) -> list[str]:
        """The n-grams of ``word`` in order, each as often as it occurs."""
        return [ngram.decode("utf-8", "surrogateescape") for ngram in self._ngrams(word)]

    def ids(self, word: str) -> Int[Array, " N"]:
        """For each of ``ngrams``, its row."""
        return np.array([fnv1a(ngram) % len(self.rows) for ngram in self._ngrams(word)], np.int64)

    def vector(self, word: str) -> Float[Array, " D"] | None:
        """The mean of the n-grams' rows, in float32; None for a word without any, and for what is no word:
        blanks, and ``</s>``, fastText's end of a line. ``TableFormatError`` if it is not finite.
        """
        ids = self.ids(word) if word.strip() and word != END_OF_LINE else ()
        return mean(self.rows[ids], word) if len(ids) else None

    def _ngrams(self, word: str) -> list[bytes]:
        try:
            return ngrams(word.encode("utf-8", "surrogateescape"), self.minn, self.maxn)
        except UnicodeEncodeError:  # a lone surrogate: no file holds such a word
            return []


def mean(rows: Float[Array, "N D"], word: str) -> Float[Array, " D"]:
    """Their mean, bit for bit as fastText computes it: summed in order in float32, times 1/N in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.accumulate(rows, axis=0)[-1] * np.float32(1 / len(rows))
    if not np.isfinite(total).all():
        raise TableFormatError(
            f"the rows of the n-grams of {word!r} hold NaN or infinity; the model is damaged, or training "
            "diverged: get or make it again"
        )
    return total


def ngrams(word: bytes, minn: int, maxn: int) -> list[bytes]:
    """The n-grams of one word, ordered by where they begin, then by length.

    >>> ngrams("né".encode(), 1, 2)
    [b'<n', b'n', b'n\\xc3\\xa9', b'\\xc3\\xa9', b'\\xc3\\xa9>']
    """
    text = b"<" + word + b">"
    begins = [i for i, byte in enumerate(text) if byte & 0xC0 != 0x80] + [len(text)]
    found = []
    for i in range(len(begins) - 1):
        for n in range(max(minn, 1), min(maxn, len(begins) - 1 - i) + 1):
            start, end = begins[i], begins[i + n]
            if n > 1 or (start > 0 and end < len(text)):  # "<" and ">" alone are none
                found.append(text[start:end])
    return found


def fnv1a(data: bytes) -> int:
    """fastText's hash of an n-gram, from 0 to 2^32 - 1.

    >>> fnv1a(b"cat"), fnv1a(b"\\xc3\\xa9")
    (108289031, 1023043777)
    """
    found = FNV_START
    for byte in data:
        signed = byte - 256 if byte >= 0x80 else byte
        found = ((found ^ (signed & 0xFFFFFFFF)) * FNV_PRIME) & 0xFFFFFFFF
    return found


def ngram_ids(
    data: Int[Array, " bytes"], offsets: Int[Array, " V_plus_1"], minn: int, maxn: int, buckets: int
) -> tuple[Int[Array, " N"], Int[Array, " V"]]:
    """The rows of every n-gram of V words, and how many each word has: ``ngrams`` and ``fnv1a``, for all
    words at once. Word i is ``data[offsets[i]:offsets[i + 1]]``.

    Every place where an n-gram can begin goes one byte further at each step, until all are through.
    """
    text, firsts = _written(data, offsets)
    begins = np.append((text & 0xC0) != 0x80, True)
    word = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    at = np.flatnonzero(begins[:-1])
    at = at[at != firsts[word[at] + 1] - 1]  # no n-gram begins with ">"
    start, stop = at, firsts[word[at] + 1]
    least = np.where(start == firsts[word[at]], max(minn, 2), minn)
    state = np.full(len(at), FNV_START, np.uint32)
    length = np.zeros(len(at), np.int64)
    starts, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    while len(at):
        state = (state ^ text.view(np.int8)[at].astype(np.uint32)) * np.uint32(FNV_PRIME)
        at = at + 1
        whole = begins[at]
        length = length + whole
        found = whole & (length >= least)
        starts.append(start[found])
        ids.append((state[found] % np.uint32(buckets)).astype(np.int64))
        on = (at < stop) & (length < maxn)
        at, start, stop, least, state, length = (each[on] for each in (at, start, stop, least, state, length))
    place = np.concatenate(starts)
    order = np.argsort(place, kind="stable")
    return np.concatenate(ids)[order], np.bincount(word[place], minlength=len(firsts) - 1)


def _written(
    data: Int[Array, " bytes"], offsets: Int[Array, " V_plus_1"]
) -> tuple[Int[Array, " text"], Int[Array, " V_plus_1"]]:
    """The words end to end, each in its ``<`` and ``>``, and where each begins."""
    firsts = offsets - offsets[0] + 2 * np.arange(len(offsets))
    text = np.zeros(firsts[-1], np.uint8)
    inside = np.ones(len(text), bool)
    inside[firsts[:-1]] = inside[firsts[1:] - 1] = False
    text[inside] = data[offsets[0] : offsets[-1]]
    text[firsts[:-1]] = ord("<")
    text[firsts[1:] - 1] = ord(">")
    return text, firsts


def composed(
    own: Float[Array, "V D"], subwords: Subwords, data: Int[Array, " bytes"], offsets: Int[Array, " V_plus_1"]
) -> Iterator[Float[Array, "N D"]]:
    """The vectors of V words, a block after the other: the mean of a word's own row and of its n-grams' rows.

    The rows are added in the order in which fastText adds them, so that the bits are the same.
    """
    lengths = subwords.maxn - max(subwords.minn, 1) + 1
    for first, last in _blocks(offsets, max(1, _NGRAMS_AT_ONCE // lengths)):
        ids, counts = ngram_ids(
            data, offsets[first : last + 1], subwords.minn, subwords.maxn, len(subwords.rows)
        )
        starts = np.cumsum(counts) - counts
        step = max(1, _NUMBERS_AT_ONCE // own.shape[1])
        for a in range(0, last - first, step):
            part = slice(a, min(a + step, last - first))
            rows = own[first + part.start : first + part.stop]
            yield _means(np.asarray(rows), np.asarray(subwords.rows), ids, starts[part], counts[part])
            release(rows, own)
    release(subwords.rows, subwords.rows)


def _blocks(offsets: Int[Array, " V_plus_1"], size: int) -> Iterator[tuple[int, int]]:
    """Runs of words, (first, last + 1), of some ``size`` bytes with their ``<`` and ``>``."""
    ends = offsets + 2 * np.arange(len(offsets))
    first = 0
    while first < len(ends) - 1:
        last = max(int(np.searchsorted(ends, ends[first] + size, "right")) - 1, first + 1)
        yield first, last
        first = last


def _means(
    own: Float[Array, "N D"],
    rows: Float[Array, "B D"],
    ids: Int[Array, " M"],
    starts: Int[Array, " N"],
    counts: Int[Array, " N"],
) -> Float[Array, "N D"]:
    """``own[i]`` and ``rows[ids[starts[i] : starts[i] + counts[i]]]``, their mean."""
    order = np.argsort(-counts, kind="stable")  # those that still have n-grams stand first
    starts, counts = starts[order], counts[order]
    total = own[order].astype(np.float32)
    together = np.arange(1, min(counts.max(initial=0), _TOGETHER) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for j, words in enumerate(np.searchsorted(-counts, -together, "right")):
            total[:words] += taken(rows, ids[starts[:words] + j])
        for i in np.flatnonzero(counts > _TOGETHER):
            total[i] = _added(total[i], rows, ids[starts[i] + _TOGETHER : starts[i] + counts[i]])
        total *= (1 / (counts + 1)).astype(np.float32)[:, np.newaxis]
    means = np.empty_like(total)
    means[order] = total
    return means


def _added(total: Float[Array, " D"], rows: Float[Array, "B D"], ids: Int[Array, " M"]) -> Float[Array, " D"]:
    """``total`` and every row of ``ids``, added one after the other."""
    step = max(1, _NUMBERS_AT_ONCE // len(total))
    for start in range(0, len(ids), step):
        block = np.vstack([total, taken(rows, ids[start : start + step])])
        total = np.add.accumulate(block, axis=0)[-1]
    return total


def taken(rows: Float[Array, "B D"], ids: Int[Array, " N"]) -> Float[Array, "N D"]:
    """``rows[ids]``. NumPy would take them number by number where a file's map is not aligned: here a row
    is one piece of bytes.
    """
    if not rows.flags.c_contiguous:
        return rows[ids]
    whole = rows.view(np.uint8).view(f"V{rows.shape[1] * rows.itemsize}")
    return whole[ids, 0].view(rows.dtype).reshape(-1, rows.shape[1])
