"""Tokens made safe to show, and numbers: the one place that decides what a terminal or a page receives."""

from __future__ import annotations

import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_QUOTED = re.compile(
    r"""(?<!\w)(["'])((?:\\.|(?!\1).){161,})\1(?!\w)""", re.DOTALL
)  # no apostrophe of a word
_UNSPACED = re.compile(r"\S{301,}")
_LONGEST = 1_500  # characters of a message
_SEARCHED = 131_072  # characters that are searched for quotes: a search takes 190 times their memory


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
    message = _QUOTED.sub(lambda found: f"{found[1]}{_ends(found[2], 160)}{found[1]}", message)
    message = _UNSPACED.sub(lambda found: _ends(found[0], 280), message)
    return _ends(message, _LONGEST)


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
