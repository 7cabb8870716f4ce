"""How alike two words are."""

from __future__ import annotations

from typing import NamedTuple, SupportsIndex

import numpy as np

from tokenspace.geometry.cosine import cosine
from tokenspace.geometry.transform import View, seen
from tokenspace.table import Table


class Similarity(NamedTuple):
    """The cosine of two words, and the tokens that each was made of: one, or the pieces whose mean it is.

    ``dot`` is their inner product, ``l2`` their Euclidean distance.
    """

    cosine: float
    a: tuple[str, ...]
    b: tuple[str, ...]
    dot: float
    l2: float


def similarity(
    table: Table | View, a: str | int, b: str | int, center: bool = False, remove: SupportsIndex = 0
) -> Similarity:
    """How near two words' vectors lie; a word that is no single token is composed (see ``resolve``);
    an id is its row.

    ``center`` and ``remove`` are the switches of ``neighbors``.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[3, 4], [4, 3]], np.float32), Vocab(["cat", "dog"]))
    >>> similarity(table, "cat", "dog")
    Similarity(cosine=0.96, a=('cat',), b=('dog',), dot=24.0, l2=1.4142135623730951)
    """
    view = seen(table, center, remove)
    (left, x), (right, y) = view.vector(a), view.vector(b)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    return Similarity(
        float(cosine(x, y)),
        left.tokens,
        right.tokens,
        float(wide_x @ wide_y),
        float(np.linalg.norm(wide_x - wide_y)),
    )
