"""What is known of how a table came to be, as a few short lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 300  # characters of a value
_MOST = 40  # lines


def facts(provenance: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each entry as a label and a line of text: lists joined, tables as ``name value`` pairs.

    >>> facts({"made_by": "tokenspace", "settings": {"dim": 100, "seed": None}, "notes": []})
    [{'label': 'made by', 'value': 'tokenspace'}, {'label': 'settings', 'value': 'dim 100'}]
    """
    lines = [(str(name).replace("_", " "), _line(value)) for name, value in provenance.items()]
    return [{"label": _cut(label, 60), "value": value} for label, value in lines if value][:_MOST]


def _line(value: Any) -> str:
    return _cut(_text(value), _LONGEST)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        parts = [(str(name).replace("_", " "), _text(each)) for name, each in list(value.items())[:_MOST]]
        return ", ".join(f"{name} {text}" for name, text in parts if text)
    if isinstance(value, (list, tuple)):
        return "; ".join(text for text in map(_text, value[:_MOST]) if text)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
