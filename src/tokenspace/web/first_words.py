"""The words that the page asks about, and the text that it walks, before anyone has typed one."""

from __future__ import annotations

import numpy as np

from tokenspace.errors import VocabError
from tokenspace.shapes import Array, Float
from tokenspace.shown import shown
from tokenspace.table import Table, tokenizer_of
from tokenspace.vocab import Vocab
from tokenspace.web.limits import LONGEST_WORD
from tokenspace.web.spelling import as_shown

USUAL = ("king", "queen", "man", "woman")
TEXT = "the cat sat on the mat"
_LOOKED_AT = 10_000  # rows, the first


def first_words(table: Table) -> list[str]:
    """king, queen, man and woman where the table has them all, else up to four tokens of its own as one types
    them: first words, then anything that has a direction, then anything.

    >>> rows = np.array([[1, 2], [0, 0], [3, 4]], np.float32)
    >>> first_words(Table(rows, Vocab(["+", "cat", "dog"], encoding="word")))
    ['dog', '+', 'cat']
    """
    vocab = table.vocab
    if all(vocab.known(word) for word in USUAL):
        return list(USUAL)
    nameless = frozenset(vocab.placeholders().tolist())
    found: dict[str, None] = {}
    for word, direction in ((True, True), (False, True), (False, False)):
        for i in range(min(len(table), _LOOKED_AT)):
            if i in nameless or (word and not _is_word(vocab, i)):
                continue
            if direction and not _has_direction(table.lookup([i])[0]):
                continue
            if (text := _typed(vocab, i)) is not None:
                found[text] = None
            if len(found) == len(USUAL):
                return list(found)
    return list(found) or list(USUAL)


def first_text(table: Table) -> str:
    """Return the text to walk first: ``TEXT`` if the table has a token of it, else words of its own.

    >>> first_text(Table(np.eye(2, dtype=np.float32), Vocab(["sun", "moon"])))
    'sun moon'
    """
    try:
        known = tokenizer_of(table).encode(TEXT).ids.size > 0
    except VocabError:  # pieces without their tokenizer: no text can be walked
        return TEXT
    return TEXT if known else " ".join(first_words(table))


def _is_word(vocab: Vocab, i: int) -> bool:
    text = vocab.text(i)
    return len(text) > 1 and text.isalpha() and vocab.kind(i) == "word-initial"


def _has_direction(row: Float[Array, " D"]) -> bool:
    return bool(row.any() and np.isfinite(row).all())


def _typed(vocab: Vocab, i: int) -> str | None:
    """What one types to ask about row ``i``; None if nothing does."""
    for text in (vocab.text(i), shown(vocab[i])):
        if not 0 < len(text) <= LONGEST_WORD or shown(text) != text:
            continue
        known = vocab.known(text)
        if (as_shown(vocab, text) if known is None else known.id) == i:
            return text
    return None
