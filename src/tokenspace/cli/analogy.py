from __future__ import annotations

from typing import Literal

import click

from tokenspace.cli.console import echo_hits, json_option, k_option, note, shown, table_option, words
from tokenspace.cli.switches import center_option, remove_option


@click.command()
@click.argument("abc", nargs=-1, metavar="A B C")
@table_option
@k_option
@click.option(
    "--method",
    default="3cosadd",
    show_default=True,
    type=click.Choice(["3cosadd", "3cosmul"]),
    help="How a row D is scored: the cosine with B - A + C, or a product of cosines.",
)
@center_option
@remove_option
@json_option
def analogy(
    abc: tuple[str, ...],
    source: str,
    k: int,
    method: Literal["3cosadd", "3cosmul"],
    center: bool,
    remove: int,
    as_json: bool,
) -> None:
    """A is to B as C is to what? The rows nearest to B - A + C.

    All rows are scaled to length 1 first. 3cosadd: the cosine of D with B - A + C, which ranks as
    cos(D, B) - cos(D, A) + cos(D, C) does. 3cosmul: cos(D, B) · cos(D, C) / (cos(D, A) + 0.001), each
    cosine shifted from -1 … 1 to 0 … 1 by (1 + cos) / 2. A, B and C themselves are left out. With no words,
    each line of stdin holds three.
    """
    from tokenspace import formats, geometry

    view = geometry.View(formats.load(source), center, remove)
    for each, (a, b, c) in words(abc, 3, "A B C"):
        with each.told():
            hits = geometry.analogy(view, a, b, c, k, method=method)
        if not as_json:
            note(
                f"{shown(a)} is to {shown(b)} as {shown(c)} is to … ({method}; the three inputs are left out)"
            )
        echo_hits(hits, as_json)
