from __future__ import annotations

import contextlib
import os
import sys
import webbrowser

import click

from tokenspace.cli.console import note


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
def explore(source: str, port: int, host: str, recipe: str | None, no_browser: bool) -> None:
    """Look at TABLE in a browser: the walk of a text, a map of all tokens, and queries.

    TABLE is a table's file, a checkpoint's folder, or a built-in table's name. The page is served to this
    machine alone, loads nothing from elsewhere, and lives until Ctrl-C.
    """
    from tokenspace.web.explorer import Explorer
    from tokenspace.web.headers import is_loopback
    from tokenspace.web.server import listening, server, url_of

    explorer = Explorer.open(source, recipe)
    with listening(host, port) as listener:
        url = url_of(listener, host)
        if not is_loopback(host):
            note(f"{host} is more than this machine: whoever reaches it over the network can read this table")
        click.echo(f"{url}  (Ctrl-C ends it)")
        sys.stdout.flush()
        if not no_browser and _has_display():
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands the signal on when it has ended
            server(explorer, host).run(sockets=[listener])


def _has_display() -> bool:
    """Whether a browser would have where to open; one in a terminal would fight with this command for it."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
