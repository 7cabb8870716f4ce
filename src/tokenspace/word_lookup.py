"""A text split into the words of a table that came without a tokenizer.

A text is read from left to right, and the longest token found there is taken. It begins and ends between two
words, or at a punctuation mark, and spans a space only where the vocabulary has such tokens ("New York").
A text is lower-cased if no token has a capital. What is no token becomes the unknown token where the
vocabulary has one, and no token at all where it has none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal

import numpy as np

from tokenspace.text import as_texts, check_text
from tokenspace.tokenizer import Encoded
from tokenspace.vocab import Vocab

UNKNOWN = ("[UNK]", "<unk>", "<UNK>", "<|unk|>")
_PADDING = ("[PAD]", "<pad>", "<PAD>", "<|pad|>")
_NO_PADDING = "(padding)"  # how a padded position is shown without a padding token
_JOINERS = "\u200c\u200d_"
_SPACE = ord(" ")
_UNICODE_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")


class WordLookup:
    """Encodes text by the tokens of ``vocab``; see above. Used as a ``Tokenizer`` is.

    >>> words = WordLookup(Vocab(["a", "cat", "sat", "New York", "well-fed"]))
    >>> words.encode("a cat in  New York, well-fed").tokens
    ['a', 'cat', 'New York', 'well-fed']
    """

    kind = "words"
    assumed: str | None = None

    def __init__(self, vocab: Vocab):
        self.vocab = vocab

    @cached_property
    def unk_id(self) -> int | None:
        """The id of the unknown token; None if there is none."""
        return self._first_of(UNKNOWN)

    @cached_property
    def pad_id(self) -> int | None:
        """The id of the padding token; None if there is none."""
        return self._first_of(_PADDING)

    def _first_of(self, names: Iterable[str]) -> int | None:
        return next((found.id for name in names if (found := self.vocab.known(name))), None)

    @cached_property
    def folds_case(self) -> bool:
        """Whether a text is lower-cased: no token has a capital, those such as [UNK] and <s> apart."""
        text = self.vocab.data.tobytes().decode("utf-8", "surrogateescape")
        if text == text.lower():
            return True
        special = set(self.vocab.special)
        return all(
            token == token.lower() or i in special or (token[:1] in "[<" and token[-1:] in "]>")
            for i, token in enumerate(self.vocab)
        )

    def encode(self, text: str, pair: str | None = None) -> Encoded:
        """One text, or two, one behind the other; nothing is added to them."""
        check_text(text)
        if pair is not None:
            check_text(pair, "pair")
        found = [(0, *one) for one in self._tokens(text)]
        found += [(1, *one) for one in self._tokens(pair or "")]
        return Encoded(
            np.array([i for _, i, _ in found], np.int64),
            [self.vocab[i] for _, i, _ in found],
            np.array([segment for segment, _, _ in found], np.int64),
            np.ones(len(found), np.int64),
            [span for _, _, span in found],
            np.zeros(len(found), np.int64),
        )

    def encode_batch(self, texts: str | Iterable[str]) -> list[Encoded]:
        """Several texts, each padded at its end to the longest."""
        encoded = [self.encode(text) for text in as_texts(texts)]
        length = max((one.ids.size for one in encoded), default=0)
        pad = _NO_PADDING if self.pad_id is None else self.vocab[self.pad_id]
        return [one.padded(length, self.pad_id or 0, pad) for one in encoded]

    def _tokens(self, text: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """(id, span) of each token, in order."""
        parts = list(_parts(text))
        n = 0
        unknown_from: int | None = None
        while n < len(parts):
            found = self._longest(text, parts, n)
            if found is None:
                start, end = parts[n]
                if self.unk_id is not None:
                    if unknown_from is None:
                        unknown_from = start
                    if n + 1 == len(parts) or parts[n + 1][0] > end or self._longest(text, parts, n + 1):
                        yield self.unk_id, (unknown_from, end)
                        unknown_from = None
                n += 1
                continue
            i, last = found
            yield i, (parts[n][0], parts[last][1])
            n = last + 1

    def _longest(self, text: str, parts: list[tuple[int, int]], n: int) -> tuple[int, int] | None:
        """The id of the longest token from part ``n`` on, and its last part; None if there is none."""
        start, last = parts[n][0], n
        while last + 1 < len(parts) and parts[last + 1][1] - start <= self._most_characters:
            if parts[last + 1][0] > parts[last][1] and not self._has_spaces:
                break
            last += 1
        for m in range(last, n - 1, -1):
            for spelling in self._spellings(" ".join(text[start : parts[m][1]].split())):
                if (known := self.vocab.known(spelling)) is not None:
                    return known.id, m
        return None

    def _spellings(self, word: str) -> list[str]:
        """The ways in which the vocabulary may write ``word``, as it stands first."""
        cases = (word, word.lower()) if self.folds_case else (word,)
        if word.isascii():
            return list(dict.fromkeys(cases))
        composed = [unicodedata.normalize(form, case) for case in cases for form in _UNICODE_FORMS]
        return list(dict.fromkeys((*cases, *composed)))

    @cached_property
    def _most_characters(self) -> int:
        return int(np.diff(self.vocab.offsets).max(initial=0))  # a character has a byte at least

    @cached_property
    def _has_spaces(self) -> bool:
        return bool((self.vocab.data == _SPACE).any())


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """The spans of the words of ``text``, and of each other character but white space."""
    start: int | None = None
    for place, character in enumerate(text):
        if character.isalnum() or character in _JOINERS or unicodedata.category(character)[0] == "M":
            start = place if start is None else start
            continue
        if start is not None:
            yield start, place
            start = None
        if not character.isspace():
            yield place, place + 1
    if start is not None:
        yield start, len(text)
