"""WordNet 3.0's data files, as Debian's wordnet-base installs them (format: ``man 5 wndb``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/usr/share/wordnet")
FILES = ("noun", "verb", "adj", "adv")
_FILE_OF = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
_FILE_OF_CODE = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
_ANTONYM = re.compile(r" ! (\d{8}) ([nvasr]) ([0-9a-f]{4})")  # offset, part of speech, words of both synsets
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


def senses() -> dict[str, list[Key]]:
    """Word (lower-case) -> every synset that holds it, by part of speech, the most used first within one."""
    found: dict[str, list[Key]] = {}
    for file in FILES:
        for line in (FOLDER / f"index.{file}").read_text("latin-1").splitlines():
            if not line.startswith(" "):
                fields = line.split()
                offsets = fields[-int(fields[2]) :]
                found.setdefault(_plain(fields[0]), []).extend((file, offset) for offset in offsets)
    return found


def dominant_senses(senses: Mapping[str, Sequence[Key]]) -> dict[str, tuple[Key, int]]:
    """Word -> the synset that WordNet's tagged texts use it for most often, and how often they do.

    A few counts are for senses that the index no longer lists; they are passed over.
    """
    dominant: dict[str, tuple[Key, int]] = {}
    for line in (FOLDER / "cntlist.rev").read_text("latin-1").splitlines():
        name, number, count = line.split()  # hot%3:00:01:: 1 50
        lemma, code = name.split("%", 1)
        word = _plain(lemma)
        listed = [key for key in senses.get(word, ()) if key[0] == _FILE_OF_CODE[code[0]]]
        if int(number) <= len(listed) and int(count) > dominant.get(word, (None, 0))[1]:
            dominant[word] = (listed[int(number) - 1], int(count))
    return dominant


def antonyms() -> set[tuple[str, str]]:
    """Every two words that an antonym pointer links, in both orders."""
    lemmas: dict[Key, list[str]] = {}
    pointers = []
    for file in FILES:
        for line in (FOLDER / f"data.{file}").read_text("latin-1").splitlines():
            if line.startswith(" "):
                continue
            entry = _parsed(file, line)
            lemmas[entry.key] = entry.lemmas
            for offset, target, words in _ANTONYM.findall(line.split("|", 1)[0]):
                pointers.append((entry.key, (_FILE_OF[target], offset), words))
    return {
        (lemmas[a][int(words[:2], 16) - 1], lemmas[b][int(words[2:], 16) - 1]) for a, b, words in pointers
    }


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
