"""From what a person asks about (a word, an id, a vector) to a vector, and to the rows that it came from."""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.geometry.rows import LARGEST
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.table import DTYPES, Table, check_finite, check_unchanged


class Resolved(NamedTuple):
    """A vector and where it came from: one token, or several pieces. ``ids`` is empty where no row of the
    table is meant: then ``tokens`` are the n-grams of a word's characters, or none for a vector as it is.
    """

    word: str
    vector: Float[Array, " D"]
    ids: tuple[int, ...]
    tokens: tuple[str, ...]


def resolve(table: Table, query: str | int | ArrayLike) -> Resolved:
    """What ``query`` stands for in ``table``: a word, a row's id, or a vector of width D as it is.

    A word is one token where the vocabulary has it (see ``Vocab.find``). Otherwise the table's subwords
    compose it of its n-grams (of several words with spaces between, the mean of theirs is taken), or else its
    tokenizer splits it, and the vector is the mean of its pieces' rows; ``tokens`` shows them. ``VocabError``
    with close spellings if neither can, or if a piece is the unknown token, whose row says nothing of the
    word.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.eye(2, dtype=np.float32), Vocab(["cat", "dog"]))
    >>> resolve(table, "dog")
    Resolved(word='dog', vector=array([0., 1.], dtype=float32), ids=(1,), tokens=('dog',))
    """
    check_unchanged(table)
    if isinstance(query, str):
        return _word(table, query)
    if isinstance(query, Integral):
        row = table.lookup(query)
        check_finite(table, row[None], int(query))
        token = table.vocab[int(query)]
        return Resolved(token, row, (int(query),), (token,))
    return Resolved("", _vector(table, query), (), ())


def _vector(table: Table, query: ArrayLike) -> Float[Array, " D"]:
    try:
        given = np.asarray(query)
    except ValueError:  # lists of different lengths
        given = np.empty(0, object)
    fault = None
    if given.dtype.kind not in "fiu" and str(given.dtype) not in DTYPES:
        fault = type(query).__name__
    elif given.shape != (table.dim,):
        fault = f"shape {given.shape}"
    elif not np.isfinite(largest := float(np.abs(given.astype(np.float64)).max())):
        fault = "NaN or infinity"
    elif largest > LARGEST:
        fault = f"a number of size {largest:.3g}; above {LARGEST:.0e} products leave float32: scale it down"
    if fault is not None:
        raise ShapeError(
            f"a query is a word, a row's id, or a vector of {table.dim:,} finite numbers, as wide as the "
            f"table; found {fault}"
        )
    return given.astype(np.float32)


def _word(table: Table, word: str) -> Resolved:
    known = table.vocab.known(word)
    if known is None and table.subwords is not None:
        parts = word.split()
        if len(parts) > 1:
            found = [_word(table, part) for part in parts]
            vector = np.mean([part.vector for part in found], axis=0)
            return Resolved(word, vector, (), tuple(token for part in found for token in part.tokens))
        vector = table.subwords.vector(word)
        if vector is not None:
            return Resolved(word, vector, (), tuple(table.subwords.ngrams(word)))
    ids = _pieces(table, word) if known is None else (known.id,)
    ids = ids or (table.vocab.find(word).id,)  # raises, with close spellings
    return Resolved(word, _mean(table, ids), ids, tuple(table.vocab[i] for i in ids))


def _pieces(table: Table, word: str) -> tuple[int, ...]:
    """What the tokenizer makes of ``word``; nothing if there is none, or if it does not know a part of it."""
    if table.tokenizer is None:
        return ()
    # In byte-level vocabularies a word begins with its space, and so do the tokens that find() prefers.
    start = " " if table.vocab.encoding == "byte-level" else ""
    pieces = tuple(table.tokenizer.pieces(start + word))
    return () if table.tokenizer.unk_id in pieces else pieces


def _mean(table: Table, ids: tuple[int, ...]) -> Float[Array, " D"]:
    rows = table.lookup(ids)
    for i, row in zip(ids, rows, strict=True):
        check_finite(table, row[None], i)
    return rows.mean(axis=0)
