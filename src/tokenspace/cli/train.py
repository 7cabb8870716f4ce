from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, note, shown

if TYPE_CHECKING:
    from tokenspace.table import Table
    from tokenspace.tokenizer import Tokenizer


_AT_LEAST_0, _AT_LEAST_1 = click.IntRange(min=0), click.IntRange(min=1)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the table goes (.safetensors).")
@click.option("--dim", default=100, type=_AT_LEAST_1, show_default=True, help="Width D: numbers in a row.")
@click.option(
    "--epochs", type=_AT_LEAST_1, help="Passes over the text.  [default: 5, more if the text is small]"
)
@click.option(
    "--window",
    default=5,
    type=_AT_LEAST_1,
    show_default=True,
    help="Words on each side that count as context.",
)
@click.option(
    "--negative",
    default=5,
    type=_AT_LEAST_1,
    show_default=True,
    help="Random words set against each context.",
)
@click.option(
    "--min-count", type=_AT_LEAST_1, help="Leave out rarer words.  [default: 1 to 5, by the text's size]"
)
@click.option(
    "--sample", default=1e-3, show_default=True, help="Frequent words above this share are thinned."
)
@click.option("--threads", type=_AT_LEAST_1, help="[default: all; with 1, a rerun gives the same bytes]")
@click.option("--seed", default=1, type=_AT_LEAST_0, show_default=True, help="For every random choice.")
@click.option(
    "--tokenizer",
    "tokenizer_source",
    default="word",
    show_default=True,
    metavar="word|bpe|wordpiece|unigram|FILE",
    help="How text is split: words, pieces learned from FILES, or a tokenizer's file or folder.",
)
@click.option("--vocab-size", type=_AT_LEAST_1, help="The most pieces to learn.  [default: 30000]")
@click.option("--lowercase/--keep-case", default=None, help="Whether The is the.  [default: lowercase]")
@click.option(
    "--snapshots",
    default=0,
    type=_AT_LEAST_0,
    metavar="N",
    help="Also save N tables along the way, beside OUT.",
)
@json_option
def train(
    files: tuple[str, ...],
    output: str,
    tokenizer_source: str,
    vocab_size: int | None,
    lowercase: bool | None,
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
    from tokenspace.cli.training_view import Bar

    if (format := formats.format_for(output)) != "native":
        raise click.UsageError(
            f"-o {output} names the format {format}, which can't hold all of a trained table; "
            "train to a .safetensors, then `tokenspace convert` it"
        )
    _check_options(tokenizer_source, vocab_size, lowercase, settings["min_count"])
    saved = _Snapshots(output, snapshots)
    _check_places([Path(output), *saved.paths], files)
    folded = True if lowercase is None else lowercase
    begin = time.perf_counter()
    with _Asked() as asked:
        tokenizer = _tokenizer(tokenizer_source, files, vocab_size or 30_000, folded)
        with Bar() as bar:
            table = trainers.skipgram(
                files,
                tokenizer=tokenizer,
                lowercase=folded,
                snapshots=snapshots,
                on_snapshot=lambda fraction, table: bar.note(saved.save(fraction, table)),
                progress=bar.show,
                on_note=bar.note,
                stop=asked,
                **settings,
            )
        seconds = time.perf_counter() - begin
        formats.save(table, output)
    bar.draw_curve()
    _report(table, output, seconds, as_json)


def _report(table: Table, output: str, seconds: float, as_json: bool) -> None:
    made = table.provenance
    interrupted = made.get("interrupted_at")
    tokens = round(made["tokens"] * made["settings"]["epochs"] * (1 if interrupted is None else interrupted))
    loss = "unknown" if made["loss"] is None else f"{made['loss']:.4f}"
    if as_json:
        echo_json(
            {
                "tokens": tokens,
                "vocabulary": len(table),
                "epochs": made["settings"]["epochs"],
                "seconds": round(seconds, 3),
                "tokens_per_second": round(tokens / seconds),
                "loss": made["loss"],
                "output": output,
                **({} if interrupted is None else {"interrupted_at": interrupted}),
            }
        )
    note(f"{tokens:,} tokens in {seconds:.1f} s, {tokens / seconds:,.0f} tokens/s, loss {loss}")
    if interrupted is not None:
        note(f"interrupted after {interrupted:.0%}: saved what there is")
    if not as_json:
        special = " ".join(table.vocab[i] for i in table.vocab.special) or "none"
        click.echo(f"{shown(output)}: {len(table):,} tokens × {table.dim}, of which special: {special}")
    if interrupted is not None:
        raise SystemExit(130)


def _check_options(
    tokenizer: str, vocab_size: int | None, lowercase: bool | None, min_count: int | None
) -> None:
    """A usage error for an option that this tokenizer would not heed."""
    from tokenspace.tokenizer_training import KINDS

    learned = tokenizer in KINDS
    if tokenizer == "word" and vocab_size is not None:
        raise click.UsageError("--vocab-size bounds learned pieces; whole words are bounded by --min-count")
    if tokenizer != "word" and min_count is not None:
        raise click.UsageError("--min-count chooses whole words; it does not go with --tokenizer")
    if not learned and vocab_size is not None:
        raise click.UsageError("--vocab-size is for pieces learned here; this tokenizer has its vocabulary")
    if not learned and lowercase is not None:
        raise click.UsageError(
            "--lowercase/--keep-case is for a tokenizer learned here; this one has its own way"
        )


def _check_places(outputs: list[Path], files: tuple[str, ...]) -> None:
    """``OutputError`` now for a place that can't be written, or that a text to be read lies at."""
    from tokenspace.atomic import check_writable
    from tokenspace.errors import OutputError

    for path in outputs:
        check_writable(path)
        for name in files:
            if path.exists() and Path(name).exists() and path.samefile(name):
                raise OutputError(f"can't write {path}: it is the text to learn from; choose another name")


class _Asked:
    """Whether Ctrl-C or SIGTERM asked for an early end; the second time it is an interrupt, at once."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> _Asked:
        signals = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._ask) for number in signals}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


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

    def __init__(self, output: str, count: int):
        path = Path(output)
        self.paths = [path.with_name(f"{path.stem}.snapshot-{n}{path.suffix}") for n in range(1, count + 1)]
        self._saved = 0

    def save(self, fraction: float, table: Table) -> str:
        """Save the next one; returns what to say of it."""
        from tokenspace import formats

        path = self.paths[self._saved]
        self._saved += 1
        formats.save(table, path)
        return f"{fraction:.0%}: saved {shown(str(path))}"
