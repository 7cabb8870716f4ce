"""A training step with row-wise Adagrad, against FBGEMM's fused one on the CPU.

    python benchmarks/rowwise_adagrad.py [--quick]

Claim: 2.5 times as fast as ``SplitTableBatchedEmbeddingBagsCodegen`` (fbgemm-gpu-cpu 1.8.0), unpooled, which
updates its rows inside the backward (EXACT_ROWWISE_ADAGRAD). Each gives its own output (N, D). FBGEMM runs in
this process: it loads no second OpenMP and changes no speed of torch's (copy, lookup and matrix product were
timed before and after its import). ``make bench`` installs it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

from layers import check_equal, our_token, rows_at, settle, training
from measure import Batch, Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn, upstream
from report import main
from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseRowWiseAdagrad

LR, EPS = 0.01, 1e-8


def rows(effort: Effort) -> list[Row]:
    if effort.device == "cpu" and importlib.util.find_spec("fbgemm_gpu") is None:
        raise SystemExit("rowwise_adagrad.py needs fbgemm-gpu-cpu==1.8.0; run: make bench")
    return [_row(size, effort) for size in effort.sizes]


def _row(size: Size, effort: Effort) -> Row:
    made, d_out = batches(size, effort), upstream(size, effort.device)
    ours = our_token(size, sparse=True, device=effort.device)
    optimizer = SparseRowWiseAdagrad(ours.parameters(), lr=LR, eps=EPS)
    table, fbgemm = _fbgemm(ours, size, made, d_out.reshape(-1, size.D))
    contenders = {
        "ours": training(ours, made, d_out, optimizer, segments=False),
        "fbgemm": fbgemm,
        "copy": copying(size),
    }
    contenders["ours"](0), contenders["fbgemm"](0)
    ids = made[0].ids
    check_equal(rows_at(ids, ours.weight), rows_at(ids, table), "a step of row-wise Adagrad")
    settle(optimizer)
    times = in_turn(contenders, effort)
    used, positions = distinct(made), size.B * size.T
    return Row(
        "forward + backward + row-wise Adagrad",
        str(size),
        "FBGEMM, unpooled",
        times["ours"],
        times["fbgemm"],
        asked=2.5,
        megabytes=(used + 2 * positions + 2 * used + 2 * used) * size.D * 4 / 1e6,
        copy_gb_per_s=copy_speed(size, times["copy"]),
    )


def _fbgemm(
    ours: TokenEmbedding, size: Size, made: list[Batch], d_out: torch.Tensor
) -> tuple[torch.Tensor, Callable[[int], torch.Tensor]]:
    """Its table, with a copy of our numbers, and its step."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    layer = SplitTableBatchedEmbeddingBagsCodegen(
        [(size.V, size.D, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=LR,
        eps=EPS,
        pooling_mode=PoolingMode.NONE,
    )
    table = layer.split_embedding_weights()[0]
    table.copy_(ours.weight.detach())
    offsets = torch.arange(size.B * size.T + 1)

    def step_of(step: int) -> torch.Tensor:
        out = layer(made[step].ids.reshape(-1), offsets)
        out.backward(d_out)
        return out

    return table, step_of


if __name__ == "__main__":
    main(rows, __doc__)
