from __future__ import annotations

from typing import Literal

import click

from tokenspace.cli.console import (
    asked,
    echo_hits,
    json_option,
    k_option,
    note,
    note_direction,
    pieces_shown,
    shown,
    table_option,
)
from tokenspace.cli.switches import center_option, metric_option, remove_option


@click.command()
@click.argument("token", nargs=-1)
@table_option
@k_option
@metric_option
@center_option
@remove_option
@json_option
def neighbors(
    token: tuple[str, ...],
    source: str,
    k: int,
    metric: Literal["cosine", "dot", "l2"],
    center: bool,
    remove: int,
    as_json: bool,
) -> None:
    """The rows nearest to TOKEN's.

    The higher a score, the nearer. Cosine: the inner product of both rows scaled to length 1, from -1 to 1.
    With --metric dot rows are not scaled; with l2 the score is minus the distance. Where the table has pieces
    of words (subwords, n-grams), a word that it lacks is composed: the mean of its pieces' rows. A number is
    a token like any other, not a row's id. With no TOKEN, each line of stdin is one.
    """
    from tokenspace import formats, geometry

    view = geometry.View(formats.load(source), center, remove)
    for each in asked(token, "a TOKEN"):
        word = each.text
        with each.told():
            query, _ = view.vector(word)
            hits = geometry.neighbors(view, query.word, k, metric=metric)
        if len(query.ids) != 1:  # none: its n-grams are no rows of the table
            note(f"{shown(word)} = mean of the rows of {pieces_shown(query.tokens)}")
        elif not token and not as_json:
            note(f"{shown(word)}:")
        note_direction(view, word, metric)
        echo_hits(hits, as_json)
