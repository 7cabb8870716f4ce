from __future__ import annotations

from typing import Literal

import click

from tokenspace.cli.console import (
    echo_json,
    json_option,
    k_option,
    no_direction,
    note,
    number,
    pieces_shown,
    shown,
    table_option,
    texts,
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

    A word that the vocabulary lacks is composed: the mean of the rows of its pieces. With no TOKEN, each
    line of stdin is one. The higher a score, the nearer: with l2 it is minus the distance.
    """
    from tokenspace import formats, geometry

    view = geometry.View(formats.load(source), center, remove)
    for word in texts(token, "a TOKEN"):
        query, vector = view.vector(word)
        hits = geometry.neighbors(view, query.word, k, metric=metric)
        if len(query.ids) != 1:  # none: its n-grams are no rows of the table
            note(f"{shown(word)} = mean of the rows of {pieces_shown(query.tokens)}")
        elif not token and not as_json:
            note(f"{shown(word)}:")
        if not vector.any():
            note(no_direction(word))
        if as_json:
            echo_json([{"token": hit.token, "id": hit.id, "score": number(hit.score)} for hit in hits])
            continue
        for hit in hits:
            click.echo(f"{hit.score:.4f}  {shown(hit.token)}")
