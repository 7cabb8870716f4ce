"""What every verb shares: the options with one meaning, texts from stdin, tokens made safe to show, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tokenspace.shown import number as number
from tokenspace.shown import one_line
from tokenspace.shown import shown as shown

if TYPE_CHECKING:
    from tokenspace.geometry import Hit, View

table_option = click.option(
    "-t",
    "--table",
    "source",
    default="wordnet",
    metavar="TABLE",
    show_default=True,
    help="A table's file, a model's folder, hf:org/name, or a built-in table's name.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on stdout.")
k_option = click.option(
    "-k", default=10, show_default=True, type=click.IntRange(min=1), help="How many to show."
)

_PIECES = 8  # shown of a word; of more only the first


def echo_json(value: Any) -> None:
    """One line of JSON. A byte that is no UTF-8 leaves as a ``\\udcXX`` escape, which JSON can hold."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def echo_hits(hits: Sequence[Hit], as_json: bool) -> None:
    """The rows found: a line each, or all as one line of JSON."""
    if as_json:
        echo_json([{"token": hit.token, "id": hit.id, "score": score(hit.score)} for hit in hits])
        return
    for hit in hits:
        click.echo(f"{hit.score:z.4f}  {shown(hit.token)}")


def score(value: float) -> float:
    """A score for JSON: the shortest decimal of its float32, and never minus zero."""
    return number(value) + 0.0


def note_direction(view: View, word: str, metric: str = "cosine") -> None:
    """The note on a word that is all zeros under the view's switches, where ``metric`` makes little of it."""
    query, vector = view.vector(word)
    if vector.any() or metric == "l2":  # a distance from zero is as good as any
        return
    name = f"the {'row' if len(query.ids) == 1 else 'vector'} of {shown(word)}"
    if not query.vector.any():
        told = f"{name} is all zeros"
    elif view.remove:
        told = f"{name} is all zeros once the mean row and {view.remove:,} of its directions are taken out"
    else:
        told = f"{name} is the mean row"
    if metric == "dot":
        note(f"{told}: every inner product with it is 0")
    else:
        note(f"{told}: it has no direction, so every cosine with it is 0")


def note(message: str) -> None:
    """Print a remark on stderr, so that stdout holds the answer alone; dropped where stderr takes nothing."""
    with suppress(OSError):
        click.echo(one_line(message), err=True)


def pieces_shown(pieces: Sequence[str]) -> str:
    """The pieces of a word, safe to show; of many, as n-grams of characters are, the first and their number.

    >>> pieces_shown(["un", "##ha"]), pieces_shown(["<ab"] * 14)
    ('un ##ha', '<ab <ab <ab <ab <ab <ab … 14 in all')
    """
    if len(pieces) <= _PIECES:
        return " ".join(map(shown, pieces))
    return f"{' '.join(map(shown, pieces[:6]))} … {len(pieces):,} in all"


class Asked(NamedTuple):
    """A text, and the line of stdin that it stands on, counted from 1; None for an argument."""

    text: str
    line: int | None

    @contextmanager
    def told(self) -> Iterator[None]:
        """An error about this text names its line."""
        from tokenspace.errors import TokenspaceError

        try:
            yield
        except TokenspaceError as error:
            if self.line is not None:
                error.args = (f"line {self.line:,} of stdin: {error}",)
            raise


def asked(given: Sequence[str], what: str) -> Iterator[Asked]:
    """The arguments joined, or each line of stdin if there is none; a usage error if stdin is a terminal.

    Blank lines are left out, but counted.
    """
    if given:
        yield Asked(" ".join(given), None)
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError(f"give {what}, or pipe one a line into stdin")
    from tokenspace.errors import CorpusError

    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # read in blocks, it would fail before its line
    empty = True
    for n, line in enumerate(_lines_of_stdin(), start=1):
        try:
            line.encode("utf-8", "surrogateescape").decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"line {n:,} of stdin is not UTF-8 text ({error.reason}); convert it first"
            ) from None
        if line.strip():
            empty = False
            yield Asked(line.rstrip("\r\n"), n)
    if empty:
        raise CorpusError(f"stdin is empty; give {what}, or pipe one a line")


def _lines_of_stdin() -> Iterator[str]:
    from tokenspace.errors import CorpusError

    try:
        yield from sys.stdin
    except OSError as error:  # a folder, or a stream that is open for writing
        raise CorpusError(f"can't read stdin: {error.strerror or error}") from None


def texts(given: Sequence[str], what: str) -> Iterator[str]:
    """The texts of ``asked``."""
    return (each.text for each in asked(given, what))


def words(
    given: Sequence[str], count: int, what: str, or_more: bool = False
) -> Iterator[tuple[Asked, list[str]]]:
    """Groups of ``count`` words, ``or_more``, and where each stands: the arguments, or each line of stdin,
    split.
    """

    def fits(group: Sequence[str]) -> bool:
        return len(group) >= count if or_more else len(group) == count

    needed = f"{count} words{' or more' if or_more else ''}"
    if given and not fits(given):
        raise click.UsageError(f"give {what}: {needed}, found {len(given)}")
    if given:
        yield Asked(" ".join(given), None), list(given)
        return
    from tokenspace.errors import CorpusError

    groups = [(each, each.text.split()) for each in asked((), what)]
    for each, group in groups:
        if not fits(group):
            raise CorpusError(f"line {each.line:,} of stdin must be {what}: {needed}, found {len(group)}")
    yield from groups
