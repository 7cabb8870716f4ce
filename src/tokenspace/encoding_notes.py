"""Changes that a tokenizer makes to a text and its tokens don't show: folded, unknown and dropped words."""

from __future__ import annotations

import re
import unicodedata

from tokenspace.tokenizer import Encoded, Tokenizer
from tokenspace.word_lookup import WordLookup

AnyTokenizer = Tokenizer | WordLookup


def unknown_words(tokenizer: AnyTokenizer, text: str, one: Encoded, segment: int = 0) -> list[str]:
    """The words of ``text`` that became the unknown token, in order; ``segment`` is 1 for a pair's second.

    >>> tokenizer = Tokenizer.train_from_iterator("the cat")
    >>> unknown_words(tokenizer, "The zebra", tokenizer.encode("The zebra"))
    ['zebra']
    """
    return [
        text[start:end]
        for i, at, (start, end) in zip(one.ids, one.segments, one.spans, strict=True)
        if i == tokenizer.unk_id and end > start and at == segment
    ]


def dropped_words(text: str, one: Encoded, segment: int = 0) -> list[str]:
    """The parts of ``text`` that no token stands for, in order. White space, control characters and accents,
    which a tokenizer may strip, are not counted.

    >>> from tokenspace.vocab import Vocab
    >>> words = WordLookup(Vocab(["the", "cat"]))
    >>> dropped_words("the black cat!", words.encode("the black cat!"))
    ['black', '!']
    """
    covered = bytearray(len(text))
    for (start, end), at, added in zip(one.spans, one.segments, one.added, strict=True):
        if at == segment and not added and end > start:
            covered[start:end] = b"\1" * (end - start)
    left = "".join(" " if there else character for character, there in zip(text, covered, strict=True))
    return [part for part in left.split() if any(unicodedata.category(c)[0] not in "CMZ" for c in part)]


def normalized_text(tokenizer: AnyTokenizer, text: str) -> str | None:
    """``text`` as it is split, if the tokenizer changes its characters first (case, accents, width), else
    None. A mark for a space is not a change. Added tokens that are matched before the change are kept.

    >>> tokenizer = Tokenizer.train_from_iterator("the cat")
    >>> normalized_text(tokenizer, "The cat"), normalized_text(tokenizer, "the cat")
    ('the cat', None)
    """
    if isinstance(tokenizer, WordLookup):
        normalized = text.lower() if tokenizer.folds_case else text
    else:
        normalized = _by_normalizer(tokenizer, text)
    return None if _plain(normalized) == _plain(text) else " ".join(normalized.replace("▁", " ").split())


def changed_words(text: str, normalized: str) -> list[tuple[str, str]]:
    """The words that normalizing changed, each once, as (before, after); empty if they don't correspond.

    >>> changed_words("The cat and The dog", "the cat and the dog")
    [('The', 'the')]
    """
    before, after = text.split(), normalized.split()
    if len(before) != len(after):
        return []
    return list(dict.fromkeys(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]))


def _by_normalizer(tokenizer: Tokenizer, text: str) -> str:
    normalizer = tokenizer.inner.normalizer
    if normalizer is None or "ByteLevel" in repr(normalizer):  # which writes bytes as other characters
        return text
    verbatim = [
        token.content for token in tokenizer.inner.get_added_tokens_decoder().values() if not token.normalized
    ]
    pieces = [text]
    if verbatim:
        longest_first = sorted(verbatim, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return "".join(
        piece if n % 2 else normalizer.normalize_str(_legible(piece)) for n, piece in enumerate(pieces)
    )


def _legible(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(text: str) -> str:
    return "".join(text.replace("▁", " ").split())
