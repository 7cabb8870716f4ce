"""GPT-2's architecture (Radford et al. 2019) from torch's own layers, over our input and a tied head.

    ids -> E[ids] + P -> dropout -> L × (x + attention(norm(x)); x + mlp(norm(x))) -> norm -> · Eᵀ = logits

E (V, D) is one table, read and scored against; P (T, D) learned positions; the mlp is 4·D wide.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenspace.nn import LMHead, TransformerInput
from tokenspace.nn.initializers import normal_
from tokenspace.train.language_model_settings import check_heads

STD = 0.02  # of every matrix, as in GPT-2


class Decoder(nn.Module):
    """ids (B, T) to hidden states (B, T, D); ``head`` scores them, and has the loss.

    ``ShapeError`` if the heads don't divide the width evenly. ``torch.manual_seed`` repeats the draws.

    >>> _ = torch.manual_seed(0)
    >>> model = Decoder(rows=100, dim=16, layers=2, heads=2, context=8)
    >>> model.head(model(torch.tensor([[5, 7, 7]]))).shape
    torch.Size([1, 3, 100])
    """

    def __init__(
        self, rows: int, dim: int, layers: int, heads: int, context: int, dropout: float = 0.0
    ) -> None:
        check_heads(dim, heads)
        super().__init__()
        self.input = TransformerInput.from_recipe("gpt2", vocab_size=rows, d_model=dim, max_positions=context)
        self.input.dropout = nn.Dropout(dropout) if dropout else None
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout, _gelu, batch_first=True, norm_first=True
        )
        layer.dropout = nn.Dropout(0.0)  # GPT-2 has none inside the mlp
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = LMHead(self.input.token)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False
        )
        self._draw(layers)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states (B, T, D) of ids (B, T), each from the tokens up to it alone."""
        mask = self.get_buffer("mask")[: ids.shape[1], : ids.shape[1]]
        return self.body(self.input(ids), mask=mask, is_causal=True)

    @torch.no_grad()
    def _draw(self, layers: int) -> None:
        for name, parameter in self.body.named_parameters():
            if parameter.ndim == 2:
                writes = name.endswith(("out_proj.weight", "linear2.weight"))
                normal_(parameter, std=STD / math.sqrt(2 * layers) if writes else STD)
            elif name.endswith("bias"):
                parameter.zero_()


def _gelu(x: Tensor) -> Tensor:
    """GELU by its tanh formula. A function: where torch sees an ``nn.GELU``, its fast path for inference
    computes the exact GELU, whatever that module says (torch 2.13), and logits would be off by some 1e-4.
    """
    return F.gelu(x, approximate="tanh")
