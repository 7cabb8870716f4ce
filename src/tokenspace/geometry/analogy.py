"""a is to b as c is to what?"""

from __future__ import annotations

from typing import Literal, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError, VocabError
from tokenspace.geometry.compose import Resolved
from tokenspace.geometry.cosine import unit_rows
from tokenspace.geometry.neighbors import Hit, best
from tokenspace.geometry.rows import dots
from tokenspace.geometry.transform import View, seen
from tokenspace.shapes import Array, Float
from tokenspace.table import Table

EPSILON = np.float32(0.001)  # Levy & Goldberg 2014, §6

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
    view = seen(table, center, remove)
    words = [one_token(view, word) for word in (a, b, c)]
    unit_a, unit_b, unit_c = (unit_rows(vector) for _, vector in words)
    target = unit_rows(unit_b - unit_a + unit_c)
    scores = np.empty(len(view.table), np.float32)
    for start, unit in view.unit_blocks():
        if method == "3cosadd":
            block = np.clip(dots(unit, target), -1, 1)
        else:
            near_b, near_c, near_a = (_shifted(unit, vector) for vector in (unit_b, unit_c, unit_a))
            block = near_b * near_c / (near_a + EPSILON)
        scores[start : start + len(unit)] = block
    return best(view.table, scores, k, [i for word, _ in words for i in word.ids])


def _shifted(unit: Float[Array, "N D"], vector: Float[Array, " D"]) -> Float[Array, " N"]:
    return (1 + np.clip(dots(unit, vector), -1, 1)) / 2


def one_token(view: View, word: str | int) -> tuple[Resolved, Float[Array, " D"]]:
    """``word`` and its vector under the view's switches; ``VocabError`` unless it is a single token, or one
    word composed of its n-grams, which is a word's vector too.
    """
    found, vector = view.vector(word)
    composed = not found.ids and " " not in found.word and view.table.subwords is not None
    if len(found.ids) != 1 and not composed:
        pieces = " ".join(found.tokens[:_SHOWN]) + (" …" if len(found.tokens) > _SHOWN else "")
        raise VocabError(
            f"{word!r} is not one token but {len(found.tokens)}: {pieces}; "
            "an analogy is asked of single tokens"
        )
    return found, vector
