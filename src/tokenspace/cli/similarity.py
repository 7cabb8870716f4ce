from __future__ import annotations

import click

from tokenspace.cli.console import echo_json, json_option, number, pieces_shown, shown, table_option, words


@click.command()
@click.argument("pair", nargs=-1, metavar="A B")
@table_option
@json_option
def similarity(pair: tuple[str, ...], source: str, as_json: bool) -> None:
    """The cosine of A's and B's rows, from -1 to 1.

    A word that the vocabulary lacks is composed: the mean of the rows of its pieces, which are shown. With no
    words, each line of stdin holds two.
    """
    from tokenspace import formats, geometry

    table = formats.load(source)
    for a, b in words(pair, 2, "A B"):
        result = geometry.similarity(table, a, b)
        if as_json:
            echo_json({"cosine": number(result.cosine), "a": list(result.a), "b": list(result.b)})
            continue
        click.echo(f"{result.cosine:.4f}  {_composed(a, result.a)}  {_composed(b, result.b)}")


def _composed(word: str, pieces: tuple[str, ...]) -> str:
    if len(pieces) == 1:
        return shown(pieces[0])
    return f"{shown(word)} = mean({pieces_shown(pieces)})"
