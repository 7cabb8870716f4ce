"""The loop of skip-gram training: the plan of its pieces, and which of them are done.

A *piece* is a range of sentences in one epoch, about 10,000 tokens. Its learning rate and its random numbers
depend on its place in the plan alone, never on the threads, nor on where a run was broken off. Pieces are
begun in the order of the plan (``reading_order.py``); whenever the loop rests, the first ``done`` of it are
done and no other is begun. So both matrices and that number are all that it takes to go on.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tokenspace.errors import CorpusError, ShapeError
from tokenspace.kernels import threads as pool
from tokenspace.shapes import Array, Float
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.corpus import Corpus
from tokenspace.train.divergence import Diverged, Limit
from tokenspace.train.losses import LossLog
from tokenspace.train.progress import Progress
from tokenspace.train.reading_order import ReadingOrder
from tokenspace.train.settings import Settings

TOKENS_A_PIECE = 10_000  # between two changes of the learning rate
PIECES_A_CALL = 4096  # of the pool, which would go through all that are left when the loop is told to pause
SECONDS_BETWEEN_EVENTS = 0.1
MOST_LOSSES = 1000  # lines of losses, evenly spaced over the plan
_UNTRAINED_NAMED = 100  # ids in the provenance
_ROWS_AT_ONCE = 16_384


class Training:
    """One run in memory. ``settings.epochs`` is known; ``model`` is trained in place."""

    def __init__(
        self,
        kernel: ModuleType,
        corpus: Corpus,
        settings: Settings,
        model: Any,
        draws: Any,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        assert settings.epochs is not None
        self._kernel, self._corpus, self._settings = kernel, corpus, settings
        self._model, self._draws, self._progress = model, draws, progress
        self._limit = Limit(model)
        self._epochs = settings.epochs
        self._scratch = [
            kernel.scratch(settings.dim, settings.window, settings.negative) for _ in range(settings.threads)
        ]
        first, before = corpus.cuts(TOKENS_A_PIECE)
        self._first = first.tolist()
        self._order = ReadingOrder(before, self._epochs, settings.seed, settings.shuffle)
        self.pieces_an_epoch, self.pieces = self._order.pieces, self._order.steps
        self.done = 0
        self.log: LossLog | None = None
        self._loss, self._pairs = np.zeros(self.pieces), np.zeros(self.pieces, np.int64)
        self._is_done = np.zeros(self.pieces, bool)
        self._sums = np.zeros((settings.threads, 2))  # each worker's loss and pairs
        self._read = np.zeros(settings.threads, np.int64)  # each worker's tokens, in this process
        self._read_before = 0  # and those before it
        self._seconds = 0.0  # in earlier calls of run
        self._began: float | None = None  # this call of run
        self._told = (0.0, 0.0)  # loss and pairs at the last event
        self._last_event = 0.0
        self._line_every = -(-self.pieces // MOST_LOSSES)
        self._lines = 0  # of losses, written so far
        self._line_ends = (0, 0.0)  # tokens and seconds at the last one
        self._caller = threading.get_ident()
        nothing = kernel.Corpus(np.zeros(0, np.int32), np.zeros(1, np.int64))
        self._train_sentences(nothing, settings.alpha, 1, worker=0)  # compiled before the clock starts

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until: int, pause: Callable[[], bool]) -> None:
        """Train the pieces before ``until``, or fewer: until ``pause()``, asked between pieces, says so.

        An exception in between (Ctrl-C, ``Diverged``) leaves ``done`` as it was, and the matrices further
        than that.
        """
        self._began = self._last_event = time.perf_counter()
        self._caller = threading.get_ident()
        taken = itertools.count(self.done)  # one step of it is one operation: no two threads get the same
        paused = False

        def work(worker: int, _: int) -> None:
            nonlocal paused
            if paused:
                return
            piece = next(taken)
            self._train(worker, piece)
            if threading.get_ident() == self._caller:
                self._look(piece + 1)
                paused = pause()

        try:
            while self.done < until and not paused:
                pool.share(work, min(until - self.done, PIECES_A_CALL), self._settings.threads)
                self.done = next(taken)
                taken = itertools.count(self.done)
            self.check()
            self._write_losses(self.done)
            self._tell()
        finally:
            self._seconds, self._began = self.seconds, None

    def _train(self, worker: int, piece: int) -> None:
        settings, epoch, place = self._settings, piece // self.pieces_an_epoch, self._order.place(piece)
        before, after = self.tokens_before(piece), self.tokens_before(piece + 1)
        rate = settings.alpha + (settings.min_alpha - settings.alpha) * (before / self.all_tokens)
        (seed,) = np.random.SeedSequence([settings.seed, epoch, place]).generate_state(1, np.uint64)
        read = self._corpus.piece(self._first[place], self._first[place + 1], self._kernel.LONGEST_SENTENCE)
        loss, pairs = self._train_sentences(self._kernel.Corpus(*read), rate, seed, worker)
        self._loss[piece], self._pairs[piece], self._is_done[piece] = loss, pairs, True
        self._sums[worker] += loss, pairs
        self._read[worker] += after - before

    def _train_sentences(self, sentences: Any, rate: float, seed: int, worker: int) -> tuple[float, int]:
        return self._kernel.train_sentences(
            0,
            len(sentences.offsets) - 1,
            sentences,
            self._model,
            self._draws,
            np.float32(rate),
            np.uint64(seed or 1),  # a xorshift generator stays at zero
            self._scratch[worker],
        )

    # ── how far it is ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def tokens(self) -> int:
        """How many tokens were read so far, over all epochs."""
        return self._read_before + int(self._read.sum())

    @property
    def all_tokens(self) -> int:
        """How many tokens will be read in all."""
        return self._epochs * self._corpus.tokens

    @property
    def fraction(self) -> float:
        """How much of the whole run is done."""
        return self.tokens / self.all_tokens

    @property
    def seconds(self) -> float:
        """Spent on training, in earlier processes too."""
        return self._seconds + (0.0 if self._began is None else time.perf_counter() - self._began)

    def tokens_before(self, piece: int) -> int:
        """How many tokens the plan reads before ``piece``."""
        return self._order.tokens_before(piece)

    def epoch_before(self, piece: int) -> int:
        """The epoch, counted from 1, that ends at ``piece`` or goes on there."""
        return max(1, -(-piece // self.pieces_an_epoch))

    # ── what it gives ─────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that ``restore`` needs: arrays (not copied) and plain values."""
        arrays = {
            "inputs": self._model.inputs,
            "outputs": self._model.outputs,
            "loss": self._loss[: self.done],
            "pairs": self._pairs[: self.done],
        }
        return arrays, {
            "pieces": self.done,
            "tokens": self.tokens_before(self.done),
            "seconds": self.seconds,
        }

    def restore(self, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        """Go on from a ``state`` of the same corpus and settings; ``ShapeError`` if it is another one's."""
        done, rows = about["pieces"], len(self._model.inputs)
        lengths = {"inputs": rows, "outputs": rows, "loss": done, "pairs": done}
        if not 0 <= done <= self.pieces or lengths != {name: len(arrays[name]) for name in lengths}:
            raise ShapeError(f"it is of another run than one of {rows:,} rows in {self.pieces:,} parts")
        for matrix, saved in zip(self._model, (arrays["inputs"], arrays["outputs"]), strict=True):
            matrix[:, : self._settings.dim] = saved[:, : self._settings.dim]
        self.done, self._seconds = about["pieces"], about["seconds"]
        self._loss[: self.done], self._pairs[: self.done] = arrays["loss"], arrays["pairs"]
        self._is_done[: self.done] = True
        self._read_before = self.tokens_before(self.done)
        self._lines = (
            -(-self.done // self._line_every) if self.done == self.pieces else self.done // self._line_every
        )
        self._line_ends = (self._read_before, self._seconds)
        self.check()

    def table(self, tokenizer: Tokenizer, about: dict[str, Any], last: bool = False) -> Table:
        """The matrices as they are now: a copy of them, or, for the ``last`` time, their own memory.

        ``Diverged`` if they left all reason, ``CorpusError`` if subsampling left nothing to learn.
        """
        if self.done == self.pieces and not self._pairs.any():
            raise CorpusError(
                f"subsampling thinned all {self._corpus.tokens:,} tokens away, so nothing was learned; "
                f"raise sample ({self._settings.sample:g}), or set it to 0 to keep every occurrence"
            )
        self.check()
        width = self._settings.dim
        if last:
            self._model = self._kernel.Model(*(_compacted(matrix, width) for matrix in self._model))
        weight, output = (matrix if last else matrix[:, :width].copy() for matrix in self._model)
        untrained = np.flatnonzero(self._corpus.counts == 0)
        provenance = about | {
            "loss": self._last_loss(),
            "untrained": {"rows": len(untrained), "first_ids": untrained[:_UNTRAINED_NAMED].tolist()},
        }
        return Table(weight, tokenizer.vocab, tokenizer, output, provenance)

    def check(self) -> None:
        """``Diverged`` if a row of either matrix has left all reason."""
        if excess := self._limit.excess(self._model):
            raise Diverged(
                f"training diverged after {self.fraction:.0%} of the run: {excess}; "
                f"lower alpha ({self._settings.alpha:g})"
            )

    def view(self, tokenizer: Tokenizer) -> Table:
        """The input matrix itself, for a question between two calls of ``run``."""
        return Table(self._model.inputs[:, : self._settings.dim], tokenizer.vocab, tokenizer)

    def _last_loss(self) -> float | None:
        """The mean over the positive pairs of the last epoch's worth of pieces; None before there is one."""
        last = np.flatnonzero(self._pairs)[-self.pieces_an_epoch :]
        if not len(last):
            return None
        return round(math.fsum(self._loss[last]) / int(self._pairs[last].sum()), 4)

    # ── what it tells ─────────────────────────────────────────────────────────────────────────────────────

    def _look(self, begun: int) -> None:
        """Check the rows, report progress and write losses, where due, between two pieces."""
        if self._limit.is_due():
            self.check()
        if time.perf_counter() - self._last_event > SECONDS_BETWEEN_EVENTS:
            self._tell()
        self._write_losses(begun)

    def _write_losses(self, begun: int) -> None:
        """Write the lines that are due when ``begun`` pieces were begun, and whose pieces are done."""
        while (end := min((self._lines + 1) * self._line_every, self.pieces)) <= begun:
            start = self._lines * self._line_every
            if start >= self.pieces or not self._is_done[start:end].all():
                return
            self._lines += 1
            pairs = int(self._pairs[start:end].sum())
            if self.log is None or not pairs:
                continue
            tokens, seconds = self.tokens_before(end), self.seconds
            new_tokens, new_seconds = tokens - self._line_ends[0], max(seconds - self._line_ends[1], 1e-9)
            self._line_ends = (tokens, seconds)
            self.log.append(
                {
                    "tokens": tokens,
                    "epoch": self.epoch_before(end),
                    "epochs": self._epochs,
                    "loss": round(float(self._loss[start:end].sum()) / pairs, 6),
                    "tokens_per_second": round(new_tokens / new_seconds),
                    "seconds": round(seconds, 3),
                }
            )

    def _tell(self) -> None:
        """Tell the progress callback where training is."""
        self._last_event = time.perf_counter()
        loss, pairs = self._sums.sum(axis=0).tolist()
        new_loss, new_pairs = loss - self._told[0], pairs - self._told[1]
        if self._progress is None or not new_pairs:
            return
        self._told = (loss, pairs)
        tokens, seconds = self.tokens, max(self.seconds, 1e-9)
        self._progress(
            Progress(
                epoch=min(tokens // self._corpus.tokens + 1, self._epochs),
                epochs=self._epochs,
                fraction=tokens / self.all_tokens,
                tokens=tokens,
                tokens_per_second=tokens / seconds,
                loss=new_loss / new_pairs,
                eta_seconds=(self.all_tokens - tokens) / tokens * seconds,
            )
        )


def _compacted(matrix: Float[Array, "V W"], width: int) -> Float[Array, "V D"]:
    """The first ``width`` columns, moved together within the matrix's own memory."""
    numbers = matrix.reshape(-1)
    for first in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = matrix[first : first + _ROWS_AT_ONCE, :width].ravel()  # a copy: it is moved over itself
        numbers[first * width : first * width + len(rows)] = rows
    return numbers[: len(matrix) * width].reshape(len(matrix), width)
