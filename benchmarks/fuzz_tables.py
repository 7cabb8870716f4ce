"""Does every reader of tables take any bytes at all, and either load them or refuse them?

    python benchmarks/fuzz_tables.py --files 20000 --seed 1            # three minutes: results/fuzz_tables.md
    python benchmarks/fuzz_tables.py --files 2000 --seed 7 --only numpy    # of one kind; prints only

The claim: of at least 20,000 mutated files (tests/formats/fuzz_seeds.py says of what, mutations.py how), each
loads as a table that holds together or is refused with a ``TableFormatError`` (a folder's files also with a
``CheckpointError``) of one line. No other error, no warning, no crash, nothing over 5 s, and no more memory
than 4 × the bytes, unpacked, and 64 MB.

The files are read in two processes, which are started again where one dies or is silent for a minute. Of each
fault one file is kept, with what it said, and without the edits that it does not need.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "formats"))
RESULTS = HERE / "results" / "fuzz_tables.md"
WORKERS = 2
START = 600.0  # seconds that a worker may take until it is ready
SILENT = 60.0  # seconds without a word from a worker: it hangs where no alarm reaches it
AGAIN = 3  # the exit status of a worker that has judged a case and must not judge the next
WARM = 40  # cases that are read before any is measured: what libraries load once counts for none


Load = Callable[[Path], Any]


def loader(name: str) -> Load:
    """``"tokenspace:load"`` is ``tokenspace.load``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def work(seeds_file: Path, seed: int, numbers: range, folder: Path, load: Load) -> None:
    """Judge the cases ``numbers``; print a line of JSON for each."""
    import fuzzing

    seeds = pickle.loads(seeds_file.read_bytes())
    for library in ("gguf", "torch"):  # to import it may take long, and warn: that is not the readers' doing
        importlib.import_module(library)
    tracemalloc.start()
    for sound in seeds:
        _judge(fuzzing, load, fuzzing.Case(sound, ()), seeds, folder)
    for n in range(WARM):
        _judge(fuzzing, load, fuzzing.case(seeds, -1, n), seeds, folder)
    gc.freeze()  # so that to collect after each case costs little
    print("ready", flush=True)
    for n in numbers:
        made = fuzzing.case(seeds, seed, n)
        verdict = _judge(fuzzing, load, made, seeds, folder)
        gc.collect()
        print(json.dumps({"n": n, "seed": made.seed.name, **verdict._asdict()}), flush=True)
        if verdict.kind.startswith("took"):
            sys.exit(AGAIN)  # the peaks and what was left half done would be under the next case


def _judge(fuzzing: Any, load: Load, made: Any, seeds: list, folder: Path) -> Any:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return fuzzing.judge(load, fuzzing.files_of(made, seeds), folder)


def watched(work: list[str], numbers: range, folder: Path, told: queue.Queue) -> None:
    """Have ``numbers`` judged, by as many workers one after the other as it takes."""
    log = folder.with_suffix(".stderr")
    while numbers:
        part = f"{numbers.start}:{numbers.stop}:{numbers.step}"
        command = [sys.executable, __file__, *work, "--folder", str(folder), "--numbers", part]
        with log.open("wb") as errors:
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_pass_on, args=(worker.stdout, lines), daemon=True).start()
        done = 0
        if (first := _next(lines, START)) != "ready\n":
            told.put(f"a worker did not start: {first}{log.read_text()[-2000:]}")
            return
        while line := _next(lines, SILENT):
            told.put(json.loads(line))
            done += 1
        if worker.poll() is None and done < len(numbers):
            worker.kill()
        status = worker.wait()
        if done < len(numbers) and status != AGAIN:
            words = log.read_text(errors="replace")[-500:]
            kind = f"the process ended with {status}"
            told.put({"n": numbers[done], "kind": kind, "words": words, "seconds": SILENT, "grown": 0})
            done += 1
        numbers = numbers[done:]
    told.put(None)


def _pass_on(pipe: Any, lines: queue.Queue[str]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put("")


def _next(lines: queue.Queue[str], seconds: float) -> str:
    try:
        return lines.get(timeout=seconds)
    except queue.Empty:
        return ""


def run(files: int, seed: int, only: str, keep: Path, reader: str) -> int:
    """Judge ``files`` cases and print what came of them; the number of those that were wrong."""
    import fuzzing
    from fuzz_seeds import seeds as make

    started = time.perf_counter()
    seeds = [each for each in make() if only in each.name]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        seeds_file = Path(name, "seeds")
        seeds_file.write_bytes(pickle.dumps(seeds))
        told: queue.Queue[Any] = queue.Queue()
        for i in range(WORKERS):
            command = ["--work", str(seeds_file), "--seed", str(seed), "--load", reader]
            arguments = (command, range(i, files, WORKERS), Path(name, f"worker{i}"), told)
            threading.Thread(target=watched, args=arguments, daemon=True).start()
        running = WORKERS
        while running:
            result = told.get()
            if isinstance(result, str):
                sys.exit(result)
            running -= result is None
            if result:
                results.append(result | {"case": fuzzing.case(seeds, seed, result["n"])})
                if len(results) % 1000 == 0:
                    print(f"{len(results):,} of {files:,}", file=sys.stderr)
                if result["kind"] not in ("loaded", "refused"):
                    print(f"case {result['n']}: {results[-1]['case']}: {result['kind']}", flush=True)
        wrong = [result for result in results if result["kind"] not in ("loaded", "refused")]
        for result in _one_a_fault(wrong):
            _keep(fuzzing, seeds, result, keep / f"seed{seed}-case{result['n']}", loader(reader))
    report = told_of(results, seed, time.perf_counter() - started)
    print(report)
    if not only and not wrong and reader == "tokenspace:load" and files >= 20_000:
        RESULTS.write_text(report)
    return len(wrong)


def told_of(results: list[dict[str, Any]], seed: int, seconds: float) -> str:
    """The report: how many of each kind of file were refused, loaded, wrong; and what was worst."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in sorted(results, key=lambda result: result["n"]):
        made = result["case"].seed
        for group in (made.name.split(", ")[0], f"*in {made.packed or 'plain files'}*", "**all**"):
            groups[group].append(result)
    lines = [
        "# Measured: mutated table files",
        "",
        f"`python benchmarks/fuzz_tables.py --files {len(results)} --seed {seed}`: "
        f"**{len(results):,} mutated files** in {seconds:.0f} s, {WORKERS} processes.",
        "",
        "| made from | tried | refused | loaded | wrong | slowest, ms | most memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted(groups, key=lambda name: name.startswith("*") + name.startswith("**")):
        own = groups[name]
        count = Counter(result["kind"] for result in own)
        wrong = len(own) - count["refused"] - count["loaded"]
        slowest = 1e3 * max(result["seconds"] for result in own)
        most = max(result["grown"] for result in own) / (1 << 20)
        counts = (len(own), count["refused"], count["loaded"], wrong)
        lines.append(f"| {name} | {' | '.join(f'{n:,}' for n in counts)} | {slowest:.0f} | {most:.1f} |")
    return "\n".join(lines) + "\n"


def _one_a_fault(wrong: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of those that went wrong at the same line of code in the same way, the one with the fewest edits."""
    faults: dict[str, dict[str, Any]] = {}
    for result in sorted(wrong, key=lambda result: len(result["case"].edits)):
        lines = [line for line in result["words"].splitlines() if line.lstrip().startswith("File")]
        faults.setdefault(f"{result['kind']} {lines[-1:]}", result)
    return list(faults.values())


def _keep(fuzzing: Any, seeds: list, result: dict[str, Any], folder: Path, load: Load) -> None:
    """Write the files of a case that was wrong, without the edits that it does not need, and what it said."""
    made = result["case"]
    if not result["kind"].startswith("the process"):
        made = fuzzing.shrunk(made, lambda fewer: _kind(fuzzing, seeds, fewer, load) == result["kind"])
    files, read, _ = fuzzing.files_of(made, seeds)
    fuzzing.write(files, folder)
    (folder / "WHY").write_text(f"{made}\nts.load({read!r})\n{result['kind']}\n{result['words']}\n")
    print(f"kept: {folder}")


def _kind(fuzzing: Any, seeds: list, made: Any, load: Load) -> str:
    tracemalloc.start()
    with tempfile.TemporaryDirectory() as name:
        return _judge(fuzzing, load, made, seeds, Path(name, "t")).kind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only what is made from seeds with this in their names")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where wrong files are kept")
    parser.add_argument(
        "--load", default="tokenspace:load", help="another reader than ts.load: MODULE:FUNCTION"
    )
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        numbers = range(*map(int, arguments.numbers.split(":")))
        work(arguments.work, arguments.seed, numbers, arguments.folder, loader(arguments.load))
        return 0
    wrong = run(arguments.files, arguments.seed, arguments.only, arguments.keep, arguments.load)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
