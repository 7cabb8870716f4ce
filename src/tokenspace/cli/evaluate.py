from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from tokenspace.cli.console import echo_json, json_option, note, shown, table_option

if TYPE_CHECKING:
    from tokenspace.geometry.analogy_questions import AnalogyScore, Share
    from tokenspace.geometry.evaluation import File
    from tokenspace.geometry.relations import RelationsScore
    from tokenspace.geometry.statistics import Interval
    from tokenspace.geometry.word_pairs import PairsScore

_LISTS = ("--pairs", "--analogies")
_GAP = 2  # columns between columns
_NAME = 8  # columns that a name has at least
_COMMON_NAME = 24  # so that the grids of one answer stand alike
_PATIENCE = 1.0  # seconds without a progress bar


class _TakesLists(click.Command):
    """Lets ``--pairs A B`` stand for ``--pairs A --pairs B``; the verb has no arguments of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = None
        for arg in args:
            if arg in _LISTS:
                option = arg
                spread.append(arg)
            elif arg.startswith("-") and arg != "-":
                option = None
                spread.append(arg)
            elif option is not None and spread[-1] != option:
                spread += [option, arg]
            else:
                spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command(cls=_TakesLists)
@table_option
@click.option(
    "--pairs", multiple=True, metavar="FILE …", help="Two words and a score a line: tabs, commas or spaces."
)
@click.option(
    "--analogies", multiple=True, metavar="FILE …", help="Four words a line; “: name” begins a section."
)
@click.option("--relations", is_flag=True, help="Cosines of synonyms, related, unrelated, antonyms.")
@click.option(
    "--method",
    default="3cosadd",
    show_default=True,
    type=click.Choice(["3cosadd", "3cosmul"]),
    help="How an analogy's candidates are scored.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Use the first N rows only.")
@click.option(
    "--case",
    default="lower",
    show_default=True,
    type=click.Choice(["lower", "keep"]),
    help="Compare words lower-cased, or as written.",
)
@click.option(
    "--compose",
    is_flag=True,
    help="Pairs, relations: unknown words are the mean of their pieces, where the table has any.",
)
@json_option
def evaluate(
    source: str,
    pairs: tuple[str, ...],
    analogies: tuple[str, ...],
    relations: bool,
    method: Literal["3cosadd", "3cosmul"],
    limit: int | None,
    case: Literal["lower", "keep"],
    compose: bool,
    as_json: bool,
) -> None:
    """Score a table: word pairs, analogies, relations.

    Each score comes with a 95 % confidence interval, and with how much of the file was used and skipped: what
    has a word that the table lacks is skipped. A FILE that is - is read from stdin.
    """
    from tokenspace import formats, geometry

    if not pairs and not analogies and not relations:
        raise click.UsageError("name something to measure: --pairs FILE, --analogies FILE or --relations")
    if (asked := (pairs + analogies).count("-")) > 1:
        raise click.UsageError(f"stdin can be read once, and - was given {asked} times")
    if asked and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("- means a list from stdin, and nothing is piped there")
    table = formats.load(source)
    rules: dict[str, Any] = {"case": case, "limit": limit}
    with _Bar() as bar:
        scores = _Scores(
            [geometry.word_pairs(table, _file(file), compose=compose, **rules) for file in pairs],
            [
                geometry.analogy_questions(table, _file(file), method=method, progress=bar.show, **rules)
                for file in analogies
            ],
            geometry.relations(table, compose=compose, **rules) if relations else None,
        )
    _remark(scores)
    if as_json:
        echo_json(_as_json(scores))
    else:
        _show(scores)


def _file(given: str) -> File:
    return sys.stdin.buffer if given == "-" else given


def _remark(scores: _Scores) -> None:
    for score in scores.pairs:
        name = shown(score.file)
        if score.header is not None:
            note(f"{name}: the first line was taken as a header: {shown(score.header)}")
        if score.composed:
            note(f"{name}: pairs with a word composed of its pieces: {score.composed:,}")
        if not score.used:
            note(f"{name}: nothing was measured: each pair has a word that the table lacks")
    for answers in scores.analogies:
        if not answers.overall.total:
            note(
                f"{shown(answers.file)}: nothing was measured: each question has a word that the table lacks"
            )
    if scores.relations is not None and not any(relation.n for relation in scores.relations.relations):
        note("relations: nothing was measured: each pair has a word that the table lacks")


class _Scores(NamedTuple):
    pairs: list[PairsScore]
    analogies: list[AnalogyScore]
    relations: RelationsScore | None

    def record(self) -> dict[str, Any]:
        """What all were measured on, and how; the files are named beside their scores."""
        records = [score.record for score in self.pairs] + [score.record for score in self.analogies]
        if self.relations is not None:
            records.append(self.relations.record)
        settings = {key: value for record in records for key, value in record["settings"].items()}
        return {
            "tokenspace": records[0]["tokenspace"],
            "table": records[0]["table"],
            "settings": settings,
        }


def _as_json(scores: _Scores) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pairs": [
            {
                "file": score.file,
                "spearman": score.spearman,
                "used": score.used,
                "skipped": score.skipped,
                "interval": score.interval,
                "composed": score.composed,
                "header": score.header,
                "sha256": score.record["file"]["sha256"],
            }
            for score in scores.pairs
        ],
        "analogies": [
            {
                "file": score.file,
                **_share(score.overall),
                "sections": [{"name": section.name, **_share(section)} for section in score.sections],
                "semantic": _share(score.semantic),
                "syntactic": _share(score.syntactic),
                "sha256": score.record["file"]["sha256"],
            }
            for score in scores.analogies
        ],
    }
    if scores.relations is not None:
        document["relations"] = {
            relation.name: {
                "mean": relation.mean,
                "n": relation.n,
                "skipped": relation.skipped,
                "interval": relation.interval,
            }
            for relation in scores.relations.relations
        }
        document["relations_sha256"] = scores.relations.record["file"]["sha256"]
    return document | {"record": scores.record()}


def _share(share: Share) -> dict[str, Any]:
    return {
        "accuracy": share.accuracy,
        "correct": share.correct,
        "total": share.total,
        "skipped": share.skipped,
        "interval": share.interval,
    }


def _show(scores: _Scores) -> None:
    if scores.pairs:
        grid = _Grid("word pairs", ("Spearman", "95 % interval", "used", "skipped"))
        for score in scores.pairs:
            cells = (_number(score.spearman), _span(score.interval), f"{score.used:,}", f"{score.skipped:,}")
            grid.add(shown(Path(score.file).name), cells)
        grid.show()
    for answers in scores.analogies:
        method = answers.record["settings"]["method"]
        grid = _Grid(f"analogies, {method}", ("%", "95 % interval", "correct", "of", "skipped"))
        _add_share(grid, shown(Path(answers.file).name), answers.overall, bold=True)
        if answers.syntactic.total + answers.syntactic.skipped:
            for kind in (answers.semantic, answers.syntactic):
                _add_share(grid, f"  {kind.name}", kind, bold=True)
        for section in answers.sections:
            _add_share(grid, f"  {shown(section.name) if section.name else '(no section)'}", section)
        grid.show()
    if scores.relations is not None:
        grid = _Grid("relations", ("mean cosine", "95 % interval", "n", "skipped"))
        for relation in scores.relations.relations:
            cells = (_number(relation.mean), _span(relation.interval), str(relation.n), str(relation.skipped))
            grid.add(relation.name, cells)
        grid.show()
    record = scores.record()
    table, settings = record["table"], record["settings"]
    rules = f"case {settings['case']}" + (f", first {settings['limit']:,} rows" if settings["limit"] else "")
    if settings.get("compose"):
        rules += ", unknown words composed"
    click.echo(
        f"table {table['sha256'][:16]}…: {table['rows']:,} × {table['dim']:,} {table['dtype']}; {rules}; "
        f"tokenspace {record['tokenspace']}"
    )


class _Grid:
    """Names on the left, numbers on the right. What the screen has no room for is taken from the names alone:
    where even the shortest names leave too little, the terminal breaks the lines.
    """

    def __init__(self, title: str, columns: Sequence[str]):
        self._rows = [(title, tuple(columns), True)]

    def add(self, name: str, cells: Sequence[str], bold: bool = False) -> None:
        self._rows.append((name, tuple(cells), bold))

    def show(self) -> None:
        from rich.cells import cell_len
        from rich.text import Text

        from tokenspace.cli.picture import screen

        widths = [
            max(map(len, column)) for column in zip(*(cells for _, cells, _ in self._rows), strict=True)
        ]
        room = screen().width - sum(_GAP + width for width in widths)
        longest = max(cell_len(name) for name, _, _ in self._rows)
        for name, cells, bold in self._rows:
            label = Text(name)
            label.truncate(max(_NAME, min(room, max(longest, _COMMON_NAME))), overflow="ellipsis", pad=True)
            numbers = "".join(
                " " * _GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True)
            )
            click.echo(click.style(label.plain + numbers, bold=bold or None))
        click.echo()


def _add_share(grid: _Grid, label: str, share: Share, bold: bool = False) -> None:
    accuracy = "–" if share.accuracy is None else f"{100 * share.accuracy:.2f}"
    counts = (f"{share.correct:,}", f"{share.total:,}", f"{share.skipped:,}")
    grid.add(label, (accuracy, _span(share.interval, 100, 1), *counts), bold)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.4f}"


def _span(interval: Interval | None, scale: float = 1, digits: int = 3) -> str:
    if interval is None:
        return "–"
    return f"{scale * interval.low:z.{digits}f} to {scale * interval.high:z.{digits}f}"


class _Bar:
    """A progress bar on stderr, once a second has passed. Silent where stderr is no terminal."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """``done`` of a file's ``total`` questions."""
        if self._bar is None:
            if time.perf_counter() - self._begin < _PATIENCE:
                return
            self._start()
        self._bar.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from tokenspace.cli.picture import screen

        console = screen(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task("analogies", total=None)
        self._bar.start()
