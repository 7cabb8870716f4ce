"""A training step of the table with Adam: forward, backward, update, row-sparse and lazy, against torch's.

    python benchmarks/sparse_adam.py [--quick]

Claim: 6 times as fast as ``nn.Embedding(sparse=True)`` with ``torch.optim.SparseAdam``. Both move the rows
of a batch only, and SparseAdam knows no weight decay, so ours is 0 here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from layers import check_equal, eager_token, our_token, rows_at, settle, training
from measure import Effort, Quartiles, Row, Size, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main
from tokenspace.optim import SparseAdamW

LR = 1e-3

Maker = Callable[[Any], torch.optim.Optimizer]


def rows(effort: Effort) -> list[Row]:
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    times, used = step_times(
        size,
        effort,
        lambda weights: SparseAdamW(weights, lr=LR, weight_decay=0.0),
        lambda weights: torch.optim.SparseAdam(weights, lr=LR),
        sparse_peer=True,
    )
    return Row(
        "forward + backward + Adam, lazy",
        str(size),
        "`sparse=True` + SparseAdam",
        times["ours"],
        times["torch"],
        asked=6.0,
        megabytes=adam_floats(size, used) * 4 / 1e6,
        copy_gb_per_s=copy_speed(size, times["copy"]),
    )


def step_times(
    size: Size, effort: Effort, optimizer: Maker, peer: Maker, *, sparse_peer: bool
) -> tuple[dict[str, Quartiles], int]:
    """Times of a training step with each optimizer, once their rows agree; and how many rows it touches."""
    made, d_out = batches(size, effort), upstream(size, effort.device)
    ours = our_token(size, sparse=True, device=effort.device)
    eager = eager_token(ours, sparse=sparse_peer)
    optimizers = optimizer(ours.parameters()), peer(eager.parameters())
    contenders = {
        "ours": training(ours, made, d_out, optimizers[0], segments=False),
        "torch": training(eager, made, d_out, optimizers[1], segments=False),
        "copy": copying(size, effort.device),
    }
    contenders["ours"](0), contenders["torch"](0)
    ids = made[0].ids
    check_equal(rows_at(ids, ours.weight), rows_at(ids, eager.weight), "a step of Adam", strays=1e-3)
    settle(*optimizers)
    return in_turn(contenders, effort), distinct(made)


def adam_floats(size: Size, used: int) -> int:
    """Floats that a lazy step moves: rows, output, its gradient, row gradients twice, rows and moments."""
    return (used + 2 * size.B * size.T + 2 * used + 6 * used) * size.D


if __name__ == "__main__":
    main(rows, __doc__)
