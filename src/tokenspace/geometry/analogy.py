"""a is to b as c is to what?"""

from __future__ import annotations

from numbers import Integral
from typing import Literal, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError, VocabError
from tokenspace.geometry.compose import Resolved
from tokenspace.geometry.cosine import unit_rows
from tokenspace.geometry.rows import dots
from tokenspace.geometry.scores import Bounds, Hit, best, check_k, cosines, nearest_to
from tokenspace.geometry.transform import Products, View, seen
from tokenspace.shapes import Array, Float
from tokenspace.table import Table

EPSILON = np.float32(0.001)  # Levy & Goldberg 2014, §6
ROUNDING = np.float32(1e-6)  # of a product and a quotient

_SHOWN = 8  # pieces, of a word that has many
Method = Literal["3cosadd", "3cosmul"]


def analogy(
    table: Table | View,
    a: str | int,
    b: str | int,
    c: str | int,
    k: int = 5,
    method: Method = "3cosadd",
    center: bool = False,
    remove: SupportsIndex = 0,
) -> list[Hit]:
    """The ``k`` best d in "a is to b as c is to d"; the three words given can't be answers.

    ``3cosadd``: the cosine of d with b - a + c, all three scaled to length 1 (Mikolov, Yih & Zweig 2013, §3;
    it ranks as cos(d, b) - cos(d, a) + cos(d, c) does). ``3cosmul``: cos(d, b) · cos(d, c) / (cos(d, a) + ε),
    each cosine shifted to 0 … 1 by (1 + cos) / 2, ε = 0.001 (Levy & Goldberg 2014, §6).

    ``center`` and ``remove`` are the switches of ``neighbors``: all cosines are then those of switched rows.
    Each word must be one token, as the vocabulary or the tokenizer writes it, an id, or a word that the
    table's subwords compose: an offset between means of pieces is another question. ``VocabError`` otherwise.

    >>> from tokenspace.vocab import Vocab
    >>> rows = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]], np.float32)
    >>> table = Table(rows, Vocab(["man", "king", "woman", "queen", "of"]))
    >>> [hit.token for hit in analogy(table, "man", "king", "woman", k=2)]
    ['queen', 'of']
    """
    if method not in ("3cosadd", "3cosmul"):
        raise ShapeError(f"method {method!r} is not known; allowed: 3cosadd, 3cosmul")
    check_k(k)
    view = seen(table, center, remove)
    words = [one_token(view, word) for word in (a, b, c)]
    unit_a, unit_b, unit_c = (unit_rows(vector) for _, vector in words)
    excluded = [i for word, _ in words for i in word.ids]
    if method == "3cosadd":
        return nearest_to(view, unit_b - unit_a + unit_c, "cosine", k, excluded)
    targets = np.stack([unit_a, unit_b, unit_c])

    def within(block: Products) -> Bounds:
        least, most = cosines(block)
        return Bounds(
            _product(most[0], least[1], least[2]) * (1 - ROUNDING),
            _product(least[0], most[1], most[2]) * (1 + ROUNDING),
        )

    def score(rows: Float[Array, "N D"]) -> Float[Array, " N"]:
        units = unit_rows(rows)
        return _product(*(np.clip(dots(units, unit), -1, 1) for unit in targets))

    return best(view, targets, within, score, k, excluded)


def _product(
    near_a: Float[Array, " N"], near_b: Float[Array, " N"], near_c: Float[Array, " N"]
) -> Float[Array, " N"]:
    """3CosMul of cosines, each shifted to 0 … 1."""
    return (1 + near_b) / 2 * ((1 + near_c) / 2) / ((1 + near_a) / 2 + EPSILON)


def one_token(view: View, word: str | int) -> tuple[Resolved, Float[Array, " D"]]:
    """``word`` and its vector under the view's switches; ``VocabError`` unless it is a single token, or one
    word composed of its n-grams, which is a word's vector too.
    """
    if not isinstance(word, (str, Integral)):
        raise VocabError(f"an analogy is asked of words or ids, found {type(word).__name__}")
    found, vector = view.vector(word)
    composed = not found.ids and " " not in found.word and view.table.subwords is not None
    if len(found.ids) != 1 and not composed:
        pieces = " ".join(found.tokens[:_SHOWN]) + (" …" if len(found.tokens) > _SHOWN else "")
        raise VocabError(
            f"{word!r} is not one token but {len(found.tokens)}: {pieces}; "
            "an analogy is asked of single tokens"
        )
    return found, vector
