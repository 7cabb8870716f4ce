"""Ways to fill a new (V, D) table: independent draws, or rows copied from a table that has some of them.

Each takes the shape and a ``numpy.random.Generator`` and returns float32. ``padding_id`` names a row that is
zero afterwards; the other rows are drawn as if it had not been given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.table import Table
from tokenspace.vocab import Vocab

TRUNCATED_STD = 0.87962566
"""Standard deviation of N(0, 1) cut at ±2: sqrt(1 - 4 φ(2) / (2 Φ(2) - 1))."""


def normal(
    shape: Sequence[int],
    rng: np.random.Generator,
    *,
    std: float | None = None,
    padding_id: ArrayLike | None = None,
) -> Float[Array, "V D"]:
    """Independent draws from N(0, std²); ``std`` is 1/sqrt(D) if not given: a row's length is then about 1.

    ``ShapeError`` unless the shape is two positive integers and ``std`` is positive and finite.

    >>> weight = normal((1_000, 64), np.random.default_rng(0), padding_id=0)
    >>> round(float(weight.std()), 2), float(abs(weight[0]).max())
    (0.12, 0.0)
    """
    rows, width = _checked_shape(shape)
    std = _checked_std(width**-0.5 if std is None else std)
    return _zero_row(rng.standard_normal((rows, width), np.float32) * np.float32(std), padding_id)


def truncated_normal(
    shape: Sequence[int],
    rng: np.random.Generator,
    *,
    std: float | None = None,
    corrected: bool = False,
    padding_id: ArrayLike | None = None,
) -> Float[Array, "V D"]:
    """Draws from N(0, std²) in which whatever falls beyond ±2 std is drawn again.

    Cutting the tails narrows the distribution: uncorrected, as in the original BERT, the std of
    the result is 0.87962566·std (0.01759 for BERT's 0.02). ``corrected=True`` widens the draws so that it is
    ``std``; they then reach ±2.27 std. ``std`` is 1/sqrt(D) if not given. ``ShapeError`` as for `normal`.

    >>> weight = truncated_normal((1_000, 64), np.random.default_rng(0), std=0.02)
    >>> bool(abs(weight).max() <= 0.04), round(float(weight.std()), 4)
    (True, 0.0176)
    """
    rows, width = _checked_shape(shape)
    std = _checked_std(width**-0.5 if std is None else std)
    weight = rng.standard_normal((rows, width), np.float32)
    while (beyond := np.abs(weight) > 2.0).any():
        weight[beyond] = rng.standard_normal(int(beyond.sum()), np.float32)
    weight *= np.float32(std / TRUNCATED_STD if corrected else std)
    return _zero_row(weight, padding_id)


def xavier_uniform(
    shape: Sequence[int], rng: np.random.Generator, *, padding_id: ArrayLike | None = None
) -> Float[Array, "V D"]:
    """Draws from U(-a, a) with a = sqrt(6/(V + D)) (Glorot and Bengio 2010, equation 16).

    >>> weight = xavier_uniform((1_000, 64), np.random.default_rng(0))
    >>> round(float(abs(weight).max()), 3), round(math.sqrt(6 / 1_064), 3)
    (0.075, 0.075)
    """
    rows, width = _checked_shape(shape)
    return _zero_row(_uniform((rows, width), math.sqrt(6.0 / (rows + width)), rng), padding_id)


def xavier_normal(
    shape: Sequence[int], rng: np.random.Generator, *, padding_id: ArrayLike | None = None
) -> Float[Array, "V D"]:
    """Draws from N(0, 2/(V + D)): the variance of `xavier_uniform` (Glorot and Bengio 2010, equation 12).

    >>> weight = xavier_normal((1_000, 64), np.random.default_rng(0))
    >>> round(float(weight.std()), 3), round(math.sqrt(2 / 1_064), 3)
    (0.043, 0.043)
    """
    rows, width = _checked_shape(shape)
    return normal((rows, width), rng, std=math.sqrt(2.0 / (rows + width)), padding_id=padding_id)


def word2vec_uniform(
    shape: Sequence[int], rng: np.random.Generator, *, padding_id: ArrayLike | None = None
) -> Float[Array, "V D"]:
    """Draws from U(-0.5/D, 0.5/D), as the word2vec program fills its center table (its context table is 0).

    >>> weight = word2vec_uniform((1_000, 64), np.random.default_rng(0))
    >>> round(float(abs(weight).max()) * 64, 2)
    0.5
    """
    rows, width = _checked_shape(shape)
    return _zero_row(_uniform((rows, width), 0.5 / width, rng), padding_id)


class MatchReport(NamedTuple):
    """How much of a vocabulary a pretrained table knew."""

    matched: int
    """Rows copied, those found without regard to case among them."""
    matched_by_case: int
    """Rows copied from a token that differs in case; 0 unless ``ignore_case``."""
    total: int
    """V, the tokens of the new vocabulary."""
    unmatched: tuple[str, ...]
    """The tokens whose rows were drawn, in id order."""


def from_pretrained(
    vocab: Vocab,
    pretrained: Table,
    rng: np.random.Generator,
    *,
    embedding_dimension: int | None = None,
    std: float | None = None,
    ignore_case: bool = False,
    padding_id: ArrayLike | None = None,
) -> tuple[Float[Array, "V D"], MatchReport]:
    """Copy the rows of the tokens that ``pretrained`` has, draw the others from N(0, std²), and report.

    Tokens match exactly; ``ignore_case=True`` then also takes, for a token without a match, the first
    pretrained token that equals it but for case. ``std`` is that of the copied numbers if not given, so that
    drawn rows are as long as copied ones (1/sqrt(D) if nothing matched).
    ``ShapeError`` if ``embedding_dimension`` is given and is not the pretrained width.

    >>> glove = Table(np.array([[1, 2], [3, 4]], np.float32), Vocab(["the", "Paris"]))
    >>> vocab, rng = Vocab(["[PAD]", "the", "paris"]), np.random.default_rng(0)
    >>> weight, report = from_pretrained(vocab, glove, rng, ignore_case=True, padding_id=0)
    >>> weight
    array([[0., 0.],
           [1., 2.],
           [3., 4.]], dtype=float32)
    >>> report
    MatchReport(matched=2, matched_by_case=1, total=3, unmatched=('[PAD]',))
    """
    width = pretrained.dim
    if embedding_dimension is not None and embedding_dimension != width:
        raise ShapeError(
            f"the pretrained table has width {width:,}, this table {embedding_dimension:,}; choose "
            f"embedding_dimension={width} or project the pretrained rows first"
        )
    shape = _checked_shape((len(vocab), width))
    tokens = list(vocab)
    exact = _first_ids(pretrained.vocab, folded=False)
    source = [exact.get(token) for token in tokens]
    matched_exactly = len(tokens) - source.count(None)
    if ignore_case:
        folded = _first_ids(pretrained.vocab, folded=True)
        source = [
            folded.get(token.casefold()) if row is None else row
            for token, row in zip(tokens, source, strict=True)
        ]

    known = np.array([row is not None for row in source])
    copied = pretrained.lookup(np.array([row for row in source if row is not None], np.int64))
    if std is None:
        spread = float(copied.std()) if copied.size else 0.0
        std = spread if math.isfinite(spread) and spread > 0 else width**-0.5
    weight = normal(shape, rng, std=std)
    weight[known] = copied
    matched = int(known.sum())
    unmatched = tuple(token for token, row in zip(tokens, source, strict=True) if row is None)
    report = MatchReport(matched, matched - matched_exactly, len(tokens), unmatched)
    return _zero_row(weight, padding_id), report


def _first_ids(vocab: Vocab, folded: bool) -> dict[str, int]:
    """Each token (in one case if ``folded``) and the first id that holds it."""
    first: dict[str, int] = {}
    for row, token in enumerate(vocab):
        first.setdefault(token.casefold() if folded else token, row)
    return first


def _uniform(shape: tuple[int, int], bound: float, rng: np.random.Generator) -> np.ndarray:
    weight = rng.random(shape, np.float32)
    weight -= np.float32(0.5)
    weight *= np.float32(2.0 * bound)
    return weight


def _zero_row(weight: np.ndarray, padding_id: ArrayLike | None) -> np.ndarray:
    if padding_id is not None:
        weight[checked_ids(padding_id, len(weight), "padding id")] = 0.0
    return weight


def _checked_shape(shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) == 2 and all(isinstance(size, int | np.integer) and size > 0 for size in shape):
        return int(shape[0]), int(shape[1])
    raise ShapeError(f"a table's shape is (rows, width), two positive integers; found {shape!r}")


def _checked_std(std: float) -> float:
    if math.isfinite(std) and std > 0:
        return float(std)
    raise ShapeError(f"a standard deviation is a positive, finite number; found {std!r}")
