"""How near do synonyms, related, unrelated and opposite words lie? Cosines by relation, pairs from WordNet.

``scripts/make_relations.py`` drew the pairs and says how each relation is defined; they are in
``data/relations.tsv``, 250 to 300 a relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from tokenspace.geometry.evaluation import Case, WordRows, numbered_lines, opened, pair_cosines, record
from tokenspace.geometry.statistics import Interval, mean_interval
from tokenspace.table import Table

PAIRS = Path(__file__).parent.parent / "data" / "relations.tsv"


class Relation(NamedTuple):
    """The mean cosine of a relation's ``n`` pairs and its 95 % confidence interval.

    Without pairs the mean is None, below two the interval. ``skipped`` pairs have a word that is unknown.
    """

    name: str
    mean: float | None
    interval: Interval | None
    n: int
    skipped: int


@dataclass(frozen=True)
class RelationsScore:
    """Synonyms, related, unrelated, antonyms, in this order."""

    relations: tuple[Relation, ...]
    record: dict[str, Any]

    def __getitem__(self, name: str) -> Relation:
        return {relation.name: relation for relation in self.relations}[name]


def relations(
    table: Table, case: Case = "lower", limit: SupportsIndex | None = None, compose: bool = False
) -> RelationsScore:
    """The mean cosine of each relation's word pairs in ``table``; for the three rules see ``evaluation``.

    >>> import tokenspace as ts
    >>> score = relations(ts.load("wordnet"))
    >>> score["synonyms"].mean > score["related"].mean > score["unrelated"].mean
    True
    """
    words = WordRows(table, case, limit)
    source = opened(PAIRS)
    rows = [line.split("\t") for _, line in numbered_lines(source)]
    of_name: dict[str, list[tuple[str, str]]] = {}
    for name, a, b in rows:
        of_name.setdefault(name, []).append((a, b))
    return RelationsScore(
        tuple(_relation(name, pairs, words, compose) for name, pairs in of_name.items()),
        record(words, source, compose=compose),
    )


def _relation(name: str, pairs: list[tuple[str, str]], words: WordRows, compose: bool) -> Relation:
    cosines = pair_cosines(words, pairs, compose).values
    mean = float(cosines.mean()) if cosines.size else None
    return Relation(name, mean, mean_interval(cosines), cosines.size, len(pairs) - cosines.size)
