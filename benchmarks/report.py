"""From rows to what is read: the printed table, results/*.md and .json, the figures in README and docs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from measure import QUICK, THREADS, Effort, Row

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"(<!-- benchmarks: ([\w-]+) ([\w-]+) -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)


def main(rows: Callable[[Effort], list[Row]], doc: str) -> None:
    """Run one claim alone: print its table, and write its rows to ``--json PATH`` for the driver."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few steps: does it run?")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    measured = rows(QUICK if arguments.quick else Effort())
    if arguments.quick:  # nothing is asked of sizes that say nothing
        measured = [replace(row, asked=None) for row in measured]
    print(table(measured))
    if arguments.json:
        arguments.json.write_text(json.dumps([row.as_json() for row in measured]))


def table(rows: list[Row]) -> str:
    """The rows in Markdown. A claim that does not hold is in bold, with what its bytes alone would take."""
    size = "V × D, B × T" if any("×" in row.size for row in rows) else "size"
    lines = [
        f"| what | {size} | against | ours, ms | theirs, ms | ratio | asked | bound, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row.claim, row.size, row.peer_name, _time(row.ours), _time(row.peer), *_judged(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _judged(row: Row) -> tuple[str, str, str]:
    note = f" ({row.note})" if row.note else ""
    if row.verdict is not None:
        holds, words = row.verdict
        return f"{words}{note}" if holds else f"**{words}**{note}", "yes" if holds else "**missed**", ""
    if row.ratio is None:
        return "", "", ""
    ratio = f"{row.ratio:.2f}× the time" if row.longer else f"{_figure(row.ratio)}× as fast"
    asked = "" if row.asked is None else f"{'≤' if row.longer else '≥'} {row.asked:g}×"
    bound = "" if row.bound is None else f"{row.bound:.2g}" if row.bound < 10 else f"{row.bound:.0f}"
    if row.holds is False:
        ratio, asked = f"**{ratio}**", f"**{asked}: missed**"
    return ratio + note, asked, bound


def _figure(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}"


def _time(quartiles: tuple[float, float, float] | None) -> str:
    if quartiles is None:
        return ""
    low, middle, high = (_milliseconds(value) for value in quartiles)
    return f"{middle} ({low}–{high})"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# What it ran on


def machine() -> dict[str, Any]:
    """The machine and the packages, with the speed of a copy that no cache holds (2 threads, 256 MB)."""
    import numba
    import numpy

    information = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    cpu = re.search(r"model name\s*: (.*)", information)
    flags = re.search(r"flags\s*: (.*)", information)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "vector": next((name for name in ("avx512f", "avx2") if flags and name in flags[1].split()), ""),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "copy_gb_per_s": round(copy_bandwidth(), 1),
        "system": f"{platform.system()} {platform.release()}",
        "huge_pages": _huge_pages(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
    }


def copy_bandwidth(megabytes: int = 256) -> float:
    """GB/s, read and written bytes together, the median of 9 copies into memory that is there."""
    source = torch.ones(megabytes * 250_000)
    target = torch.zeros_like(source)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    return 2 * megabytes / 1e3 / sorted(times)[4]


def _huge_pages() -> str:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", path.read_text()) if path.exists() else None
    return found[1] if found else "unknown"


def machine_line(machine: dict[str, Any]) -> str:
    if "gpu" in machine:
        return f"{machine['gpu']}, {machine['date']}; torch {machine['torch']}, Python {machine['python']}."
    vector = f" ({machine['vector']})" if machine["vector"] else ""
    return (
        f"{machine['cpu']}{vector}, {machine['cores']} cores, {machine['memory_gib']} GiB; a copy moves "
        f"{machine['copy_gb_per_s']} GB/s (read and written); {machine['system']}, transparent huge pages: "
        f"{machine['huge_pages']}; Python {machine['python']}, torch {machine['torch']}, numba "
        f"{machine['numba']}, {machine['threads']} threads; {machine['date']}."
    )


# What is committed


def write(name: str, machine: dict[str, Any], rows: list[Row], command: str) -> None:
    """results/NAME.json and NAME.md; `refresh_documents` then brings README and docs up to date."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": machine, "command": command, "rows": [row.as_json() for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / f"{name}.md").write_text(
        f"# Measured: {name}\n\n`{command}`. {machine_line(machine)}\n\n"
        "Milliseconds are medians, quartiles in brackets; docs/speed.md says what is measured and how.\n\n"
        f"{table(rows)}\n\n{missed(rows)}\n"
    )


def read(name: str) -> tuple[dict[str, Any], list[Row]] | None:
    """What results/NAME.json holds, if it is there."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return content["machine"], [Row.from_json(row) for row in content["rows"]]


def missed(rows: list[Row]) -> str:
    """The claims that do not hold, one a line, with what bounds them; or that all do."""
    asked = [row for row in rows if row.holds is not None]
    failed = [row for row in asked if not row.holds]
    if not failed:
        return f"All {len(asked)} figures that are asked for hold."
    lines = [f"{len(failed)} of the {len(asked)} figures that are asked for are missed:", ""]
    for row in failed:
        found, asked_for, _ = (cell.replace("**", "") for cell in _judged(row))
        line = f"- {row.claim}, {row.size}, against {row.peer_name}: {found}; asked {asked_for}"
        if row.bound is not None and row.ours is not None:
            line += (
                f". Our step moves {row.megabytes:,.0f} MB: {row.bound:.1f} ms of our {row.ours[1]:.1f} "
                f"at the {row.copy_gb_per_s:.1f} GB/s of a copy"
            )
        lines.append(line)
    return "\n".join(lines)


def _summary(rows: list[Row]) -> str:
    """A line per claim that has a floor: the range of its ratios over the sizes."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.holds is not None:
            found.setdefault((row.claim, row.peer_name), []).append(row)
    lines = ["| what | against | measured | asked |", "|---|---|---|---|"]
    for (claim, peer), of_claim in found.items():
        ratios = sorted(row.ratio for row in of_claim if row.ratio is not None)
        if ratios:
            longer = of_claim[0].longer
            shown = [f"{ratio:.2f}" if longer else _figure(ratio) for ratio in (ratios[0], ratios[-1])]
            measured = "–".join(dict.fromkeys(shown)) + ("× the time" if longer else "× as fast")
            floors = sorted({row.asked for row in of_claim})
            asked = ("≤ " if longer else "≥ ") + ", ".join(f"{floor:g}" for floor in floors) + "×"
        else:
            measured, asked = "; ".join(dict.fromkeys(row.verdict[1] for row in of_claim)), "yes"
        if not all(row.holds for row in of_claim):
            asked = "**missed**" if asked == "yes" else f"**{asked}: missed**"
        lines.append(f"| {claim} | {peer} | {measured} | {asked} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[dict[str, Any], list[Row]], str]] = {
    "table": lambda machine, rows: table(rows),
    "summary": lambda machine, rows: _summary(rows),
    "machine": lambda machine, rows: machine_line(machine),
    "missed": lambda machine, rows: missed(rows),
}


def refreshed(text: str) -> str:
    """``text`` with each block ``<!-- benchmarks: RESULT BLOCK -->`` filled from results/RESULT.json.

    Where that was never measured, the block says so.
    """

    def block(match: re.Match[str]) -> str:
        results = read(match[2])
        filled = "Not measured yet." if results is None else BLOCKS[match[3]](*results)
        return f"{match[1]}{filled}\n{match[4]}"

    return _BLOCK.sub(block, text)


def refresh_documents() -> list[Path]:
    """Write the committed figures into README and docs; the paths of those that changed."""
    changed = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if (fresh := refreshed(text)) != text:
            path.write_text(fresh, encoding="utf-8")
            changed.append(path)
    return changed


def stop(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)
