"""Positional encodings that are added to the token rows: sinusoidal (a formula) and learned (a table).

A *position id* is what the encoding is asked for: a count from 0 for the sinusoidal one; for the learned one
a row of its table, offset included, as RoBERTa counts. Rotary and ALiBi positions live inside attention and
are no part of the embedding layer.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.initializers import Generator, Real, Whole, normal, real, whole
from tokenspace.reference.embedding import Embedding
from tokenspace.reference.precision import checked_float_dtype, checked_numbers, widened
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float, Int

Layout = Literal["paper", "tensor2tensor", "halves"]
PaddingFrom = Literal["ids", "mask"]
ANY_COUNT = np.iinfo(np.int64).max
"""What bounds an id where no table does."""


def sinusoidal(
    positions: ArrayLike,
    embedding_dimension: Whole,
    layout: Layout = "paper",
    base: Real = 10_000.0,
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
    are off by more than the sines' last digits. The formula holds between the counts too, so
    ``positions`` may be any numbers. ``ShapeError`` unless D is a positive integer, ``base`` positive and
    ``dtype`` one of floats.

    >>> sinusoidal([0, 1], 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]], dtype=float32)
    >>> sinusoidal([0], 5, "tensor2tensor")
    array([[0., 0., 1., 1., 0.]], dtype=float32)
    """
    _check_layout(layout)
    width = whole("embedding_dimension", embedding_dimension, 1)
    base = real("base", base, positive=True)
    dtype = checked_float_dtype(dtype, "dtype")
    angle_of = checked_numbers(positions, "positions").astype(np.float64)[..., np.newaxis]
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


def position_ids(shape: ArrayLike, start: ArrayLike = 0) -> Int[Array, "B T"]:
    """0, 1, 2 … for each of B texts, ``shape`` being (B, T); ``start`` tokens stand before them.

    ``start`` is one count, or one a text (B,). ``ShapeError`` for anything but counts.

    >>> position_ids((2, 3), start=4)
    array([[4, 5, 6],
           [4, 5, 6]])
    """
    batch, length = _checked_axes(shape)
    return np.broadcast_to(checked_start(start, batch) + np.arange(length), (batch, length)).copy()


def positions_from_mask(
    attention_mask: ArrayLike, padding_id: Whole, start: ArrayLike = 0
) -> Int[Array, "B T"]:
    """Position ids that count real tokens only, from padding_id + 1; padding gets ``padding_id``.

    What RoBERTa, XLM-R and OPT do, so that a text padded on the left has the positions that it has alone.
    ``attention_mask`` (B, T) is 1 (or True) at real tokens, 0 at padding; ``start`` is the number of real
    tokens cached before, one count or one a text. ``ShapeError`` for any other mask.

    >>> positions_from_mask([[0, 0, 1, 1], [1, 1, 1, 1]], padding_id=1)
    array([[1, 1, 2, 3],
           [2, 3, 4, 5]])
    """
    is_token = checked_mask(attention_mask)
    padding = whole("padding_id", padding_id, 0)
    count = np.cumsum(is_token, axis=1, dtype=np.int64) + checked_start(start, len(is_token))
    return np.where(is_token, count + padding, padding)


class SinusoidalPositionalEncoding:
    """The sinusoidal encoding as a layer: any position, nothing learned, no gradient.

    >>> SinusoidalPositionalEncoding(4).forward([[0, 1]]).shape
    (1, 2, 4)
    """

    def __init__(
        self,
        embedding_dimension: Whole,
        layout: Layout = "paper",
        base: Real = 10_000.0,
        dtype: DTypeLike = np.float32,
    ):
        _check_layout(layout)
        self.embedding_dimension = whole("embedding_dimension", embedding_dimension, 1)
        self.layout = layout
        self.base = real("base", base, positive=True)
        self.dtype = checked_float_dtype(dtype, "dtype")
        self._output_shape: tuple[int, ...] | None = None

    def forward(self, position_ids: ArrayLike) -> Float[Array, "*axes D"]:
        """One row per position id, a count from 0. ``TokenIdError`` for a negative one or a float."""
        ids = checked_ids(position_ids, ANY_COUNT, "position id")
        self._output_shape = (*ids.shape, self.embedding_dimension)
        return sinusoidal(ids, self.embedding_dimension, self.layout, self.base, self.dtype)

    def backward(self, upstream_gradient: ArrayLike) -> None:
        """A formula has no parameters, so the gradient ends here; its shape is checked as everywhere."""
        checked_gradient(upstream_gradient, self._output_shape)

    def position_ids(
        self,
        shape: ArrayLike,
        start: ArrayLike = 0,
        attention_mask: ArrayLike | None = None,
    ) -> Int[Array, "B T"]:
        """`position_ids`; the mask changes nothing, but it must be one."""
        if attention_mask is not None:
            checked_mask(attention_mask, shape)
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
    gets no gradient (RoBERTa, OPT: ``offset=2, padding_id=1``). `TransformerInput` tells padding by
    ``padding_from``: the token "ids" alone (RoBERTa), the attention "mask" alone (OPT), or None: the mask if
    there is one, else the ids.

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
        rows: Whole,
        embedding_dimension: Whole,
        rng: Generator,
        *,
        offset: Whole = 0,
        padding_id: Whole | None = None,
        padding_from: Any = None,
    ):
        self._hold(normal((rows, embedding_dimension), rng, padding_id=padding_id), padding_id=padding_id)
        self._set_offset(offset)
        self._set_padding_from(padding_from)

    @classmethod
    def from_weight(  # type: ignore[override]
        cls,
        weight: ArrayLike,
        *,
        offset: Whole = 0,
        padding_id: Whole | None = None,
        padding_from: Any = None,
    ) -> LearnedPositionalEmbedding:
        """Hold an existing (rows, D) table, uncopied."""
        self = cls.__new__(cls)
        self._hold(weight, padding_id=padding_id)
        self._set_offset(offset)
        self._set_padding_from(padding_from)
        return self

    def _set_offset(self, offset: Whole) -> None:
        offset = whole("the offset", offset, None)
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

    def _set_padding_from(self, padding_from: Any) -> None:
        if padding_from is not None and padding_from not in get_args(PaddingFrom):
            raise ShapeError(f"padding_from must be 'ids', 'mask' or None; found {padding_from!r}")
        self.padding_from = padding_from

    @property
    def usable_length(self) -> int:
        """How many positions the table holds: its rows less the offset."""
        return self.vocabulary_size - self.offset

    def position_ids(
        self,
        shape: ArrayLike,
        start: ArrayLike = 0,
        attention_mask: ArrayLike | None = None,
    ) -> Int[Array, "B T"]:
        """Rows for B texts of T tokens, ``start`` tokens having come before.

        The mask counts only where padding is skipped (``padding_id``); without one, every token is real.
        ``ShapeError`` if the table is too short, or the mask is none of this shape.
        """
        ids = position_ids(shape, start) + self.offset
        if attention_mask is not None:
            attention_mask = checked_mask(attention_mask, shape)
        if self.padding_id is not None and attention_mask is not None:
            ids = positions_from_mask(attention_mask, self.padding_id, start)
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


def checked_start(start: ArrayLike, batch: int) -> Int[Array, "B 1"]:
    """``start`` as (1, 1) or (B, 1); ``ShapeError`` unless it is one count, or one for each of B texts."""
    try:
        column = checked_ids(start, ANY_COUNT, "start")
    except TokenIdError:
        column = None
    if column is None or column.ndim > 1 or column.size not in (1, batch):
        raise ShapeError(f"start is one count ≥ 0, or one for each of {batch:,} texts; found {start!r}")
    return column.astype(np.int64).reshape(-1, 1)


def checked_mask(attention_mask: ArrayLike, shape: ArrayLike | None = None) -> np.ndarray:
    """An attention mask (B, T) as booleans: True at tokens.

    ``ShapeError`` unless it holds 1 (or True) and 0 (or False) alone, and has ``shape`` if that is given.
    """
    mask = widened(attention_mask, "an attention mask")
    is_token = mask == 1
    if mask.ndim != 2 or not (is_token | (mask == 0)).all():
        raise ShapeError(
            f"an attention mask is (B, T), 1 at tokens and 0 at padding; found shape {mask.shape}, "
            f"values {np.unique(mask)[:5].tolist()}"
        )
    if shape is not None and mask.shape != _checked_axes(shape):
        raise ShapeError(
            f"the attention mask must be {_checked_axes(shape)}, as the ids are; found {mask.shape}"
        )
    return is_token


def _checked_axes(shape: Any) -> tuple[int, int]:
    try:
        batch, length = shape
        return whole("B", batch, 0), whole("T", length, 0)
    except (TypeError, ValueError):  # a ShapeError is a ValueError
        raise ShapeError(f"the shape of ids is (B, T), two counts; found {shape!r}") from None
