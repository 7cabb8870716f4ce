"""Peak memory and time of the head's loss, forward and backward: by hand, and by ``LMHead.loss``.

    python benchmarks/lm_head_loss.py                # prints the table, writes results/lm_head_loss.md

The claim: at V 256,000, D 1,024, N 1,024 (float32) the chunked loss peaks at 60 % of the naive one or less.
Each variant runs in a fresh process. Memory is that process's peak above what it held when the loss was
called: the table, the hidden states, and one small loss that has loaded the libraries.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "lm_head_loss.md"
NAIVE, OURS = "`F.cross_entropy(F.linear(…))`", "`LMHead.loss`"
TORCH = "`F.linear_cross_entropy(…, options)`"
VARIANTS = {
    "naive": (NAIVE, None),
    "torch": (TORCH, None),
    "chunked": (OURS, None),
    "naive-cap": (f"{NAIVE}, soft-capped", 30.0),
    "chunked-cap": (f"{OURS}, soft-capped", 30.0),
}


def measure(variant: str, rows: int, width: int, positions: int) -> dict[str, float]:
    """One forward and backward in this process: seconds, MB above what was held before, and the loss."""
    import torch
    import torch.nn.functional as F

    from tokenspace.nn import LMHead
    from tokenspace.nn.loss import torch_chunked_loss

    torch.manual_seed(0)
    cap = VARIANTS[variant][1]

    def loss(head: LMHead, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if variant.startswith("chunked"):
            return head.loss(hidden, labels)
        if variant == "torch":
            counted = torch.ones_like(labels, dtype=torch.bool)
            return torch_chunked_loss(hidden, head.weight, None, labels, counted) / len(labels)
        logits = F.linear(hidden, head.weight)
        if cap is not None:
            logits = cap * torch.tanh(logits / cap)
        return F.cross_entropy(logits, labels)

    def batch(rows: int, width: int, positions: int) -> tuple[LMHead, torch.Tensor, torch.Tensor]:
        hidden = torch.randn(positions, width, requires_grad=True)
        return LMHead.untied(rows, width, soft_cap=cap), hidden, torch.randint(0, rows, (positions,))

    loss(*batch(1_000, 64, 64)).backward()
    head, hidden, labels = batch(rows, width, positions)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at what is held now
    before, start = _status("VmRSS"), time.perf_counter()
    value = loss(head, hidden, labels)
    value.backward()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "mb": _status("VmHWM") - before, "loss": value.item()}


def _status(name: str) -> float:
    """A line of this process's /proc status, in MB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit(f"/proc/self/status has no {name}; this benchmark needs Linux")
    return int(found[1]) * 1024 / 1e6


def _machine() -> str:
    import torch

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = cpu[1] if cpu else platform.machine()
    return f"{name}, {os.cpu_count()} cores; torch {torch.__version__}, {torch.get_num_threads()} threads"


def report(rows: int, width: int, positions: int, repeats: int) -> str:
    sizes = [str(rows), str(width), str(positions)]
    runs: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(repeats):  # in turn, so that a slow spell of the machine falls on all alike
        for variant, measured in runs.items():
            command = [sys.executable, __file__, "--variant", variant, "--sizes", *sizes]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            measured.append(json.loads(output))
    median = {
        variant: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        for variant, measured in runs.items()
    }
    processes = "One fresh process each" if repeats == 1 else f"Median of {repeats} fresh processes each"
    lines = [
        f"# The head's loss: V {rows:,}, D {width:,}, N {positions:,}, float32, forward and backward",
        "",
        f"{processes} (`python benchmarks/lm_head_loss.py --repeats {repeats}`). {_machine()}.",
        "",
        "| loss | peak above base, MB | of the naive one | seconds | value |",
        "|---|---|---|---|---|",
    ]
    for variant, (name, _) in VARIANTS.items():
        own, naive = median[variant], median["naive-cap" if variant.endswith("-cap") else "naive"]
        lines.append(
            f"| {name} | {own['mb']:,.0f} | {own['mb'] / naive['mb']:.0%} | {own['seconds']:.1f} "
            f"| {own['loss']:.4f} |"
        )
    gradient = rows * width * 4 / 1e6
    lines += [
        "",
        f"The table's gradient, which every variant must hold, is {gradient:,.0f} MB of each. Memory repeats",
        "from run to run; the seconds are of a shared machine, and don't.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs=3, default=[256_000, 1_024, 1_024], metavar=("V", "D", "N")
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one here, and print JSON")
    arguments = parser.parse_args()
    if arguments.variant:
        print(json.dumps(measure(arguments.variant, *arguments.sizes)))
        return
    table = report(*arguments.sizes, arguments.repeats)
    print(table)
    if arguments.sizes == parser.get_default("sizes"):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(table)


if __name__ == "__main__":
    main()
