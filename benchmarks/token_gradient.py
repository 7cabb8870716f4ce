"""The token gradient alone, row-sparse, against torch's ``embedding_dense_backward``.

    python benchmarks/token_gradient.py [--quick]

Claim: 10 times as fast at V 50,257, 100 times at V 256,000. Ours is the module's backward (autograd,
grouping, sums); torch's is the bare operator, which nn.Embedding's backward calls. A row-sparse gradient
costs what the batch holds, torch's what the vocabulary has: hence the two floors.
"""

from __future__ import annotations

import torch

from layers import check_equal, our_token, rows_at
from measure import GEMMA2, GPT2, Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main

FLOORS = {GPT2: 10.0, GEMMA2: 100.0}


def rows(effort: Effort) -> list[Row]:
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    made, d_out = batches(size, effort), upstream(size, effort.device)
    layer = our_token(size, sparse=True, device=effort.device)
    graph: list[torch.Tensor] = []

    def forward(step: int) -> None:
        layer.zero_grad()
        graph[:] = [layer(made[step].ids)]

    def torch_backward(step: int) -> torch.Tensor:
        return torch.ops.aten.embedding_dense_backward(d_out, made[step].ids, size.V, -1, False)

    contenders = {
        "ours": lambda step: graph[0].backward(d_out),
        "torch": torch_backward,
        "copy": copying(size, effort.device),
    }
    forward(0)
    contenders["ours"](0)
    ids = made[0].ids
    check_equal(rows_at(ids, layer.weight.grad), rows_at(ids, torch_backward(0)), "token gradient")
    times = in_turn(contenders, effort, before={"ours": forward})
    return Row(
        "token gradient, row-sparse",
        str(size),
        "`embedding_dense_backward`",
        times["ours"],
        times["torch"],
        asked=FLOORS.get(size),
        megabytes=(size.B * size.T + distinct(made)) * size.D * 4 / 1e6,
        copy_gb_per_s=copy_speed(size, times["copy"]),
    )


if __name__ == "__main__":
    main(rows, __doc__)
