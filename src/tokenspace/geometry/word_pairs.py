r"""Do a table's cosines rank word pairs as people do?

A file holds one pair a line, two words and a score, in columns parted by tabs, else by commas (as CSV, quotes
allowed), else by spaces; the first line decides. Blank lines and lines that begin with # are left out. The
first line that is left may be a header: where its score would be stands a word, which no digit begins::

    # WordSim-353
    word 1 \t word 2 \t score
    tiger  \t cat    \t 7.35
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import Any, SupportsIndex

from tokenspace.errors import TableFormatError
from tokenspace.geometry.evaluation import (
    Case,
    File,
    Source,
    WordRows,
    fault,
    numbered_lines,
    opened,
    pair_cosines,
    record,
)
from tokenspace.geometry.statistics import Interval, spearman, spearman_interval
from tokenspace.shown import shown
from tokenspace.table import Table

_NAMES = {"\t": "tabs", ",": "commas", " ": "spaces"}


@dataclass(frozen=True)
class PairsScore:
    """How well cosines rank the pairs of a file.

    ``spearman`` is None where it is not defined (fewer than two pairs used, or all cosines or scores equal),
    and ``interval``, its 95 % confidence interval, where there are at most three pairs or |ρ| = 1.
    ``skipped`` pairs have a word outside the vocabulary; of those ``used``, ``composed`` have a word made of
    pieces. ``header`` is the first line, if it was taken as one.
    """

    file: str
    spearman: float | None
    interval: Interval | None
    used: int
    skipped: int
    composed: int
    header: str | None
    record: dict[str, Any]


def word_pairs(
    table: Table,
    file: File,
    case: Case = "lower",
    limit: SupportsIndex | None = None,
    compose: bool = False,
) -> PairsScore:
    """Spearman's ρ between the cosines of the pairs in ``file``, a path or an open binary stream, and their
    scores.

    ``case``, ``limit``, ``compose``: see ``evaluation``. ``TableFormatError`` names the file and line of
    whatever is no pair; ``CorpusError`` if the file is missing, no text, or not one file; ``ShapeError`` for
    a limit that is no number of rows.
    With the defaults, the pairs that are used and the ρ are those of gensim's ``evaluate_word_pairs``, given
    the same ``restrict_vocab``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import tokenspace as ts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/pairs.tsv"
    ...     _ = Path(path).write_text("cat feline 9\\ncat dog 6.5\\nCat music 1\\ncat blorfle 0\\n")
    ...     score = word_pairs(ts.load("wordnet"), path)
    >>> score.spearman, score.used, score.skipped
    (1.0, 3, 1)
    """
    words = WordRows(table, case, limit)
    source = opened(file)
    header, pairs, judged = _read(source)
    cosines = pair_cosines(words, pairs, compose)
    used = len(cosines.known)
    rho = spearman(cosines.values, [judged[n] for n in cosines.known])
    return PairsScore(
        file=source.name,
        spearman=rho,
        interval=None if rho is None else spearman_interval(rho, used),
        used=used,
        skipped=len(pairs) - used,
        composed=cosines.composed,
        header=header,
        record=record(words, source, compose=compose),
    )


def _read(source: Source) -> tuple[str | None, list[tuple[str, str]], list[float]]:
    """The header, if there is one, the pairs, and their scores."""
    header, delimiter = None, ""
    pairs, scores = [], []
    for n, (line_number, line) in enumerate(numbered_lines(source)):
        delimiter = delimiter or next((mark for mark in "\t," if mark in line), " ")
        columns = _columns(source, line_number, line, delimiter)
        score = _number(columns[2])
        if score is None and n == 0 and not columns[2].lstrip("+-.,")[:1].isdigit():  # 7,5 is no title
            header = line.strip()
            continue
        if score is None or not math.isfinite(score):
            raise fault(source, line_number, f"the score must be a finite number, found {columns[2]!r}", line)
        pairs.append((columns[0], columns[1]))
        scores.append(score)
    if not pairs:
        raise TableFormatError(
            f"{shown(source.name)} holds no word pairs; each line must be two words and a score"
        )
    return header, pairs, scores


def _columns(source: Source, line_number: int, line: str, delimiter: str) -> list[str]:
    try:
        if delimiter == " ":
            columns = line.split()
        elif delimiter == "\t":
            columns = line.split("\t")
        else:
            columns = next(csv.reader([line], skipinitialspace=True))
    except csv.Error as error:
        raise fault(source, line_number, f"it can't be read as CSV ({error})", line) from None
    columns = [column.strip() for column in columns]
    if len(columns) != 3 or not all(columns):
        empty = ", one of them empty" if len(columns) == 3 else ""
        found = f"{len(columns)} column{'s' * (len(columns) != 1)} between {_NAMES[delimiter]}{empty}"
        raise fault(source, line_number, f"a pair is two words and a score, found {found}", line)
    return columns


def _number(column: str) -> float | None:
    try:
        return None if "_" in column else float(column)  # 1_000 is Python's way to write a number alone
    except ValueError:
        return None
