"""The calls of ``/api/``: which method of the explorer each asks, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tokenspace.table import check_unchanged
from tokenspace.web.explorer import Answer, Explorer, Word
from tokenspace.web.jobs import Running
from tokenspace.web.limits import CLUSTERS, DIMENSIONS, HOW_MANY, PROJECTION, REMOVED
from tokenspace.web.parameters import BadRequest, Field, arguments, flag, text, whole

_K = Field(whole, label=HOW_MANY)
_SWITCHES = {"center": Field(flag), "remove": Field(whole, label=REMOVED)}
_MAP = {
    "method": Field(text, label=PROJECTION),
    "dims": Field(whole, label=DIMENSIONS),
    "seed": Field(whole),
    **_SWITCHES,
}


class Call(NamedTuple):
    """What a path asks: ``ask(explorer, arguments)``, the arguments being those of ``fields``."""

    ask: Callable[[Explorer, dict[str, Any]], Answer | Running]
    fields: Mapping[str, Field]


def _neighbors(explorer: Explorer, given: dict[str, Any]) -> Answer:
    return explorer.neighbors(_word(given, "q", "id"), **given)


def _analogy(explorer: Explorer, given: dict[str, Any]) -> Answer:
    a, b, c = (_word(given, name, f"{name}_id") for name in "abc")
    return explorer.analogy(a, b, c, **given)


def _similarity(explorer: Explorer, given: dict[str, Any]) -> Answer:
    a, b = (_word(given, name, f"{name}_id") for name in "ab")
    return explorer.similarity(a, b, **given)


def _heatmap(explorer: Explorer, given: dict[str, Any]) -> Answer:
    return explorer.heatmap([*given.get("q", ()), *given.get("id", ())])


def _word(given: dict[str, Any], word: str, row: str) -> Word:
    """The one of the two that is given, taken out of ``given``."""
    found = [given.pop(name) for name in (word, row) if name in given]
    if len(found) != 1:
        raise BadRequest(f"give one of {word} (a word) and {row} (a row's number)")
    return found[0]


def _named(method: Callable[..., Answer | Running], *needed: str) -> Callable[..., Answer | Running]:
    def ask(explorer: Explorer, given: dict[str, Any]) -> Answer | Running:
        for name in needed:
            if name not in given:
                raise BadRequest(f"{name} is missing")
        return method(explorer, **given)

    return ask


def _words(*names: str) -> dict[str, Field]:
    return {name: Field(text) for name in names} | {f"{name}_id": Field(whole) for name in names}


CALLS = {
    "table": Call(_named(Explorer.facts), {}),
    "tokens": Call(_named(Explorer.tokens), {}),
    "walk": Call(
        _named(Explorer.walk, "text"),
        {
            "text": Field(text),
            "pair": Field(text),
            "recipe": Field(text),
            "predict": Field(flag),
            "gradient": Field(flag),
        },
    ),
    "map": Call(_named(Explorer.map), _MAP),
    "clusters": Call(_named(Explorer.clusters), {"k": Field(whole, label=CLUSTERS), "seed": Field(whole)}),
    "kept": Call(_named(Explorer.kept), {**_MAP, "k": _K}),
    "neighbors": Call(
        _neighbors,
        {"q": Field(text), "id": Field(whole), "k": _K, "metric": Field(text), **_SWITCHES},
    ),
    "analogy": Call(_analogy, {**_words("a", "b", "c"), "k": _K, "method": Field(text), **_SWITCHES}),
    "similarity": Call(_similarity, {**_words("a", "b"), **_SWITCHES}),
    "heatmap": Call(_heatmap, {"q": Field(text, repeated=True), "id": Field(whole, repeated=True)}),
    "complete": Call(_named(Explorer.complete, "prefix"), {"prefix": Field(text), "n": Field(whole)}),
}


def answer(explorer: Explorer, call: Call, query: bytes) -> Answer | Running:
    """What the explorer says to a query string; ``TokenspaceError`` says why it can't."""
    check_unchanged(explorer.table)
    return call.ask(explorer, arguments(query, call.fields))
