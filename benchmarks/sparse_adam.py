"""A training step of the table with Adam: forward, backward, update, row-sparse and lazy, against torch's.

    python benchmarks/sparse_adam.py [--quick]

Claim: 6 times as fast as ``nn.Embedding(sparse=True)`` with ``torch.optim.SparseAdam``. Both move the rows
of a batch only, and SparseAdam knows no weight decay, so ours is 0 here.
"""

from __future__ import annotations

import torch

from layers import check_equal, eager_token, our_token, rows_at, settle, training
from measure import Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main
from tokenspace.optim import SparseAdamW

LR = 1e-3


def rows(effort: Effort) -> list[Row]:
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    made, d_out = batches(size, effort), upstream(size, effort.device)
    ours = our_token(size, sparse=True, device=effort.device)
    eager = eager_token(ours, sparse=True)
    optimizers = (
        SparseAdamW(ours.parameters(), lr=LR, weight_decay=0.0),
        torch.optim.SparseAdam(eager.parameters(), lr=LR),
    )
    contenders = {
        "ours": training(ours, made, d_out, optimizers[0], segments=False),
        "torch": training(eager, made, d_out, optimizers[1], segments=False),
        "copy": copying(size, effort.device),
    }
    contenders["ours"](0), contenders["torch"](0)
    ids = made[0].ids
    check_equal(rows_at(ids, ours.weight), rows_at(ids, eager.weight), "a step of lazy Adam", strays=1e-3)
    settle(*optimizers)
    times = in_turn(contenders, effort)
    return Row(
        "forward + backward + Adam, lazy",
        str(size),
        "`sparse=True` + SparseAdam",
        times["ours"],
        times["torch"],
        asked=6.0,
        megabytes=adam_floats(size, distinct(made)) * 4 / 1e6,
        copy_gb_per_s=copy_speed(size, times["copy"]),
    )


def adam_floats(size: Size, used: int) -> int:
    """Floats that a lazy step moves: rows, output, its gradient, row gradients twice, rows and moments."""
    return (used + 2 * size.B * size.T + 2 * used + 6 * used) * size.D


if __name__ == "__main__":
    main(rows, __doc__)
