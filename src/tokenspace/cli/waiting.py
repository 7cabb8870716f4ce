"""A bar on stderr for whatever takes more than a second, where somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds without a word


@contextmanager
def waiting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A ``progress(done, total)`` that draws how far it is; silent where stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from tokenspace.cli.picture import screen

    console = screen(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task(what, total=None)
    begun = time.monotonic()

    def progress(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - begun > PATIENCE:
            bar.start()

    try:
        yield progress
    finally:
        bar.stop()
