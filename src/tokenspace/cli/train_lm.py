"""`tokenspace train --objective lm`: a small transformer, and the table that it reads by."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import click

import tokenspace
from tokenspace import formats
from tokenspace.cli.console import note, shown
from tokenspace.cli.early_end import EarlyEnd
from tokenspace.cli.train_texts import check_places, readable_twice, tokenizer_of
from tokenspace.cli.training_view import Bar, report
from tokenspace.errors import OutputError
from tokenspace.geometry import table_sha256
from tokenspace.table import Table
from tokenspace.tokenizer_training import KINDS
from tokenspace.train.finished import finished
from tokenspace.train.language_model import LanguageModel, language_model
from tokenspace.train.learning import tokenizer_sha256
from tokenspace.train.losses import LossLog
from tokenspace.train.run import Run, disk_told, folder_beside, kept_if_of_use, losses_beside
from tokenspace.train.scores import Evaluation, said
from tokenspace.train.sources import check_same_text

OBJECTIVE = "next token, in a decoder of GPT-2's architecture"
_VOCAB_SIZE = 4096


def learn(
    files: tuple[str, ...],
    output: str,
    source: str,
    vocab_size: int | None,
    lowercase: bool | None,
    *,
    dim: int | None,
    init: str | None,
    evaluate: tuple[str, ...],
    resume: bool,
    checkpoint_minutes: float,
    checkpoint: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train, save, and say what came of it; status 130 if it was ended early."""
    losses, folder = losses_beside(output), folder_beside(output)
    check_places([Path(output), losses], files)
    if checkpoint is not None and Path(checkpoint).exists() and not Path(checkpoint).is_dir():
        raise OutputError(f"can't write {shown(checkpoint)}: a model takes a folder, and that is a file")
    evaluation = Evaluation(evaluate)
    start = None if init is None else formats.load(init)
    folded, size = bool(lowercase), vocab_size or _VOCAB_SIZE
    begin = time.perf_counter()
    learned_within = source == "bpe"  # by the trainer, which has the text then
    with EarlyEnd() as asked, readable_twice(files, source in KINDS and not learned_within) as texts:
        tokenizer = None if learned_within else tokenizer_of(source, texts, size, folded)
        settings["dim"] = dim or (256 if start is None else start.dim)
        if tokenizer is None:
            settings |= {"vocab_size": size, "lowercase": folded}
        if resume and not Run.lies_in(folder) and Path(output).exists():
            table = finished(output, OBJECTIVE, settings, texts)
            Run.clear(folder)
            note(f"{shown(output)} is finished: there is nothing to resume, nothing was changed")
            _say(table, output, losses, 0.0, 0.0, as_json)
            return
        about = {
            "made_by": f"tokenspace {tokenspace.__version__}",
            "objective": OBJECTIVE,
            **settings,
            "tokenizer": None if tokenizer is None else tokenizer_sha256(tokenizer),
            "init": None if start is None else table_sha256(start),
        }
        with Run.begin(folder, about, resume) as run:
            check_same_text(run.corpus, texts)
            with kept_if_of_use(run), disk_told(folder), Bar() as bar:
                state = run.load()
                tokens = 0 if state is None else state[1]["tokens"]
                if tokens:
                    bar.note(f"going on where {tokens:,} tokens were read")
                with LossLog(losses, keep_tokens=tokens) as log:
                    learned = language_model(
                        texts,
                        tokenizer=tokenizer,
                        run=run,
                        checkpoint_minutes=checkpoint_minutes,
                        progress=bar.show,
                        on_note=bar.note,
                        on_loss=log.append,
                        stop=asked,
                        init=start,
                        **settings,
                    )
                table = _scored(learned, evaluation, bar)
                if checkpoint is not None:
                    learned.save(checkpoint)
                run.publish(table, output)
                if "interrupted_at" not in table.provenance:
                    run.remove()
    seconds = time.perf_counter() - begin
    bar.draw_curve(losses)
    _say(table, output, losses, seconds, bar.last.tokens_per_second if bar.last else 0.0, as_json)
    if checkpoint is not None and not as_json:
        click.echo(f"{shown(checkpoint)}: the whole model, a GPT2LMHeadModel to transformers")
    if "interrupted_at" in table.provenance:
        raise SystemExit(130)


def _scored(learned: LanguageModel, evaluation: Evaluation, bar: Bar) -> Table:
    table = learned.table
    if evaluation:
        scores = evaluation.scores(table)
        table.provenance["scores"] = scores
        bar.note(said(scores))
    return table


def _say(table: Table, output: str, losses: Path, seconds: float, speed: float, as_json: bool) -> None:
    made = table.provenance
    loss = made["held_out_loss"]
    results: dict[str, Any] = {"loss": loss, "perplexity": None if loss is None else round(math.exp(loss), 4)}
    if "scores" in made:
        results["scores"] = made["scores"]
    report(table, output, losses, made["tokens_read"], seconds, speed, results, as_json)
