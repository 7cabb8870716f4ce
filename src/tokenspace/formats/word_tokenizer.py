"""A ``tokenizer.json`` for words that come without one: each is found whole, and what is no word is dropped.

A word-level model can't drop a word: it gives [UNK], or fails. A byte-pair model without merges can: a piece
of text that is in its vocabulary is taken whole (``ignore_merges``); any other falls apart into characters,
and those that are not in the vocabulary are dropped where there is no ``unk_token``. So that none of them is,
each but the first has a mark before it, and the last one behind it; a word of one character, which is its
first and its last, is written ``a<mark>``. The mark is in no word.

A text is split into runs of letters, runs of digits, and other characters one by one. Words that this splits
(``well-known``, ``10,000``, ``New York``) are added tokens: looked for in the text before it is split, the
longest first, and taken where no letter or digit touches them.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tokenspace.errors import VocabError
from tokenspace.formats.tokens import short
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import word_level

_MARK = "</w>"
_WORDS_AT_ONCE = 1 << 14


def word_tokenizer(words: Sequence[str], path: str | os.PathLike[str]) -> str:
    """The text of a ``tokenizer.json`` in which word i has id i. A text is lower-cased if no word has a
    capital.

    ``VocabError`` names ``path`` and a word that stands at two ids: a text can't tell which is meant.

    >>> tokenizer = Tokenizer.from_json(word_tokenizer(["a", "cat", "well-fed"], "x"))
    >>> tokenizer.encode("A cat and a dog (well-fed).").ids
    array([0, 1, 0, 2])
    """
    repeated = [word for word, count in Counter(words).most_common(1) if count > 1]
    if repeated:
        first = words.index(repeated[0])
        raise VocabError(
            f"can't write {path}: token {short(repeated[0])} is at id {first:,} and at "
            f"{words.index(repeated[0], first + 1):,}; a text can't tell which is meant. Native can hold both"
        )
    described = _whole_words(words)
    split = split_words(words, described)
    described["added_tokens"] = [
        {
            "id": i,
            "content": words[i],
            "single_word": True,
            "lstrip": False,
            "rstrip": False,
            "normalized": True,
            "special": False,
        }
        for i in split
        if words[i] == words[i].strip()  # or it would be found in the gaps between other words
    ]
    ids = described["model"]["vocab"]
    for added in described["added_tokens"]:  # it has the id of the word in the model that is spelled as it is
        if len(added["content"]) == 1:
            del ids[added["content"] + described["model"]["end_of_word_suffix"]]
            ids[added["content"]] = added["id"]
    return json.dumps(described, ensure_ascii=False)


def _whole_words(words: Sequence[str]) -> dict[str, Any]:
    """The tokenizer without added tokens."""
    text = "\n".join(words)
    mark = _MARK
    while mark in text:
        mark += _MARK
    described: dict[str, Any] = json.loads(word_level("word", lowercase=text == text.lower()).to_str())
    if not unicodedata.is_normalized("NFC", text):  # they would never be found
        described["normalizer"]["normalizers"].remove({"type": "NFC"})
    described |= {"added_tokens": [], "post_processor": None, "decoder": None}
    described["model"] = {
        "type": "BPE",
        "unk_token": None,
        "continuing_subword_prefix": mark,
        "end_of_word_suffix": mark,
        "ignore_merges": True,
        "vocab": {word + mark if len(word) == 1 else word: i for i, word in enumerate(words)},
        "merges": [],
    }
    return described


def split_words(words: Sequence[str], described: dict[str, Any]) -> list[int]:
    """The ids of the words that a ``tokenizer.json`` does not give for a text which is that word alone."""
    from tokenizers import Tokenizer as Inner

    inner = Inner.from_str(json.dumps(described, ensure_ascii=False))
    found = []
    for start in range(0, len(words), _WORDS_AT_ONCE):
        some = list(words[start : start + _WORDS_AT_ONCE])
        encoded = inner.encode_batch_fast(some, add_special_tokens=False)
        found += [i for i, one in enumerate(encoded, start) if one.ids != [i]]
    return found


def tokens_of(tokenizer: Tokenizer) -> list[str]:
    """The words that ``word_tokenizer`` was given."""
    mark = getattr(tokenizer.inner.model, "end_of_word_suffix", None) or _MARK
    return [token.removesuffix(mark) for token in tokenizer.vocab]
