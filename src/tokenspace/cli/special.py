from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenspace.cli.console import shown

if TYPE_CHECKING:
    from tokenspace.special_tokens import SpecialToken

_MOST = 12  # lines; some vocabularies reserve hundreds


def special_lines(tokens: Sequence[SpecialToken], label: str) -> list[str]:
    """A line for each special token: its id and roles, beside ``label``; of many the first, and a count."""
    from rich.cells import cell_len

    some = tokens if len(tokens) <= _MOST else tokens[: _MOST - 1]
    names = [shown(each.token) for each in some]
    margin, digits = (
        max(map(cell_len, names), default=0),
        max((len(f"{each.id:,}") for each in some), default=0),
    )
    lines = [
        f"{name}{' ' * (margin - cell_len(name))}  id {each.id:>{digits},}  {', '.join(each.roles)}".rstrip()
        for name, each in zip(names, some, strict=True)
    ]
    if len(some) < len(tokens):
        lines.append(f"… {len(tokens) - len(some):,} more; --json lists all")
    return [(label if n == 0 else " " * len(label)) + line for n, line in enumerate(lines)]
