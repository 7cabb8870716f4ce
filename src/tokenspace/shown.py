"""Tokens made safe to show: the one place that decides what a terminal or a page may receive of them."""

from __future__ import annotations


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
