from __future__ import annotations

import click

from tokenspace.cli.console import echo_json, json_option, shown
from tokenspace.cli.picture import check_page, html_option, screen


@click.command()
@click.argument("file")
@html_option
@json_option
def loss(file: str, page: str | None, as_json: bool) -> None:
    """How the loss fell: the curve of FILE (OUT.loss.jsonl).

    FILE is what `tokenspace train` writes beside its table; while it trains, OUT.training/loss.jsonl.
    """
    from tokenspace.plots import LossCurve, write_page

    if page is not None:
        check_page(page)
    curve = LossCurve.read(file)
    if page is not None:
        write_page(curve.figure(), page, f"loss: {file}")
    if as_json:
        echo_json({"tokens": [int(n) for n in curve.tokens], "losses": curve.losses.tolist()})
    elif page is not None:
        click.echo(f"{shown(page)}: {len(curve.losses):,} losses until {curve.until}")
    else:
        screen().print(curve)
