"""Ways to fill a new (V, D) table: independent draws, or rows copied from a table that has some of them.

Each takes the shape and a ``numpy.random.Generator`` and returns float32. ``padding_id`` names a row that is
zero afterwards; the other rows are drawn as if it had not been given.

Whatever is no shape, generator, number or row is refused before anything is drawn. `whole`, `real`,
`checked_rng` and `checked_padding_id` are those checks; the layers of ``reference`` use them too.
"""

from __future__ import annotations

import math
import numbers
import operator
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.table import Table, check_finite, check_table
from tokenspace.vocab import Vocab, check_vocab

if TYPE_CHECKING:
    from numpy.random import Generator

    Whole = int
    Real = float
else:  # as with ArrayLike: the function's own check speaks, not the annotation's
    Generator = Whole = Real = Any

TRUNCATED_STD = 0.87962566
"""Standard deviation of N(0, 1) cut at ±2: sqrt(1 - 4 φ(2) / (2 Φ(2) - 1))."""
_LARGEST = float(np.finfo(np.float32).max)


def normal(
    shape: ArrayLike,
    rng: Generator,
    *,
    std: Real | None = None,
    padding_id: Whole | None = None,
) -> Float[Array, "V D"]:
    """Independent draws from N(0, std²), of variance std²; ``std``, the standard deviation, is 1/sqrt(D) if
    not given (variance 1/D): a row's length is then about 1.

    ``ShapeError`` unless the shape is two positive integers, ``rng`` a generator, and ``std`` positive and
    finite; ``TokenIdError`` unless ``padding_id`` is one row's id.

    >>> weight = normal((1_000, 64), np.random.default_rng(0), padding_id=0)
    >>> round(float(weight.std()), 2), float(abs(weight[0]).max())
    (0.12, 0.0)
    """
    rows, width = _checked_shape(shape)
    std = real("std", width**-0.5 if std is None else std, positive=True)
    padding_id = checked_padding_id(padding_id, rows)
    weight = checked_rng(rng).standard_normal((rows, width), np.float32) * np.float32(std)
    return _zero_row(weight, padding_id)


def truncated_normal(
    shape: ArrayLike,
    rng: Generator,
    *,
    std: Real | None = None,
    corrected: bool = False,
    padding_id: Whole | None = None,
) -> Float[Array, "V D"]:
    """Draws from N(0, std²) in which whatever falls beyond ±2 std is drawn again.

    Cutting the tails narrows the distribution: uncorrected, as in the original BERT, the std of
    the result is 0.87962566·std (0.01759 for BERT's 0.02). ``corrected=True`` widens the draws so that it is
    ``std``; they then reach ±2.27 std. ``std`` is 1/sqrt(D) if not given. Errors as for `normal`.

    >>> weight = truncated_normal((1_000, 64), np.random.default_rng(0), std=0.02)
    >>> bool(abs(weight).max() <= 0.04), round(float(weight.std()), 4)
    (True, 0.0176)
    """
    rows, width = _checked_shape(shape)
    std = real("std", width**-0.5 if std is None else std, positive=True)
    padding_id = checked_padding_id(padding_id, rows)
    weight = checked_rng(rng).standard_normal((rows, width), np.float32)
    while (beyond := np.abs(weight) > 2.0).any():
        weight[beyond] = rng.standard_normal(int(beyond.sum()), np.float32)
    weight *= np.float32(std / TRUNCATED_STD if corrected else std)
    return _zero_row(weight, padding_id)


def xavier_uniform(
    shape: ArrayLike, rng: Generator, *, padding_id: Whole | None = None
) -> Float[Array, "V D"]:
    """Draws from U(-a, a) with a = sqrt(6/(V + D)) (Glorot and Bengio 2010, equation 16): variance 2/(V + D),
    standard deviation its root.

    >>> weight = xavier_uniform((1_000, 64), np.random.default_rng(0))
    >>> round(float(abs(weight).max()), 3), round(math.sqrt(6 / 1_064), 3)
    (0.075, 0.075)
    """
    rows, width = _checked_shape(shape)
    return _uniform(rows, width, math.sqrt(6.0 / (rows + width)), rng, padding_id)


def xavier_normal(
    shape: ArrayLike, rng: Generator, *, padding_id: Whole | None = None
) -> Float[Array, "V D"]:
    """Draws from N(0, 2/(V + D)), the variance of `xavier_uniform`, whose root is the standard deviation
    (Glorot and Bengio 2010, equation 12).

    >>> weight = xavier_normal((1_000, 64), np.random.default_rng(0))
    >>> round(float(weight.std()), 3), round(math.sqrt(2 / 1_064), 3)
    (0.043, 0.043)
    """
    rows, width = _checked_shape(shape)
    return normal((rows, width), rng, std=math.sqrt(2.0 / (rows + width)), padding_id=padding_id)


def word2vec_uniform(
    shape: ArrayLike, rng: Generator, *, padding_id: Whole | None = None
) -> Float[Array, "V D"]:
    """Draws from U(-0.5/D, 0.5/D), as the word2vec program fills its center table (its context table is 0).

    >>> weight = word2vec_uniform((1_000, 64), np.random.default_rng(0))
    >>> round(float(abs(weight).max()) * 64, 2)
    0.5
    """
    rows, width = _checked_shape(shape)
    return _uniform(rows, width, 0.5 / width, rng, padding_id)


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
    rng: Generator,
    *,
    embedding_dimension: Whole | None = None,
    std: Real | None = None,
    ignore_case: bool = False,
    padding_id: Whole | None = None,
) -> tuple[Float[Array, "V D"], MatchReport]:
    """Copy the rows of the tokens that ``pretrained`` has, draw the others from N(0, std²), and report.

    Tokens match exactly, or else as Unicode's equivalent spellings (é as one character, or e and an accent).
    ``ignore_case=True`` then also takes, for a token without a match, the first pretrained token that equals
    it but for case. ``std`` is that of the copied numbers if not given, so that
    drawn rows are as long as copied ones (1/sqrt(D) if nothing matched).
    ``VocabError`` unless ``vocab`` is a ``Vocab``; ``ShapeError`` if ``pretrained`` is not a ``Table``, or
    ``embedding_dimension`` is given and is not the pretrained width; ``TableFormatError``
    if a row to copy holds NaN or infinity (a row that no token asks for may).

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
    check_vocab(vocab)
    check_table(pretrained)
    width = pretrained.dim
    if embedding_dimension is not None and whole("embedding_dimension", embedding_dimension, 1) != width:
        raise ShapeError(
            f"the pretrained table has width {width:,}, this table {embedding_dimension:,}; choose "
            f"embedding_dimension={width} or project the pretrained rows first"
        )
    shape = _checked_shape((len(vocab), width))
    padding_id, rng = checked_padding_id(padding_id, len(vocab)), checked_rng(rng)
    tokens = list(vocab)
    source: list[int | None] = [None] * len(tokens)
    matched_in_case = 0
    keys: list[Callable[[str], str]] = [str, _composed, *([_folded] if ignore_case else [])]
    for key in keys:
        ids = _first_ids(pretrained.vocab, key)
        source = [
            ids.get(key(token)) if row is None else row for token, row in zip(tokens, source, strict=True)
        ]
        if key is not _folded:
            matched_in_case = len(tokens) - source.count(None)

    known = np.array([row is not None for row in source])
    rows = np.array([row for row in source if row is not None], np.int64)
    copied = pretrained.lookup(rows)
    if (spoiled := np.flatnonzero(~np.isfinite(copied).all(axis=1))).size:
        first = int(spoiled[0])
        check_finite(pretrained, copied[first : first + 1], int(rows[first]))
    if std is None:
        spread = float(copied.std(dtype=np.float64)) if copied.size else 0.0
        std = spread if np.float32(spread) > 0 else width**-0.5
    weight = normal(shape, rng, std=std)
    weight[known] = copied
    matched = int(known.sum())
    unmatched = tuple(token for token, row in zip(tokens, source, strict=True) if row is None)
    report = MatchReport(matched, matched - matched_in_case, len(tokens), unmatched)
    return _zero_row(weight, padding_id), report


def _first_ids(vocab: Vocab, key: Callable[[str], str]) -> dict[str, int]:
    """The first id for each ``key`` of a token."""
    first: dict[str, int] = {}
    for row, token in enumerate(vocab):
        first.setdefault(key(token), row)
    return first


def _composed(token: str) -> str:
    return token if token.isascii() else unicodedata.normalize("NFC", token)


def _folded(token: str) -> str:
    return _composed(token.casefold())


def _uniform(
    rows: int, width: int, bound: float, rng: Generator, padding_id: Whole | None
) -> Float[Array, "V D"]:
    padding_id = checked_padding_id(padding_id, rows)
    weight = checked_rng(rng).random((rows, width), np.float32)
    weight -= np.float32(0.5)
    weight *= np.float32(2.0 * bound)
    return _zero_row(weight, padding_id)


def _zero_row(weight: np.ndarray, padding_id: int | None) -> np.ndarray:
    if padding_id is not None:
        weight[padding_id] = 0.0
    return weight


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        rows, width = shape
        return whole("rows", rows, 1), whole("width", width, 1)
    except (TypeError, ValueError):  # a ShapeError is a ValueError
        raise ShapeError(
            f"a table's shape is (rows, width), two positive integers; found {shape!r}"
        ) from None


def checked_rng(rng: Any) -> np.random.Generator:
    """``rng`` itself; ``ShapeError`` unless it is a ``numpy.random.Generator``, which a seed is not."""
    if isinstance(rng, np.random.Generator):
        return rng
    raise ShapeError(
        f"rng must be a numpy.random.Generator; found {rng!r}: make one with numpy.random.default_rng(seed)"
    )


def checked_padding_id(padding_id: Any, rows: int) -> int | None:
    """``padding_id`` as an int, or None if there is none; ``TokenIdError`` unless it is one row's id."""
    if padding_id is None:
        return None
    row = checked_ids(padding_id, rows, "padding id")
    if row.ndim:
        raise TokenIdError(f"the padding id is one row's: an integer; found {padding_id!r}")
    return int(row)


def whole(what: str, value: Any, least: int | None) -> int:
    """``value`` as an int; ``ShapeError`` unless it is an integer, ``least`` or more. It is never rounded.

    >>> whole("offset", 1.7, 0)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: offset must be an integer, 0 or more; found 1.7
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        allowed = "" if least is None else f", {least} or more"
        raise ShapeError(f"{what} must be an integer{allowed}; found {value!r}")
    return number


def real(what: str, value: Any, *, positive: bool = False) -> float:
    """``value`` as a float; ``ShapeError`` unless it is a number, finite in float32 too: no text, no bool.

    >>> real("eps", "small", positive=True)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: eps must be a positive, finite number, in float32 too; found 'small'
    """
    plain = value.item() if getattr(value, "ndim", None) == 0 else value  # a NumPy scalar
    is_number = isinstance(plain, numbers.Real) and not isinstance(plain, bool)
    if is_number and -_LARGEST <= plain <= _LARGEST and (not positive or np.float32(plain) > 0):
        return float(plain)
    kind = "positive, finite" if positive else "finite"
    raise ShapeError(f"{what} must be a {kind} number, in float32 too; found {value!r}")
