"""One text under several tokenizers: how each splits it, and what each adds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tokenspace import formats
from tokenspace.encoding_notes import AnyTokenizer
from tokenspace.errors import TableFormatError, TokenspaceError, VocabError
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_files import MERGES_START, TOKENIZER_FILES


class Split(NamedTuple):
    """What the tokenizer called ``name`` makes of a text: its ``tokens``, of which ``added`` are the special
    tokens that it puts there itself.
    """

    name: str
    kind: str
    tokens: list[str]
    ids: list[int]
    added: list[str]


def splits(text: str, named: Mapping[str, AnyTokenizer], pair: str | None = None) -> list[Split]:
    """``text`` (with ``pair``, if there is one) split by each tokenizer, in their order.

    >>> words = Tokenizer.train_from_iterator(["the cat"])
    >>> pieces = Tokenizer.train_from_iterator(["the cat"] * 9, kind="wordpiece")
    >>> for split in splits("the cats", {"a": words, "b": pieces}):
    ...     print(split.kind, split.tokens, split.added)
    word ['the', '[UNK]'] []
    wordpiece ['[CLS]', 'the', '[UNK]', '[SEP]'] ['[CLS]', '[SEP]']
    """
    return [_split(name, tokenizer, text, pair) for name, tokenizer in named.items()]


def tokenizer_at(source: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a table (a built-in name, a file that keeps one), of a model, or by itself."""
    tokenizer = None
    if not os.fspath(source):
        return Tokenizer.load(source)  # says that none was named
    source = formats.located(source)
    if _keeps_tokenizer(_format(Path(source))):
        tokenizer = formats.load(source).tokenizer
    else:
        try:
            return Tokenizer.load(source)
        except TokenspaceError:
            if not _is_plain_table(Path(source)):
                raise
    if tokenizer is None:
        raise VocabError(f"the table {source} has no tokenizer; name one that has, or a tokenizer's file")
    return tokenizer


def _format(path: Path) -> str | None:
    try:
        return formats.sniff(path)
    except TableFormatError:
        return None


def _keeps_tokenizer(format: str | None) -> bool:
    return format in formats.WRITABLE and "tokenizer" in formats.FORMATS[format].keeps


def _is_plain_table(path: Path) -> bool:
    """Whether a file that is no tokenizer is a table of a format without one. Merges look like rows, too."""
    if path.name in TOKENIZER_FILES or _format(path) is None:
        return False
    with path.open("rb") as file:
        return file.read(len(MERGES_START)) != MERGES_START


def _split(name: str, tokenizer: AnyTokenizer, text: str, pair: str | None) -> Split:
    encoded = tokenizer.encode(text, pair)
    added = [token for token, by_it in zip(encoded.tokens, encoded.added, strict=True) if by_it]
    return Split(name, tokenizer.kind, encoded.tokens, encoded.ids.tolist(), added)
