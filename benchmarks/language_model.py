"""Does the language model predict better than a 3-gram model, and do its token vectors cluster?

    python benchmarks/language_model.py          # 15 minutes; results/language_model.json

The claim: on the built-in table's text (WordNet's glosses and the King James verses, as
scripts/wordnet_corpus.py makes them) the held-out perplexity of ``train.language_model`` falls below that of
an interpolated modified Kneser-Ney 3-gram model (kneser_ney.py) within 15 minutes on 2 cores, and the number
words among its tokens lie near each other.

Both models learn from the same tokens (byte-level BPE, learned from the text) and are measured on the same
held-out ones, 20 runs of neighboring lines from all over the text; the token that ends a line counts for
both. The 3-gram model, as such models do, sees nothing before a line's beginning. The language model reads a
stream in which the lines before it stand too: more context, from the same tokens. Its perplexity with each
line read alone, as the 3-gram model reads it, is shown as well.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tokenspace as ts
from kneser_ney import KneserNey
from tokenspace.geometry.cosine import unit_rows
from tokenspace.train.language_model import LanguageModel, language_model
from tokenspace.train.language_model_settings import end_of_text
from tokenspace.train.run import Run

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "language_model.json"
NUMBER_WORDS = ROOT / "tests" / "data" / "number_words.txt"
MINUTES = 14.0  # of training; making the tokens and scoring the held-out part take the rest of 15
NEAREST = 10
SIZES = {"dim": 192, "layers": 4, "heads": 3}  # reads more in 14 minutes, and learns more, than 256 or 128
QUICK = {"dim": 32, "layers": 1, "heads": 2, "vocab_size": 600, "context": 32}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="does it run? a part of the text, nothing shown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = measured(Path(name), arguments)
    arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(report(results))
    return 0 if arguments.quick or results["below"] else 1


def measured(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    subprocess.run([sys.executable, ROOT / "scripts" / "wordnet_corpus.py", folder], check=True)
    files = [folder / "glosses.txt", folder / "bible.txt"]
    if arguments.quick:
        for file in files:
            file.write_text("".join(file.read_text().splitlines(keepends=True)[:500]))
    lines: list[dict[str, Any]] = []
    with Run.begin(folder / "run", {}, resume=False) as run:
        began = time.perf_counter()
        model = language_model(
            files,
            minutes=0.05 if arguments.quick else arguments.minutes,
            threads=arguments.threads,
            seed=arguments.seed,
            run=run,
            checkpoint_minutes=60.0,
            on_loss=lambda line: show(line) or lines.append(line),
            **(QUICK if arguments.quick else SIZES),
        )
        seconds = time.perf_counter() - began
        training, held_out = (
            np.fromfile(run.corpus / name, "<i4")[1:] for name in ("training.ids", "held_out.ids")
        )
    end, rows = end_of_text(model.tokenizer), len(model.table)
    began = time.perf_counter()
    peer = KneserNey(training, end, rows)
    peer_perplexity = peer.perplexity(held_out)
    peer_seconds = time.perf_counter() - began
    assert model.provenance["held_out_tokens"] == len(held_out)
    assert model.perplexity is not None
    return {
        "perplexity": round(model.perplexity, 3),
        "perplexity_line_by_line": round(line_by_line(model, held_out, end), 3),
        "kneser_ney_perplexity": round(peer_perplexity, 3),
        "below": model.perplexity < peer_perplexity,
        "seconds": round(seconds, 1),
        "kneser_ney_seconds": round(peer_seconds, 1),
        "kneser_ney_discounts": [
            [round(d, 3) for d in g.discounts] for g in (peer.words, peer.pairs, peer.triples)
        ],
        "training_tokens": len(training),
        "held_out_tokens": len(held_out),
        "number_words": number_words(model.table),
        "machine": f"{torch.cpu.get_capabilities()['cpu_name']}, {arguments.threads} threads",
        "python": platform.python_version(),
        "model": model.provenance,
        "losses": [*lines[:: max(1, len(lines) // 200)], lines[-1]],
    }


def line_by_line(model: LanguageModel, held_out: np.ndarray, end: int) -> float:
    """Perplexity of the held-out tokens with nothing before each line but one end-of-text token.

    A line longer than the context goes on with its last half context before it.
    """
    context = model.provenance["settings"]["context"]
    total = 0.0
    with torch.no_grad():
        for line in np.split(held_out, np.flatnonzero(held_out == end)[:-1] + 1):
            ids = torch.from_numpy(np.append(end, line).astype(np.int64))
            done = 0
            while done < len(line):
                first = max(0, min(done - context // 2, len(line) - context)) if done else 0
                window = ids[first : first + context + 1][None]
                labels = window[:, 1:].clone()
                labels[:, : done - first] = -100
                loss = model.model.head.loss(model.model(window[:, :-1]), labels)
                new = first + labels.shape[1] - done
                total += loss.item() * new
                done += new
    return math.exp(total / len(held_out))


def number_words(table: ts.Table) -> dict[str, Any]:
    """How many of the nearest whole words of a number word are number words, on average over all of these.

    Words are tokens that begin one and hold letters alone. Chance: what random vectors would give.
    """
    known = set(NUMBER_WORDS.read_text(encoding="utf-8").split())
    words = {i: token[1:] for i, token in enumerate(table.vocab) if token[:1] == "Ġ" and token[1:].isalpha()}
    numbers = [i for i, word in words.items() if word in known]
    ids = np.array(list(words))
    unit = unit_rows(table.lookup(ids))
    is_number = np.isin(ids, numbers)
    scores = unit[is_number] @ unit.T
    scores[np.arange(len(numbers)), np.flatnonzero(is_number)] = -np.inf
    nearest = np.argsort(-scores, axis=1)[:, :NEAREST]
    shown = numbers[: min(5, len(numbers))]
    return {
        "share": round(float(is_number[nearest].mean()), 4),
        "chance": round((len(numbers) - 1) / (len(ids) - 1), 4),
        "number_words": len(numbers),
        "words": len(ids),
        "nearest": {
            words[i]: [words[int(ids[j])] for j in row] for i, row in zip(shown, nearest, strict=False)
        },
    }


def show(line: dict[str, Any]) -> None:
    if "held_out_perplexity" in line:
        print(
            f"{line['seconds']:6.0f} s  {line['tokens']:>11,} tokens, {line['tokens_per_second']:,}/s  "
            f"loss {line['loss']:.3f}  held-out perplexity {line['held_out_perplexity']:.2f}",
            file=sys.stderr,
            flush=True,
        )


def report(results: dict[str, Any]) -> str:
    numbers, peer_seconds = results["number_words"], results["kneser_ney_seconds"]
    return "\n".join(
        [
            f"held-out perplexity, {results['held_out_tokens']:,} tokens:",
            f"  {results['perplexity']:8.2f}  language model, {results['seconds']:.0f} s in all",
            f"  {results['perplexity_line_by_line']:8.2f}  the same, each line read alone",
            f"  {results['kneser_ney_perplexity']:8.2f}  modified Kneser-Ney 3-gram, {peer_seconds:.0f} s",
            f"number words among the {NEAREST} nearest words of {numbers['number_words']} number words: "
            f"{numbers['share']:.1%} (by chance {numbers['chance']:.1%})",
            *(f"  {word}: {' '.join(near)}" for word, near in numbers["nearest"].items()),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
