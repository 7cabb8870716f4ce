"""`tokenspace train --objective lm`: a small transformer, and the table that it reads by."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import tokenspace
from tokenspace import formats, text
from tokenspace.cli.console import note, shown
from tokenspace.cli.early_end import EarlyEnd
from tokenspace.cli.train_texts import check_places, readable_twice, tokenizer_of
from tokenspace.cli.training_view import Bar, report
from tokenspace.errors import OutputError
from tokenspace.geometry import table_sha256
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import KINDS
from tokenspace.train.checkpoint_folder import WEIGHTS, check_apart, checked
from tokenspace.train.finished import finished
from tokenspace.train.language_model import language_model
from tokenspace.train.language_model_settings import OBJECTIVE, Settings, width
from tokenspace.train.learning import tokenizer_sha256
from tokenspace.train.losses import LossLog
from tokenspace.train.places import folder_beside, losses_beside
from tokenspace.train.run import Run, disk_told, kept_if_of_use
from tokenspace.train.scores import Evaluation, said
from tokenspace.train.sources import check_same_text

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
    check_places([Path(output), losses], files, evaluate)
    if checkpoint is not None:
        texts = [path for name in files if name != "-" for path in text.find(name)]
        check_apart(checked(checkpoint), [Path(output), losses, folder], texts)
    evaluation = Evaluation(evaluate)
    start = None if init is None else formats.load(init)
    settings["dim"] = width(dim, None if start is None else start.dim)
    size, folded = vocab_size or _VOCAB_SIZE, bool(lowercase)
    learned_tokenizer = _learned(source, size, folded)
    Settings(vocab_size=size, lowercase=folded, **settings).checked()
    if resume and not Run.lies_in(folder) and Path(output).exists():
        table = finished(output, OBJECTIVE, settings, files)
        _check_beginning(table, output, source, learned_tokenizer, start)
        _check_model_is_there(output, checkpoint)
        Run.clear(folder)
        note(f"{shown(output)} is finished: there is nothing to resume, nothing was changed")
        _say(table, output, losses, table.provenance["tokens_read"], 0.0, 0.0, checkpoint, as_json)
        return
    begin = time.perf_counter()
    learned_within = source == "bpe"  # by the trainer, which has the text then
    with EarlyEnd() as asked, readable_twice(files, source in KINDS and not learned_within) as texts_read:
        tokenizer = None
        if learned_within:
            settings |= {"vocab_size": size, "lowercase": folded}
        else:
            tokenizer = tokenizer_of(source, texts_read, size, folded)
        about = {
            "made_by": f"tokenspace {tokenspace.__version__}",
            "objective": OBJECTIVE,
            **settings,
            "tokenizer": None if tokenizer is None else tokenizer_sha256(tokenizer),
            "init": None if start is None else table_sha256(start),
        }
        with Run.begin(folder, about, resume) as run, _resumable(run):
            check_same_text(run.corpus, texts_read)
            with kept_if_of_use(run), disk_told(folder), Bar() as bar:
                state = run.load()
                before = 0 if state is None else state[1]["tokens"]
                if before:
                    bar.note(f"going on where {before:,} tokens were read")
                with LossLog(run.losses, keep_tokens=before) as log:
                    learned = language_model(
                        texts_read,
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
                    table = learned.table
                    table.provenance["tokenizer"] |= learned_tokenizer
                    if evaluation:
                        _score(table, evaluation, bar, log)
                if checkpoint is not None:
                    learned.save(checkpoint)
                run.publish(table, output)
                if "interrupted_at" not in table.provenance:
                    run.remove()
    seconds = time.perf_counter() - begin
    bar.draw_curve(losses)
    read_here = table.provenance["tokens_read"] - before
    speed = bar.last.tokens_per_second if bar.last and read_here else 0.0
    _say(table, output, losses, read_here, seconds, speed, checkpoint, as_json)
    if checkpoint is not None and not as_json:
        click.echo(f"{shown(checkpoint)}: the whole model, a GPT2LMHeadModel to transformers")
    if "interrupted_at" in table.provenance:
        raise SystemExit(130)


def _learned(source: str, vocab_size: int, lowercase: bool) -> dict[str, Any]:
    """How the tokenizer is learned here, for provenance; nothing where one is given."""
    if source not in KINDS:
        return {}
    return {"kind": source, "vocab_size": vocab_size, "lowercase": lowercase}


def _check_beginning(
    table: Table, output: str, source: str, learned_tokenizer: dict[str, Any], start: Table | None
) -> None:
    """``OutputError`` if the table at ``output`` was begun with another tokenizer or other rows."""
    made = table.provenance
    asked = learned_tokenizer or {"sha256": tokenizer_sha256(Tokenizer.load(source))}
    differing = [
        f"tokenizer {name} {_brief(made['tokenizer'].get(name))}, not {_brief(value)}"
        for name, value in asked.items()
        if made["tokenizer"].get(name) != value
    ]
    before, now = made.get("init", {}).get("table_sha256"), None if start is None else table_sha256(start)
    if before != now:
        differing.append(f"init {_brief(before)}, not {_brief(now)}")
    if differing:
        raise OutputError(
            f"there is no run to resume, and {shown(output)} was made with other settings: "
            f"{'; '.join(differing)}; choose another output, or train without --resume to replace it"
        )


def _check_model_is_there(output: str, checkpoint: str | None) -> None:
    """``OutputError`` if the model of a finished ``output`` is asked for, and was not saved with it."""
    if checkpoint is not None and not (Path(checkpoint) / WEIGHTS).exists():
        raise OutputError(
            f"{shown(output)} is finished, and holds the table alone: the model can't be saved in "
            f"{shown(checkpoint)} any more; train again, to another output, to have it"
        )


def _brief(value: Any) -> str:
    return "none" if value is None else str(value)[:12]  # of a hash enough to tell two apart


@contextlib.contextmanager
def _resumable(run: Run) -> Iterator[None]:
    """After an interrupt, a word about what can be gone on with; if that is nothing, no folder stays."""
    try:
        yield
    except KeyboardInterrupt:
        if run.has_state:
            note("interrupted: --resume goes on from what was saved last")
        else:
            run.remove()
        raise


def _score(table: Table, evaluation: Evaluation, bar: Bar, log: LossLog) -> None:
    """Into the provenance, and the loss file."""
    made = table.provenance
    made["scores"] = evaluation.scores(table)
    bar.note(said(made["scores"]))
    epochs = made["settings"]["epochs"]
    epoch = bar.last.epoch if bar.last else epochs
    log.append({"tokens": made["tokens_read"], "epoch": epoch, "epochs": epochs, "scores": made["scores"]})


def _say(
    table: Table,
    output: str,
    losses: Path,
    tokens: int,
    seconds: float,
    speed: float,
    checkpoint: str | None,
    as_json: bool,
) -> None:
    made = table.provenance
    loss = made["held_out_loss"]
    results: dict[str, Any] = {"loss": loss, "perplexity": None if loss is None else round(math.exp(loss), 4)}
    if "scores" in made:
        results["scores"] = made["scores"]
    report(table, output, losses, tokens, seconds, speed, results, as_json, checkpoint)
