"""The course of one language-model run: text, streams, steps, and what is told and saved on the way."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

import tokenspace
from tokenspace import text
from tokenspace.atomic import replacing
from tokenspace.errors import OutputError, ShapeError
from tokenspace.geometry.evaluation import table_sha256
from tokenspace.nn.initializers import from_pretrained_
from tokenspace.shown import shown
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import decoder, token_stream
from tokenspace.train.corpus import Corpus, open_corpus, prepare
from tokenspace.train.decoder_training import WARM_UP, Plan, Training, mixed_precision
from tokenspace.train.language_model_settings import OBJECTIVE, Settings, default_epochs, end_of_text
from tokenspace.train.learning import tokenizer_sha256
from tokenspace.train.progress import Progress
from tokenspace.train.run import Run
from tokenspace.train.sources import check_unchanged

SECONDS_BETWEEN_EVENTS = 0.5
EVALUATIONS = 10  # of the held-out loss in a run; the last one of all its tokens
SCORED_ALONG_THE_WAY = 20_000  # held-out tokens in the others
_ASKED = "language_model.json"  # beside the corpus: what the run was asked for


class Outcome(NamedTuple):
    """What came of a run; the perplexity is None where nothing was held out."""

    model: decoder.Decoder
    corpus: Corpus
    perplexity: float | None
    provenance: dict[str, Any]


class Course:
    """What one call of ``language_model`` does, and whom it tells."""

    def __init__(
        self,
        settings: Settings,
        run: Run | None,
        checkpoint_minutes: float,
        progress: Callable[[Progress], None],
        on_note: Callable[[str], None],
        on_loss: Callable[[dict[str, Any]], None],
        stop: Callable[[], bool],
    ) -> None:
        self._settings, self._run, self._checkpoint_seconds = settings, run, 60 * checkpoint_minutes
        self._progress, self._on_note, self._on_loss, self._stop = progress, on_note, on_loss, stop
        self._notes: list[str] = []
        self._init: dict[str, Any] | None = None  # what came of the table that was given to begin with

    def follow(
        self, files: text.Files, tokenizer: Tokenizer | None, init: Table | None, folder: Path
    ) -> Outcome:
        """All of it; the corpus's files lie in ``folder``, and are taken from there if they do already."""
        self._check_same(tokenizer, init, folder)
        corpus = open_corpus(folder)
        if corpus is None:
            corpus = self._prepared(files, tokenizer, folder)
        else:
            check_unchanged(files, [source.description() for source in corpus.sources])
        end = end_of_text(corpus.tokenizer)
        streams = token_stream.write(corpus, end, self._settings.held_out, folder, self._stop)
        try:
            with _torch_as_told(self._settings):
                return self._learned(corpus, streams, init)
        finally:
            streams.close()

    def _check_same(self, tokenizer: Tokenizer | None, init: Table | None, folder: Path) -> None:
        """``OutputError`` if something was learned in ``folder`` that was asked for otherwise.

        Only the number of threads may be another. If nothing was learned yet, all is made anew.
        """
        settings = {name: value for name, value in asdict(self._settings).items() if name != "threads"}
        asked = settings | {
            "tokenizer": None if tokenizer is None else tokenizer_sha256(tokenizer),
            "init": None if init is None else table_sha256(init),
        }
        path = folder / _ASKED
        before = json.loads(path.read_text("utf-8")) if path.exists() else None
        if before == asked:
            return
        if before is not None and self._run is not None and self._run.has_state:
            raise OutputError(
                f"{shown(str(self._run.folder))} holds a run with other settings "
                f"({_differences(before, asked)}); give the same ones to go on with it, "
                "or begin a run in another folder"
            )
        if before is not None:
            (folder / "corpus.json").unlink(missing_ok=True)
            token_stream.clear(folder)
        with replacing(path) as fresh:
            fresh.write_text(json.dumps(asked), "utf-8")

    def _prepared(self, files: text.Files, tokenizer: Tokenizer | None, folder: Path) -> Corpus:
        with _readable_twice(files, folder) as paths:
            if tokenizer is None:
                size, lowercase = self._settings.vocab_size or 0, bool(self._settings.lowercase)
                lines = _until(self._stop, text.lines(text.check(paths)))
                texts = (line.removesuffix("\n") for line in lines)
                tokenizer = Tokenizer.train_from_iterator(texts, "bpe", size, lowercase=lowercase)
            end_of_text(tokenizer)  # refused before the work, if there is none
            return prepare(
                paths,
                folder,
                tokenizer=tokenizer,
                min_count=None,
                lowercase=False,
                longest=None,
                threads=self._settings.threads,
                stop=self._stop,
            )

    def _learned(self, corpus: Corpus, streams: token_stream.Streams, init: Table | None) -> Outcome:
        training = self._training(corpus, streams, init)
        settings, held = self._settings, streams.held_out
        clock = _Clock(settings, training, streams.training.tokens)
        if clock.chosen:
            self._note(clock.chosen)
        size = sum(parameter.numel() for parameter in training.model.parameters())
        self._note(
            f"{size:,} parameters, {streams.training.tokens:,} tokens to learn from, "
            f"{held.tokens if held else 0:,} held out"
        )
        if held is None and settings.held_out:
            lines = "1 line" if corpus.sentences == 1 else f"{corpus.sentences:,} lines"
            share = f"{100 * settings.held_out:g} %"
            self._note(f"nothing is held out: the text has only {lines}, too few to hold out {share}")
        saved = None if self._run is None else self._run.load()
        if saved is not None and self._run is not None:
            try:
                training.restore(*saved)
                clock.go_on(saved[1]["spent"])
            except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
                raise self._run.damaged(str(error) if isinstance(error, ShapeError) else "") from None
        last_saved = last_told = time.perf_counter()
        try:
            while clock.fraction < 1 and not self._stop():
                before = clock.fraction
                training.take_step(before, clock.warm_up)
                now, after = time.perf_counter(), clock.tick()
                if held and after < 1 and int(after * EVALUATIONS) > int(before * EVALUATIONS):
                    so_far = training.held_out_loss(held, SCORED_ALONG_THE_WAY)
                    self._tell(training, clock, so_far)
                elif after < 1 and now - last_told > SECONDS_BETWEEN_EVENTS:
                    self._tell(training, clock, None)
                    last_told = now
                if now - last_saved > self._checkpoint_seconds:
                    self._save(training, clock)
                    last_saved = now
            if training.step:
                self._save(training, clock)
        except KeyboardInterrupt:
            pass  # perhaps within a step: a run goes on from what was saved before
        if not training.step:
            raise KeyboardInterrupt
        training.check()
        loss = training.held_out_loss(held) if held else None
        training.model.eval()
        self._tell(training, clock, loss)
        about = self._about(corpus, training, size, held.tokens - 1 if held else 0, loss)
        about["settings"]["epochs"] = clock.epochs or training.epoch
        if self._init is not None:
            about["init"] = self._init
        if clock.fraction < 1:
            about["interrupted_at"] = round(clock.fraction, 4)
        perplexity = None if loss is None else math.exp(loss)
        return Outcome(training.model, corpus, perplexity, about)

    def _training(self, corpus: Corpus, streams: token_stream.Streams, init: Table | None) -> Training:
        settings, vocab = self._settings, corpus.tokenizer.vocab
        plan = Plan(streams.training.tokens, settings.context, settings.batch, settings.seed)
        plan.check()
        model = decoder.Decoder(
            len(vocab),
            settings.dim,
            settings.layers,
            settings.heads,
            settings.context,
            settings.dropout,
        )
        if init is not None:
            report = from_pretrained_(model.input.token.weight, vocab, init, std=decoder.STD)
            self._init = {
                "table_sha256": table_sha256(init),
                "matched": report.matched,
                "total": report.total,
            }
            self._note(f"{report.matched:,} of {report.total:,} tokens begin with a row of the given table")
        return Training(
            model, streams.training, plan, settings.rate, settings.weight_decay, mixed_precision()
        )

    def _note(self, note: str) -> None:
        self._notes.append(note)
        self._on_note(note)

    def _tell(self, training: Training, clock: _Clock, held_out: float | None) -> None:
        loss, fraction = training.take_loss(), clock.fraction
        if math.isnan(loss):
            return
        speed = training.tokens / training.seconds
        epoch = min(training.epoch, clock.epochs or training.epoch)
        epochs = clock.epochs or max(epoch, math.ceil(training.tokens / clock.epoch_tokens / fraction))
        left = clock.spent / fraction * (1 - fraction) if fraction else math.nan
        self._progress(
            Progress(epoch, epochs, min(fraction, 1.0), training.tokens, speed, loss, max(left, 0.0))
        )
        line = {
            "tokens": training.tokens,
            "epoch": epoch,
            "epochs": epochs,
            "loss": round(loss, 6),
            "tokens_per_second": round(speed),
            "seconds": round(training.seconds, 3),
        }
        if held_out is not None:
            line |= {"held_out_loss": round(held_out, 6), "held_out_perplexity": round(math.exp(held_out), 3)}
        self._on_loss(line)

    def _save(self, training: Training, clock: _Clock) -> None:
        if self._run is not None:
            training.check()
            arrays, about = training.state()
            self._run.save(arrays, about | {"spent": clock.spent})

    def _about(
        self, corpus: Corpus, training: Training, size: int, held_out_tokens: int, loss: float | None
    ) -> dict[str, Any]:
        return {
            "made_by": f"tokenspace {tokenspace.__version__}",
            "objective": OBJECTIVE,
            "settings": asdict(self._settings),
            "notes": [*corpus.notes, *self._notes],
            "corpus": [source.description() for source in corpus.sources],
            "tokens": training.plan.tokens + held_out_tokens - 1,
            "texts": corpus.sentences,
            "vocabulary": len(corpus.tokenizer.vocab),
            "tokenizer": {
                "model": type(corpus.tokenizer.inner.model).__name__,
                "sha256": tokenizer_sha256(corpus.tokenizer),
            },
            "parameters": size,
            "steps": training.step,
            "tokens_read": training.tokens,
            "precision": "bfloat16 products" if training.mixed else "float32",
            "held_out_tokens": held_out_tokens,
            "held_out_loss": None if loss is None else round(loss, 6),
            "versions": {package: version(package) for package in ("numpy", "torch", "tokenizers")},
        }


class _Clock:
    """How much of a run is done: by its steps, its minutes, or both, whichever is further."""

    def __init__(self, settings: Settings, training: Training, tokens: int) -> None:
        self._training, self._began = training, time.perf_counter()
        self._seconds = None if settings.minutes is None else 60 * settings.minutes
        self.chosen = ""  # what was chosen by the text's size, in words
        self.epochs = settings.epochs
        if self.epochs is None and self._seconds is None:
            self.epochs = default_epochs(tokens)
            self.chosen = f"{self.epochs} epochs, chosen for {tokens:,} tokens"
        self._steps = None if self.epochs is None else self.epochs * training.plan.steps
        self.warm_up = WARM_UP if self._steps is None else max(1, min(WARM_UP, self._steps // 20))
        self.epoch_tokens = training.plan.windows * training.plan.context
        self.fraction = 0.0

    @property
    def spent(self) -> float:
        """Seconds since training began, those of the runs that this one goes on from included."""
        return time.perf_counter() - self._began

    def go_on(self, spent: float) -> None:
        """Count from what a run before this one took."""
        self._began -= spent
        self.tick()

    def tick(self) -> float:
        """The fraction done now."""
        by_steps = 0.0 if self._steps is None else self._training.step / self._steps
        by_time = 0.0 if self._seconds is None else self.spent / self._seconds
        self.fraction = max(by_steps, by_time)
        return self.fraction


@contextmanager
def _torch_as_told(settings: Settings) -> Iterator[None]:
    """As many threads as asked for, and the seed; both as they were afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def _readable_twice(files: text.Files, folder: Path) -> Iterator[list[str]]:
    """``files``, what comes from stdin saved in ``folder`` for as long as needed."""
    names = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths = [os.fspath(name) for name in names]
    copy = folder / "stdin"
    try:
        if paths.count("-") == 1:  # more are refused
            with copy.open("wb") as file:
                for block in text.Reading(text.find("-")):
                    file.write(block.data)
            paths[paths.index("-")] = str(copy)
        yield paths
    finally:
        copy.unlink(missing_ok=True)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """
    >>> _differences({"dim": 16, "seed": 1, "init": None}, {"dim": 32, "seed": 1, "init": "a1"})
    'dim 16 then, 32 now; init none then, a1 now'
    """
    keys = [key for key in before | now if before.get(key) != now.get(key)]
    said = {key: [_brief(one.get(key)) for one in (before, now)] for key in keys}
    return "; ".join(f"{key} {was} then, {is_now} now" for key, (was, is_now) in said.items())


def _brief(value: Any) -> str:
    return "none" if value is None else str(value)[:12]


def _until(stop: Callable[[], bool], texts: Iterator[str]) -> Iterator[str]:
    for line in texts:
        if stop():
            raise KeyboardInterrupt
        yield line
