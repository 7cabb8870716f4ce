from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, note

if TYPE_CHECKING:
    from tokenspace.table import Table
    from tokenspace.tokenizer import Tokenizer


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the table goes (.safetensors).")
@click.option("--dim", default=100, show_default=True, help="Width D: numbers in a row.")
@click.option("--epochs", type=int, help="Passes over the text.  [default: 5, more if the text is small]")
@click.option("--window", default=5, show_default=True, help="Words on each side that count as context.")
@click.option("--negative", default=5, show_default=True, help="Random words set against each context.")
@click.option("--min-count", type=int, help="Leave out rarer words.  [default: 1 to 5, by the text's size]")
@click.option(
    "--sample", default=1e-3, show_default=True, help="Frequent words above this share are thinned."
)
@click.option("--threads", type=int, help="[default: all; with 1, a rerun gives the same bytes]")
@click.option("--seed", default=1, show_default=True, help="For every random choice.")
@click.option(
    "--tokenizer",
    "tokenizer_source",
    default="word",
    show_default=True,
    metavar="word|bpe|wordpiece|unigram|FILE",
    help="How text is split: words, pieces learned from FILES, or a tokenizer's file or folder.",
)
@click.option("--vocab-size", default=30_000, show_default=True, help="The most pieces to learn.")
@click.option("--lowercase/--keep-case", default=True, show_default=True, help="Whether The is the.")
@click.option("--snapshots", default=0, metavar="N", help="Also save N tables along the way, beside OUT.")
@json_option
def train(
    files: tuple[str, ...],
    output: str,
    tokenizer_source: str,
    vocab_size: int,
    lowercase: bool,
    snapshots: int,
    as_json: bool,
    **settings: Any,
) -> None:
    """Learn a table from text FILES.

    FILES are UTF-8, one sentence or paragraph a line. Skip-gram with negative sampling. Ctrl-C ends early and
    saves the table as it is by then.
    """
    from tokenspace import formats
    from tokenspace import train as trainers
    from tokenspace.atomic import check_writable

    if (format := formats.format_for(output)) != "native":
        raise click.UsageError(
            f"-o {output} names the format {format}, which can't hold all of a trained table; "
            "train to a .safetensors, then `tokenspace convert` it"
        )
    check_writable(output)
    tokenizer = _tokenizer(tokenizer_source, files, vocab_size, lowercase)
    if tokenizer is not None and settings["min_count"] is not None:
        raise click.UsageError("--min-count chooses whole words; it does not go with --tokenizer")
    begin = time.perf_counter()
    with _Bar() as bar:
        table = trainers.skipgram(
            files,
            tokenizer=tokenizer,
            lowercase=lowercase,
            snapshots=snapshots,
            on_snapshot=_Snapshots(output, bar.note).save,
            progress=bar.show,
            on_note=bar.note,
            **settings,
        )
    seconds = time.perf_counter() - begin
    formats.save(table, output)
    _report(table, output, seconds, bar, as_json)


def _report(table: Table, output: str, seconds: float, bar: _Bar, as_json: bool) -> None:
    made = table.provenance
    interrupted = made.get("interrupted_at")
    tokens = bar.tokens
    if as_json:
        echo_json(
            {
                "tokens": tokens,
                "vocabulary": len(table),
                "epochs": made["settings"]["epochs"],
                "seconds": round(seconds, 3),
                "tokens_per_second": round(tokens / seconds),
                "loss": round(bar.loss, 4),
                "output": output,
            }
        )
    bar.draw_curve()
    note(f"{tokens:,} tokens in {seconds:.1f} s, {tokens / seconds:,.0f} tokens/s, loss {bar.loss:.4f}")
    if interrupted is not None:
        note(f"interrupted after {interrupted:.0%}: saved what there is")
    if not as_json:
        special = " ".join(table.vocab[i] for i in table.vocab.special)
        click.echo(f"{output}: {len(table):,} tokens × {table.dim}, of which special: {special or 'none'}")
    if interrupted is not None:
        raise SystemExit(130)


def _tokenizer(source: str, files: tuple[str, ...], vocab_size: int, lowercase: bool) -> Tokenizer | None:
    """None for words: the trainer learns those itself, with the minimum count."""
    from tokenspace.tokenizer import Tokenizer
    from tokenspace.tokenizer_training import KINDS

    if source == "word":
        return None
    if source in KINDS:
        return Tokenizer.train(files, source, vocab_size, lowercase=lowercase)
    tokenizer = Tokenizer.load(source)
    if tokenizer.assumed:
        note(f"{source}: {tokenizer.assumed}")
    return tokenizer


class _Snapshots:
    """Saves tables beside ``output``: table.safetensors → table.snapshot-1.safetensors, …-2, …"""

    def __init__(self, output: str, note: Callable[[str], None]):
        self._output = Path(output)
        self._note = note
        self._saved = 0

    def save(self, fraction: float, table: Table) -> None:
        from tokenspace import formats

        self._saved += 1
        path = self._output.with_name(f"{self._output.stem}.snapshot-{self._saved}{self._output.suffix}")
        formats.save(table, path)
        self._note(f"{fraction:.0%}: saved {path}")


class _Bar:
    """A progress bar on stderr: share done, tokens/s, loss, time left. Silent where stderr is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

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
        self._events: list[Any] = []
        self.tokens = 0
        self.loss = 0.0

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, message: str) -> None:
        """A remark, above the bar where there is one."""
        self._bar.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def draw_curve(self) -> None:
        """The loss over the whole run, where there is a terminal and training was long enough to tell."""
        from tokenspace.cli.picture import screen
        from tokenspace.plots import LossCurve

        if len(self._events) >= 2 and not self._bar.disable:
            screen(stderr=True).print(LossCurve.of(self._events))

    def show(self, event: Any) -> None:
        self._events.append(event)
        self.tokens, self.loss = event.tokens, event.loss
        left = f"{event.eta_seconds // 60:.0f}:{event.eta_seconds % 60:02.0f} left"
        self._bar.update(
            self._task,
            completed=event.fraction,
            description=f"epoch {event.epoch}/{event.epochs}",
            rate=f"{event.tokens_per_second:,.0f} tokens/s  loss {event.loss:.4f}  {left}",
        )
