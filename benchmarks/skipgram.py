"""Skip-gram: how fast is it beside gensim, and are the vectors as good, after one, two and five epochs?

    python benchmarks/skipgram.py          # half an hour on two cores; results/skipgram.md and .json

Three texts: two dictionaries one after the other, which differ in kind (dictionaries.py, 9 million words);
the same lines shuffled; and seven million words of shuffled English (english.py). The same settings for both
(D 100, window 5, 5 negatives, sample 1e-3, minimum count 5, two threads), and for each its own default
learning rate. gensim's ``Word2Vec`` reads a ``corpus_file``, its fastest way.

The claims, for each text and number of epochs: from the file's name to the table takes an eighth of gensim's
time, and WordSim-353 and SimLex-999 are no more than 0.01 below gensim's, means over three seeds. On the
third text with five epochs also: training alone reads ten times as many words a second, the preparation takes
no longer than gensim's vocabulary pass, and Google's analogies among the 30,000 most frequent words are as
good.

Both take turns, seed by seed, now one first and now the other. Ours is compiled beforehand. Words are counted
as gensim counts them, the rare ones too. Both tables are scored by ``tokenspace.geometry``, whose scores
are gensim's own (tests/geometry).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gensim
import numpy as np
from gensim.models import Word2Vec

import dictionaries
import english
import tokenspace as ts
from measure import THREADS, Row, quartiles
from report import machine, missed, refresh_documents, table, write

SEEDS = (1, 2, 3)
EPOCHS = (1, 2, 5)
TEXTS: dict[str, Callable[[Path], int]] = {
    "dictionaries": dictionaries.write,
    "dictionaries shuffled": partial(dictionaries.write, shuffled=True),
    "English": english.write,
}
IN_FULL = ("English", 5)  # text and epochs with all claims
CONTENDERS = ("ours", "theirs")
WHOLE_RUN, TRAINING = 8, 10  # times as fast as gensim
DATA = Path(gensim.__file__).parent / "test" / "test_data"
FREQUENT = 30_000
MOST_BELOW = 0.01
PEER = f"gensim {gensim.__version__}"


class Run(NamedTuple):
    """What one training took, in seconds, and how its table scores."""

    preparing: float
    training: float
    scores: dict[str, float]

    @property
    def whole(self) -> float:
        return self.preparing + self.training


class Pair(NamedTuple):
    """Both contenders on the same text, with the same seed, one after the other."""

    text: str
    words: int
    epochs: int
    seed: int
    ours: Run
    theirs: Run


def ours(path: Path, seed: int, epochs: int, analogies: bool) -> Run:
    events: list[ts.train.Progress] = []
    start = time.perf_counter()
    table = ts.train.skipgram(
        path,
        words="whitespace",
        lowercase=False,
        dim=100,
        epochs=epochs,
        min_count=5,
        threads=THREADS,
        seed=seed,
        progress=events.append,
    )
    seconds = time.perf_counter() - start
    training = events[-1].tokens / events[-1].tokens_per_second
    return Run(seconds - training, training, scores(table, analogies))


def theirs(path: Path, seed: int, epochs: int, analogies: bool) -> Run:
    model = Word2Vec(
        vector_size=100, window=5, negative=5, sample=1e-3, min_count=5, sg=1, workers=THREADS, seed=seed
    )
    start = time.perf_counter()
    model.build_vocab(corpus_file=str(path))
    prepared = time.perf_counter()
    model.train(
        corpus_file=str(path),
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=epochs,
    )
    trained = time.perf_counter()
    vectors = ts.Table(np.ascontiguousarray(model.wv.vectors), ts.Vocab(model.wv.index_to_key))
    return Run(prepared - start, trained - prepared, scores(vectors, analogies))


def scores(table: ts.Table, analogies: bool) -> dict[str, float]:
    pairs = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
    found = {name: ts.geometry.word_pairs(table, DATA / file).spearman for name, file in pairs.items()}
    if not analogies:
        return found
    limit = min(FREQUENT + len(table.vocab.special), len(table))
    answers = ts.geometry.analogy_questions(table, DATA / "questions-words.txt", limit=limit)
    return found | {"analogies": answers.overall.accuracy}


def measured(text: str, path: Path, words: int, epochs: int, seed: int) -> Pair:
    runs: dict[str, Run] = {}
    contenders = [("ours", ours), ("theirs", theirs)]
    for name, contender in contenders if seed % 2 else reversed(contenders):
        run = runs[name] = contender(path, seed, epochs, (text, epochs) == IN_FULL)
        said = ", ".join(f"{what} {score:.4f}" for what, score in run.scores.items())
        print(
            f"{text}, {epochs} × read, seed {seed}, {name}: {run.preparing:.2f} s + {run.training:.2f} s, "
            f"{words * epochs / run.training:,.0f} words/s; {said}",
            flush=True,
        )
    return Pair(text, words, epochs, seed, **runs)


def rows(pairs: list[Pair]) -> list[Row]:
    found: list[Row] = []
    for text, epochs in itertools.product(TEXTS, sorted({pair.epochs for pair in pairs})):
        some = [pair for pair in pairs if (pair.text, pair.epochs) == (text, epochs)]
        if not some:
            continue
        size = f"{text}, {some[0].words / 1e6:.1f} M words, {epochs} epoch{'s' if epochs > 1 else ''}"
        names = ["WordSim-353", "SimLex-999"]
        found.append(_times("skip-gram, whole run", size, some, lambda run: run.whole, WHOLE_RUN))
        if (text, epochs) == IN_FULL:
            found.append(_times("skip-gram, training", size, some, lambda run: run.training, TRAINING))
            found.append(_times("preparation", size, some, lambda run: run.preparing, 1))
            names.append("analogies")
        found += [_quality(name, size, some) for name in names]
    return found


def _times(claim: str, size: str, pairs: list[Pair], seconds: Any, asked: float) -> Row:
    ours, theirs = ([1e3 * seconds(getattr(pair, who)) for pair in pairs] for who in CONTENDERS)
    paired = ", ".join(f"{b / a:.1f}" for a, b in zip(ours, theirs, strict=True))
    return Row(
        claim, size, PEER, quartiles(ours), quartiles(theirs), asked=asked, note=f"pair by pair {paired}"
    )


def _quality(name: str, size: str, pairs: list[Pair]) -> Row:
    ours, theirs = ([getattr(pair, who).scores[name] for pair in pairs] for who in CONTENDERS)
    mean, peer = statistics.mean(ours), statistics.mean(theirs)
    spread = ", ".join(f"{score:.3f}" for score in ours)
    return Row(
        f"skip-gram, {name}",
        size,
        PEER,
        verdict=(mean >= peer - MOST_BELOW, f"{mean:.3f} against {peer:.3f}"),
        note=f"ours by seed {spread}",
    )


def kept(path: Path | None) -> list[Pair]:
    """The pairs that were measured before."""
    if path is None or not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Pair(**line | {who: Run(**line[who]) for who in CONTENDERS}) for line in lines]


def keep(path: Path | None, pair: Pair) -> None:
    if path is not None:
        line = pair._asdict() | {"ours": pair.ours._asdict(), "theirs": pair.theirs._asdict()}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a part of one text, one seed, one epoch")
    parser.add_argument("--texts", type=Path, help="a folder to keep the texts in, and to take them from")
    parser.add_argument("--pairs", type=Path, help="a file to keep the pairs in, and not to measure again")
    parser.add_argument("--most", type=int, help="measure so many pairs, keep them, and end without a report")
    parser.add_argument("--json", type=Path, help="write the rows here, and nothing else")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.texts or Path(name)
        compiled = Path(name) / "compiled.txt"
        compiled.write_text("a b c\n" * 100)
        ts.train.skipgram(compiled, words="whitespace", dim=100, epochs=1, threads=THREADS)
        pairs = kept(arguments.pairs)
        if arguments.quick:
            path = folder / "part.txt"
            lines = list(itertools.islice(english.sentences(), 20_000))
            path.write_text("\n".join(lines) + "\n")
            words = sum(len(line.split()) for line in lines)
            pairs = [measured("English", path, words, 1, seed=1)]
        else:
            done = {(pair.seed, pair.epochs, pair.text) for pair in pairs}
            plan = [case for case in itertools.product(SEEDS, EPOCHS, TEXTS) if case not in done]
            for seed, epochs, text in plan[: arguments.most]:
                path = folder / f"{text}.txt"
                if not path.exists():
                    TEXTS[text](path)
                with path.open() as file:
                    words = sum(len(line.split()) for line in file)
                pairs.append(measured(text, path, words, epochs, seed))
                keep(arguments.pairs, pairs[-1])
            if arguments.most is not None and arguments.most < len(plan):
                return 0
    found = rows(pairs)
    if arguments.quick:
        for row in found:
            row.asked, row.verdict = None, row.verdict and (True, row.verdict[1])
    print(table(found))
    print(missed(found))
    if arguments.json:
        arguments.json.write_text(json.dumps([row.as_json() for row in found]))
    elif not arguments.quick:
        write("skipgram", machine(), found, "python benchmarks/skipgram.py")
        refresh_documents()
    return 0


if __name__ == "__main__":
    sys.exit(main())
