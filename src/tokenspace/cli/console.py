"""What every verb shares: the options with one meaning, texts from stdin, tokens made safe to show, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from tokenspace.shown import number as number
from tokenspace.shown import one_line
from tokenspace.shown import shown as shown

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


def no_direction(word: str) -> str:
    """The note on a word whose row is all zeros."""
    return f"the row of {shown(word)} is all zeros: it has no direction, so every cosine with it is 0"


def note(message: str) -> None:
    """A remark for the person, on stderr, so that stdout holds the answer alone."""
    click.echo(one_line(message), err=True)


def pieces_shown(pieces: Sequence[str]) -> str:
    """The pieces of a word, safe to show; of many, as n-grams of characters are, the first and their number.

    >>> pieces_shown(["un", "##ha"]), pieces_shown(["<ab"] * 14)
    ('un ##ha', '<ab <ab <ab <ab <ab <ab … 14 in all')
    """
    if len(pieces) <= _PIECES:
        return " ".join(map(shown, pieces))
    return f"{' '.join(map(shown, pieces[:6]))} … {len(pieces):,} in all"


def texts(given: Sequence[str], what: str) -> Iterator[str]:
    """The arguments joined, or each line of stdin if there is none; a usage error if stdin is a terminal."""
    if given:
        yield " ".join(given)
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError(f"give {what}, or pipe one a line into stdin")
    from tokenspace.errors import CorpusError

    empty = True
    try:
        for line in sys.stdin:
            if line.strip():
                empty = False
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"stdin is not UTF-8 text ({error.reason}); convert it first") from None
    if empty:
        raise CorpusError(f"stdin is empty; give {what}, or pipe one a line")


def words(given: Sequence[str], count: int, what: str) -> Iterator[list[str]]:
    """Groups of ``count`` words: the arguments, or each line of stdin split at spaces."""
    if given and len(given) != count:
        raise click.UsageError(f"give {what}: {count} words, found {len(given)}")
    if given:
        yield list(given)
        return
    from tokenspace.errors import CorpusError

    groups = [line.split() for line in texts((), what)]
    for n, group in enumerate(groups, start=1):
        if len(group) != count:
            raise CorpusError(f"line {n} of stdin must be {what}: {count} words, found {len(group)}")
    yield from groups
