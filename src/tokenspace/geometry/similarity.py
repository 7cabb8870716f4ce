"""How alike two words are."""

from __future__ import annotations

from typing import NamedTuple

from tokenspace.geometry.compose import resolve
from tokenspace.geometry.cosine import cosine
from tokenspace.table import Table


class Similarity(NamedTuple):
    """The cosine of two words, and the tokens that each was made of: one, or the pieces whose mean it is."""

    cosine: float
    a: tuple[str, ...]
    b: tuple[str, ...]


def similarity(table: Table, a: str, b: str) -> Similarity:
    """The cosine between two words' vectors; a word that is no single token is composed (see ``resolve``).

    >>> import numpy as np
    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[3, 4], [4, 3]], np.float32), Vocab(["cat", "dog"]))
    >>> similarity(table, "cat", "dog")
    Similarity(cosine=0.96, a=('cat',), b=('dog',))
    """
    left, right = resolve(table, a), resolve(table, b)
    return Similarity(float(cosine(left.vector, right.vector)), left.tokens, right.tokens)
