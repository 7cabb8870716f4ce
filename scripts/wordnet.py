"""WordNet 3.0's data files, as Debian's wordnet-base installs them (format: ``man 5 wndb``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/usr/share/wordnet")
FILES = ("noun", "verb", "adj", "adv")
_FILE_OF = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
_INSTANCE = ("@i", "~i")
_UNDER = ("~", "~i")

Key = tuple[str, str]  # file, byte offset as written


class Synset(NamedTuple):
    """A set of synonyms, what it points to, and its gloss: a definition, often with examples in quotes."""

    key: Key
    lemmas: list[str]
    pointers: list[tuple[str, Key]]
    gloss: str


def synsets() -> Iterator[Synset]:
    """Every synset, in the files' order."""
    for file in FILES:
        for line in (FOLDER / f"data.{file}").read_text("latin-1").splitlines():
            if line.startswith(" "):  # the license
                continue
            yield _parsed(file, line)


def below(lemma: str, entries: Sequence[Synset]) -> set[Key]:
    """The first synset that holds ``lemma``, and every synset under it."""
    by_key = {entry.key: entry for entry in entries}
    found = {next(entry.key for entry in entries if lemma in entry.lemmas)}
    waiting = list(found)
    while waiting:
        under = {key for symbol, key in by_key[waiting.pop()].pointers if symbol in _UNDER} - found
        found |= under
        waiting += under
    return found


def is_instance(symbol: str) -> bool:
    """Whether a pointer links a class with a single person or place."""
    return symbol in _INSTANCE


def _parsed(file: str, line: str) -> Synset:
    data, gloss = line.split("|", 1)
    fields = data.split()
    words = int(fields[3], 16)
    after = 4 + 2 * words
    pointers = []
    for n in range(int(fields[after])):
        symbol, offset, target, _ = fields[after + 1 + 4 * n : after + 5 + 4 * n]
        pointers.append((symbol, (_FILE_OF[target], offset)))
    lemmas = [_plain(word) for word in fields[4:after:2]]
    return Synset((file, fields[0]), lemmas, pointers, gloss.strip())


def _plain(word: str) -> str:
    """``galore(ip)`` -> galore, ``ice_cream`` -> ice cream"""
    return re.sub(r"\(\w+\)$", "", word).replace("_", " ")
