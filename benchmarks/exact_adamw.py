"""A training step that equals dense AdamW's, at the cost of the rows touched, against dense AdamW.

    python benchmarks/exact_adamw.py [--quick]

Claim: 3 times as fast as ``nn.Embedding`` (dense gradient) with ``torch.optim.AdamW(fused=True)``. That the
numbers are the same is measured by exact_adamw_equality.py. The catch-up of each row before it is read is
inside the time.
"""

from __future__ import annotations

import torch

from measure import Effort, Row, Size, copy_speed
from report import main
from sparse_adam import LR, adam_floats, step_times
from tokenspace.optim import SparseAdamW


def rows(effort: Effort) -> list[Row]:
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    times, used = step_times(
        size,
        effort,
        lambda weights: SparseAdamW(weights, lr=LR, weight_decay=0.01, exact=True),
        lambda weights: torch.optim.AdamW(weights, lr=LR, weight_decay=0.01, fused=True),
        sparse_peer=False,
    )
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
