"""Tokens made safe to show, and numbers: the one place that decides what a terminal or a page receives."""

from __future__ import annotations

import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_MARK = re.compile(r"""\\.|["']""", re.DOTALL)  # a quotation mark, unless a backslash stands before it
_UNSPACED = re.compile(r"\S{301,}")
_LONGEST = 1_500  # characters of a message
_LONGEST_QUOTE = 160
_SEARCHED = 131_072  # characters that are searched for quotation marks


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


def brief(message: str) -> str:
    """``message`` with control characters as escapes, and without the middle of what is too long to read.

    That is of a quoted text, of what has no space, and at last of the message itself.

    >>> brief("there is no 'king' here\\x1b[31m"), len(brief("x" * 60_000)), len(brief("x " * 60_000))
    ("there is no 'king' here\\\\x1b[31m", 281, 1501)
    """
    message = _ends(message, _SEARCHED)
    message = _CONTROL.sub(lambda found: repr(found[0])[1:-1], message)
    message = _with_short_quotes(message)
    message = _UNSPACED.sub(lambda found: _ends(found[0], 280), message)
    return _ends(message, _LONGEST)


def _with_short_quotes(message: str) -> str:
    """``message`` without the middle of long quoted texts. An apostrophe in a word quotes nothing.

    >>> len(_with_short_quotes(f"the dog's name is '{'x' * 200}', says 'it'"))
    192
    """
    parts: list[str] = []
    opened: dict[str, int] = {}  # each mark's place, until the text that it opens is closed
    done = 0
    for found in _MARK.finditer(message):
        mark, at = found[0], found.start()
        if len(mark) == 2:
            continue
        start = opened.get(mark)
        if start is not None and not _is_word(message[at + 1 : at + 2]):
            if start >= done and at - start > _LONGEST_QUOTE:
                parts += (message[done : start + 1], _ends(message[start + 1 : at], _LONGEST_QUOTE))
                done = at
            del opened[mark]
        elif start is None and not _is_word(message[at - 1 : at] if at else ""):
            opened[mark] = at
    return "".join([*parts, message[done:]])


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _ends(text: str, most: int) -> str:
    """The first three quarters and the last quarter of ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - most // 4]}…{text[-(most // 4) :]}"


def number(value: Any) -> float:
    """A float32 as the shortest decimal that reads back as the same float32.

    >>> import numpy as np
    >>> number(np.float32(0.1)), float(np.float32(0.1))
    (0.1, 0.10000000149011612)
    """
    import numpy as np  # here, since a command's help needs no numbers

    return float(str(np.float32(value)))
