"""The embedding layer as torch modules: the names of ``tokenspace.reference``, its numbers, torch's manners.

It needs the ``torch`` extra; importing this room without torch raises ``MissingExtra``.
"""

import importlib.util

from tokenspace.errors import MissingExtra

if importlib.util.find_spec("torch") is None:
    raise MissingExtra("tokenspace.nn", "torch")

from tokenspace.nn import initializers
from tokenspace.nn.dispatch import torch_only
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.lm_head import LMHead
from tokenspace.nn.positional import (
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    positions_from_mask,
    sinusoidal,
)
from tokenspace.nn.projection import Projection
from tokenspace.nn.segment import SegmentEmbedding
from tokenspace.nn.transformer_input import TransformerInput

__all__ = [
    "LMHead",
    "LearnedPositionalEmbedding",
    "Projection",
    "SegmentEmbedding",
    "SinusoidalPositionalEncoding",
    "TokenEmbedding",
    "TransformerInput",
    "initializers",
    "positions_from_mask",
    "sinusoidal",
    "torch_only",
]
