"""Skip-gram's learning rate and order of reading: how much does one pass over a text learn with each?

    python benchmarks/learning_rate.py          # three minutes on two cores; results/learning_rate.md

Two dictionaries, one after the other, and their lines shuffled (dictionaries.py). The settings are those of
skipgram.py, the scores means over its seeds. One row has the rates that gensim's ``Word2Vec`` with two
workers really uses for one epoch of a ``corpus_file``: each worker counts its own words against those of the
whole text, so that the rate falls from 0.025 only to half of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dictionaries
import tokenspace as ts
from measure import THREADS
from report import machine, machine_line
from skipgram import SEEDS, scores

RESULTS = Path(__file__).parent / "results" / "learning_rate.md"
IN_ORDER, SHUFFLED = "one after the other", "lines shuffled"
CASES: list[tuple[str, str, dict[str, Any]]] = [
    (SHUFFLED, "0.025", {"alpha": 0.025}),
    (SHUFFLED, "0.025, to 0.01255 (gensim's)", {"alpha": 0.025, "min_alpha": 0.01255}),
    (SHUFFLED, "0.05", {"alpha": 0.05}),
    (SHUFFLED, "0.1 (the default)", {}),
    (SHUFFLED, "0.15", {"alpha": 0.15}),
    (IN_ORDER, "0.025, read in order", {"alpha": 0.025, "shuffle": False}),
    (IN_ORDER, "0.025", {"alpha": 0.025}),
    (IN_ORDER, "0.1, read in order", {"shuffle": False}),
    (IN_ORDER, "0.1 (the default)", {}),
]


def lines(texts: dict[str, Path], seeds: tuple[int, ...]) -> Iterator[str]:
    yield "| text | learning rate, to 0.0001 unless said | WordSim-353 | SimLex-999 |"
    yield "|---|---|---|---|"
    for text, rate, settings in CASES:
        found = [scores(trained(texts[text], seed, settings), analogies=False) for seed in seeds]
        cells = [_mean_and_all([score[name] for score in found]) for name in ("WordSim-353", "SimLex-999")]
        yield f"| {text} | {rate} | {' | '.join(cells)} |"


def trained(path: Path, seed: int, settings: dict[str, Any]) -> ts.Table:
    return ts.train.skipgram(
        path,
        words="whitespace",
        lowercase=False,
        dim=100,
        epochs=1,
        min_count=5,
        threads=THREADS,
        seed=seed,
        **settings,
    )


def _mean_and_all(numbers: list[float]) -> str:
    return f"{statistics.mean(numbers):.3f} ({', '.join(f'{number:.3f}' for number in numbers)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a part of the text, one seed, nothing written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        texts = {IN_ORDER: Path(name) / "order.txt", SHUFFLED: Path(name) / "shuffled.txt"}
        for text, path in texts.items():
            dictionaries.write(path, shuffled=text == SHUFFLED)
            if arguments.quick:
                path.write_text("\n".join(path.read_text().split("\n")[:20_000]) + "\n")
        made = []
        for line in lines(texts, SEEDS[:1] if arguments.quick else SEEDS):
            print(line, flush=True)
            made.append(line)
    if not arguments.quick:
        head = (
            f"# Measured: learning rate\n\n`python benchmarks/learning_rate.py`. {machine_line(machine())}\n"
        )
        RESULTS.write_text("\n".join([head, *made, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
