"""What the kernels do to a whole training run: nothing that a loss shows."""

import numpy as np
import torch
from torch import nn

from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    SegmentEmbedding,
    TokenEmbedding,
    TransformerInput,
    torch_only,
)


def test_a_small_training_run_has_the_same_losses_without_kernels():
    """A transformer of one layer with a tied head, 30 steps of AdamW, dropout 0.1 in input and body."""

    def losses():
        torch.manual_seed(0)
        layer = TransformerInput(
            TokenEmbedding(50, 32, padding_idx=0),
            LearnedPositionalEmbedding(16, 32),
            SegmentEmbedding(2, 32),
            layer_norm=nn.LayerNorm(32),
            dropout=nn.Dropout(0.1),
        )
        body = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        head = LMHead(layer.token, bias=True)
        parameters = [*layer.parameters(), *body.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=3e-3)
        rng = np.random.default_rng(0)
        mask = nn.Transformer.generate_square_subsequent_mask(15)
        found = []
        for _ in range(30):
            ids = torch.tensor(np.cumsum(rng.integers(1, 3, (8, 16)), axis=1) % 50)
            segments = torch.tensor(np.arange(15) > 7).long()
            hidden = body(layer(ids[:, :-1], segment_ids=segments), src_mask=mask, is_causal=True)
            loss = head.loss(hidden, ids[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    with_kernels = losses()
    with torch_only():
        without = losses()
    assert with_kernels[-1] < 0.8 * with_kernels[0]
    np.testing.assert_allclose(with_kernels, without, rtol=1e-5)
