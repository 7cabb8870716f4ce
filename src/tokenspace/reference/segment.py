"""Small tables added to the token rows: BERT's segments, and language, role or modality the same way."""

from __future__ import annotations

from tokenspace.initializers import Generator, Whole, normal
from tokenspace.reference.embedding import Embedding
from tokenspace.shapes import ArrayLike


class SegmentEmbedding(Embedding):
    """One row per segment: 0 for text A, 1 for text B (Devlin et al. 2019, section 3.2).

    ``name`` says what the ids stand for in errors; with another name and number of rows this is the language
    table of XLM, or a dialogue's roles, or a modality.

    >>> import numpy as np
    >>> segment = SegmentEmbedding(2, 4, np.random.default_rng(0))
    >>> segment.forward([[0, 0, 1]]).shape
    (1, 3, 4)
    >>> SegmentEmbedding(3, 4, np.random.default_rng(0), name="language").forward([[3]])
    Traceback (most recent call last):
    ...
    tokenspace.errors.TokenIdError: 1 of 1 language ids is outside this table of 3 rows; the first is 3 at \
batch 0, position 0 (valid: 0 to 2). Check how they are made.
    """

    def __init__(self, rows: Whole, embedding_dimension: Whole, rng: Generator, *, name: str = "segment"):
        self._hold(normal((rows, embedding_dimension), rng))
        self.id_name = f"{name} id"

    @classmethod
    def from_weight(cls, weight: ArrayLike, *, name: str = "segment") -> SegmentEmbedding:  # type: ignore[override]
        """Hold an existing (rows, D) table, uncopied."""
        self = cls.__new__(cls)
        self._hold(weight)
        self.id_name = f"{name} id"
        return self
