"""Skip-gram with negative sampling (Mikolov et al. 2013, arXiv:1310.4546): text files in, a table out."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from types import ModuleType
from typing import Any

import numpy as np

import tokenspace
from tokenspace import text
from tokenspace.errors import CorpusError, MissingExtra, ShapeError
from tokenspace.kernels import threads as pool
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import corpus as corpora
from tokenspace.train.settings import Settings, default_epochs, default_min_count, real, whole

TOKENS_A_PIECE = 10_000  # between two changes of the learning rate
SECONDS_BETWEEN_EVENTS = 0.1
_UNTRAINED_NAMED = 100  # ids in the provenance


@dataclass(frozen=True)
class Progress:
    """How far training is. ``loss``: nats a positive pair, its negatives included, since the last event."""

    epoch: int
    epochs: int
    fraction: float
    tokens: int
    tokens_per_second: float
    loss: float
    eta_seconds: float


def skipgram(
    files: text.Files,
    *,
    dim: int = 100,
    epochs: int | None = None,
    window: int = 5,
    negative: int = 5,
    sample: float = 1e-3,
    min_count: int | None = None,
    lowercase: bool = True,
    tokenizer: Tokenizer | None = None,
    threads: int | None = None,
    seed: int = 1,
    alpha: float = 0.025,
    min_alpha: float = 1e-4,
    snapshots: int = 0,
    on_snapshot: Callable[[float, Table], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Table:
    """Learn a vector for each token from UTF-8 text files, one sentence or paragraph a line.

    - ``tokenizer``: by default words and punctuation marks seen at least ``min_count`` times in these files.
    - ``min_count``: by default 1 for less than 100 kB of text, and one more for every power of ten, up to 5.
    - ``epochs``: by default as many as make 20 million tokens in all, at least 5 and at most 50.
    - ``threads``: by default all that this process may use. With one thread the same files, settings and seed
      give the same bits on every run and CPU; with more, threads race for rows and no two runs are equal.
    - ``sample``: the subsampling threshold of frequent tokens; 0 keeps every occurrence.
    - ``alpha``, the learning rate, falls to ``min_alpha`` in a straight line, a step every 10,000 tokens.
    - ``snapshots``: so many tables along the way, evenly spaced, go to ``on_snapshot(fraction, table)``.
    - ``on_note`` hears, before training begins, what was chosen by the text's size; provenance keeps it too.

    The result holds the input matrix as ``weight``, the context matrix as ``output``, and what made it as
    ``provenance``. Rows of tokens that never occur ([PAD], [UNK], …) are zero.

    ``stop()`` is asked between lines and pieces; True ends training early, as Ctrl-C does: the table as it is
    then comes back with ``provenance["interrupted_at"]``, the fraction done. ``KeyboardInterrupt`` if nothing
    is.

    ``CorpusError`` if the text can't be trained on, ``ShapeError`` for a setting out of range,
    ``MissingExtra`` without numba.
    """
    kernel = _kernel()
    if tokenizer is not None and min_count is not None:
        raise ShapeError("min_count chooses a vocabulary, and a tokenizer has its own: give one or the other")
    dim, window, negative = whole("dim", dim), whole("window", window), whole("negative", negative)
    epochs = None if epochs is None else whole("epochs", epochs)
    min_count = None if min_count is None else whole("min_count", min_count)
    threads = pool.available() if threads is None else whole("threads", threads)
    seed, snapshots = whole("seed", seed), whole("snapshots", snapshots)
    sample, alpha = real("sample", sample, 0.0, 1.0), real("alpha", alpha, 1e-9, 10.0)
    min_alpha = real("min_alpha", min_alpha, 0.0, alpha)

    stop = stop or _never
    sources = text.check(files)
    notes: list[str] = []
    folded = lowercase if tokenizer is None else None
    if tokenizer is None:
        if min_count is None:
            size = sum(source.bytes for source in sources)
            min_count = default_min_count(size)
            notes.append(f"minimum count {min_count}, chosen for {size:,} bytes of text")
        tokenizer = corpora.word_tokenizer(sources, min_count, lowercase)
    corpus = corpora.encode(_read(sources, stop), tokenizer, kernel.LONGEST_SENTENCE)
    corpora.check_trainable(corpus, sources)
    if epochs is None:
        epochs = default_epochs(len(corpus.ids))
        notes.append(f"{epochs} epochs, chosen for {len(corpus.ids):,} tokens")
    if on_note is not None:
        for note in notes:
            on_note(note)
    settings = Settings(
        dim, epochs, window, negative, sample, min_count, folded, threads, seed, alpha, min_alpha
    )
    training = _Training(kernel, corpus, tokenizer, settings, progress, stop)
    about = {
        "made_by": f"tokenspace {tokenspace.__version__}",
        "objective": "skip-gram with negative sampling",
        "settings": asdict(settings),
        "notes": notes,
        "corpus": [source.description() for source in sources],
        "tokens": len(corpus.ids),
        "vocabulary": len(tokenizer.vocab),
        "tokenizer": {
            "model": type(tokenizer.inner.model).__name__,
            "sha256": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        },
        "versions": {package: version(package) for package in ("numpy", "numba", "tokenizers")},
    }
    try:
        for fraction in (n / (snapshots + 1) for n in range(1, snapshots + 1)):
            training.run(until=fraction)
            if on_snapshot is not None and not stop():
                on_snapshot(fraction, training.table(about))
        training.run(until=1.0)
    except KeyboardInterrupt:
        pass  # as when stop() says so
    if training.fraction == 1:
        return training.table(about)
    if training.fraction == 0:
        raise KeyboardInterrupt  # there is nothing to keep
    return training.table(about | {"interrupted_at": round(training.fraction, 4)})


def _never() -> bool:
    return False


def _read(sources: Sequence[text.TextFile], stop: Callable[[], bool]) -> Iterator[str]:
    for line in text.lines(sources):
        if stop():
            raise KeyboardInterrupt
        yield line


class _Training:
    """One run: both matrices, the plan of its pieces, and which of them are done.

    A piece is a range of sentences in one epoch, about 10,000 tokens. Its learning rate and its random
    numbers depend on its place in the plan alone, never on the threads.
    """

    def __init__(
        self,
        kernel: ModuleType,
        corpus: corpora.Corpus,
        tokenizer: Tokenizer,
        settings: Settings,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool],
    ) -> None:
        rng = np.random.default_rng(settings.seed)
        counts = corpus.counts(len(tokenizer.vocab))
        start = (rng.random((len(counts), settings.dim), np.float32) - np.float32(0.5)) / np.float32(
            settings.dim
        )
        start[counts == 0] = 0.0
        inputs = kernel.padded(start)
        self._kernel, self._settings, self._tokenizer = kernel, settings, tokenizer
        self._progress, self._stop = progress, stop
        self._untrained = np.flatnonzero(counts == 0).tolist()
        self._corpus = kernel.Corpus(corpus.ids, corpus.offsets)
        self._model = kernel.Model(inputs, kernel.aligned_zeros(*inputs.shape))
        self._draws = kernel.draws(counts, settings.sample, settings.window, rng)
        self._scratch = [
            kernel.scratch(settings.dim, settings.window, settings.negative) for _ in range(settings.threads)
        ]
        self._bounds = _piece_bounds(corpus.offsets)
        self._tokens_before = corpus.offsets[self._bounds]
        plan = (settings.epochs, len(self._bounds) - 1)
        self._loss, self._pairs, self._done = np.zeros(plan), np.zeros(plan, np.int64), np.zeros(plan, bool)
        self._next_piece = 0
        self._train_sentences(0, 0, settings.alpha, seed=1, worker=0)  # compiled before the clock starts
        self._began = self._last_event = time.perf_counter()
        self._reported = (0.0, 0)

    def run(self, until: float) -> None:
        """Train the pieces that lie before the fraction ``until`` of the plan."""
        first, self._next_piece = self._next_piece, round(until * self._done.size)
        pool.share(
            lambda worker, piece: self._train(worker, first + piece),
            self._next_piece - first,
            self._settings.threads,
        )
        self._report()

    @property
    def tokens(self) -> int:
        """How many tokens were read so far, over all epochs."""
        return int((self._done * np.diff(self._tokens_before)).sum())

    @property
    def fraction(self) -> float:
        """How much of the whole run is done."""
        return self.tokens / (self._settings.epochs * len(self._corpus.ids))

    def table(self, about: dict[str, Any]) -> Table:
        """A copy of the matrices as they are now.

        ``ShapeError`` if they left the finite numbers, ``CorpusError`` if subsampling left nothing to learn.
        """
        if self._done.all() and not self._pairs.any():
            raise CorpusError(
                f"subsampling thinned all {len(self._corpus.ids):,} tokens away, so nothing was learned; "
                f"raise sample ({self._settings.sample:g}), or set it to 0 to keep every occurrence"
            )
        weight, output = (matrix[:, : self._settings.dim].copy() for matrix in self._model)
        if not (np.isfinite(weight).all() and np.isfinite(output).all()):
            raise ShapeError(
                f"training diverged: the table holds NaN or infinity; lower alpha ({self._settings.alpha:g})"
            )
        untrained = {"rows": len(self._untrained), "first_ids": self._untrained[:_UNTRAINED_NAMED]}
        provenance = about | {"loss": self._last_loss(), "untrained": untrained}
        return Table(weight, self._tokenizer.vocab, self._tokenizer, output, provenance)

    def _train(self, worker: int, piece: int) -> None:
        if self._stop():
            return
        epoch, place = divmod(piece, self._done.shape[1])
        settings, corpus_tokens = self._settings, len(self._corpus.ids)
        read = (epoch * corpus_tokens + self._tokens_before[place]) / (settings.epochs * corpus_tokens)
        rate = settings.alpha + (settings.min_alpha - settings.alpha) * read
        (seed,) = np.random.SeedSequence([settings.seed, epoch, place]).generate_state(1, np.uint64)
        self._loss[epoch, place], self._pairs[epoch, place] = self._train_sentences(
            self._bounds[place], self._bounds[place + 1], rate, seed, worker
        )
        self._done[epoch, place] = True
        if worker == 0 and time.perf_counter() - self._last_event > SECONDS_BETWEEN_EVENTS:
            self._report()

    def _train_sentences(
        self, first: int, last: int, rate: float, seed: int, worker: int
    ) -> tuple[float, int]:
        return self._kernel.train_sentences(
            int(first),
            int(last),
            self._corpus,
            self._model,
            self._draws,
            np.float32(rate),
            np.uint64(seed or 1),  # a xorshift generator stays at zero
            self._scratch[worker],
        )

    def _last_loss(self) -> float | None:
        """The mean over the positive pairs of the last epoch's worth of pieces; None before there is one."""
        last = np.flatnonzero(self._pairs)[-self._done.shape[1] :]
        if not len(last):
            return None
        return round(math.fsum(self._loss.flat[last]) / int(self._pairs.flat[last].sum()), 4)

    def _report(self) -> None:
        """Tell the progress callback where training is; called in the caller's thread only."""
        if self._progress is None:
            return
        now = self._last_event = time.perf_counter()
        tokens, all_tokens = self.tokens, self._settings.epochs * len(self._corpus.ids)
        loss, pairs = float(self._loss.sum()), int(self._pairs.sum())
        new_loss, new_pairs = loss - self._reported[0], pairs - self._reported[1]
        if not new_pairs:
            return
        self._reported = (loss, pairs)
        speed = tokens / (now - self._began)
        self._progress(
            Progress(
                epoch=min(tokens // len(self._corpus.ids) + 1, self._settings.epochs),
                epochs=self._settings.epochs,
                fraction=tokens / all_tokens,
                tokens=tokens,
                tokens_per_second=speed,
                loss=new_loss / new_pairs,
                eta_seconds=(all_tokens - tokens) / speed,
            )
        )


def _piece_bounds(offsets: np.ndarray) -> np.ndarray:
    """The first sentence of each piece, and the number of sentences: pieces hold about 10,000 tokens."""
    marks = np.arange(0, offsets[-1], TOKENS_A_PIECE)
    return np.unique(np.append(np.searchsorted(offsets, marks), len(offsets) - 1))


def _kernel() -> ModuleType:
    try:
        from tokenspace.kernels import skipgram as kernel
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise MissingExtra("training", "train") from None
        raise
    return kernel
