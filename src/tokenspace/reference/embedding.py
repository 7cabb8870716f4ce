"""The embedding layer: a lookup table whose rows are learned.

    forward    x[n] = scale · E[ids[n]]
    backward   dE[v] = scale · sum of d_x[n] over every n with ids[n] = v

V vocabulary rows, D width; ids have any shape, written ``*axes`` (mostly B texts of T positions).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from tokenspace.errors import ShapeError
from tokenspace.ids import checked_ids
from tokenspace.initializers import Generator, Real, Whole, checked_padding_id, normal, real, whole
from tokenspace.reference.precision import checked_float_dtype, checked_parameter, widened
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float, Int


def one_hot(ids: ArrayLike, vocabulary_size: Whole) -> Float[Array, "*axes V"]:
    """One row of length V per id: 1 at the id, 0 elsewhere.

    >>> one_hot([2, 0], 3)
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    rows = whole("vocabulary_size", vocabulary_size, 1)
    return (checked_ids(ids, rows)[..., np.newaxis] == np.arange(rows)).astype(np.float32)


class Embedding:
    """A table of ``vocabulary_size`` rows, each ``embedding_dimension`` numbers wide.

    ``rng`` draws the rows from N(0, 1/D); `from_weight` takes a table that exists. ``scale`` multiplies what
    is looked up: a number, or "sqrt" for sqrt(D) (Vaswani et al. 2017, section 3.4). ``scale_dtype`` rounds
    that factor to a type first, as Gemma does: sqrt(3072) = 55.4256 is 55.5 in bfloat16.

    ``padding_id`` names the padding token's row: zero when drawn, and without a gradient from the lookup. A
    tied head may still train it; ``freeze_padding=True`` keeps the row as it is and the head's logit masked.
    ``ShapeError`` for a size, scale or generator that is none, ``TokenIdError`` for a padding id that is.

    ``weight`` may be float16, bfloat16, float32 or float64; numbers leave it as float32 at least.
    ``gradient`` is None until a backward, then the sum of all backwards since the last `step` or
    `zero_gradient`: a tied head adds its part to it.

    >>> embedding = Embedding.from_weight(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32))
    >>> embedding.forward([[2, 0, 2]])
    array([[[0.5, 0.6],
            [0.1, 0.2],
            [0.5, 0.6]]], dtype=float32)
    >>> embedding.backward(np.ones((1, 3, 2)))  # id 2 stands at two positions
    array([[1., 1.],
           [0., 0.],
           [2., 2.]], dtype=float32)
    """

    id_name = "token id"

    def __init__(
        self,
        vocabulary_size: Whole,
        embedding_dimension: Whole,
        rng: Generator,
        *,
        scale: Real | Literal["sqrt"] | None = None,
        scale_dtype: DTypeLike | None = None,
        padding_id: Whole | None = None,
        freeze_padding: bool = False,
    ):
        weight = normal((vocabulary_size, embedding_dimension), rng, padding_id=padding_id)
        self._hold(weight, scale, scale_dtype, padding_id, freeze_padding)

    @classmethod
    def from_weight(
        cls,
        weight: ArrayLike,
        *,
        scale: Real | Literal["sqrt"] | None = None,
        scale_dtype: DTypeLike | None = None,
        padding_id: Whole | None = None,
        freeze_padding: bool = False,
    ) -> Embedding:
        """Hold an existing (V, D) table, its padding row as it is.

        The array is held, not copied: `step` writes into it (a read-only one, such as a memory-mapped file,
        is copied before the first write). ``ShapeError`` if it does not have two axes of floats.
        """
        self = cls.__new__(cls)
        self._hold(weight, scale, scale_dtype, padding_id, freeze_padding)
        return self

    def _hold(
        self,
        weight: ArrayLike,
        scale: Real | Literal["sqrt"] | None = None,
        scale_dtype: DTypeLike | None = None,
        padding_id: Whole | None = None,
        freeze_padding: bool = False,
    ) -> None:
        self.weight = checked_table(weight)
        self.scale = None if scale is None else scale_factor(scale, self.embedding_dimension, scale_dtype)
        self.padding_id = checked_padding_id(padding_id, self.vocabulary_size)
        if freeze_padding and padding_id is None:
            raise ShapeError("freeze_padding=True needs the padding_id whose row it freezes")
        self.freeze_padding = freeze_padding
        self.gradient: np.ndarray | None = None
        self._output_shape: tuple[int, ...] | None = None

    @property
    def vocabulary_size(self) -> int:
        """V, the number of rows."""
        return self.weight.shape[0]

    @property
    def embedding_dimension(self) -> int:
        """D, the numbers in a row."""
        return self.weight.shape[1]

    def lookup(self, ids: ArrayLike) -> Float[Array, "*axes D"]:
        """Select one row per id, before any scaling. ``TokenIdError`` if an id is not a row's."""
        self._ids = np.array(checked_ids(ids, self.vocabulary_size, self.id_name), dtype=np.intp)
        self._output_shape = (*self._ids.shape, self.embedding_dimension)
        return widened(self.weight[self._ids])

    def forward(self, ids: ArrayLike) -> Float[Array, "*axes D"]:
        """Select one row per id and scale it: indexing, O(D) an id, however large V is."""
        rows = self.lookup(ids)
        return rows if self.scale is None else rows * self.scale

    def backward(self, upstream_gradient: ArrayLike) -> Float[Array, "V D"]:
        """The table's gradient for the last forward: each row sums over every position where its id stood.

        ``upstream_gradient`` is the gradient (\\*axes, D) of what `forward` returned; it is left as it is.
        """
        upstream_gradient = checked_gradient(upstream_gradient, self._output_shape)
        if self.scale is not None:
            upstream_gradient = upstream_gradient * self.scale
        gradient = np.zeros_like(self.weight, dtype=widened(self.weight[:0]).dtype)
        np.add.at(gradient, self._ids, upstream_gradient)
        if self.padding_id is not None:
            gradient[self.padding_id] = 0.0
        self.add_gradient(gradient)
        return gradient

    def forward_one_hot(self, ids: ArrayLike) -> Float[Array, "*axes D"]:
        """The same numbers the long way, as a product: one_hot(ids) @ weight × scale, O(V·D) an id.

        Equal to `forward` while the table is finite. A NaN or Inf anywhere in it spoils every row of the
        product (0 × Inf is NaN), where a lookup reads only the rows it was asked for.
        """
        rows = one_hot(ids, self.vocabulary_size) @ widened(self.weight)
        return rows if self.scale is None else rows * self.scale

    def add_gradient(self, d_weight: ArrayLike) -> None:
        """Add one use's share (V, D) to ``gradient``; a frozen padding row takes none."""
        share = widened(d_weight, "a table's gradient")
        if share.shape != self.weight.shape:
            raise ShapeError(
                f"the gradient has shape {share.shape}, the table {self.weight.shape}; they must be equal"
            )
        self.gradient = share.copy() if self.gradient is None else self.gradient + share
        if self.freeze_padding:
            self.gradient[self.padding_id] = 0.0

    def zero_gradient(self) -> None:
        """Forget ``gradient``."""
        self.gradient = None

    def step(self, learning_rate: Real) -> Int[Array, " U"]:
        """One step of plain gradient descent; returns the ids of the U rows that it changed.

        Only rows with a gradient are written, so a token that the text did not use keeps its row.
        ``gradient`` is used up. ``ShapeError`` unless ``learning_rate`` is a finite number.
        """
        learning_rate = real("learning_rate", learning_rate)
        if self.gradient is None:
            return np.zeros(0, np.int64)
        used = np.flatnonzero((self.gradient != 0).any(axis=1))
        if used.size and not self.weight.flags.writeable:
            self.weight = self.weight.copy()
        updated = widened(self.weight[used]) - learning_rate * self.gradient[used]
        self.weight[used] = updated.astype(self.weight.dtype)
        self.zero_gradient()
        return used

    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays that training changes, by name."""
        return {"weight": self.weight}

    def gradients(self) -> dict[str, np.ndarray]:
        """Their gradients, under the same names; empty before a backward."""
        return {} if self.gradient is None else {"weight": self.gradient}


def checked_table(weight: ArrayLike) -> Float[Array, "V D"]:
    """``weight`` as an array, uncopied; ``ShapeError`` unless it has two axes of floating-point numbers."""
    return checked_parameter(weight, "a table", "rows", "width")


def scale_factor(scale: Real | Literal["sqrt"], width: int, dtype: DTypeLike | None = None) -> float:
    """The number to multiply by; "sqrt" is sqrt(width), rounded to ``dtype`` if one is given.

    ``ShapeError`` unless it is "sqrt" or a finite number, and after the rounding still is.

    >>> import ml_dtypes
    >>> scale_factor("sqrt", 3072, ml_dtypes.bfloat16), round(scale_factor("sqrt", 3072), 4)
    (55.5, 55.4256)
    """
    if isinstance(scale, str) and scale != "sqrt":
        raise ShapeError(f"scale must be a number or 'sqrt'; found {scale!r}")
    factor = math.sqrt(width) if isinstance(scale, str) else real("scale", scale)
    if dtype is None:
        return factor
    kind = checked_float_dtype(dtype, "scale_dtype")
    with np.errstate(over="ignore"):  # an overflow is told of as what it makes: infinity
        return real(f"scale in {kind}", np.asarray(factor).astype(kind))
