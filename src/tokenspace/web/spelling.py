"""The tokens as people type them, searched while they type."""

from __future__ import annotations

from collections.abc import Iterator

from tokenspace.shown import shown
from tokenspace.vocab import CONTINUATION, WORD_START, Vocab


class Spellings:
    """Each token without its tokenizer's marks, upper and lower case alike; V strings are kept.

    >>> spellings = Spellings(Vocab(["[PAD]", "king", "##ing", "King", "looking"], encoding="wordpiece"))
    >>> spellings.complete("KING"), spellings.complete("ing", n=2)
    ([1, 3, 4], [2, 1])
    """

    def __init__(self, vocab: Vocab):
        self._forms = [form.casefold() for form in _spelled(vocab)]
        self._nameless = frozenset(vocab.placeholders().tolist())
        self._written = {
            i: written.casefold() for i, token in enumerate(vocab) if (written := shown(token)) != token
        }

    def complete(self, prefix: str, n: int = 12) -> list[int]:
        """Up to ``n`` ids: the token that is ``prefix``, then those that begin with it, then those that hold
        it; the shorter first, then the lower id. What a token that isn't printed as it is looks like (see
        ``shown``) is found, too, in its quotes or without.
        """
        sought = prefix.casefold()
        begins: list[tuple[int, int]] = []
        holds: list[tuple[int, int]] = []
        for i, form in enumerate(self._forms):
            if sought in form and i not in self._nameless:
                (begins if form.startswith(sought) else holds).append((len(form), i))
        found = dict.fromkeys(i for part in (begins, holds) for _, i in sorted(part))
        for i, written in self._written.items():
            if written.startswith((sought, written[0] + sought)) and i not in self._nameless:
                found.setdefault(i)
        return list(found)[:n]


def _spelled(vocab: Vocab) -> Iterator[str]:
    if vocab.encoding == "byte-level":
        from tokenizers import decoders

        decoder = decoders.ByteLevel()
        for token in vocab:
            yield (token if token.isascii() else decoder.decode([token])).removeprefix(" ")
        return
    mark = CONTINUATION if vocab.encoding == "wordpiece" else WORD_START.get(vocab.encoding, "")
    for token in vocab:
        yield token.removeprefix(mark) or token
