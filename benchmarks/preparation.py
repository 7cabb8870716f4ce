"""From text to ids: is it no slower than gensim's vocabulary pass, and is memory bounded?

    python benchmarks/preparation.py              # times, and what a large file costs: results/preparation.md
    python benchmarks/preparation.py --hostile    # and the hostile files, up to 1 GB of one line: minutes

The claims. On some seven million words (english.py), with minimum count 5 and two threads, counting the words
*and* writing their ids takes no longer than gensim's pass over its ``corpus_file``, which only counts. And
whatever the text, the process that prepares it stays below 1 GB, Python and its libraries included: the same
text 48 times over (2 GB), a gigabyte of one line, a gigabyte without a single space, six million distinct
words, NUL bytes. Each ends in a corpus, or in one line that says what is wrong.

Every measurement is a process of its own; times are those of the second preparation in it, as the first may
compile. The two take turns.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import english

RESULTS = Path(__file__).parent / "results" / "preparation.md"
THREADS, MIN_COUNT, ROUNDS, COPIES = 2, 5, 5, 48
SETTINGS: dict[str, Any] = {
    "words": "whitespace", "min_count": MIN_COUNT, "lowercase": False, "threads": THREADS,
}  # fmt: skip
GIGABYTE = 1 << 30
MOST_MEGABYTES = 1000


def ours(path: str, again: bool) -> dict[str, Any]:
    """Prepare the file, twice if ``again``: seconds of the last time, and what came of it."""
    from tokenspace.errors import CorpusError
    from tokenspace.train.corpus import prepare

    with tempfile.TemporaryDirectory(dir=Path(path).parent) as name:
        for _ in range(1 + again):
            start = time.perf_counter()
            try:
                corpus = prepare(path, Path(name), tokenizer=None, **SETTINGS)
                words = len(corpus.tokenizer.vocab) - len(corpus.tokenizer.vocab.special)
                outcome = f"{corpus.tokens:,} tokens, {corpus.sentences:,} sentences, {words:,} words"
            except CorpusError as error:
                outcome = re.sub(r"/\S*/", "", str(error))
            seconds = time.perf_counter() - start
    return {"seconds": seconds, "outcome": outcome}


def theirs(path: str, again: bool) -> dict[str, Any]:
    """gensim's vocabulary pass over the same file."""
    from gensim.models import Word2Vec

    for _ in range(1 + again):
        model = Word2Vec(vector_size=100, min_count=MIN_COUNT, workers=THREADS, sg=1)
        start = time.perf_counter()
        model.build_vocab(corpus_file=path)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "outcome": f"{model.corpus_total_words:,} words, {len(model.wv):,} distinct"}


def measured(contender: str, path: Path, again: bool = False) -> dict[str, Any]:
    """What ``contender`` does with the file, in a new process."""
    command = [sys.executable, __file__, "--contender", contender, "--corpus", str(path)]
    run = subprocess.run([*command, *(["--again"] if again else [])], check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def peak_megabytes() -> int:
    """The most memory that this process had; getrusage would count its parent's, before the program began."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10


def duel(path: Path, rounds: int) -> Iterator[str]:
    """Both on the same file, in turn."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    for n in range(rounds):
        for contender in ("ours", "theirs") if n % 2 == 0 else ("theirs", "ours"):
            found[contender].append(measured(contender, path, again=True))
    yield "| | seconds, median (all) | peak memory, MB | result |"
    yield "|---|---|---|---|"
    middle = {}
    for contender, runs in found.items():
        seconds = sorted(run["seconds"] for run in runs)
        middle[contender] = statistics.median(seconds)
        every = ", ".join(f"{value:.2f}" for value in seconds)
        memory = max(run["megabytes"] for run in runs)
        yield f"| {contender} | {middle[contender]:.2f} ({every}) | {memory:,} | {runs[0]['outcome']} |"
    ratio = middle["theirs"] / middle["ours"]
    yield ""
    yield f"Ours takes {1 / ratio:.2f} of gensim's time; asked: no more than all of it: {_held(ratio >= 1)}."


def limits(files: Iterator[tuple[str, Path]]) -> Iterator[str]:
    """What each file comes to, and the memory that it took."""
    yield "| text | bytes | seconds | peak memory, MB | ≤ 1,000 | result |"
    yield "|---|---|---|---|---|---|"
    for name, path in files:
        run = measured("ours", path)
        held = _held(run["megabytes"] <= MOST_MEGABYTES)
        yield (
            f"| {name} | {path.stat().st_size:,} | {run['seconds']:.1f} | {run['megabytes']:,} | {held} | "
            f"{run['outcome']} |"
        )
        path.unlink()


def large(source: Path, folder: Path, copies: int) -> Iterator[tuple[str, Path]]:
    path = folder / "large.txt"
    with path.open("wb") as file:
        for _ in range(copies):
            file.write(source.read_bytes())
    yield f"the same text {copies} times", path


def hostile(source: Path, folder: Path, size: int) -> Iterator[tuple[str, Path]]:
    """Texts of up to ``size`` bytes that no one would write."""
    path = folder / "hostile.txt"
    line = source.read_bytes().replace(b"\n", b" ")
    with path.open("wb") as file:
        for _ in range(-(-size // len(line))):
            file.write(line)
    yield "all on one line", path
    with path.open("wb") as file:
        for _ in range(max(size >> 20, 1)):
            file.write(b"abcdefgh" * (1 << 17))
    yield "not a single space", path
    with path.open("wb") as file:
        for _ in range(max(size >> 20, 1)):
            file.write(b"the " * (1 << 18))
    yield "one word", path
    with path.open("w") as file:
        for n in range(size // 3500):
            file.write(" ".join(f"w{20 * n + k:x}" for k in range(20)) + "\n")
    yield "every word once", path
    path.write_bytes(line[: size // 2] + b"\0" + line)
    yield "a NUL byte inside", path


def _held(holds: bool) -> str:
    return "yes" if holds else "**missed**"


def report(corpus: Path | None, with_hostile: bool, quick: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = corpus or folder / "english.txt"
        if corpus is None:
            english.write(source)
        if quick:
            part = folder / "part.txt"
            part.write_bytes(b"".join(source.read_bytes().splitlines(keepends=True)[:2000]))
            source = part
        yield from duel(source, 1 if quick else ROUNDS)
        yield ""
        yield from limits(large(source, folder, 2 if quick else COPIES))
        if with_hostile:
            yield ""
            yield from limits(hostile(source, folder, GIGABYTE >> 10 if quick else GIGABYTE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files, nothing written: does it run?")
    parser.add_argument("--hostile", action="store_true", help="the hostile files too")
    parser.add_argument(
        "--corpus", type=Path, help="what english.py has written, so as not to write it again"
    )
    parser.add_argument("--contender", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        found = {"ours": ours, "theirs": theirs}[arguments.contender](str(arguments.corpus), arguments.again)
        print(json.dumps(found | {"megabytes": peak_megabytes()}))
        return 0
    lines = []
    for line in report(arguments.corpus, arguments.hostile, arguments.quick):
        print(line, flush=True)
        lines.append(line)
    if not arguments.quick:
        from report import machine, machine_line

        RESULTS.parent.mkdir(exist_ok=True)
        head = f"# Measured: preparation\n\n`python benchmarks/preparation.py`. {machine_line(machine())}\n"
        RESULTS.write_text("\n".join([head, *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
