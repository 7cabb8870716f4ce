"""Steps on few tokens: what a call costs by itself, and row-sparse optimizers against torch's.

    python benchmarks/small_steps.py    # two minutes; results/small_steps.md

*Calls*: one token of width 64, where there is nothing to compute. The time is that of Python, autograd and
allocation. Asked: 25 µs for a fused input, 60 µs with its backward.

*Row-sparse steps*: width 384, other tokens at each step. Asked: ``SparseAdamW`` as fast as torch's
``SparseAdam`` from 64 tokens up; ``SparseAdamW(exact=True)`` as fast as dense fused ``AdamW`` from a
vocabulary of 5,000 up. A step is ``zero_grad``, forward, backward and update; the update alone stands beside
the first pair, on the last step's gradient.

Ours and torch's take turns; medians.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
from torch import nn

from every_size import Cell, TorchInput, ours_of
from measure import THREADS, alternately
from report import RESULTS, machine, machine_line
from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdamW

V, D = 30_522, 384
BATCHES = 8  # of other tokens, in turn
TOKENS = (64, 128, 512, 2_048, 8_192)
VOCABULARIES = (5_000, V)
LR = 1e-3
SECONDS, ROUNDS = 5.0, 300


def call(kind: str, training: bool) -> tuple[float, float]:
    """Seconds of ours and torch's, for one token."""
    cell = Cell(kind, "", 64, 1, 1, vocabulary=1_000)  # small: the backward adds a gradient of its size
    ids, d_out = torch.tensor([[7]]), torch.ones(1, 1, 64)

    def step_of(layer: nn.Module) -> Callable[[], object]:
        layer.train(training)
        if not training:
            return torch.no_grad()(lambda: layer(ids))
        return lambda: layer(ids).backward(d_out)  # gradients add up

    ours, torchs = alternately([step_of(ours_of(cell)), step_of(TorchInput(cell))], SECONDS, most=2_000)
    return ours, torchs


def step_of(
    layer: nn.Module, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor], d_out: torch.Tensor
) -> Callable[[], None]:
    turn = itertools.cycle(batches)

    def step() -> None:
        optimizer.zero_grad()
        layer(next(turn)).backward(d_out)
        optimizer.step()

    return step


def steps(tokens: int, vocabulary: int, exact: bool) -> tuple[list[float], list[float]]:
    """Seconds of ours and torch's: the whole step, and the update alone."""
    torch.manual_seed(0)
    batches = [torch.randint(vocabulary, (tokens,)) for _ in range(BATCHES)]
    d_out = torch.randn(tokens, D)
    ours, theirs = TokenEmbedding(vocabulary, D, sparse=True), nn.Embedding(vocabulary, D, sparse=not exact)
    optimizers: list[torch.optim.Optimizer] = [SparseAdamW(ours.parameters(), lr=LR, exact=exact)]
    if exact:
        optimizers.append(torch.optim.AdamW(theirs.parameters(), lr=LR, fused=True))
    else:
        optimizers.append(torch.optim.SparseAdam(theirs.parameters(), lr=LR))
    both = [
        step_of(layer, optimizer, batches, d_out)
        for layer, optimizer in zip((ours, theirs), optimizers, strict=True)
    ]
    whole = alternately(both, SECONDS, most=ROUNDS)
    return whole, alternately([each.step for each in optimizers], SECONDS, most=ROUNDS)


def main() -> int:
    torch.set_num_threads(THREADS)
    lines = ["# Measured: steps on few tokens", ""]
    lines += [f"`python benchmarks/small_steps.py`. {machine_line(machine())} Times are in µs."]

    def head(*names: str) -> None:
        lines.append("")
        row(*names)
        lines.append("|" + "---|" * len(names))

    def row(*cells: object) -> None:
        shown = (f"{1e6 * cell:,.0f}" if isinstance(cell, float) else str(cell) for cell in cells)
        lines.append(f"| {' | '.join(shown)} |")
        print(lines[-1], flush=True)

    head("one token, D 64", "ours", "torch", "asked")
    for training in (False, True):
        for kind in ("token", "gpt2", "bert"):
            what = "forward and backward" if training else "forward"
            row(f"{kind}, {what}", *call(kind, training), 60 if training else 25)
    head("row-sparse Adam, D 384", "tokens", "ours", "SparseAdam", "ratio", "ratio of the updates alone")
    for tokens in TOKENS:
        whole, updates = steps(tokens, V, exact=False)
        row(f"V {V:,}", f"{tokens:,}", *whole, _ratio(whole), _ratio(updates))
    head("exact AdamW, D 384", "tokens", "ours", "dense fused AdamW", "ratio")
    for vocabulary in VOCABULARIES:
        for tokens in TOKENS:
            whole, _ = steps(tokens, vocabulary, exact=True)
            row(f"V {vocabulary:,}", f"{tokens:,}", *whole, _ratio(whole))
    (RESULTS / "small_steps.md").write_text("\n".join(lines) + "\n")
    return 0


def _ratio(times: list[float]) -> str:
    ours, torchs = times
    return f"{torchs / ours:.2f}"


if __name__ == "__main__":
    sys.exit(main())
