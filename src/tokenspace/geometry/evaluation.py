"""What the evaluations share: the rows that a word means, the lines of their files, a record.

Three rules decide a score as much as the table does, so each is a parameter that the record holds:

``case``     ``"lower"``: words and tokens are compared lower-cased, and of tokens that differ in case alone
             the first row speaks for the word (in most tables the most frequent); ``"keep"``: as written
``limit``    the first N rows only are the vocabulary (tables are often sorted by frequency); None: all
``compose``  a word outside the vocabulary: skipped, or the mean of the rows of its pieces
"""

from __future__ import annotations

import hashlib
import io
import operator
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex

import numpy as np

from tokenspace import __version__, text
from tokenspace.errors import CorpusError, ShapeError, TableFormatError
from tokenspace.geometry.cosine import cosine
from tokenspace.shapes import Array, Float
from tokenspace.shown import shown
from tokenspace.table import Table, check_finite
from tokenspace.token_marks import WORD_START, from_byte_level

Case = Literal["lower", "keep"]
File = str | os.PathLike[str] | text.Stream

ROWS_AT_ONCE = 8_192  # of table rows hashed, and of pairs compared
LARGEST_FILE = 2**26  # bytes; Google's 19,544 questions are 0.6 MB
_SHOWN = 60  # characters of a faulty line


class WordRows:
    """Words to rows, under a case rule and a vocabulary limit.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.eye(3, dtype=np.float32), Vocab(["Paris", "paris", "rome"]))
    >>> WordRows(table).rows("PARIS"), WordRows(table, case="keep").rows("paris")
    ([0, 1], [1])
    >>> WordRows(table, limit=2).row("rome") is None
    True
    """

    def __init__(self, table: Table, case: Case = "lower", limit: SupportsIndex | None = None):
        if case not in ("lower", "keep"):
            raise ShapeError(f"case {case!r} is not known; allowed: lower, keep")
        self.table = table
        self.case = case
        self.limit = len(table) if limit is None else min(_row_count(limit), len(table))
        self._encoding = table.vocab.encoding
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}  # where several rows read alike, those after the first
        self._composed: dict[
            str, list[int]
        ] = {}  # by NFC, of readings that Unicode may write in several ways
        for i, token in zip(range(self.limit), table.vocab, strict=False):
            read = self._reading(token, i)
            if self._first.setdefault(read, i) != i:
                self._more.setdefault(read, []).append(i)
            if not read.isascii():
                self._composed.setdefault(unicodedata.normalize("NFC", read), []).append(i)

    def row(self, word: str) -> int | None:
        """The row that speaks for ``word``, as ``Vocab.find`` would choose; None if no row does."""
        return next(self._rows(word), None)

    def rows(self, word: str) -> list[int]:
        """Every row that reads as ``word``: its forms, cases and spellings in Unicode; the one that speaks
        for it comes first.
        """
        return list(dict.fromkeys(self._rows(word)))

    def _rows(self, word: str) -> Iterator[int]:
        forms = self._forms(word)
        for form in forms:
            if form in self._first:
                yield from (self._first[form], *self._more.get(form, ()))
        for form in forms:
            if not form.isascii():
                yield from self._composed.get(unicodedata.normalize("NFC", form), ())

    def pieces(self, word: str) -> list[int]:
        """The rows that ``word`` is composed of: one, or its pieces'; empty if it can't be told."""
        row = self.row(word)
        if row is not None:
            return [row]
        tokenizer = self.table.tokenizer
        if tokenizer is None:
            return []
        start = " " if self._encoding == "byte-level" else ""  # its words begin with their space
        pieces = tokenizer.pieces(start + self._spelled(word))
        known = all(piece < self.limit and piece != tokenizer.unk_id for piece in pieces)
        return pieces if known else []

    def composed(self, word: str) -> Float[Array, " D"] | None:
        """The vector of a word without a row of its own: of its n-grams where the table has subwords, else
        the mean of its pieces' rows; None if it can't be told.
        """
        if self.table.subwords is not None:
            return self.table.subwords.vector(self._spelled(word))
        pieces = self.pieces(word)
        return _mean_row(self.table, pieces) if pieces else None

    def _spelled(self, word: str) -> str:
        return word.lower() if self.case == "lower" else word

    def _reading(self, token: str, i: int) -> str:
        """The text of token i as words are compared with it; in a byte-level one a space begins a word."""
        if self._encoding == "byte-level" and not self.table.vocab.is_verbatim(i):
            text = from_byte_level(token)
            token = token if "\ufffd" in text else text  # part of a character
        return self._spelled(token)

    def _forms(self, word: str) -> tuple[str, ...]:
        """The ways in which a token may spell ``word``, the one that begins a word first."""
        spelled = self._spelled(word)
        if self._encoding == "byte-level":
            return f" {spelled}", spelled
        mark = WORD_START.get(self._encoding, "")
        return (mark + spelled.replace(" ", mark), spelled) if mark else (spelled,)


class PairCosines(NamedTuple):
    """Cosines of the pairs whose words are known, which pairs these are, how many have a composed word."""

    values: Float[Array, " N"]
    known: list[int]
    composed: int


def pair_cosines(words: WordRows, pairs: Sequence[tuple[str, str]], compose: bool) -> PairCosines:
    """Cosines in float64. A word outside the vocabulary is known if it is composed, and can be.

    ``TableFormatError`` if a row that is needed holds NaN or infinity.
    """
    at: dict[str, int] = {}
    composed_words: set[str] = set()
    found: list[Array] = []
    for word in dict.fromkeys(word for pair in pairs for word in pair):
        row = words.row(word)
        vector = words.composed(word) if row is None and compose else None
        if row is not None:
            vector = _mean_row(words.table, [row])
        elif vector is not None:
            composed_words.add(word)
        if vector is not None:
            at[word] = len(found)
            found.append(vector)
    vectors = np.array(found, np.float32).reshape(-1, words.table.dim)
    known = [n for n, (a, b) in enumerate(pairs) if a in at and b in at]
    values = np.empty(len(known))
    for start in range(0, len(known), ROWS_AT_ONCE):
        block = known[start : start + ROWS_AT_ONCE]
        left, right = (vectors[[at[pairs[n][side]] for n in block]] for side in (0, 1))
        values[start : start + len(block)] = cosine(left, right)
    composed = sum(not composed_words.isdisjoint(pairs[n]) for n in known)
    return PairCosines(values, known, composed)


class Source(NamedTuple):
    """A file of pairs or questions: its name as it was given, what it was, and all that it holds."""

    name: str
    file: text.TextFile
    content: str


def opened(file: File) -> Source:
    """The one file or open binary stream, read once; ``CorpusError`` if it is missing or no UTF-8 text."""
    if isinstance(file, io.TextIOBase) or not (isinstance(file, (str, os.PathLike)) or hasattr(file, "read")):
        raise CorpusError(
            f"a score is that of one file: a path, or a stream of bytes; found {type(file).__name__}; "
            "of several files, score each by itself"
        )
    described, content = text.read(file, LARGEST_FILE)
    name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else str(described.path)
    return Source(name, described, content)


def numbered_lines(source: Source) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of each line that is neither blank nor a comment, which begins with #."""
    for n, line in enumerate(io.StringIO(source.content, newline=None), start=1):
        line = line.rstrip("\n")
        if line.strip() and not line.startswith("#"):
            yield n, line


def fault(source: Source, line_number: int, what: str, line: str) -> TableFormatError:
    """The error for a line that is not what it should be: file, line number, and the line's beginning."""
    begin = line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
    return TableFormatError(f"{shown(source.name)}, line {line_number:,}: {what}; the line is {begin!r}")


def record(words: WordRows, source: Source, **settings: Any) -> dict[str, Any]:
    """What it takes to repeat a measurement, in plain JSON values."""
    table = words.table
    limit = words.limit if words.limit < len(table) else None
    return {
        "tokenspace": __version__,
        "table": {
            "sha256": table_sha256(table),
            "rows": len(table),
            "dim": table.dim,
            "dtype": table.weight.dtype.name,
        },
        "settings": {"case": words.case, "limit": limit, **settings},
        "file": source.file.description(),
    }


def table_sha256(table: Table) -> str:
    """The SHA-256 of a table's rows and tokens, whatever file they came from.

    It is taken over, one after the other: the text ``"{dtype} {V} {D}\\n"``; the weights, row by row,
    little-endian, in that dtype; the V + 1 token offsets as little-endian int64; the tokens' bytes, end to
    end, UTF-8.

    >>> from tokenspace.vocab import Vocab
    >>> parts = [b"float32 1 1\\n", bytes([0, 0, 128, 63]), bytes(8), bytes([1, 0, 0, 0, 0, 0, 0, 0]), b"a"]
    >>> by_hand = hashlib.sha256(b"".join(parts)).hexdigest()
    >>> table_sha256(Table(np.ones((1, 1), np.float32), Vocab(["a"]))) == by_hand
    True
    """
    digest = hashlib.sha256(f"{table.weight.dtype.name} {len(table)} {table.dim}\n".encode())
    size = table.weight.dtype.itemsize
    for start in range(0, len(table), ROWS_AT_ONCE):
        rows = np.ascontiguousarray(table.weight[start : start + ROWS_AT_ONCE])
        digest.update(rows.view(f"u{size}").astype(f"<u{size}", copy=False).tobytes())
    digest.update(table.vocab.offsets.astype("<i8", copy=False).tobytes())
    digest.update(table.vocab.data.tobytes())
    return digest.hexdigest()


def _row_count(limit: SupportsIndex) -> int:
    try:
        count = 0 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        count = 0
    if count < 1:
        raise ShapeError(f"limit must be at least 1 row, a whole number or None; found {limit!r}")
    return count


def _mean_row(table: Table, ids: Iterable[int]) -> Float[Array, " D"]:
    rows = table.lookup(list(ids))
    for i, row in zip(ids, rows, strict=True):
        check_finite(table, row[None], i)
    return rows.mean(axis=0)
