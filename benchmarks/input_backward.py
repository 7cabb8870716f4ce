"""The transformer's input, forward and backward: token, position and segment gradients, against torch eager.

    python benchmarks/input_backward.py [--quick]

Claim: 6 times as fast as torch eager with a row-sparse token gradient, 2 times with a dense one. Eager's is
dense, as nn.Embedding's is unless it is told otherwise. Past 1 GiB ours takes its zeros from the system as
pages that nobody has written, so whoever reads it first pays for those: hence the rows "dense, then its
norm". The row "torch eager, sparse=True" is for information: its gradient has a row per position, repeated
ids not yet summed; that is left to the optimizer.
"""

from __future__ import annotations

import torch
from torch import nn

from layers import check_equal, eager_input, our_input, rows_at, training
from measure import Batch, Effort, Row, Size, Step, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main


def rows(effort: Effort) -> list[Row]:
    return [row for size in effort.sizes for row in _rows(size, effort)]


def _rows(size: Size, effort: Effort) -> list[Row]:
    made, d_out = batches(size, effort), upstream(size, effort.device)
    ours = {sparse: our_input(size, sparse=sparse, device=effort.device) for sparse in (True, False)}
    ours[False].load_state_dict(ours[True].state_dict())
    eager = {sparse: eager_input(ours[True], size, sparse=sparse) for sparse in (True, False)}
    contenders = {
        "ours, row-sparse": training(ours[True], made, d_out),
        "ours, dense": training(ours[False], made, d_out),
        "eager, sparse=True": training(eager[True], made, d_out),
        "eager": training(eager[False], made, d_out),
        "ours, dense, read": _reading(ours[False], made, d_out),
        "eager, read": _reading(eager[False], made, d_out),
        "copy": copying(size, effort.device),
    }
    for contender in contenders.values():
        contender(0)
    truth, ids = eager[False], made[0].ids
    for mine in ours.values():
        token, expected = rows_at(ids, mine.token.weight.grad), rows_at(ids, truth.token.weight.grad)
        check_equal(token, expected, "token gradient")
        check_equal(mine.position.weight.grad, truth.position.weight.grad, "position gradient")
        check_equal(mine.segment.weight.grad, truth.segment.weight.grad, "segment gradient", 1e-4)
    times = in_turn(contenders, effort)
    speed = copy_speed(size, times["copy"])
    positions, used, width = size.B * size.T, distinct(made), size.D * 4 / 1e6
    forward = (used + size.T + positions) * width
    backward = (positions + size.T) * width  # d_out read, position gradient written
    sparse = {"megabytes": forward + backward + used * width, "copy_gb_per_s": speed}
    read = {"megabytes": forward + backward + 2 * size.V * width, "copy_gb_per_s": speed}
    claim, mine, peer = "input forward + backward", times["ours, row-sparse"], times["eager"]
    return [
        Row(f"{claim}, row-sparse", str(size), "torch eager", mine, peer, asked=6.0, **sparse),
        Row(f"{claim}, row-sparse", str(size), "torch eager, sparse=True", mine, times["eager, sparse=True"]),
        Row(f"{claim}, dense", str(size), "torch eager", times["ours, dense"], peer, asked=2.0, **sparse),
        Row(
            f"{claim}, dense, then its norm",
            str(size),
            "torch eager",
            times["ours, dense, read"],
            times["eager, read"],
            **read,
        ),
    ]


def _reading(layer: nn.Module, made: list[Batch], d_out: torch.Tensor) -> Step:
    """A training step, and the token gradient's norm, as clipping takes it: every row is read."""
    step_of = training(layer, made, d_out)

    def step_and_norm(step: int) -> torch.Tensor:
        out = step_of(step)
        layer.token.weight.grad.norm()
        return out

    return step_and_norm


if __name__ == "__main__":
    main(rows, __doc__)
