"""The tokens as people type them, searched while they type."""

from __future__ import annotations

import re
import unicodedata

from tokenspace.shown import shown
from tokenspace.vocab import Vocab
from tokenspace.web.answers import as_text

_ESCAPE = re.compile(
    r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}|0010[0-9a-f]{4})|([nrt])|(['\"\\]))"
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


def unquoted(text: str) -> str | None:
    r"""The token that ``shown`` writes as ``text``, in quotes; None if it writes none so.

    >>> unquoted(r"'line\nbreak'"), unquoted("' a'"), unquoted("'king'")
    ('line\nbreak', ' a', None)
    """
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return None
    token = _ESCAPE.sub(_read, text[1:-1])
    return token if shown(token) == text else None


def _read(escape: re.Match[str]) -> str:
    x, u, wide, named, itself = escape.groups()
    code = x or u or wide
    return chr(int(code, 16)) if code else _NAMED[named] if named else itself


def as_shown(vocab: Vocab, word: str) -> int | None:
    r"""The first id whose token a page shows as ``word``, where ``word`` itself is no token; else None.

    >>> vocab = Vocab(["a", " a", "'", "\n"])
    >>> as_shown(vocab, "' a'"), as_shown(vocab, "a"), as_shown(vocab, "'")
    (1, None, None)
    """
    token = unquoted(word)
    if (token is None and "\ufffd" not in word) or vocab.known(word) is not None:
        return None
    token = word if token is None else token
    return next(iter(vocab.ids(token) or (alike(vocab, token) if "\ufffd" in token else ())), None)


def alike(vocab: Vocab, token: str) -> list[int]:
    """Every id whose token a page can't tell from ``token``."""
    text = as_text(token)
    if "\ufffd" not in text:
        return vocab.ids(token)
    return [i for i, other in enumerate(vocab) if as_text(other) == text]


class Spellings:
    """Each token without its tokenizer's marks, upper and lower case alike, as are the ways in which Unicode
    can write a letter; V strings are kept.

    >>> spellings = Spellings(Vocab(["[PAD]", "king", "##ing", "King", "looking"], encoding="wordpiece"))
    >>> spellings.complete("KING"), spellings.complete("ing", n=2)
    ([1, 3, 4], [2, 1])
    """

    def __init__(self, vocab: Vocab):
        self._vocab = vocab
        self._forms = [_folded(text) for text in vocab.texts()]
        self._nameless = frozenset(vocab.placeholders().tolist())
        self._written = {
            i: _folded(written) for i, token in enumerate(vocab) if (written := shown(token)) != token
        }

    def complete(self, prefix: str, n: int = 12) -> list[int]:
        """Up to ``n`` ids: the token that is ``prefix``, then those that begin with it, then those that hold
        it; the shorter first, then the lower id. What a token that isn't printed as it is looks like (see
        ``shown``) is found, too, in its quotes or without.
        """
        known = self._vocab.known(prefix)
        exact = as_shown(self._vocab, prefix) if known is None else known.id
        sought = _folded(prefix)
        begins: list[tuple[int, int]] = []
        holds: list[tuple[int, int]] = []
        for i, form in enumerate(self._forms):
            if sought in form and i not in self._nameless:
                (begins if form.startswith(sought) else holds).append((len(form), i))
        first = () if exact is None or exact in self._nameless else (exact,)
        found = dict.fromkeys([*first, *(i for part in (begins, holds) for _, i in sorted(part))])
        for i, written in self._written.items():
            if written.startswith((sought, written[0] + sought)) and i not in self._nameless:
                found.setdefault(i)
        return list(found)[:n]


def _folded(text: str) -> str:
    """``text`` with upper and lower case alike, and the ways alike in which Unicode can write a letter."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text.casefold())
