from __future__ import annotations

import contextlib
import os
import secrets
import sys
import webbrowser
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from tokenspace.cli.console import note
from tokenspace.cli.picture import page_name

if TYPE_CHECKING:
    from tokenspace.web.explorer import Explorer


@click.command()
@click.argument("source", default="wordnet", metavar="[TABLE]")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="[default: a free one]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--recipe",
    type=click.Choice(["original", "bert", "gpt2", "llama"]),
    help="Whose input layer the walk begins with.  [default: original; a checkpoint's own]",
)
@click.option("--no-browser", is_flag=True, help="Only print the page's address.")
@click.option(
    "--no-token",
    is_flag=True,
    help="Answer every program that can reach the port, for scripts: the address then holds no secret.",
)
@click.option(
    "--html",
    "page",
    metavar="OUT.html",
    callback=page_name,
    help="Write the page as one file that needs no server, instead of serving it.",
)
@click.option("--text", "texts", multiple=True, help="A text whose walk the file holds. Repeatable.")
@click.option(
    "--neighbors",
    type=click.IntRange(0, 100),
    help="How many neighbors of each row the file holds.  [default: 5 of up to 60,000 rows]",
)
def explore(
    source: str,
    port: int,
    host: str,
    recipe: str | None,
    no_browser: bool,
    no_token: bool,
    page: str | None,
    texts: tuple[str, ...],
    neighbors: int | None,
) -> None:
    """Look at TABLE in a browser: the walk of a text, a map of all tokens, and queries.

    TABLE is a table's file, a checkpoint's folder, or a built-in table's name. The page is served to this
    machine alone, loads nothing from elsewhere, and lives until Ctrl-C. Its address holds a token, without
    which nothing is answered. With --html it is a file instead: the same three views, and what they need
    lies in it.
    """
    from tokenspace.web.explorer import Explorer

    if page is None and (texts or neighbors is not None):
        raise click.UsageError("--text and --neighbors say what a file holds: give --html, too")
    explorer = Explorer.open(source, recipe)
    if page is not None:
        _write(explorer, page, texts, neighbors)
    else:
        _serve(explorer, host, port, no_browser, None if no_token else secrets.token_urlsafe(24))


def _serve(explorer: Explorer, host: str, port: int, no_browser: bool, token: str | None) -> None:
    from tokenspace.web.headers import is_loopback
    from tokenspace.web.server import listening, server, url_of

    with listening(host, port) as listener:
        url = url_of(listener, host, token)
        if not is_loopback(host):
            who = "anyone on the network" if token is None else "anyone on the network who has its address"
            note(f"{host} is more than this machine: {who} can read this table, and it is sent unencrypted")
        click.echo(f"{url}  (Ctrl-C ends it)")
        sys.stdout.flush()
        explorer.warm()
        if not no_browser and _has_display():
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands the signal on when it has ended
            server(explorer, host, token).run(sockets=[listener])


def _write(explorer: Explorer, page: str, texts: tuple[str, ...], neighbors: int | None) -> None:
    from tokenspace.web.export import export

    with _progress() as told:
        written = export(explorer, page, texts or None, neighbors, told=told)
    if written.left_out is not None:
        note(written.left_out)
    held = [f"{len(explorer.table):,} tokens"]
    held += [f"their rows as {written.rows}"] if written.rows else []
    held += [f"the {written.neighbors} nearest of each"] if written.neighbors else []
    click.echo(f"{page}: {', '.join(held)}; {written.bytes / 1e6:.1f} MB")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float | None], None]]:
    """A bar on stderr that says what is being computed; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, fraction: bar.update(
            task, description=what, total=None if fraction is None else 1, completed=fraction or 0
        )


def _has_display() -> bool:
    """Whether a browser would have where to open; one in a terminal would fight with this command for it."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
