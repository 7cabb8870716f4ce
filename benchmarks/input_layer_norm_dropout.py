"""BERT's input, forward: the sum of three rows, LayerNorm and dropout, against torch.

    python benchmarks/input_layer_norm_dropout.py [--quick]

Claim: 10 times as fast as torch eager. In training mode: the graph is recorded and dropout drops. The masks
differ (each draws its own), so what is compared first is the output without dropout.
"""

from __future__ import annotations

from layers import DROPOUT, calling, check_equal, compiled, eager_input, our_input
from measure import Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn
from report import main


def rows(effort: Effort) -> list[Row]:
    return [row for size in effort.sizes for row in _rows(size, effort)]


def _rows(size: Size, effort: Effort) -> list[Row]:
    made = batches(size, effort)
    ours = our_input(size, norm=True, device=effort.device)
    eager = eager_input(ours, size, norm=True)
    contenders = {
        "ours": calling(ours, made),
        "eager": calling(eager, made),
        "compiled": calling(compiled(eager), made),
        "copy": copying(size, effort.device),
    }
    dropped = float((contenders["ours"](0) == 0).float().mean())
    if not abs(dropped - DROPOUT) < 0.05:
        raise SystemExit(f"dropout of {DROPOUT} dropped {dropped:.1%} of the numbers")
    ours.eval(), eager.eval()
    check_equal(contenders["ours"](0), contenders["eager"](0), "with LayerNorm")
    ours.train(), eager.train()
    times = in_turn(contenders, effort)
    facts = {
        "megabytes": (distinct(made) + size.T + size.B * size.T) * size.D * 4 / 1e6,
        "copy_gb_per_s": copy_speed(size, times["copy"]),
    }
    claim = "input forward with LayerNorm and dropout"
    return [
        Row(claim, str(size), "torch eager", times["ours"], times["eager"], asked=10.0, **facts),
        Row(claim, str(size), "torch.compile", times["ours"], times["compiled"], **facts),
        Row(claim, str(size), "copy of N·D floats", times["ours"], times["copy"], longer=True, **facts),
    ]


if __name__ == "__main__":
    main(rows, __doc__)
