"""Skip-gram with negative sampling (Mikolov et al. 2013, arXiv:1310.4546): text files in, a table out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from tokenspace import text
from tokenspace.atomic import check_writable
from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.kernels import threads as pool
from tokenspace.shown import shown
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.finished import finished
from tokenspace.train.learning import OBJECTIVE, Asked, learned
from tokenspace.train.places import folder_beside
from tokenspace.train.progress import Progress
from tokenspace.train.run import Run, kept_if_of_use
from tokenspace.train.scores import Evaluation
from tokenspace.train.settings import checked, real, whole
from tokenspace.train.sources import check_same_text


def skipgram(
    files: text.Files,
    *,
    dim: int | None = None,
    epochs: int | None = None,
    window: int = 5,
    negative: int = 5,
    sample: float = 1e-3,
    min_count: int | None = None,
    lowercase: bool = True,
    words: str = "word",
    tokenizer: Tokenizer | None = None,
    threads: int | None = None,
    seed: int = 1,
    alpha: float | None = None,
    min_alpha: float = 1e-4,
    shuffle: bool = True,
    init: Table | None = None,
    evaluate: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    snapshots: int = 0,
    on_snapshot: Callable[[float, Table], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_minutes: float = 10.0,
) -> Table:
    """Learn a vector for each token from UTF-8 text files, one sentence or paragraph a line.

    - ``files``: paths, patterns, ``-`` for stdin, gzip or zstd or plain.
    - ``words``: "word" (words and punctuation marks) or "whitespace" (what stands between white space), those
      seen at least ``min_count`` times in these files. ``tokenizer``: split the text with this one instead.
    - ``min_count``: by default 1 for less than 100 kB of text, and one more for every power of ten, up to 5.
    - ``dim``: the width D, by default 100, or that of ``init``.
    - ``epochs``: by default as many as make 20 million tokens in all, at least 5 and at most 50.
    - ``threads``: by default all that this process may use. With one thread the same files, settings and seed
      give the same bits on every run and CPU; with more, threads race for rows and no two runs are equal.
    - ``sample``: the subsampling threshold of frequent tokens; 0 keeps every occurrence.
    - ``alpha``, the learning rate, falls to ``min_alpha`` in a straight line, a step every 10,000 tokens. By
      default 0.025; with fewer than five epochs and no ``init``, 0.125 / ``epochs``, but 0.1 at most.
    - ``shuffle``: read pieces of some 10,000 tokens in an order drawn anew for each epoch, so that a text
      whose parts differ is not learned mostly from its end; False reads from front to back.
    - ``init``: the rows of the tokens that it has are copied to begin with, the others drawn.
    - ``evaluate``: files of word pairs or analogies, asked of the table after each epoch; the last scores are
      in the provenance, all of them in the loss file.
    - ``snapshots``: so many tables along the way, evenly spaced, go to ``on_snapshot(fraction, table)``; the
      provenance of each has the fraction done as ``snapshot_at``. Fewer, if the run has fewer parts.
    - ``on_note`` hears, before training begins, what was chosen by the text's size, which provenance keeps
      too; and scores, as they are known.

    With ``output``, the table is saved there and the losses beside it (t.loss.jsonl for t.safetensors). Until
    then a folder (t.training) holds the losses and what it takes to go on after a crash: the corpus, and a
    checkpoint every ``checkpoint_minutes``. ``resume=True`` goes on; with one thread the result has the bits
    of a run that was never broken off. If ``output`` is finished, it is returned as it lies there.

    The result holds the input matrix as ``weight``, the context matrix as ``output``, and what made it as
    ``provenance``. Rows of tokens that never occur ([PAD], [UNK], …) are zero.

    ``stop()`` is asked between lines and pieces; True ends training early, as Ctrl-C does: the table as it is
    then comes back (and is saved) with ``provenance["interrupted_at"]``, the fraction done, and the run's
    folder stays, to be resumed. ``KeyboardInterrupt`` if nothing is done.

    ``CorpusError`` if the text can't be trained on or has changed since the run began, ``ShapeError`` for a
    setting out of range, matrices larger than memory or training that diverges, ``OutputError`` if something
    can't be written or the run's folder holds another run, ``MissingExtra`` without numba.
    """
    kernel = _kernel()
    if init is not None and not isinstance(init, Table):
        raise ShapeError(f"init must be a Table, found {init!r}; load it first: tokenspace.load(...)")
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise ShapeError(
            f"tokenizer must be a Tokenizer, found {tokenizer!r}; make it first: Tokenizer.load(...) or "
            "Tokenizer.train(...)"
        )
    settings = checked(
        dim=dim,
        epochs=epochs,
        window=window,
        negative=negative,
        sample=sample,
        min_count=min_count,
        lowercase=lowercase,
        words=words,
        threads=pool.available() if threads is None else threads,
        seed=seed,
        alpha=alpha,
        min_alpha=min_alpha,
        shuffle=shuffle,
        tokenizer_given=tokenizer is not None,
        init_dim=None if init is None else init.dim,
    )
    asked = Asked(
        text.named(files),
        settings,
        tokenizer,
        init,
        whole("snapshots", snapshots),
        on_snapshot or (lambda fraction, table: None),
        progress,
        on_note or (lambda note: None),
        stop or (lambda: False),
        60 * real("checkpoint_minutes", checkpoint_minutes, 0.0, 1e9),
        Evaluation(evaluate),
    )
    if output is None:
        if resume:
            raise ShapeError("resume goes on with the run that lies beside an output; name it: output=...")
        with tempfile.TemporaryDirectory(prefix="tokenspace-") as name:
            return learned(kernel, asked, Path(name), None, None)
    check_writable(output)
    folder = folder_beside(output)
    if resume and not Run.lies_in(folder) and Path(output).exists():
        described = asked.described()
        beginning = {name: described[name] for name in ("tokenizer", "init")}
        table = finished(output, OBJECTIVE, settings.described(), asked.files, beginning)
        Run.clear(folder)
        asked.note(f"{shown(os.fspath(output))} is finished: there is nothing to resume, nothing was changed")
        if asked.snapshots or asked.evaluation:
            asked.note("so nothing was evaluated, and no snapshot was made")
        return table
    with Run.begin(folder, asked.described(), resume) as run:
        check_same_text(run.corpus, asked.files)
        with kept_if_of_use(run):
            return learned(kernel, asked, run.corpus, run, Path(output))


def _kernel() -> ModuleType:
    try:
        from tokenspace.kernels import skipgram as kernel
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise MissingExtra("training", "train") from None
        raise
    return kernel
