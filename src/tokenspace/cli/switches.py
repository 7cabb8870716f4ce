"""The switches that every query has, with one meaning."""

from __future__ import annotations

import click

center_option = click.option(
    "--center", is_flag=True, help="Subtract the mean of all rows from each first, before any scaling."
)
remove_option = click.option(
    "--remove",
    default=0,
    metavar="N",
    show_default=True,
    type=click.IntRange(min=0),
    help="Subtract the mean row, then take out the N directions in which rows vary most.",
)
metric_option = click.option(
    "--metric",
    default="cosine",
    show_default=True,
    type=click.Choice(["cosine", "dot", "l2"]),
    help="How nearness is measured: cosine, inner product, or Euclidean distance.",
)
