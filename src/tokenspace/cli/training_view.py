"""Training as a terminal shows it: a bar while it lasts, the loss curve and the last lines after it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from tokenspace.cli.console import echo_json, note, shown
from tokenspace.cli.picture import screen
from tokenspace.errors import ShapeError
from tokenspace.plots import LossCurve
from tokenspace.shown import one_line
from tokenspace.table import Table
from tokenspace.train import Progress as Event


class Bar:
    """A progress bar on stderr: how much of the run's time is over and left, tokens/s, loss.

    It covers everything, from the first byte read on. Silent where stderr is no terminal.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=1.0, rate="")
        self._began = time.perf_counter()
        self.last: Event | None = None

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, message: str) -> None:
        """A remark, above the bar where there is one."""
        if self._bar.disable:
            note(message)
        else:
            self._bar.console.print(one_line(message), markup=False, highlight=False, soft_wrap=True)

    def draw_curve(self, losses: Path) -> None:
        """The loss over the whole run, where there is a terminal and training was long enough to tell."""
        if self._bar.disable or not losses.exists():
            return
        try:
            curve = LossCurve.read(losses)
        except ShapeError:  # fewer than two points
            return
        screen(stderr=True).print(curve)

    def show(self, event: Event) -> None:
        self.last = event
        left = event.eta_seconds
        spent = time.perf_counter() - self._began
        known = not math.isnan(left)
        rate = f"{_clock(left)} left" if known else ""
        if event.phase == "training":
            rate = f"{event.tokens_per_second:,.0f} tokens/s  loss {event.loss:.4f}  {rate}"
            description = f"epoch {event.epoch}/{event.epochs}"
        else:
            description, rate = event.phase, f"about {rate}" if known else ""
        self._bar.update(
            self._task,
            completed=spent / (spent + left) if known and spent + left else 0.0,
            description=description,
            rate=rate,
        )


def report(
    table: Table,
    output: str,
    losses: Path,
    tokens: int,
    seconds: float,
    speed: float,
    results: dict[str, Any],
    as_json: bool,
    checkpoint: str | None = None,
) -> None:
    """What came of a run; ``results`` by name. A ``speed`` of 0: nothing was trained here. ``checkpoint`` is
    the folder that holds the whole model.
    """
    made = table.provenance
    interrupted = made.get("interrupted_at")
    if as_json:
        echo_json(
            {
                "tokens": tokens,
                "vocabulary": len(table),
                "epochs": made["settings"]["epochs"],
                "seconds": round(seconds, 3),
                "tokens_per_second": round(speed) if speed else None,
                **results,
                "output": output,
                **({} if checkpoint is None else {"checkpoint": checkpoint}),
                **({} if interrupted is None else {"interrupted_at": interrupted}),
            }
        )
    if speed:
        numbers = {name: value for name, value in results.items() if not isinstance(value, list)}
        said = ", ".join(f"{name} {_number(value)}" for name, value in numbers.items())
        note(f"{tokens:,} tokens in {seconds:.1f} s, {speed:,.0f} tokens/s, {said} ({shown(str(losses))})")
    if interrupted is not None:
        note(f"interrupted after {interrupted:.0%}: saved what there is; --resume goes on from there")
    if not as_json:
        special = " ".join(table.vocab[i] for i in table.vocab.special) or "none"
        click.echo(f"{shown(output)}: {len(table):,} tokens × {table.dim}, of which special: {special}")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` below an hour.

    >>> _clock(3723.4), _clock(123.0), _clock(0.2)
    ('1:02:03', '2:03', '0:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
