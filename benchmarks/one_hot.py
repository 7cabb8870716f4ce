"""The lookup and the one-hot product that it stands for, as the vocabulary grows.

    python benchmarks/one_hot.py [--quick]

Claim: from V 1,000 to 50,000 the lookup stays flat and the product grows with V. N·D numbers are copied, or
N·V·D multiplied; both give the same vectors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from layers import check_equal, our_token
from measure import Effort, Row, Size, batches, in_turn
from report import main

ROWS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
WIDTH, BATCH = 256, (4, 128)


def rows(effort: Effort) -> list[Row]:
    sizes = [Size(V, WIDTH, *BATCH) for V in ROWS]
    if effort.quick:
        sizes = [Size(V, 16, 2, 8) for V in (100, 5_000)]
    lookups, products = {}, {}
    for size in sizes:
        layer, made = our_token(size, sparse=False, device=effort.device), batches(size, effort)
        key = str(size.V)
        lookups[key] = lambda step, layer=layer, made=made: layer(made[step].ids)
        products[key] = lambda step, layer=layer, made=made: _product(layer.weight, made[step].ids)
        with torch.no_grad():
            check_equal(lookups[key](0), products[key](0), "one-hot product")
            check_equal(layer.weight[made[0].ids], products[key](0), "lookup")
    with torch.no_grad():
        times = [list(in_turn(contenders, effort).values()) for contenders in (lookups, products)]
    growth = [measured[-1][1] / measured[0][1] for measured in times]
    flat, linear = growth[0] <= 2.0, growth[1] >= 0.5 * sizes[-1].V / sizes[0].V
    return [
        Row(
            "one-hot product against lookup",
            f"V {sizes[0].V:,} → {sizes[-1].V:,}, D {sizes[0].D}, N {sizes[0].B * sizes[0].T}",
            "lookup flat, product linear",
            verdict=(flat and linear, f"lookup {growth[0]:.1f}×, product {growth[1]:.0f}× the time"),
            extra={"V": [size.V for size in sizes], "lookup": times[0], "product": times[1]},
        )
    ]


def _product(weight: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.one_hot(ids, len(weight)).to(weight.dtype) @ weight


if __name__ == "__main__":
    main(rows, __doc__)
