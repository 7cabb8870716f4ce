"""Token vectors learned inside a small language model: text files in, a decoder and its table out.

The model (``train/decoder.py``) is GPT-2's architecture with tied input and output, so that the table is what
it reads by and what it scores against.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenspace import text
from tokenspace.errors import MissingExtra, OutputError, ShapeError, VocabError
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.language_model_settings import Settings, end_of_text, from_0, width
from tokenspace.train.progress import Progress
from tokenspace.train.run import Run, disk_told

if TYPE_CHECKING:
    from tokenspace.train.decoder import Decoder


@dataclass(frozen=True)
class LanguageModel:
    """A trained decoder. ``perplexity``: of the held-out tokens, None if there are none."""

    model: Decoder
    tokenizer: Tokenizer
    perplexity: float | None
    provenance: dict[str, Any]

    @cached_property
    def table(self) -> Table:
        """The token table (V, D), which the head scores against as well, with what made it."""
        weight = self.model.head.weight.detach().numpy().copy()
        return Table(weight, self.tokenizer.vocab, self.tokenizer, provenance=self.provenance)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that ``transformers`` loads as ``GPT2LMHeadModel``: see ``train/gpt2.py``.

        ``OutputError`` if it can't be written, or files lie there that ``transformers`` would read as well.
        """
        from tokenspace.train import gpt2

        gpt2.save(self.model, self.tokenizer, end_of_text(self.tokenizer), folder)


def language_model(
    files: text.Files,
    *,
    dim: int | None = None,
    layers: int = 4,
    heads: int = 4,
    context: int = 128,
    vocab_size: int = 4096,
    tokenizer: Tokenizer | None = None,
    lowercase: bool = False,
    epochs: int | None = None,
    minutes: float | None = None,
    batch: int = 16,
    rate: float = 5e-3,
    weight_decay: float = 0.1,
    dropout: float = 0.0,
    held_out: float = 0.02,
    threads: int | None = None,
    seed: int = 1,
    run: Run | None = None,
    checkpoint_minutes: float = 10.0,
    progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    on_loss: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    init: Table | None = None,
) -> LanguageModel:
    """Learn to predict each token of UTF-8 text files from those before it, one text a line.

    - ``dim``, ``layers``, ``heads``, ``context``: the decoder's width D, depth, attention heads, length T.
      The width is by default 256, or that of ``init``.
    - ``tokenizer``: by default byte-level BPE of ``vocab_size`` tokens, learned from these files.
    - ``epochs`` and ``minutes``: whichever comes first ends the run. If neither is given, as many epochs as
      make 20 million tokens, at least 1 and at most 20.
    - ``batch``: windows of ``context`` tokens a step; ``rate``: the optimizer's, after a warm-up; it falls to
      0 in a straight line.
    - ``held_out``: the share of the text that is kept apart to measure by, at most 200,000 tokens; nothing of
      a text of a few lines.
    - ``threads``: by default all that this process may use. With one, and no limit in minutes, the same
      files, settings, seed and CPU give the same bits, also if the run was broken off and resumed.
    - ``run``: the folder of a run: where one was begun before, with the same settings, it goes on from what
      was saved there, every ``checkpoint_minutes`` and at the end. The caller removes it. Without one,
      nothing is kept.
    - ``init``: a table of width D, with whose rows tokens of the same names begin.
    - ``on_loss`` hears what ``progress`` does as plain values, and the held-out loss ten times in a run.

    What is learned is one stream: all texts in their order, the tokenizer's end-of-text token after each. It
    is read in windows that begin anywhere, so a text is also read in the light of the ones before it.

    ``stop()`` is asked between steps; True ends training early, as Ctrl-C does: the model as it is then comes
    back with ``provenance["interrupted_at"]``, the fraction done. ``KeyboardInterrupt`` if nothing is.

    ``CorpusError`` if the text is too short, ``ShapeError`` for a setting out of range or if training
    diverges, ``VocabError`` for a tokenizer without a token that ends a text, ``OutputError`` if ``run`` was
    begun with other settings, ``MissingExtra`` without torch.
    """
    try:
        import torch  # noqa: F401

        from tokenspace.train.language_model_run import Course
    except ModuleNotFoundError as error:
        if error.name in ("torch", "numba", "llvmlite"):
            raise MissingExtra("training a language model", "torch") from None
        raise
    _check_kinds(tokenizer, init, run)
    settings = Settings(
        dim=width(dim, None if init is None else init.dim),
        layers=layers,
        heads=heads,
        context=context,
        vocab_size=vocab_size if tokenizer is None else None,
        lowercase=lowercase if tokenizer is None else None,
        epochs=epochs,
        minutes=minutes,
        threads=threads,  # type: ignore[arg-type]
        seed=seed,
        batch=batch,
        rate=rate,
        weight_decay=weight_decay,
        dropout=dropout,
        held_out=held_out,
    ).checked()
    course = Course(
        settings,
        run,
        from_0("checkpoint_minutes", checkpoint_minutes, below=None),
        progress or _unheard,
        on_note or _unheard,
        on_loss or _unheard,
        stop or _never,
    )
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own) if run is None else run.corpus
        with disk_told(folder):
            model, corpus, perplexity, provenance = course.follow(files, tokenizer, init, folder)
    return LanguageModel(model, corpus.tokenizer, perplexity, provenance)


def _check_kinds(tokenizer: object, init: object, run: object) -> None:
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise VocabError(
            f"tokenizer must be a Tokenizer, found {_kind(tokenizer)}; Tokenizer.load reads one from a file"
        )
    if init is not None and not isinstance(init, Table):
        raise ShapeError(f"init must be a Table, found {_kind(init)}; tokenspace.load reads one from a file")
    if run is not None and not isinstance(run, Run):
        raise OutputError(f"run must be a Run, found {_kind(run)}; Run.begin begins one in a folder")


def _kind(value: object) -> str:
    return type(value).__name__


def _never() -> bool:
    return False


def _unheard(_: object) -> None:
    pass
