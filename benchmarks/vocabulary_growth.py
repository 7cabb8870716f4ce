"""The cost of a training step as the vocabulary grows, the same number of different ids in each batch.

    python benchmarks/vocabulary_growth.py [--quick]

Claim: from V 50,000 to 2,000,000 (D 128) a step takes at most 1.3 times as long. Lazy Adam is asked; with
``exact=True``, and torch's dense gradient with fused AdamW, for information. The ids of a batch are drawn
over the whole vocabulary, so at V 50,000 the rows of a step are in the cache more often than at 2,000,000.
"""

from __future__ import annotations

import numpy as np
import torch

from layers import eager_token, our_token, settle, training
from measure import WARM, Batch, Effort, Row, Size, Step, in_turn, upstream
from report import main
from tokenspace.optim import SparseAdamW

ROWS = (50_000, 200_000, 800_000, 2_000_000)
WIDTH, DIFFERENT, BATCH = 128, 6_000, (16, 1024)
DENSE = "torch dense + fused AdamW"


def rows(effort: Effort) -> list[Row]:
    sizes = [Size(V, WIDTH, *BATCH) for V in ROWS]
    different = DIFFERENT
    if effort.quick:
        sizes, different = [Size(V, 8, 2, 64) for V in (500, 5_000)], 100
    exact = ["ours, exact=True"] if effort.device == "cpu" else []
    names = ("ours, lazy", *exact, DENSE)
    times: dict[str, list[tuple[float, float, float]]] = {}
    for name in names:  # the vocabularies in turn; all of one kind at once, or the tables would not fit
        contenders = {str(size.V): _contender(name, size, different, effort) for size in sizes}
        times[name] = list(in_turn(contenders, effort).values())
        del contenders
    first, last = sizes[0], sizes[-1]
    grown = f"V {first.V:,} → {last.V:,}, D {first.D}, {different:,} different ids of {first.B * first.T:,}"
    asked = {"ours, lazy": 1.3}
    return [
        Row(
            f"step as V grows: {name}",
            grown,
            f"itself at V {first.V:,}",
            ours=times[name][-1],
            peer=times[name][0],
            longer=True,
            asked=asked.get(name),
            note="ours over itself" if name != DENSE else "torch's over itself",
            extra={"V": [size.V for size in sizes], "ms": times[name]},
        )
        for name in names
    ]


def _contender(name: str, size: Size, different: int, effort: Effort) -> Step:
    made, d_out = _batches(size, different, effort), upstream(size, effort.device)
    layer = our_token(size, sparse=name != DENSE, device=effort.device)
    if name == DENSE:
        eager = eager_token(layer, sparse=False)
        dense = torch.optim.AdamW(eager.parameters(), fused=True)
        return _settled(training(eager, made, d_out, dense, segments=False), dense)
    optimizer = SparseAdamW(layer.parameters(), exact=name.endswith("exact=True"))
    return _settled(training(layer, made, d_out, optimizer, segments=False), optimizer)


def _settled(step_of: Step, optimizer: torch.optim.Optimizer) -> Step:
    step_of(0)
    settle(optimizer)
    return step_of


def _batches(size: Size, different: int, effort: Effort) -> list[Batch]:
    """Zipf counts over ``different`` ids, which lie anywhere in the vocabulary; others at each step."""
    made = []
    for step in range(WARM + effort.steps):
        rng = np.random.default_rng(step)
        ids = rng.choice(size.V, different, replace=False)
        chances = 1.0 / np.arange(1, different + 1)
        more = rng.choice(ids, size.B * size.T - different, p=chances / chances.sum())
        drawn = torch.from_numpy(rng.permutation(np.concatenate([ids, more])).reshape(size.B, size.T))
        made.append(Batch(drawn.to(effort.device), drawn))
    return made


if __name__ == "__main__":
    main(rows, __doc__)
