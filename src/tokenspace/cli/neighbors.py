from __future__ import annotations

from typing import Literal

import click

from tokenspace.cli.console import (
    echo_json,
    json_option,
    k_option,
    note,
    number,
    pieces_shown,
    shown,
    table_option,
    texts,
)


@click.command()
@click.argument("token", nargs=-1)
@table_option
@k_option
@click.option(
    "--metric",
    default="cosine",
    show_default=True,
    type=click.Choice(["cosine", "dot", "l2"]),
    help="How nearness is measured.",
)
@click.option("--center", is_flag=True, help="Subtract the mean row first.")
@json_option
def neighbors(
    token: tuple[str, ...],
    source: str,
    k: int,
    metric: Literal["cosine", "dot", "l2"],
    center: bool,
    as_json: bool,
) -> None:
    """The rows nearest to TOKEN's.

    A word that the vocabulary lacks is composed: the mean of the rows of its pieces. With no TOKEN, each
    line of stdin is one.
    """
    from tokenspace import formats, geometry

    table = formats.load(source)
    for word in texts(token, "a TOKEN"):
        query = geometry.resolve(table, word)
        hits = geometry.neighbors(table, query.word, k, metric=metric, center=center)
        if len(query.ids) != 1:  # none: its n-grams are no rows of the table
            note(f"{shown(word)} = mean of the rows of {pieces_shown(query.tokens)}")
        elif not token and not as_json:
            note(f"{shown(word)}:")
        if not query.vector.any():
            note(f"the row of {shown(word)} is all zeros: it has no direction, so every cosine with it is 0")
        if as_json:
            echo_json([{"token": hit.token, "id": hit.id, "score": number(hit.score)} for hit in hits])
            continue
        for hit in hits:
            click.echo(f"{hit.score:.4f}  {shown(hit.token)}")
