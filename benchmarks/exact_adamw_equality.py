"""300 steps of ``SparseAdamW(exact=True)`` and of dense ``torch.optim.AdamW``: how far apart do they end?

    python benchmarks/exact_adamw_equality.py [--quick]

Zipf ids, weight decay, a cosine schedule, and a loss whose gradient depends on the weights, so that a row
read before it is caught up would spoil everything after it. Claim: rows of std 0.02 end at most 5e-6 apart;
rows of N(0, 1) end no farther from a float64 run of torch's than torch's own float32 run does.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from layers import eager_token
from measure import Effort, Row, Size, batches
from report import main
from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdamW

SIZE, STEPS, LR = Size(20_000, 64, 2, 1024), 300, 1e-3


def rows(effort: Effort) -> list[Row]:
    size, steps = (Size(500, 16, 2, 16), 30) if effort.quick else (SIZE, STEPS)
    small, _, _ = _apart(0.02, size, steps, effort)
    _, ours64, torchs64 = _apart(1.0, size, steps, effort)
    claim, shape = f"`SparseAdamW(exact=True)` after {steps} steps", f"{size}"
    return [
        Row(
            claim,
            f"{shape}, std 0.02",
            "dense AdamW, at most 5e-6 apart",
            verdict=(small <= 5e-6, f"{small:.1e} apart"),
        ),
        Row(
            claim,
            f"{shape}, N(0, 1)",
            "float64 AdamW, no farther than torch's float32",
            verdict=(ours64 <= torchs64, f"{ours64:.1e} against {torchs64:.1e}"),
        ),
    ]


def _apart(std: float, size: Size, steps: int, effort: Effort) -> tuple[float, float, float]:
    """The largest difference of ours from torch's float32 run, of ours and of torch's from a float64 run."""
    torch.manual_seed(0)
    made = batches(size, Effort(steps=steps, device=effort.device))
    start = std * torch.randn(size.V, size.D, device=effort.device)
    target = torch.randn(size.B, size.T, size.D, device=effort.device)
    layers = {
        "ours": TokenEmbedding.from_pretrained(start.clone(), freeze=False, sparse=True),
        "float32": eager_token(TokenEmbedding.from_pretrained(start), sparse=False),
        "float64": eager_token(TokenEmbedding.from_pretrained(start.double()), sparse=False),
    }
    ends = {}
    for name, layer in layers.items():
        kind = SparseAdamW if name == "ours" else torch.optim.AdamW
        given = {"exact": True} if name == "ours" else {}
        optimizer = kind(layer.parameters(), lr=LR, weight_decay=0.01, **given)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for batch in made[:steps]:
            optimizer.zero_grad()
            F.mse_loss(torch.tanh(layer(batch.ids)), target.to(layer.weight.dtype)).backward()
            optimizer.step()
            schedule.step()
        ends[name] = layer.state_dict()["weight"].double()
    ours, single, double = (ends[name] for name in ("ours", "float32", "float64"))
    return tuple(float((a - b).abs().max()) for a, b in ((ours, single), (ours, double), (single, double)))


if __name__ == "__main__":
    main(rows, __doc__)
