"""From text to a table: the corpus, the start, the loop with all that is due on the way, what comes of it."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tokenspace
from tokenspace import text
from tokenspace.errors import CorpusError, OutputError, ShapeError
from tokenspace.geometry.evaluation import table_sha256
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import start
from tokenspace.train.corpus import Corpus, open_corpus, prepare
from tokenspace.train.losses import LossLog
from tokenspace.train.progress import Preparation, Progress, training_guess
from tokenspace.train.run import Run, disk_told
from tokenspace.train.scores import Evaluation, said
from tokenspace.train.settings import Settings, default_epochs
from tokenspace.train.training import Training

OBJECTIVE = "skip-gram with negative sampling"
_BYTES_A_TOKEN = 6  # of text, to guess by


@dataclass(frozen=True)
class Asked:
    """What a call of ``skipgram`` asks for, checked."""

    files: list[str | os.PathLike[str]]
    settings: Settings
    tokenizer: Tokenizer | None
    init: Table | None
    snapshots: int
    on_snapshot: Callable[[float, Table], None]
    progress: Callable[[Progress], None] | None
    note: Callable[[str], None]
    stop: Callable[[], bool]
    checkpoint_seconds: float
    evaluation: Evaluation

    def described(self) -> dict[str, Any]:
        """What the result depends on beside the text: a run is resumed with the same alone."""
        return {
            "made_by": f"tokenspace {tokenspace.__version__}",
            "objective": OBJECTIVE,
            **self.settings.described(),
            "tokenizer": None if self.tokenizer is None else tokenizer_sha256(self.tokenizer),
            "init": None if self.init is None else table_sha256(self.init),
        }


# ── from text to a table ──────────────────────────────────────────────────────────────────────────────────


def learned(kernel: ModuleType, asked: Asked, folder: Path, run: Run | None, output: Path | None) -> Table:
    """The table that ``asked`` asks for, saved at ``output`` if it belongs to a ``run``.

    ``folder`` is for the corpus. ``KeyboardInterrupt`` if it was stopped before anything was learned.
    """
    corpus = _prepared(kernel, asked, folder)
    corpus.check_trainable()
    settings = replace(asked.settings, min_count=corpus.min_count)
    notes = list(corpus.notes)
    if settings.epochs is None:
        settings = replace(settings, epochs=default_epochs(corpus.tokens))
        notes.append(f"{settings.epochs} epochs, chosen for {corpus.tokens:,} tokens")
    tokenizer = asked.tokenizer or corpus.tokenizer
    rng = np.random.default_rng(settings.seed)
    if asked.init is None:
        begin = start.drawn(kernel, corpus.counts, settings, rng)
    else:
        begin = start.pretrained(kernel, corpus.counts, settings, rng, tokenizer.vocab, asked.init)
        notes.append(start.note(begin.copied))
    for note in notes:
        asked.note(note)
    draws = kernel.draws(corpus.counts, settings.sample, settings.window, rng)
    training = Training(kernel, corpus, settings, begin.model, draws, asked.progress)
    about = _about(corpus, settings, tokenizer, notes)
    if begin.copied:
        about["init"] = begin.copied
    scores: list[dict[str, Any]] = []
    if run is not None and (state := run.load()) is not None:
        try:
            training.restore(*state)
            scores = state[1]["scores"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise run.damaged(str(error) if isinstance(error, ShapeError) else "") from None
        asked.note(f"going on where {training.fraction:.0%} was done")

    with contextlib.ExitStack() as closing:
        if run is not None:
            training.log = LossLog(run.losses, keep_tokens=training.tokens)
            closing.enter_context(training.log)
        try:
            scores = _trained(training, asked, run, tokenizer, about, scores)
        except KeyboardInterrupt:  # no state: the matrices may be further than the pieces that are done
            pass
        else:
            if run is not None and training.done < training.pieces and training.done:
                _save(run, training, scores)
    return _given(training, tokenizer, about, scores, run, output)


def _given(
    training: Training,
    tokenizer: Tokenizer,
    about: dict[str, Any],
    scores: list[dict[str, Any]],
    run: Run | None,
    output: Path | None,
) -> Table:
    """The table as it is now, saved if it has a place; the run is over if all is done."""
    finished = training.done == training.pieces
    if training.fraction == 0:
        raise KeyboardInterrupt  # there is nothing to keep
    if not finished:
        about = about | {"interrupted_at": round(training.fraction, 4)}
    elif scores and scores[-1]["epoch"] == about["settings"]["epochs"]:
        about = about | {"scores": scores[-1]["scores"]}
    try:
        table = training.table(tokenizer, about, last=True)
    except CorpusError:
        if run is not None:
            run.remove()  # to resume it would lead here again
        raise
    if run is None or output is None:
        return table
    try:
        run.publish(table, output)
    except OutputError:
        if finished:
            with contextlib.suppress(OutputError):  # the state from before is there
                _save(run, training, scores)
        raise
    if finished:
        run.remove()
    return table


def _trained(
    training: Training,
    asked: Asked,
    run: Run | None,
    tokenizer: Tokenizer,
    about: dict[str, Any],
    scores: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Train to the end, or until told to stop, with all that is due on the way; returns the scores."""
    scores = list(scores)
    due = time.perf_counter() + asked.checkpoint_seconds

    def pause() -> bool:
        return asked.stop() or (run is not None and time.perf_counter() >= due)

    def score(epoch: int) -> None:
        found = asked.evaluation.scores(training.view(tokenizer))
        line = {"tokens": training.tokens, "epoch": epoch, "epochs": epochs, "scores": found}
        scores.append(line)
        if training.log is not None:
            training.log.append(line)
        asked.note(f"epoch {epoch}/{epochs}: {said(found)}")

    def snapshot(fraction: float) -> None:
        made = about | {"snapshot_at": round(fraction, 4)}
        asked.on_snapshot(fraction, training.table(tokenizer, made))

    epochs = training.pieces // training.pieces_an_epoch
    resumed_at = training.done
    stops: list[tuple[int, Callable[[Any], None], Any]] = []
    fractions = _snapshot_fractions(asked.snapshots, training.pieces)
    stops += [(piece, snapshot, fraction) for piece, fraction in fractions.items()]
    if len(fractions) < asked.snapshots:
        asked.note(
            f"{len(fractions):,} snapshots of {asked.snapshots:,}: this run has {training.pieces:,} parts, "
            "and is looked at only between two of them"
        )
    if asked.evaluation:
        stops += [(epoch * training.pieces_an_epoch, score, epoch) for epoch in range(1, epochs + 1)]
    stops.append((training.pieces, lambda _: None, None))
    for piece, act, argument in sorted(stops, key=lambda stop: stop[0]):
        if piece < resumed_at:
            continue  # it was done before the state was saved
        while training.done < piece:
            training.run(piece, pause)
            if training.done < training.pieces and asked.stop():
                return scores
            if run is not None and training.done < piece:
                _save(run, training, scores)
                due = time.perf_counter() + asked.checkpoint_seconds
        act(argument)
    return scores


def _snapshot_fractions(snapshots: int, pieces: int) -> dict[int, float]:
    """After which pieces a snapshot is due, and which fraction it is of; one that has no piece is left out.

    >>> _snapshot_fractions(3, 32), _snapshot_fractions(3, 2)
    ({8: 0.25, 16: 0.5, 24: 0.75}, {1: 0.5})
    """
    found: dict[int, float] = {}
    for n in range(1, snapshots + 1):
        fraction = n / (snapshots + 1)
        piece = round(fraction * pieces)
        if 0 < piece < pieces and (
            piece not in found or abs(fraction * pieces - piece) < abs(found[piece] * pieces - piece)
        ):
            found[piece] = fraction
    return found


def _save(run: Run, training: Training, scores: list[dict[str, Any]]) -> None:
    training.check()
    arrays, about = training.state()
    run.save(arrays, about | {"scores": scores})


# ── the text ──────────────────────────────────────────────────────────────────────────────────────────────


def _prepared(kernel: ModuleType, asked: Asked, folder: Path) -> Corpus:
    """The corpus that lies in ``folder``; made if there is none."""
    if (corpus := open_corpus(folder)) is not None:
        return corpus
    settings = asked.settings
    with disk_told(folder):
        return prepare(
            asked.files,
            folder,
            tokenizer=asked.tokenizer,
            words=settings.words or "word",
            min_count=settings.min_count,
            lowercase=bool(settings.lowercase),
            longest=kernel.LONGEST_SENTENCE,
            threads=settings.threads,
            stop=asked.stop,
            progress=None if asked.progress is None else _preparation(asked, asked.progress),
        )


def _preparation(asked: Asked, tell: Callable[[Progress], None]) -> Preparation:
    settings = asked.settings
    sizes = [path.stat().st_size if path.is_file() else math.nan for path in text.find(asked.files)]
    tokens = sum(sizes) / _BYTES_A_TOKEN
    epochs = settings.epochs or (5 if math.isnan(tokens) else default_epochs(max(1, int(tokens))))
    seconds = training_guess(
        tokens, epochs, settings.dim, settings.window, settings.negative, settings.threads
    )
    return Preparation(tell, seconds, epochs, asked.tokenizer is not None)


# ── what is said of it ────────────────────────────────────────────────────────────────────────────────────


def _about(corpus: Corpus, settings: Settings, tokenizer: Tokenizer, notes: list[str]) -> dict[str, Any]:
    """Provenance, but for what training itself adds."""
    return {
        "made_by": f"tokenspace {tokenspace.__version__}",
        "objective": OBJECTIVE,
        "settings": settings.described(),
        "notes": notes,
        "corpus": [source.description() for source in corpus.sources],
        "tokens": corpus.tokens,
        "vocabulary": len(tokenizer.vocab),
        "tokenizer": {"model": type(tokenizer.inner.model).__name__, "sha256": tokenizer_sha256(tokenizer)},
        "versions": {package: version(package) for package in ("numpy", "numba", "tokenizers")},
    }


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """The SHA-256 of a tokenizer's tokenizer.json."""
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
