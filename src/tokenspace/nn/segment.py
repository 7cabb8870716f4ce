"""Small tables added to the token rows: BERT's segments, and language, role or modality the same way."""

from __future__ import annotations

import torch

from tokenspace.initializers import Whole
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.initializers import Initializer, normal_


class SegmentEmbedding(TokenEmbedding):
    """One row per segment: 0 for text A, 1 for text B (Devlin et al. 2019, section 3.2).

    ``name`` says what the ids stand for in errors; with another name and number of rows this is the language
    table of XLM, or a dialogue's roles, or a modality.

    >>> SegmentEmbedding(3, 4, name="language")(torch.tensor([[3]]))
    Traceback (most recent call last):
    ...
    tokenspace.errors.TokenIdError: 1 of 1 language ids is outside this table of 3 rows; the first is 3 at \
batch 0, position 0 (valid: 0 to 2). Check how they are made.
    """

    def __init__(
        self,
        num_embeddings: Whole,
        embedding_dim: Whole,
        padding_idx: Whole | None = None,
        *,
        name: str = "segment",
        initializer: Initializer = normal_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, initializer=initializer, device=device, dtype=dtype
        )
        self.id_name = f"{name} id"
