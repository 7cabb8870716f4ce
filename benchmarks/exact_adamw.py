"""A training step that equals dense AdamW's, at the cost of the rows touched, against dense AdamW.

    python benchmarks/exact_adamw.py [--quick]

Claim: 3 times as fast as ``nn.Embedding`` (dense gradient) with ``torch.optim.AdamW(fused=True)``. That the
numbers are the same is measured by exact_adamw_equality.py. The catch-up of each row before it is read is
inside the time.
"""

from __future__ import annotations

import torch

from layers import check_equal, eager_token, our_token, rows_at, settle, training
from measure import Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main
from sparse_adam import LR, adam_floats
from tokenspace.optim import SparseAdamW


def rows(effort: Effort) -> list[Row]:
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    made, d_out = batches(size, effort), upstream(size, effort.device)
    ours = our_token(size, sparse=True, device=effort.device)
    eager = eager_token(ours, sparse=False)
    optimizers = (
        SparseAdamW(ours.parameters(), lr=LR, weight_decay=0.01, exact=True),
        torch.optim.AdamW(eager.parameters(), lr=LR, weight_decay=0.01, fused=True),
    )
    contenders = {
        "ours": training(ours, made, d_out, optimizers[0], segments=False),
        "torch": training(eager, made, d_out, optimizers[1], segments=False),
        "copy": copying(size, effort.device),
    }
    contenders["ours"](0), contenders["torch"](0)
    ids = made[0].ids
    check_equal(rows_at(ids, ours.weight), rows_at(ids, eager.weight), "a step of AdamW", strays=1e-3)
    settle(*optimizers)
    times = in_turn(contenders, effort)
    used = distinct(made)
    return Row(
        "forward + backward + AdamW, `exact=True`",
        str(size),
        "dense gradient + fused AdamW",
        times["ours"],
        times["torch"],
        asked=3.0,
        megabytes=(adam_floats(size, used) + 6 * used * size.D) * 4 / 1e6,  # the catch-up: rows and moments
        copy_gb_per_s=copy_speed(size, times["copy"]),
    )


if __name__ == "__main__":
    main(rows, __doc__)
