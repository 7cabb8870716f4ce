"""How alike words are: two, or each of several with each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.geometry.cosine import cosine
from tokenspace.geometry.transform import View, seen
from tokenspace.shapes import Array, Float
from tokenspace.table import Table


class Similarity(NamedTuple):
    """The cosine of two words, and the tokens that each was made of: one, or the pieces whose mean it is.

    ``dot`` is their inner product, ``l2`` their Euclidean distance. Both are of the rows as stored; only the
    cosine is independent of their lengths.
    """

    cosine: float
    a: tuple[str, ...]
    b: tuple[str, ...]
    dot: float
    l2: float


class Similarities(NamedTuple):
    """Each of N words compared with each: ``cosine``, ``dot`` and ``l2`` are (N, N), symmetric, in the order
    of ``words``. ``pieces`` holds for each word the tokens that its vector was made of.
    """

    words: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    cosine: Float[Array, "N N"]
    dot: Float[Array, "N N"]
    l2: Float[Array, "N N"]


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


def similarities(
    table: Table | View, words: Iterable[str | int], center: bool = False, remove: SupportsIndex = 0
) -> Similarities:
    """Return the ``similarity`` of each of ``words`` with each, as three (N, N) matrices in float64.

    Words, ids and switches are those of ``similarity``; ``ShapeError`` if there are no words.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[3, 4], [4, 3], [-4, 3]], np.float32), Vocab(["cat", "dog", "car"]))
    >>> similarities(table, ["cat", "dog", "car"]).cosine.round(2)
    array([[ 1.  ,  0.96,  0.  ],
           [ 0.96,  1.  , -0.28],
           [ 0.  , -0.28,  1.  ]])
    """
    is_list = isinstance(words, Iterable) and not isinstance(words, str | bytes | bytearray | Mapping)
    if not is_list or not (words := list(words)):
        raise ShapeError(f"words must be a list of one word or more, found {words!r}")
    view = seen(table, center, remove)
    resolved = [view.vector(word) for word in words]
    rows = np.stack([vector for _, vector in resolved]).astype(np.float64)
    return Similarities(
        tuple(found.word for found, _ in resolved),
        tuple(found.tokens for found, _ in resolved),
        np.stack([np.atleast_1d(cosine(rows, row)) for row in rows]),
        np.stack([np.einsum("nd,d->n", rows, row) for row in rows]),
        np.stack([np.linalg.norm(rows - row, axis=1) for row in rows]),
    )
