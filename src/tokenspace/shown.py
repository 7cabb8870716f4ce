"""Tokens made safe to show, and numbers: the one place that decides what a terminal or a page receives."""

from __future__ import annotations

from typing import Any


def shown(token: str) -> str:
    """``token`` with what a terminal would obey, swallow or hide written as escapes.

    >>> shown("king"), shown("\\x1b[31m"), shown(" a"), shown("")
    ('king', "'\\\\x1b[31m'", "' a'", "''")
    """
    return token if token and token.isprintable() and token == token.strip() else repr(token)


def one_line(message: str) -> str:
    """``message`` on one line, with what a terminal would obey written as escapes.

    >>> one_line("there is no file \\x1b[31mred\\nhere")
    'there is no file \\\\x1b[31mred here'
    """
    joined = " ".join(message.splitlines())
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in joined)


def number(value: Any) -> float:
    """A float32 as the shortest decimal that reads back as the same float32.

    >>> import numpy as np
    >>> number(np.float32(0.1)), float(np.float32(0.1))
    (0.1, 0.10000000149011612)
    """
    import numpy as np  # here, since a command's help needs no numbers

    return float(str(np.float32(value)))
