"""Scores along the way: word pairs and analogies, asked of the table after each epoch."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenspace.errors import CorpusError
from tokenspace.geometry import analogy_questions, word_pairs
from tokenspace.geometry.evaluation import Source, numbered_lines, opened
from tokenspace.table import Table
from tokenspace.vocab import Vocab


class Evaluation:
    """Files of word pairs or analogies, read once, now; ``scores`` asks a table all of them.

    A file whose first line begins with a colon or has four words holds analogies, any other word pairs.
    ``CorpusError`` or ``TableFormatError`` if one is missing or neither: now, not after an epoch.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import tokenspace as ts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pairs.tsv"
    ...     _ = path.write_text("cat feline 9\\ncat dog 6.5\\nCat music 1\\ncat blorfle 0\\n")
    ...     evaluation = Evaluation([path])
    >>> evaluation.scores(ts.load("wordnet"))
    [{'file': 'pairs.tsv', 'spearman': 1.0, 'used': 3, 'skipped': 1}]
    """

    def __init__(self, files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ()) -> None:
        if not isinstance(files, (str, os.PathLike)) and (
            not isinstance(files, Iterable) or isinstance(files, (bytes, bytearray))
        ):
            raise CorpusError(f"evaluate takes names of files, or () for none; found {files!r}")
        paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        self._files = [(file, _has_analogies(file)) for file in map(opened, paths)]
        if self._files:
            self.scores(Table(np.ones((1, 1), np.float32), Vocab(["a"])))  # a faulty line is told of now

    def __bool__(self) -> bool:
        return bool(self._files)

    def scores(self, table: Table) -> list[dict[str, Any]]:
        """One dict a file, of plain JSON values: its name, its score, and how much of it was used."""
        return [_analogies(table, file) if four else _pairs(table, file) for file, four in self._files]


def said(scores: list[dict[str, Any]]) -> str:
    """Scores in one line, for people.

    >>> said([{"file": "pairs.tsv", "spearman": 0.61, "used": 337, "skipped": 16}])
    'pairs.tsv: ρ 0.6100 (337 pairs, 16 skipped)'
    """
    parts = []
    for score in scores:
        value = score["accuracy"] if "accuracy" in score else score["spearman"]
        if "accuracy" in score:
            shown = "–" if value is None else f"{100 * value:.2f} %"
            parts.append(
                f"{score['file']}: {shown} ({score['total']:,} questions, {score['skipped']:,} skipped)"
            )
        else:
            shown = "–" if value is None else f"{value:.4f}"
            parts.append(
                f"{score['file']}: ρ {shown} ({score['used']:,} pairs, {score['skipped']:,} skipped)"
            )
    return "; ".join(parts)


def _has_analogies(file: Source) -> bool:
    for _, line in numbered_lines(file):
        columns = line.split("\t") if "\t" in line else line.split(",") if "," in line else line.split()
        return line.startswith(":") or len(columns) == 4
    return False  # empty: word_pairs says so


def _pairs(table: Table, file: Source) -> dict[str, Any]:
    score = word_pairs(table, _stream(file))
    spearman = None if score.spearman is None else round(score.spearman, 6)
    name = file.file.description()["name"]
    return {"file": name, "spearman": spearman, "used": score.used, "skipped": score.skipped}


def _analogies(table: Table, file: Source) -> dict[str, Any]:
    overall = analogy_questions(table, _stream(file)).overall
    accuracy = None if overall.accuracy is None else round(overall.accuracy, 6)
    return {
        "file": file.file.description()["name"],
        "accuracy": accuracy,
        "correct": overall.correct,
        "total": overall.total,
        "skipped": overall.skipped,
    }


def _stream(file: Source) -> io.BytesIO:
    stream = io.BytesIO(file.content.encode())
    stream.name = file.name  # errors name it
    return stream
