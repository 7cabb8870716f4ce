"""A small transformer with our layer in place of torch's: tokens a second, served and trained.

    python benchmarks/small_transformer.py    # a minute; results/small_transformer.md

The claim: at least as many tokens a second as with torch's own layer, decoding (1 × 1), and with 1 × 128 and
16 × 128 tokens, served (``inference_mode``) and trained (forward, backward, AdamW). Four layers of width 256,
a vocabulary of 32,000, a head tied to the table by its weight. Both have the same numbers, and take turns;
medians. The layer is a small part of such a model, so a ratio of 1 is what to expect.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measure import THREADS, alternately
from report import RESULTS, machine, machine_line
from tokenspace.nn import LearnedPositionalEmbedding, TokenEmbedding, TransformerInput

V, D, LAYERS, HEADS, LONGEST = 32_000, 256, 4, 4, 128
SIZES = ((1, 1), (1, 128), (16, 128))
STEPS, SECONDS = 400, 8.0


class TorchInput(nn.Module):
    """Token and position rows added, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(V, D)
        self.position = nn.Embedding(LONGEST, D)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.dropout(self.token(ids) + self.position.weight[: ids.shape[1]])


def our_input() -> TransformerInput:
    return TransformerInput(
        TokenEmbedding(V, D), position=LearnedPositionalEmbedding(LONGEST, D), dropout=nn.Dropout(0.1)
    )


class Model(nn.Module):
    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.inputs = inputs
        block = nn.TransformerEncoderLayer(D, HEADS, 4 * D, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return F.linear(self.blocks(self.inputs(ids), mask, is_causal=True), self.inputs.token.weight)


def steps_of(model: Model, ids: Tensor, trained: bool) -> Callable[[], object]:
    if not trained:
        return torch.inference_mode()(lambda: model(ids))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()

    return step


def main() -> int:
    torch.set_num_threads(THREADS)
    lines = ["# Measured: a small transformer, our layer in place of torch's", ""]
    lines += [f"`python benchmarks/small_transformer.py`. {machine_line(machine())}", ""]
    lines += ["| | batch | ours, tokens/s | torch's, tokens/s | ratio |", "|---|---|---|---|---|"]
    for trained in (False, True):
        for batch, length in SIZES:
            torch.manual_seed(0)
            ours, theirs = Model(our_input()), Model(TorchInput())
            theirs.load_state_dict(ours.state_dict())
            ids = torch.randint(0, V, (batch, length))
            steps = [steps_of(model.train(trained), ids, trained) for model in (ours, theirs)]
            mine, others = (batch * length / seconds for seconds in alternately(steps, SECONDS, most=STEPS))
            what = "trained" if trained else "served"
            lines.append(
                f"| {what} | {batch} × {length} | {mine:,.0f} | {others:,.0f} | {mine / others:.3f} |"
            )
            print(lines[-1], flush=True)
    (RESULTS / "small_transformer.md").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
