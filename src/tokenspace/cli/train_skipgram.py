"""`tokenspace train` with skip-gram's objective."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tokenspace import formats, train
from tokenspace.cli.early_end import EarlyEnd
from tokenspace.cli.train_texts import check_places, readable_twice, resumable, tokenizer_of
from tokenspace.cli.training_view import Bar, report
from tokenspace.table import Table
from tokenspace.tokenizer_training import KINDS, WHOLE_WORDS
from tokenspace.train.places import folder_beside, losses_beside, snapshot_beside, snapshot_within
from tokenspace.train.run import Run


def learn(
    files: tuple[str, ...],
    output: str,
    source: str,
    vocab_size: int | None,
    lowercase: bool | None,
    *,
    init: str | None,
    snapshots: int,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train, save, and say what came of it; status 130 if it was ended early."""
    losses, folder = losses_beside(output), folder_beside(output)
    saved = _Snapshots(output, snapshots)
    check_places([Path(output), losses, *saved.paths], files, settings["evaluate"])
    resume = settings["resume"]
    is_finished = resume and not Run.lies_in(folder) and Path(output).exists()
    before = Run.tokens_read(folder) if resume else 0
    folded = True if lowercase is None else lowercase
    begin = time.perf_counter()
    learned_within = source in WHOLE_WORDS  # by the trainer, with the minimum count
    with EarlyEnd() as asked, readable_twice(files, source in KINDS and not learned_within) as texts:
        with resumable(folder), Bar() as bar:
            tokenizer = None if learned_within else tokenizer_of(source, texts, vocab_size or 30_000, folded)
            table = train.skipgram(
                texts,
                words=source if learned_within else "word",
                tokenizer=tokenizer,
                lowercase=folded,
                init=None if init is None else formats.load(init),
                snapshots=snapshots,
                on_snapshot=lambda fraction, table: bar.note(saved.save(fraction, table)),
                progress=bar.show,
                on_note=bar.note,
                stop=asked,
                output=output,
                **settings,
            )
        seconds = time.perf_counter() - begin
    bar.draw_curve(losses)
    made = table.provenance
    read = round(made["tokens"] * made["settings"]["epochs"] * made.get("interrupted_at", 1))
    tokens = 0 if is_finished else max(read - before, 0)  # by this process
    speed = tokens / seconds
    scores = {"scores": made["scores"]} if "scores" in made else {}
    report(table, output, losses, tokens, seconds, speed, {"loss": made["loss"], **scores}, as_json)
    if "interrupted_at" in made:
        raise SystemExit(130)


class _Snapshots:
    """Saves tables in the run's folder; with the table they get their ``paths`` beside it."""

    def __init__(self, output: str, count: int):
        self._folder = folder_beside(output)
        self.paths = [snapshot_beside(output, n) for n in range(1, count + 1)]

    def save(self, fraction: float, table: Table) -> str:
        """Save the one that is due when ``fraction`` is done; returns what to say of it."""
        count = len(self.paths)
        n = round(fraction * (count + 1))
        formats.save(table, snapshot_within(self._folder, n))
        return f"{fraction:.0%}: snapshot {n:,} of {count:,} is saved"
