"""The embedding layer in NumPy, written to be read: each gradient stands right under its forward.

It is the truth that the compiled kernels and the torch modules are tested against, and computes in float32 at
least. ``python -m tokenspace.reference`` shows it at work.
"""

from tokenspace.reference.cross_entropy import CrossEntropy
from tokenspace.reference.dropout import Dropout
from tokenspace.reference.embedding import Embedding, one_hot
from tokenspace.reference.layer_norm import LayerNorm
from tokenspace.reference.lm_head import LMHead
from tokenspace.reference.positional import (
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    convert_layout,
    position_ids,
    positions_from_mask,
    sinusoidal,
)
from tokenspace.reference.projection import Projection
from tokenspace.reference.segment import SegmentEmbedding
from tokenspace.reference.skipgram import PairLoss, SkipGram
from tokenspace.reference.transformer_input import TransformerInput

__all__ = [
    "CrossEntropy",
    "Dropout",
    "Embedding",
    "LMHead",
    "LayerNorm",
    "LearnedPositionalEmbedding",
    "PairLoss",
    "Projection",
    "SegmentEmbedding",
    "SinusoidalPositionalEncoding",
    "SkipGram",
    "TransformerInput",
    "convert_layout",
    "one_hot",
    "position_ids",
    "positions_from_mask",
    "sinusoidal",
]
