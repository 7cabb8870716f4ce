"""The contenders: our modules as a user makes them, and what a good user writes in torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from measure import Batch, Size
from tokenspace.nn import LearnedPositionalEmbedding, SegmentEmbedding, TokenEmbedding, TransformerInput

SEGMENTS = 2
DROPOUT = 0.1
EPS = 1e-12


class EagerInput(nn.Module):
    """Three ``nn.Embedding``, added; a LayerNorm and a Dropout: BERT's input as it is mostly written."""

    def __init__(self, size: Size, *, norm: bool, sparse: bool, device: str) -> None:
        super().__init__()
        self.token = nn.Embedding(size.V, size.D, sparse=sparse, device=device)
        self.position = nn.Embedding(size.T, size.D, device=device)
        self.segment = nn.Embedding(SEGMENTS, size.D, device=device)
        self.layer_norm = nn.LayerNorm(size.D, eps=EPS, device=device) if norm else None
        self.dropout = nn.Dropout(DROPOUT) if norm else None
        self.scale = size.D**0.5
        self.register_buffer("position_ids", torch.arange(size.T, device=device)[None], persistent=False)

    def forward(self, ids: Tensor, segment_ids: Tensor) -> Tensor:
        x = self.token(ids) * self.scale
        x = x + self.position(self.position_ids[:, : ids.shape[1]]) + self.segment(segment_ids)
        if self.layer_norm is not None:
            x = self.dropout(self.layer_norm(x))
        return x


def our_input(
    size: Size, *, norm: bool = False, sparse: bool = False, device: str = "cpu"
) -> TransformerInput:
    return TransformerInput(
        TokenEmbedding(size.V, size.D, scale="sqrt", sparse=sparse, device=device),
        position=LearnedPositionalEmbedding(size.T, size.D, device=device),
        segment=SegmentEmbedding(SEGMENTS, size.D, device=device),
        layer_norm=nn.LayerNorm(size.D, eps=EPS, device=device) if norm else None,
        dropout=nn.Dropout(DROPOUT) if norm else None,
    )


def eager_input(
    ours: TransformerInput, size: Size, *, norm: bool = False, sparse: bool = False
) -> EagerInput:
    """The peer, with a copy of our numbers."""
    peer = EagerInput(size, norm=norm, sparse=sparse, device="meta")
    peer = peer.to_empty(device=ours.token.weight.device)
    peer.position_ids = torch.arange(size.T, device=ours.token.weight.device)[None]
    peer.load_state_dict(ours.state_dict())
    return peer


def compiled(eager: nn.Module) -> Callable[..., Tensor]:
    """torch.compile at its best: this size alone, no shape left open because of one compiled before."""
    torch.compiler.reset()
    return torch.compile(eager, dynamic=False)


def our_token(size: Size, *, sparse: bool, device: str, dtype: torch.dtype | None = None) -> TokenEmbedding:
    return TokenEmbedding(size.V, size.D, sparse=sparse, device=device, dtype=dtype)


def eager_token(ours: TokenEmbedding, *, sparse: bool) -> nn.Embedding:
    return nn.Embedding.from_pretrained(ours.weight.detach().clone(), freeze=False, sparse=sparse)


def calling(layer: nn.Module, made: list[Batch], **given: Any) -> Callable[[int], Tensor]:
    """A forward of the whole input, the graph for its backward recorded."""
    return lambda step: layer(made[step].ids, segment_ids=made[step].segment_ids, **given)


def training(
    layer: nn.Module,
    made: list[Batch],
    d_out: Tensor,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    segments: bool = True,
) -> Callable[[int], Tensor]:
    """A step as a training loop takes it: gradients away, forward, backward, and the optimizer's step."""

    def step_of(step: int) -> Tensor:
        layer.zero_grad() if optimizer is None else optimizer.zero_grad()
        batch = made[step]
        out = layer(batch.ids, segment_ids=batch.segment_ids) if segments else layer(batch.ids)
        out.backward(d_out)
        if optimizer is not None:
            optimizer.step()
        return out

    return step_of


@torch.no_grad()
def settle(*optimizers: torch.optim.Optimizer) -> None:
    """Write every page of what the optimizers keep, after a first step has made it.

    torch writes it all in that step. Ours is written where a row is first used, so that the system would be
    handing out fresh pages all through the measured steps, which a training run is past after a while.
    """
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor) and value.numel() > 1:
                    value.add_(0.0)


def check_equal(
    ours: Tensor, theirs: Tensor, what: str, tolerance: float = 1e-5, strays: float = 0.0
) -> None:
    """A comparison of two speeds says nothing where the results differ.

    ``tolerance`` is a share of the largest number, ``strays`` the share of numbers that may miss it: Adam
    divides a gradient by its size, so where a sum nearly cancels, rounding decides the step.
    """
    ours, theirs = ours.detach(), theirs.detach()
    apart, largest = (ours - theirs).abs(), float(theirs.abs().max())
    missing = float((~(apart <= tolerance * largest)).float().mean())
    if missing > strays:
        raise SystemExit(
            f"{what}: {missing:.2%} of our numbers differ from the peer's, by up to "
            f"{float(apart.max()):.2e} where {largest:.2e} is the largest"
        )


@torch.no_grad()
def rows_at(ids: Tensor, table: Tensor) -> Tensor:
    """The rows of a dense or row-sparse (V, D) gradient, or of a table, at the different ids of a batch."""
    used = ids.unique()
    if not table.is_sparse:
        return table[used]
    table = table.coalesce()
    if not torch.equal(table.indices()[0], used):
        raise SystemExit("a row-sparse gradient has other rows than the batch has ids")
    return table.values()
