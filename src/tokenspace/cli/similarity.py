from __future__ import annotations

from typing import Literal

import click

from tokenspace.cli.console import (
    echo_json,
    json_option,
    note_direction,
    pieces_shown,
    score,
    shown,
    table_option,
    words,
)
from tokenspace.cli.switches import center_option, metric_option, remove_option


@click.command()
@click.argument("pair", nargs=-1, metavar="A B")
@table_option
@metric_option
@center_option
@remove_option
@json_option
def similarity(
    pair: tuple[str, ...],
    source: str,
    metric: Literal["cosine", "dot", "l2"],
    center: bool,
    remove: int,
    as_json: bool,
) -> None:
    """How near A's and B's rows lie: their cosine, from -1 to 1, or another metric.

    A word that the vocabulary lacks is composed: the mean of the rows of its pieces, which are shown. With no
    words, each line of stdin holds two. JSON gives all three metrics.
    """
    from tokenspace import formats, geometry

    view = geometry.View(formats.load(source), center, remove)
    for each, (a, b) in words(pair, 2, "A B"):
        with each.told():
            result = geometry.similarity(view, a, b)
        for word in dict.fromkeys((a, b)):
            note_direction(view, word, "cosine" if as_json else metric)
        if as_json:
            metrics = {name: score(getattr(result, name)) for name in ("cosine", "dot", "l2")}
            echo_json({**metrics, "a": list(result.a), "b": list(result.b)})
            continue
        click.echo(f"{getattr(result, metric):z.4f}  {_composed(a, result.a)}  {_composed(b, result.b)}")


def _composed(word: str, pieces: tuple[str, ...]) -> str:
    if len(pieces) == 1:
        return shown(pieces[0])
    return f"{shown(word)} = mean({pieces_shown(pieces)})"
