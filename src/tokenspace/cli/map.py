from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, number, table_option
from tokenspace.cli.picture import check_page, screen
from tokenspace.cli.switches import remove_option
from tokenspace.cli.waiting import waiting

if TYPE_CHECKING:
    from tokenspace.plots import Map


def _out_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.lower().endswith((".html", ".htm", ".json")):
        raise click.BadParameter(f"a map's name ends in .html or .json, found {value!r}")
    return value


@click.command("map")
@table_option
@click.option("--dims", default="2", show_default=True, type=click.Choice(["2", "3"]), help="Of the map.")
@click.option(
    "--method",
    default="pca",
    show_default=True,
    type=click.Choice(["pca", "tsne", "umap"]),
    help="How rows become points.",
)
@click.option(
    "--color",
    default="kind",
    show_default=True,
    type=click.Choice(["kind", "cluster", "norm", "kept"]),
    help="Kind of token, cluster, length of the row, or share of its 10 nearest that the map keeps near.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**32 - 1),
    help="Same seed, same map.",
)
@remove_option
@click.option(
    "-o",
    "--out",
    metavar="OUT.html|OUT.json",
    callback=_out_name,
    help="Write a page that works offline, or the coordinates, instead of drawing here.",
)
@json_option
def map_(
    source: str, dims: str, method: Any, color: Any, seed: int, remove: int, out: str | None, as_json: bool
) -> None:
    """All rows of a table as points in 2 or 3 dimensions.

    PCA shows the directions in which rows vary most, and says how much of the variance. t-SNE and UMAP keep
    neighbors together and need their extras; their axes mean nothing. For a small table they ask for fewer
    neighbors than usual, and there are fewer clusters: the JSON says how many.
    """
    from tokenspace import formats
    from tokenspace.atomic import check_writable, replacing
    from tokenspace.geometry import project
    from tokenspace.plots import Map, write_page

    is_page = out is not None and not out.lower().endswith(".json")
    if out is not None:
        (check_page if is_page else check_writable)(out)
    table = formats.load(source)
    with waiting("the map") as progress:
        projection = project(table, method, int(dims), seed, remove=remove, progress=progress)
    with waiting("its colors") as progress:
        picture = Map.of(table, projection, color, seed=seed, progress=progress)
    if out is not None and is_page:
        write_page(picture.figure(), out, f"map of {source}")
    elif out is not None:
        import json

        with replacing(out) as fresh:
            fresh.write_text(json.dumps(_document(picture), ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        echo_json(_document(picture))
    elif out is not None:
        click.echo(f"{out}: {picture.title}")
    else:
        screen().print(picture)


def _document(picture: Map) -> dict[str, Any]:
    """The map as JSON: how it was made, and for each row its token, its place and its color."""
    import math

    values = picture.values.tolist()
    if picture.groups:
        colors = [picture.groups[value] if value >= 0 else None for value in values]
    else:
        colors = [number(value) if math.isfinite(value) else None for value in values]
    return {
        **picture.projection.provenance(),
        "color": {"by": picture.color, **picture.made},
        "tokens": [
            token.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for token in picture.tokens
        ],
        "points": [[number(x) for x in point] for point in picture.projection.coordinates],
        "colors": colors,
    }
