"""The built-in table's corpus, from three Debian packages: wordnet-base, bible-kjv, bible-kjv-text.

    python scripts/wordnet_corpus.py FOLDER

writes ``glosses.txt`` (each synset as a dictionary's entry), ``bible.txt`` (a verse a line), ``walks.txt``
(random walks over WordNet's pointers, written as a thesaurus's entries) and ``corpus.txt`` (all of them,
shuffled). Taxonomic groups (genera, families, …) are left out. The same packages give the same bytes: of
Python's random numbers only ``random()`` is used, which is promised to stay.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import wordnet

Item = TypeVar("Item")
SEED = 1
WALKS = 150_000
LONGEST_WALK = 12
GO_ON = 0.7  # the chance of one more step
MOVE = 0.8  # a step goes to a neighboring synset, or stays for a synonym
PART_OF_SPEECH = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
FROM_EACH_WORD = 0.7  # of the walks start from each single word in turn, the others from any lemma


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    entries = without_taxa(list(wordnet.synsets()))
    parts = {"glosses": list(glosses(entries)), "bible": list(verses()), "walks": list(walks(entries))}
    for name, lines in parts.items():
        write(folder / f"{name}.txt", lines)
    chance = random.Random(SEED)
    together = [(chance.random(), line) for lines in parts.values() for line in lines]
    write(folder / "corpus.txt", [line for _, line in sorted(together)])


def without_taxa(entries: Sequence[wordnet.Synset]) -> list[wordnet.Synset]:
    """Genera and families crowd out the animals and plants that people name."""
    taxa = wordnet.below("taxonomic group", entries)
    return [
        entry._replace(pointers=[pointer for pointer in entry.pointers if pointer[1] not in taxa])
        for entry in entries
        if entry.key not in taxa
    ]


def glosses(entries: Sequence[wordnet.Synset]) -> Iterator[str]:
    """``frank, hotdog (noun): a smooth-textured sausage; "an example".``"""
    for entry in entries:
        gloss = entry.gloss.replace("`", "'")
        yield f"{', '.join(entry.lemmas)} ({PART_OF_SPEECH[entry.key[0]]}): {gloss}."


def verses() -> Iterator[str]:
    """The King James text without its verse numbers, as the ``bible`` program prints it."""
    printed = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True, text=True)
    for line in printed.stdout.splitlines():
        place, verse = line.split(" ", 1)
        if ":" not in place:
            raise SystemExit(f"bible printed a line without a verse number: {line!r}")
        yield verse


def walks(entries: Sequence[wordnet.Synset]) -> Iterator[str]:
    """``dog, domestic dog; canine; wolf.``: a comma before a synonym, a semicolon before a neighbor.

    Links to single persons and places are left out.
    """
    chance = random.Random(SEED)
    number = {entry.key: i for i, entry in enumerate(entries)}
    neighbors = [
        [number[key] for symbol, key in entry.pointers if not wordnet.is_instance(symbol)]
        for entry in entries
    ]
    senses = defaultdict(list)
    for i, entry in enumerate(entries):
        for lemma in entry.lemmas:
            senses[lemma.lower()].append(i)
    lemmas = list(senses)
    single = [lemma for lemma in lemmas if " " not in lemma]
    for n in range(WALKS):
        start = single[n % len(single)] if chance.random() < FROM_EACH_WORD else pick(lemmas, chance)
        at = pick(senses[start], chance)
        line, steps = start, 1
        while steps < LONGEST_WALK and chance.random() < GO_ON:
            mark = ","
            if neighbors[at] and chance.random() < MOVE:
                at, mark = pick(neighbors[at], chance), ";"
            line += f"{mark} {pick(entries[at].lemmas, chance)}"
            steps += 1
        if steps > 1:
            yield f"{line}."


def pick(items: Sequence[Item], chance: random.Random) -> Item:
    return items[int(chance.random() * len(items))]


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
