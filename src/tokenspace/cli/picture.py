"""Where a picture goes: the terminal at its width, or a page."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPED = 80  # columns where there is no terminal to ask
ROWS = 25  # nothing drawn here looks at it; rich would ask a dumb terminal for 80 columns without


def page_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.lower().endswith((".html", ".htm")):
        raise click.BadParameter(f"a page's name ends in .html, found {value!r}")
    return value


html_option = click.option(
    "-o",
    "--html",
    "page",
    metavar="OUT.html",
    callback=page_name,
    help="Write a page that works offline, instead of drawing here.",
)


def check_page(page: str) -> None:
    """Fail now rather than after the work if a page can't be written at ``page``, or plotly is missing."""
    from tokenspace.atomic import check_writable
    from tokenspace.plots.page import plotly_objects

    check_writable(page)
    plotly_objects("a page")


def screen(stderr: bool = False) -> Console:
    """The terminal behind stdout or stderr; 80 columns where that is piped. COLUMNS has the last word."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=_columns(stream), height=ROWS)


def _columns(stream: object) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPED  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        return PIPED
