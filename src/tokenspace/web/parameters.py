"""A query string as a call's arguments: each by its name, once, and of its type, or ``BadRequest``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from tokenspace.errors import TokenspaceError

_MOST_FIELDS = 1_000  # a line of 2,000 characters has no more words


class BadRequest(TokenspaceError):
    """A request that asks for nothing sensible."""


class Field(NamedTuple):
    """One parameter: how its text is read, whether it may stand several times, what a refusal calls it."""

    read: Callable[[str, str], Any]
    repeated: bool = False
    label: str = ""


def text(name: str, value: str) -> str:
    """Any text but an empty one."""
    if not value:
        raise BadRequest(f"{name} is empty")
    return value


def whole(name: str, value: str) -> int:
    """A whole number from 0 on, of at most 10 digits.

    >>> whole("k", "12")
    12
    """
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise BadRequest(f"{name} must be a whole number from 0 on, found {value[:40]!r}")
    return int(value)


def flag(name: str, value: str) -> bool:
    """0 or 1."""
    if value not in ("0", "1"):
        raise BadRequest(f"{name} must be 0 or 1, found {value[:40]!r}")
    return value == "1"


def arguments(query: bytes, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The arguments of ``query`` by name; a repeated one is a list. What is left out is not in it.

    >>> arguments(b"q=the+cat&k=3", {"q": Field(text), "k": Field(whole)})
    {'q': 'the cat', 'k': 3}
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise BadRequest("the query is not UTF-8 text, percent-encoded") from None
    except ValueError:
        raise BadRequest(f"the query has more than {_MOST_FIELDS:,} parameters") from None
    given: dict[str, Any] = {}
    for name, value in pairs:
        field = fields.get(name)
        if field is None:
            known = ", ".join(fields) or "none"
            raise BadRequest(f"there is no parameter {name[:40]!r} here; there are: {known}")
        if field.repeated:
            given.setdefault(name, []).append(field.read(field.label or name, value))
        elif name in given:
            raise BadRequest(f"{name} is given twice")
        else:
            given[name] = field.read(field.label or name, value)
    return given
