"""Positional encodings that are added to the token rows: sinusoidal (a formula) and learned (a table).

A *position id* is what the encoding is asked for: a count from 0 for the sinusoidal one; for the learned one
a row of its table, offset included, as RoBERTa counts. Rotary and ALiBi positions live inside attention and
are no part of the embedding layer.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import DTypeLike

from tokenspace.errors import ShapeError
from tokenspace.ids import checked_ids
from tokenspace.initializers import normal
from tokenspace.reference.embedding import Embedding
from tokenspace.shapes import Array, ArrayLike, Float, Int

Layout = Literal["paper", "tensor2tensor", "halves"]


def sinusoidal(
    positions: ArrayLike,
    embedding_dimension: int,
    layout: Layout = "paper",
    base: float = 10_000.0,
    dtype: DTypeLike = np.float32,
) -> Float[Array, "*axes D"]:
    """Sines and cosines of position · frequency, one pair of columns per frequency.

    - ``paper``: columns 2i and 2i+1 hold the sine and cosine of position / base^(2i/D) (Vaswani et al. 2017,
      section 3.5);
    - ``halves``: the same numbers, all sines first, then all cosines (Marian in transformers);
    - ``tensor2tensor``: sines first, but with frequencies base^(-i/(D//2 - 1)), so that the last one is
      exactly 1/base (the paper's own code, and fairseq).

    An odd D leaves the last sine of ``paper`` and ``halves`` without its cosine; ``tensor2tensor`` ends in a
    column of zeros. Computed in float64 and rounded to ``dtype`` last: in float32 the angles of far positions
    are off by more than the sines' last digits.

    >>> sinusoidal([0, 1], 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]], dtype=float32)
    >>> sinusoidal([0], 5, "tensor2tensor")
    array([[0., 0., 1., 1., 0.]], dtype=float32)
    """
    _check_layout(layout)
    if embedding_dimension < 1 or base <= 0:
        raise ShapeError(f"width and base must be positive; found width {embedding_dimension}, base {base}")
    angle_of = np.asarray(positions, np.float64)[..., np.newaxis]
    width = embedding_dimension
    encoding = np.zeros((*angle_of.shape[:-1], width))
    if layout == "tensor2tensor":
        half = width // 2
        angles = angle_of * base ** (-np.arange(half) / max(half - 1, 1))
        encoding[..., :half] = np.sin(angles)
        encoding[..., half : 2 * half] = np.cos(angles)
        return encoding.astype(dtype)
    angles = angle_of * base ** (-np.arange(0, width, 2) / width)
    encoding[..., 0::2] = np.sin(angles)
    encoding[..., 1::2] = np.cos(angles[..., : width // 2])
    return convert_layout(encoding, "paper", layout).astype(dtype)


def convert_layout(array: Float[Array, "*axes D"], source: Layout, target: Layout) -> Float[Array, "*axes D"]:
    """Reorder the columns of encodings, or of weights trained with them, from one layout to another.

    ``paper`` and ``halves`` hold the same numbers in another order, also at odd D. ``tensor2tensor`` has
    other frequencies, so no reordering leads to or from it: ``ShapeError``. (At even D > 2 it equals
    ``halves`` computed with base^(D/(D-2)) as its base.)

    >>> convert_layout(np.array([[0.0, 1.0, 2.0, 3.0, 4.0]]), "paper", "halves")
    array([[0., 2., 4., 1., 3.]])
    """
    _check_layout(source)
    _check_layout(target)
    if source == target:
        return array.copy()
    if "tensor2tensor" in (source, target):
        raise ShapeError(
            f"{source} columns can't be reordered into {target}: tensor2tensor's frequencies are "
            "base^(-i/(D//2 - 1)), the others' base^(-2i/D); compute sinusoidal(..., layout=...) afresh"
        )
    width = array.shape[-1]
    halves_of_paper = np.r_[0:width:2, 1:width:2]
    order = halves_of_paper if target == "halves" else np.argsort(halves_of_paper)
    return array[..., order]


def position_ids(shape: tuple[int, int], start: int | Int[Array, " B"] = 0) -> Int[Array, "B T"]:
    """0, 1, 2 … for each of B texts; ``start`` tokens stand before them: one count, or one a text.

    >>> position_ids((2, 3), start=4)
    array([[4, 5, 6],
           [4, 5, 6]])
    """
    batch, length = shape
    return np.broadcast_to(_column(start, batch) + np.arange(length), (batch, length)).copy()


def positions_from_mask(
    attention_mask: ArrayLike, padding_id: int, start: int | Int[Array, " B"] = 0
) -> Int[Array, "B T"]:
    """Position ids that count real tokens only, from padding_id + 1; padding gets ``padding_id``.

    What RoBERTa, XLM-R and OPT do, so that a text padded on the left has the positions that it has alone.
    ``attention_mask`` (B, T) is 1 (or True) at real tokens, 0 at padding; ``start`` is the number of real
    tokens cached before, one count or one a text. ``ShapeError`` for any other mask.

    >>> positions_from_mask([[0, 0, 1, 1], [1, 1, 1, 1]], padding_id=1)
    array([[1, 1, 2, 3],
           [2, 3, 4, 5]])
    """
    mask = np.asarray(attention_mask)
    if mask.ndim != 2 or not np.isin(mask, (0, 1)).all():
        raise ShapeError(
            f"an attention mask is (B, T), 1 at tokens and 0 at padding; found shape {mask.shape}, "
            f"values {np.unique(mask)[:5].tolist()}"
        )
    is_token = mask.astype(bool)
    count = np.cumsum(is_token, axis=1, dtype=np.int64) + _column(start, len(mask))
    return np.where(is_token, count + padding_id, padding_id)


class SinusoidalPositionalEncoding:
    """The sinusoidal encoding as a layer: any position, nothing learned, no gradient.

    >>> SinusoidalPositionalEncoding(4).forward([[0, 1]]).shape
    (1, 2, 4)
    """

    def __init__(
        self,
        embedding_dimension: int,
        layout: Layout = "paper",
        base: float = 10_000.0,
        dtype: DTypeLike = np.float32,
    ):
        _check_layout(layout)
        self.embedding_dimension = embedding_dimension
        self.layout = layout
        self.base = base
        self.dtype = dtype

    def forward(self, position_ids: ArrayLike) -> Float[Array, "*axes D"]:
        """One row per position id, a count from 0. ``TokenIdError`` for a negative one or a float."""
        ids = checked_ids(position_ids, np.iinfo(np.int64).max, "position id")
        return sinusoidal(ids, self.embedding_dimension, self.layout, self.base, self.dtype)

    def backward(self, upstream_gradient: ArrayLike) -> None:
        """Nothing to do: a formula has no parameters."""

    def position_ids(
        self,
        shape: tuple[int, int],
        start: int | Int[Array, " B"] = 0,
        attention_mask: ArrayLike | None = None,
    ) -> Int[Array, "B T"]:
        """`position_ids`; the mask changes nothing."""
        return position_ids(shape, start)

    def parameters(self) -> dict[str, np.ndarray]:
        """None."""
        return {}

    def gradients(self) -> dict[str, np.ndarray]:
        """None."""
        return {}


class LearnedPositionalEmbedding(Embedding):
    """A table with a row per position (Gehring et al. 2017, section 3.1; BERT, GPT-2).

    ``offset`` rows stand before the first position's: with ``offset=2`` (RoBERTa, BART, OPT) 514 rows hold
    512 positions. With ``padding_id``, positions count real tokens only and padding reads that row, which
    gets no gradient (RoBERTa, OPT: ``offset=2, padding_id=1``).

    >>> roberta = LearnedPositionalEmbedding(514, 8, np.random.default_rng(0), offset=2, padding_id=1)
    >>> roberta.usable_length
    512
    >>> roberta.position_ids((1, 4), attention_mask=[[1, 1, 1, 0]])
    array([[2, 3, 4, 1]])
    >>> roberta.position_ids((1, 513))
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: 513 positions are needed and this table of 514 rows holds 512 \
(2 rows stand before the first); shorten the text
    """

    id_name = "position id"

    def __init__(
        self,
        rows: int,
        embedding_dimension: int,
        rng: np.random.Generator,
        *,
        offset: int = 0,
        padding_id: int | None = None,
    ):
        self._hold(normal((rows, embedding_dimension), rng, padding_id=padding_id), padding_id=padding_id)
        self._set_offset(offset)

    @classmethod
    def from_weight(  # type: ignore[override]
        cls, weight: ArrayLike, *, offset: int = 0, padding_id: int | None = None
    ) -> LearnedPositionalEmbedding:
        """Hold an existing (rows, D) table, uncopied."""
        self = cls.__new__(cls)
        self._hold(weight, padding_id=padding_id)
        self._set_offset(offset)
        return self

    def _set_offset(self, offset: int) -> None:
        if not 0 <= offset < self.vocabulary_size:
            raise ShapeError(
                f"the offset is {offset}; a table of {self.vocabulary_size:,} rows allows "
                f"0 to {self.vocabulary_size - 1:,}"
            )
        if self.padding_id is not None and self.padding_id != offset - 1:
            raise ShapeError(
                f"positions after padding_id start at the offset {self.padding_id + 1}; found {offset}"
            )
        self.offset = offset

    @property
    def usable_length(self) -> int:
        """How many positions the table holds: its rows less the offset."""
        return self.vocabulary_size - self.offset

    def position_ids(
        self,
        shape: tuple[int, int],
        start: int | Int[Array, " B"] = 0,
        attention_mask: ArrayLike | None = None,
    ) -> Int[Array, "B T"]:
        """Rows for B texts of T tokens, ``start`` tokens having come before.

        The mask counts only where padding is skipped (``padding_id``); without one, every token is real.
        ``ShapeError`` if the table is too short.
        """
        if self.padding_id is None:
            ids = position_ids(shape, start) + self.offset
        else:
            mask = np.ones(shape, bool) if attention_mask is None else attention_mask
            ids = positions_from_mask(mask, self.padding_id, start)
        needed = int(ids.max()) + 1 - self.offset if ids.size else 0
        if needed > self.usable_length:
            before = f" ({self.offset} rows stand before the first)" if self.offset else ""
            raise ShapeError(
                f"{needed:,} positions are needed and this table of {self.vocabulary_size:,} rows holds "
                f"{self.usable_length:,}{before}; shorten the text"
            )
        return ids


def _check_layout(layout: str) -> None:
    if layout not in get_args(Layout):
        raise ShapeError(f"the layout {layout!r} is unknown; there are {', '.join(get_args(Layout))}")


def _column(start: int | np.ndarray, batch: int) -> np.ndarray:
    """``start`` as (1, 1) or (B, 1); ``ShapeError`` for other shapes and for negative counts."""
    column = np.asarray(start, np.int64).reshape(-1, 1)
    if len(column) not in (1, batch) or (column < 0).any():
        raise ShapeError(f"start is one count ≥ 0, or one for each of {batch} texts; found {start!r}")
    return column
