"""The gradient of an id that is repeated 5,000 times in bfloat16 and float16: is it the sum, rounded once?

    python benchmarks/half_gradient.py [--quick]

Claim: equal, bit for bit, to the float64 sum rounded once; dense and row-sparse. torch 2.13 adds bfloat16
numbers up in bfloat16 on a CPU, where a sum stalls once it is 256 times what is added: for comparison, how
far nn.Embedding's own gradient is off.
"""

from __future__ import annotations

import numpy as np
import torch

from layers import eager_token, our_token
from measure import Effort, Row, Size
from report import main
from tokenspace.optim.gradients import row_gradient

REPEATS, WIDTH = 5_000, 256
DIGITS = {torch.bfloat16: 8, torch.float16: 11}
SMALLEST = {torch.bfloat16: -126, torch.float16: -14}  # the exponent of the smallest normal number


def rows(effort: Effort) -> list[Row]:
    kinds = ("ones", "normal numbers")
    return [_row(dtype, kind, effort.device) for dtype in DIGITS for kind in kinds]


def _row(dtype: torch.dtype, kind: str, device: str) -> Row:
    size = Size(10, WIDTH, 1, REPEATS)
    ids = torch.full((1, REPEATS), 7, device=device)
    if kind == "ones":
        d_out = torch.ones(1, REPEATS, WIDTH, dtype=dtype, device=device)
    else:
        d_out = torch.randn(1, REPEATS, WIDTH, device=device).to(dtype)
    expected = rounded_once(d_out.double().sum((0, 1)).cpu().numpy(), dtype)
    equal = []
    for sparse in (True, False):
        layer = our_token(size, sparse=sparse, device=device, dtype=dtype)
        layer(ids).backward(d_out)
        gradient = layer.weight.grad
        row = row_gradient(gradient).values[0] if sparse else gradient[7]  # as the optimizers read it
        found = row.double().cpu().numpy()
        equal.append(np.array_equal(found, expected))
    eager = eager_token(our_token(size, sparse=False, device=device, dtype=dtype), sparse=False)
    eager(ids).backward(d_out)
    torchs = eager.weight.grad[7].double().cpu().numpy()
    apart = np.abs(torchs - expected).max() / np.abs(expected).max()
    name = str(dtype).removeprefix("torch.")
    return Row(
        f"{name} gradient of {REPEATS:,} repeated ids",
        kind,
        "float64, rounded once",
        verdict=(all(equal), "equal" if all(equal) else "differs"),
        note="nn.Embedding: equal too" if apart == 0 else f"nn.Embedding: off by {apart:.0%}",
    )


def rounded_once(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """float64 values rounded to the nearest of ``dtype``, ties to even, and still float64.

    torch goes from float64 to bfloat16 by way of float32, which rounds twice.
    """
    _, exponent = np.frexp(values)
    unit = np.exp2(np.maximum(exponent - 1, SMALLEST[dtype]) - (DIGITS[dtype] - 1.0))
    return np.rint(values / unit) * unit


if __name__ == "__main__":
    main(rows, __doc__)
