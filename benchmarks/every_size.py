"""Is the layer ever slower than torch's? One token to 16,384, evaluation and training, three kinds of input.

    python benchmarks/every_size.py                    # ten minutes; results/every_size.md, .json, .svg
    python benchmarks/every_size.py --only "D 64"      # the cells with this in their names; prints only

The claim: over all cells, ours takes at most 1 / 0.95 of the time that torch eager takes, and at most as long
in 95 of 100 cells. A cell is one kind of input at one size in one mode:

- token: a lookup against ``nn.Embedding``.
- gpt2: token + position, dropout 0.1, as most people write it in torch.
- bert: token + position + segment, LayerNorm, dropout 0.1.
- evaluation: a forward under ``no_grad``. training: ``zero_grad``, forward, backward from a given gradient.

The grid is D 64, 384, 1,024 with V 30,522; further cells vary one thing at a few sizes: other widths and
vocabularies, 16-bit tables, ``padding_idx``, ids of one axis, int32 ids, ``inference_mode``, one thread.

Ours and torch's take turns, in the other order at each step; medians. The same ids come again and again, so
what fits the caches stays there, as in a tight loop.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from measure import THREADS, alternately
from report import RESULTS, machine, machine_line
from tokenspace.nn import TokenEmbedding, TransformerInput

LEAST, SHARE = 0.95, 0.95  # no cell below LEAST; so many at 1 or more
V, POSITIONS = 30_522, 2048
SIZES = ((1, 1), (1, 16), (1, 128), (8, 64), (8, 128), (16, 256), (64, 256))
WIDTHS = (64, 384, 1024)
SECONDS = 0.6  # that a cell may take, once warm
NAME = "every_size"


class Cell(NamedTuple):
    kind: str
    mode: str
    width: int
    batch: int
    length: int
    vocabulary: int = V
    dtype: torch.dtype = torch.float32
    other: str = ""  # what is unlike the grid
    threads: int = THREADS

    def __str__(self) -> str:
        size = f"{self.kind}, {self.mode}, D {self.width:,}, {self.batch} × {self.length:,}"
        return f"{size}, {self.other}" if self.other else size


class Measured(NamedTuple):
    cell: str
    kind: str
    mode: str
    width: int
    tokens: int
    other: str
    ours: float  # microseconds, medians
    torchs: float

    @property
    def ratio(self) -> float:
        return self.torchs / self.ours


class TorchInput(nn.Module):
    """What most people write in torch: rows added up, then LayerNorm and dropout where the kind has them."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        made_as = {"dtype": cell.dtype}
        padding = 0 if cell.other == "padding_idx" else None
        self.token = nn.Embedding(cell.vocabulary, cell.width, padding, **made_as)
        self.kind = cell.kind
        if cell.kind != "token":
            self.position = nn.Embedding(POSITIONS, cell.width, **made_as)
            self.dropout = nn.Dropout(0.1)
        if cell.kind == "bert":
            self.segment = nn.Embedding(2, cell.width, **made_as)
            self.norm = nn.LayerNorm(cell.width, eps=1e-12, **made_as)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        if self.kind == "token":
            return x
        x = x + self.position.weight[: ids.shape[1]]
        if self.kind == "bert":
            x = self.norm(x + self.segment.weight[0])
        return self.dropout(x)


def ours_of(cell: Cell) -> nn.Module:
    if cell.kind == "token":
        padding = 0 if cell.other == "padding_idx" else None
        return TokenEmbedding(cell.vocabulary, cell.width, padding, dtype=cell.dtype)
    return TransformerInput.from_recipe(
        cell.kind,
        vocab_size=cell.vocabulary,
        d_model=cell.width,
        max_positions=POSITIONS,
        dtype=cell.dtype,
        padding_idx=0 if cell.other == "padding_idx" else None,
    )


def grid() -> Iterator[Cell]:
    for width in WIDTHS:
        for batch, length in SIZES:
            for kind in ("token", "gpt2", "bert"):
                for mode in ("evaluation", "training"):
                    yield Cell(kind, mode, width, batch, length)


def beyond() -> Iterator[Cell]:
    """Cells that vary one thing."""
    few = ((1, 1), (1, 128), (8, 128), (32, 256))
    for batch, length in few:
        for mode in ("evaluation", "training"):
            for kind in ("token", "bert"):
                cell = Cell(kind, mode, 384, batch, length)
                for width in (100, 768, 2048):
                    yield cell._replace(width=width)
                for count in (1_000, 10_000, 128_256):
                    yield cell._replace(vocabulary=count, other=f"V {count:,}")
                for dtype in (torch.bfloat16, torch.float16):
                    yield cell._replace(dtype=dtype, other=str(dtype).removeprefix("torch."))
                for other in ("padding_idx", "int32 ids"):
                    yield cell._replace(other=other)
                yield cell._replace(other="one thread", threads=1)
            yield Cell("token", mode, 384, batch, length, other="1-D ids")
        for kind in ("token", "gpt2", "bert"):
            yield Cell(kind, "evaluation", 384, batch, length, other="inference_mode")


def measure(cell: Cell) -> Measured:
    torch.manual_seed(0)
    torch.set_num_threads(cell.threads)
    shape = (cell.batch * cell.length,) if cell.other == "1-D ids" else (cell.batch, cell.length)
    ids = torch.randint(1, cell.vocabulary, shape)
    ids = ids.int() if cell.other == "int32 ids" else ids
    ours, theirs = (layer.train(cell.mode == "training") for layer in (ours_of(cell), TorchInput(cell)))
    steps = [_step(layer, ids, cell) for layer in (ours, theirs)]
    mode = torch.inference_mode() if cell.other == "inference_mode" else torch.no_grad()
    with contextlib.nullcontext() if cell.mode == "training" else mode:
        times = alternately(steps, SECONDS)
    return Measured(
        *(str(cell), cell.kind, cell.mode, cell.width, cell.batch * cell.length, cell.other),
        *(1e6 * each for each in times),
    )


def _step(layer: nn.Module, ids: Tensor, cell: Cell) -> Callable[[], Any]:
    if cell.mode == "evaluation":
        return lambda: layer(ids)
    gradient = torch.randn(*ids.shape, cell.width).to(cell.dtype)

    def train() -> None:
        layer.zero_grad(set_to_none=True)
        layer(ids).backward(gradient)

    return train


def report(measured: list[Measured]) -> str:
    lines = [
        "# Measured: every size against torch eager",
        "",
        f"`python benchmarks/every_size.py`. {machine_line(machine())}",
        "",
        f"{verdict(measured)}",
        "",
        "| kind, mode | " + " | ".join(f"{b * t:,}" for b, t in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    plain = [each for each in measured if not each.other]
    for width in WIDTHS:
        for kind in ("token", "gpt2", "bert"):
            for mode in ("evaluation", "training"):
                row = {e.tokens: e for e in plain if (e.width, e.kind, e.mode) == (width, kind, mode)}
                cells = " | ".join(_shown(row.get(b * t)) for b, t in SIZES)
                lines.append(f"| {kind}, {mode}, D {width:,} | {cells} |")
    rest = [each for each in measured if each.other or each.width not in WIDTHS]
    lines += ["", "Ratios of times, torch's over ours, by tokens. Cells that vary one thing:", ""]
    lines += ["| cell | ours, µs | torch, µs | ratio |", "|---|---|---|---|"]
    lines += [f"| {e.cell} | {e.ours:,.0f} | {e.torchs:,.0f} | {_shown(e)} |" for e in rest]
    return "\n".join(lines) + "\n"


def verdict(measured: list[Measured]) -> str:
    below = [each for each in measured if each.ratio < LEAST]
    level = sum(each.ratio >= 1 for each in measured) / len(measured)
    worst = min(measured, key=lambda each: each.ratio)
    return (
        f"{len(measured)} cells: {level:.1%} at least as fast as torch (asked: {SHARE:.0%}); "
        f"{len(below)} below {LEAST} (asked: none); the lowest is {worst.ratio:.2f} ({worst.cell})."
    )


def _shown(measured: Measured | None) -> str:
    if measured is None:
        return ""
    return f"**{measured.ratio:.2f}**" if measured.ratio < LEAST else f"{measured.ratio:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cells with this in their names; nothing is written")
    parser.add_argument("--grid", action="store_true", help="the grid alone; nothing is written")
    arguments = parser.parse_args()
    cells = list(dict.fromkeys([*grid(), *(() if arguments.grid else beyond())]))
    measured = []
    for cell in cells:
        if arguments.only not in str(cell):
            continue
        measured.append(measure(cell))
        last = measured[-1]
        print(f"{last.ratio:6.2f}  {last.ours:10,.1f}  {last.torchs:10,.1f}  {last.cell}", flush=True)
    print(verdict(measured))
    if not arguments.only and not arguments.grid:
        (RESULTS / f"{NAME}.md").write_text(report(measured))
        (RESULTS / f"{NAME}.json").write_text(json.dumps([each._asdict() for each in measured], indent=1))
        if importlib.util.find_spec("matplotlib"):
            import plots

            plots.every_size(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
