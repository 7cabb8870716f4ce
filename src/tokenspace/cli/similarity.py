from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from tokenspace.cli.console import (
    echo_json,
    json_option,
    note,
    note_direction,
    pieces_shown,
    score,
    shown,
    table_option,
    words,
)
from tokenspace.cli.switches import center_option, metric_option, remove_option

if TYPE_CHECKING:
    from tokenspace.geometry import Similarities

_METRICS = ("cosine", "dot", "l2")


@click.command()
@click.argument("word", nargs=-1, metavar="A B [C]...")
@table_option
@metric_option
@center_option
@remove_option
@json_option
def similarity(
    word: tuple[str, ...],
    source: str,
    metric: Literal["cosine", "dot", "l2"],
    center: bool,
    remove: int,
    as_json: bool,
) -> None:
    """How near words' rows lie: the cosine of A and B, or a matrix of more words.

    Cosine: the inner product of both rows scaled to length 1, from -1 to 1. With --metric dot rows are not
    scaled; with l2 it is their distance: the lower, the nearer. Where the table has pieces of words
    (subwords, n-grams), a word that it lacks is composed: the mean of its pieces' rows, which are shown. With
    no words, each line of stdin holds two or more. JSON gives all three metrics.
    """
    from tokenspace import formats, geometry

    view = geometry.View(formats.load(source), center, remove)
    for each, group in words(word, 2, "A B [C]...", or_more=True):
        with each.told():
            pair = geometry.similarity(view, group[0], group[1]) if len(group) == 2 else None
            matrix = None if pair else geometry.similarities(view, group)
        for asked_for in dict.fromkeys(group):
            note_direction(view, asked_for, "cosine" if as_json else metric)
        if matrix is not None:
            _echo_matrix(matrix, metric, as_json)
        elif pair is not None and as_json:
            metrics = {name: score(getattr(pair, name)) for name in _METRICS}
            echo_json({**metrics, "a": list(pair.a), "b": list(pair.b)})
        elif pair is not None:
            a, b = _composed(group[0], pair.a), _composed(group[1], pair.b)
            click.echo(f"{getattr(pair, metric):z.4f}  {a}  {b}")


def _echo_matrix(found: Similarities, metric: str, as_json: bool) -> None:
    """A line and a column for each word; JSON has all three metrics."""
    if as_json:
        values: dict[str, Any] = {
            name: [[score(value) for value in line] for line in getattr(found, name).tolist()]
            for name in _METRICS
        }
        echo_json({"words": found.words, "pieces": found.pieces, **values})
        return
    from rich.cells import cell_len

    for word, pieces in dict(zip(found.words, found.pieces, strict=True)).items():
        if len(pieces) != 1:
            note(f"{shown(word)} = mean of the rows of {pieces_shown(pieces)}")
    names = [shown(word) for word in found.words]
    lines = [[f"{value:z.4f}" for value in line] for line in getattr(found, metric).tolist()]
    margin = max(map(cell_len, names))
    widths = [
        max(cell_len(name), *(len(line[column]) for line in lines)) for column, name in enumerate(names)
    ]

    def padded(text: str, width: int) -> str:
        return " " * (width - cell_len(text)) + text

    click.echo("  ".join([" " * margin, *map(padded, names, widths)]))
    for name, line in zip(names, lines, strict=True):
        click.echo("  ".join([name + " " * (margin - cell_len(name)), *map(padded, line, widths)]))


def _composed(word: str, pieces: tuple[str, ...]) -> str:
    if len(pieces) == 1:
        return shown(pieces[0])
    return f"{shown(word)} = mean({pieces_shown(pieces)})"
