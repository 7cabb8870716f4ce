"""What the evaluations share: the rows that a word means, the lines of their files, a record.

Three rules decide a score as much as the table does, so each is a parameter that the record holds:

``case``     ``"lower"``: words and tokens are compared lower-cased, and of tokens that differ in case alone
             the first row speaks for the word (in most tables the most frequent); ``"keep"``: as written
``limit``    the first N rows only are the vocabulary (tables are often sorted by frequency); None: all
``compose``  a word outside the vocabulary: skipped, or the mean of the rows of its pieces
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tokenspace import __version__, text
from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.geometry.cosine import cosine
from tokenspace.shapes import Array, Float
from tokenspace.table import Table, check_finite
from tokenspace.vocab import WORD_START

Case = Literal["lower", "keep"]

ROWS_AT_ONCE = 8_192  # of table rows hashed, and of pairs compared
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

    def __init__(self, table: Table, case: Case = "lower", limit: int | None = None):
        if case not in ("lower", "keep"):
            raise ShapeError(f"case {case!r} is not known; allowed: lower, keep")
        if limit is not None and (isinstance(limit, bool) or limit < 1):
            raise ShapeError(f"limit must be at least 1 row, found {limit}")
        self.table = table
        self.case = case
        self.limit = len(table) if limit is None else min(limit, len(table))
        self._encoding = table.vocab.encoding
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}  # where several rows read alike, those after the first
        for i, token in zip(range(self.limit), table.vocab, strict=False):
            read = self._folded(token)
            if self._first.setdefault(read, i) != i:
                self._more.setdefault(read, []).append(i)

    def row(self, word: str) -> int | None:
        """The row that speaks for ``word``, as ``Vocab.find`` would choose; None if no row does."""
        return next((self._first[form] for form in self._forms(word) if form in self._first), None)

    def rows(self, word: str) -> list[int]:
        """Every row that reads as ``word``: its forms and cases; the one that speaks for it comes first."""
        found = []
        for form in self._forms(word):
            if form in self._first:
                found += [self._first[form], *self._more.get(form, ())]
        return found

    def pieces(self, word: str) -> list[int]:
        """The rows that ``word`` is composed of: one, or its pieces'; empty if it can't be told."""
        row = self.row(word)
        if row is not None:
            return [row]
        tokenizer = self.table.tokenizer
        if tokenizer is None:
            return []
        start = " " if self._encoding == "byte-level" else ""  # its words begin with their space
        pieces = tokenizer.pieces(start + (word.lower() if self.case == "lower" else word))
        known = all(piece < self.limit and piece != tokenizer.unk_id for piece in pieces)
        return pieces if known else []

    def _folded(self, token: str) -> str:
        if self.case == "keep":
            return token
        if self._encoding == "byte-level":  # beyond ASCII its characters are bytes, which have no case
            return token.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")
        return token.lower()

    def _forms(self, word: str) -> dict[str, None]:
        """The ways in which a token may spell ``word``, the one that begins a word first."""
        spelled = word.lower() if self.case == "lower" else word
        mark = WORD_START.get(self._encoding, "")
        if self._encoding == "byte-level":
            from tokenizers.pre_tokenizers import ByteLevel

            split = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(spelled)
            spelled = "".join(part for part, _ in split)
        elif mark:
            spelled = spelled.replace(" ", mark)
        return dict.fromkeys((self._folded(mark + spelled), self._folded(spelled)))


class PairCosines(NamedTuple):
    """Cosines of the pairs whose words are known, which pairs these are, how many have a composed word."""

    values: Float[Array, " N"]
    known: list[int]
    composed: int


def pair_cosines(words: WordRows, pairs: Sequence[tuple[str, str]], compose: bool) -> PairCosines:
    """Cosines in float64. A word outside the vocabulary is known if it is composed, and can be.

    ``TableFormatError`` if a row that is needed holds NaN or infinity.
    """
    rows_of: dict[str, list[int]] = {}
    for pair in pairs:
        for word in pair:
            if word not in rows_of:
                row = words.row(word)
                known = [] if row is None else [row]
                rows_of[word] = words.pieces(word) if compose else known
    at = {word: n for n, word in enumerate(word for word, rows in rows_of.items() if rows)}
    vectors = np.empty((len(at), words.table.dim), np.float32)
    for word, n in at.items():
        vectors[n] = _mean_row(words.table, rows_of[word])
    known = [n for n, (a, b) in enumerate(pairs) if a in at and b in at]
    values = np.empty(len(known))
    for start in range(0, len(known), ROWS_AT_ONCE):
        block = known[start : start + ROWS_AT_ONCE]
        left, right = (vectors[[at[pairs[n][side]] for n in block]] for side in (0, 1))
        values[start : start + len(block)] = cosine(left, right)
    composed = sum(any(len(rows_of[word]) > 1 for word in pairs[n]) for n in known)
    return PairCosines(values, known, composed)


def numbered_lines(file: text.TextFile) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of each line that is neither blank nor a comment, which begins with #."""
    for n, line in enumerate(text.lines([file]), start=1):
        line = line.strip("\r\n")
        if line.strip() and not line.startswith("#"):
            yield n, line


def fault(file: text.TextFile, line_number: int, what: str, line: str) -> TableFormatError:
    """The error for a line that is not what it should be: file, line number, and the line's beginning."""
    shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
    return TableFormatError(f"{file.path}, line {line_number:,}: {what}; the line is {shown!r}")


def opened(file: str | os.PathLike[str]) -> text.TextFile:
    """The one file, read to its end and hashed; ``CorpusError`` if it is missing or no UTF-8 text."""
    return text.check(file)[0]


def record(words: WordRows, file: text.TextFile, **settings: Any) -> dict[str, Any]:
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
        "file": file.description(),
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


def _mean_row(table: Table, ids: Iterable[int]) -> Float[Array, " D"]:
    rows = table.lookup(list(ids))
    for i, row in zip(ids, rows, strict=True):
        check_finite(table, row[None], i)
    return rows.mean(axis=0)
